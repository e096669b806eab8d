// The brokers of other nodes, as this one needs them. A node by itself has none.

import type { Clock } from "../../base/index.ts";
import type { LiveSubscriptions } from "../../session/index.ts";
import type { BrokerCounters } from "../counters.ts";
import type { LimitedLog } from "../limited-log.ts";
import type { LiveTrie } from "../live-subscriptions.ts";

/** Words between nodes: in order and without a gap while a peer is reached, else any may be lost. */
export interface PeerWords {
  /** Numbers of the nodes that are reached. */
  peers(): readonly number[];
  /** Told of each that is reached anew, or no more, before any word behind it. */
  onPeersChanged(listener: (node: number, isReached: boolean) => void): () => void;
  /** False: nothing was sent. */
  tell(node: number, kind: string, bytes: Uint8Array): boolean;
  /** Rejects where there is no answer. */
  ask(node: number, kind: string, bytes: Uint8Array, timeoutMs: number): Promise<Uint8Array>;
  handle(kind: string, handler: (from: number, bytes: Uint8Array) => Uint8Array | undefined): void;
}

/** What of the broker they stand on. */
export type LivePeersParts = {
  readonly trie: LiveTrie;
  readonly clock: Clock;
  readonly counters: BrokerCounters;
  readonly log: LimitedLog;
  /** Topics that belong to a broker by itself. */
  readonly isClosed: (topic: string) => boolean;
  /** `isCrowded` is over. */
  readonly onRoom: () => void;
};

/** Messages to subscribers at other nodes, beside what comes by cursors. */
export interface LivePeers {
  /** What sessions subscribe through: the other nodes are told. */
  readonly live: LiveSubscriptions;
  /** So much waits for a node that publishers must not be read. */
  readonly isCrowded: boolean;
  /** Hands over what was published in this turn: before anybody reads that it was acknowledged. */
  flush(): void;
  /** Resolves when every node that is reached knows what is subscribed now; undefined: they do. */
  settled(): Promise<void> | undefined;
  close(): void;
}
