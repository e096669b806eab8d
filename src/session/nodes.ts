// The other nodes of a cluster as sessions need them: what a channel between nodes and the roster give.
// A node by itself has none of it, and nothing below is asked of it.

import type { Cancel } from "../base/index.ts";
import type { ShardNumber } from "../store/index.ts";

/** Answers what was asked; undefined where the kind is only told. */
export type NodeWordHandler = (
  from: number,
  bytes: Uint8Array,
) => Uint8Array | Promise<Uint8Array> | undefined;

export interface SessionNodes {
  /** The number of this node. */
  readonly node: number;
  /** Of this life of its directory: no other start of any node has it. */
  readonly start: string;
  /** Other nodes that are reached now. */
  peers(): readonly number[];
  /** Of a peer that is reached. */
  startOf(node: number): string | undefined;
  /** Told of each peer that is reached anew, or no more. */
  onPeersChanged(listener: (node: number, isReached: boolean) => void): Cancel;
  /** Rejects when the peer is not reached, or does not answer in time. */
  ask(node: number, kind: string, bytes: Uint8Array, timeoutMs: number): Promise<Uint8Array>;
  /** One for each kind. */
  handle(kind: string, handler: NodeWordHandler): void;
  /** Whether this node leads a state shard as far as it knows: guards decide, not this. */
  leads(shard: ShardNumber): boolean;
}
