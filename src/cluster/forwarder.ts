// Appends from any node: to the leader of their shard, under a writer of this node; and, where this
// node leads, what others send.
//
// Keeps: all appends of a node to a shard go one way, in order, also where the node leads itself, so
// that a change of leaders between two of them changes nothing. What arrives is checked and never
// trusted.

import { type Cancel, type Clock, isCodedError, type Logger, toError } from "../base/index.ts";
import { type AppendDone, type AppendRequest, type Store, storeErrors } from "../store/index.ts";
import { decodeForward, encodeForward, type ForwardMessage } from "./core/forward-codec.ts";
import {
  defaultForwardSettings,
  ForwardQueue,
  type ForwardSettings,
} from "./core/forward-queue.ts";
import type { ClusterCounters } from "./counters.ts";

/** The groups of shards, as the forwarder needs them. */
export interface ForwardPeers {
  /** The number of this node. */
  readonly node: number;
  /** The node that leads the shard as far as this one knows; 0: none. */
  leaderOf(shard: number): number;
  /** False when it was not taken. */
  send(shard: number, to: number, bytes: Uint8Array): boolean;
}

/** What is appended under a stamp; the store of this node, where it leads. */
export type ForwardStore = Pick<Store, "append" | "openWriter" | "shardOf">;

export type ForwarderParts = {
  readonly store: ForwardStore;
  readonly peers: ForwardPeers;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly counters: ClusterCounters;
  /** Names the writers of this process: no other has it, nor an earlier process. */
  readonly name: string;
  /** Largest payload of an entry. */
  readonly payloadBytesMax: number;
  readonly settings?: ForwardSettings;
};

const tickMs = 50;
/** Writers whose last asking is remembered; the longest silent goes. */
const writersMax = 10_000;
/** An item has a stamp and numbers beside its request. */
const itemOverheadBytes = 1_024;

export class Forwarder {
  readonly #parts: ForwarderParts;
  readonly #queues = new Map<number, ForwardQueue>();
  /** The last asking of each writer, by shard and name: a repeated frame opens nothing again. */
  readonly #asked = new Map<string, number>();
  #cancel: Cancel | undefined;
  #isClosed = false;

  constructor(parts: ForwarderParts) {
    this.#parts = parts;
    this.#plan();
  }

  /**
   * Like `Store.append`, at any node. REQUIRES: neither evidence nor a writer's stamp.
   * `done` hears STORE_FATE_UNKNOWN where the fate is open after the longest wait.
   */
  append(request: AppendRequest, done: AppendDone): void {
    const { store, payloadBytesMax } = this.#parts;
    if (this.#isClosed) return done(storeErrors.closed(), undefined);
    const sizeBytes = request.frame.length + 9 * request.topic.length + itemOverheadBytes;
    if (sizeBytes > payloadBytesMax) {
      return done(storeErrors.entryTooLarge({ sizeBytes, limitBytes: payloadBytesMax }), undefined);
    }
    const { evidence: _evidence, writer: _writer, ...plain } = request;
    const shard = store.shardOf(request.topic, request.publisher);
    this.#queue(shard).append(plain, this.#nowMs, done);
  }

  /** A message about a shard, from a member of its group. */
  receive(shard: number, from: number, bytes: Uint8Array): void {
    if (this.#isClosed) return;
    const message = decodeForward(bytes);
    if (message === undefined) this.#parts.counters.forwardsBroken++;
    else this.#handle(shard, from, message);
  }

  close(): void {
    this.#isClosed = true;
    this.#cancel?.();
    for (const queue of this.#queues.values()) queue.close();
  }

  get #nowMs(): number {
    return this.#parts.clock.elapsedMs();
  }

  #queue(shard: number): ForwardQueue {
    const known = this.#queues.get(shard);
    if (known !== undefined) return known;
    const { settings = defaultForwardSettings, name, peers } = this.#parts;
    const send = (to: number, message: ForwardMessage): void => this.#send(shard, to, message);
    const queue = new ForwardQueue(shard, name, send, settings);
    queue.setLeader(peers.leaderOf(shard), this.#nowMs);
    this.#queues.set(shard, queue);
    return queue;
  }

  #send(shard: number, to: number, message: ForwardMessage): void {
    const { peers, counters, clock } = this.#parts;
    if (message.kind === "batch") {
      counters.forwardBatches++;
      counters.forwardRequests += message.requests.length;
    }
    // To itself as well in a later turn, as everybody else hears it.
    if (to === peers.node) clock.soon(() => this.#receiveOwn(shard, message));
    else peers.send(shard, to, encodeForward(message));
  }

  #receiveOwn(shard: number, message: ForwardMessage): void {
    if (!this.#isClosed) this.#handle(shard, this.#parts.peers.node, message);
  }

  #handle(shard: number, from: number, message: ForwardMessage): void {
    if (message.kind === "open") void this.#open(shard, from, message);
    else if (message.kind === "batch") this.#append(shard, from, message);
    else this.#queues.get(shard)?.receive(message, this.#nowMs);
  }

  async #open(
    shard: number,
    from: number,
    { token, name, topic, publisher }: ForwardMessage & { kind: "open" },
  ): Promise<void> {
    const { store, counters } = this.#parts;
    const asked = `${shard}/${name}`;
    if ((this.#asked.get(asked) ?? 0) >= token) return;
    if (store.shardOf(topic, publisher) !== shard) {
      counters.forwardsBroken++;
      return;
    }
    this.#asked.delete(asked);
    this.#asked.set(asked, token);
    const [oldest] = this.#asked.keys();
    if (this.#asked.size > writersMax && oldest !== undefined) this.#asked.delete(oldest);
    try {
      const epoch = await store.openWriter(name, publisher, topic);
      this.#send(shard, from, { kind: "opened", token, epoch });
    } catch (error) {
      // Asked again when the time is up, here or at another leader.
      this.#refused(toError(error));
    }
  }

  /** Answers with what is stored, up to the first that is not. */
  #append(shard: number, from: number, batch: ForwardMessage & { kind: "batch" }): void {
    const { name, epoch, first, requests } = batch;
    const { store, counters } = this.#parts;
    // The databases of the two nodes may differ for a while: then it is sent again.
    if (requests.some(({ topic, publisher }) => store.shardOf(topic, publisher) !== shard)) {
      counters.forwardsBroken++;
      return;
    }
    const times: Array<number | undefined> = requests.map(() => undefined);
    let open = requests.length;
    let fenced = false;
    const answer = (): void => {
      const until = times.indexOf(undefined);
      const timesUs = (until < 0 ? times : times.slice(0, until)) as number[];
      this.#send(shard, from, { kind: "answers", epoch, first, timesUs, fenced });
    };
    for (const [at, request] of requests.entries()) {
      const writer = { name, epoch, sequence: first + at };
      store.append({ ...request, evidence: undefined, writer }, (error, outcome) => {
        if (outcome?.kind === "stored") times[at] = outcome.timeUs;
        if (error !== undefined) this.#refused(error);
        if (isCodedError(error, "STORE_WRITER_FENCED")) fenced = true;
        if (--open === 0 && !this.#isClosed) answer();
      });
    }
  }

  #refused(error: Error): void {
    this.#parts.counters.forwardsRefused++;
    if (isCodedError(error)) return;
    this.#parts.logger.error("cluster.forward_failed", { reason: error.message });
  }

  #plan(): void {
    this.#cancel = this.#parts.clock.schedule(tickMs, () => {
      for (const [shard, queue] of this.#queues) {
        queue.setLeader(this.#parts.peers.leaderOf(shard), this.#nowMs);
        queue.tick(this.#nowMs);
      }
      this.#plan();
    });
  }
}
