// Writes from any node: to the leader of their shard, under a writer of this node; and, where this
// node leads, what others send.
//
// Keeps: all writes of a node to a shard go one way, in order, also where the node leads itself, so
// that a change of leaders between two of them changes nothing. What arrives is checked and never
// trusted.

import { type Cancel, type Clock, isCodedError, type Logger, toError } from "../base/index.ts";
import {
  type LogFront,
  type LogReplica,
  type MapReplica,
  type MapShard,
  type ShardFronts,
  type ShardReplica,
  storeErrors,
} from "../store/index.ts";
import {
  decodeForward,
  encodeForward,
  type ForwardMessage,
  type Verdict,
} from "./core/forward-codec.ts";
import {
  defaultForwardSettings,
  ForwardQueue,
  type ForwardSettings,
} from "./core/forward-queue.ts";
import type { ClusterCounters } from "./counters.ts";
import { ForwardedLog } from "./log-front.ts";
import { type Ask, MapFront } from "./map-front.ts";
import { ShardCalls } from "./shard-calls.ts";

/** The groups of shards, as the forwarder needs them. */
export interface ForwardPeers {
  /** The number of this node. */
  readonly node: number;
  /** The node that leads the shard as far as this one knows; 0: none. */
  leaderOf(shard: number): number;
  /** False when it was not taken. */
  send(shard: number, to: number, bytes: Uint8Array): boolean;
}

export type ForwarderParts = {
  readonly peers: ForwardPeers;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly counters: ClusterCounters;
  /** Names the writers of this process: no other has it, nor an earlier process. */
  readonly name: string;
  readonly settings?: ForwardSettings | undefined;
};

/** A shard whose replica is open here. */
type Place = {
  readonly replica: ShardReplica;
  readonly queue: ForwardQueue;
  readonly calls: ShardCalls | undefined;
};

const tickMs = 50;
/** Writers whose last asking is remembered; the longest silent goes. */
const writersMax = 10_000;

export class Forwarder implements ShardFronts {
  readonly #parts: ForwarderParts;
  readonly #settings: ForwardSettings;
  readonly #places = new Map<number, Place>();
  /** The last asking of each writer, by shard and name: a repeated frame opens nothing again. */
  readonly #asked = new Map<string, number>();
  #cancel: Cancel | undefined;
  #isClosed = false;

  constructor(parts: ForwarderParts) {
    this.#parts = parts;
    this.#settings = parts.settings ?? defaultForwardSettings;
    this.#plan();
  }

  log(replica: LogReplica): LogFront {
    const shard = replica.number;
    const { clock, name } = this.#parts;
    const send = (to: number, message: ForwardMessage): void => this.#send(shard, to, message);
    const leader = (): number => this.#parts.peers.leaderOf(shard);
    const calls = new ShardCalls({
      ...{ replica, name, clock, settings: this.#settings, leader, send },
      refused: (error) => this.#refused(error),
    });
    const ask = this.#enter(replica, calls);
    return new ForwardedLog({ replica, ask, call: (call) => calls.ask(call) });
  }

  map(replica: MapReplica): MapShard {
    return new MapFront(replica, this.#enter(replica, undefined));
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
    for (const { queue, calls } of this.#places.values()) {
      queue.close();
      calls?.close();
    }
  }

  get #nowMs(): number {
    return this.#parts.clock.elapsedMs();
  }

  #enter(replica: ShardReplica, calls: ShardCalls | undefined): Ask {
    const shard = replica.number;
    const { name, peers } = this.#parts;
    const send = (to: number, message: ForwardMessage): void => this.#send(shard, to, message);
    const place = {
      appliedUs: () => replica.appliedUs,
      awaits: (timeUs: number) => replica.whenApplied(timeUs, () => queue.land()),
    };
    const queue = new ForwardQueue({ shard, name }, send, place, this.#settings);
    queue.setLeader(peers.leaderOf(shard), this.#nowMs);
    this.#places.set(shard, { replica, queue, calls });
    return (request, done) => {
      if (this.#isClosed) return done(storeErrors.closed(), 0, 0);
      queue.setLeader(peers.leaderOf(shard), this.#nowMs);
      queue.ask(request, this.#nowMs, (error, timeUs, refusal) => {
        replica.callSafely(() => done(error, timeUs, refusal));
      });
    };
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
    const place = this.#places.get(shard);
    if (place === undefined) {
      // Its database is not open here yet, or no more: it is sent again.
      this.#parts.counters.forwardsRefused++;
      return;
    }
    const { replica, queue, calls } = place;
    switch (message.kind) {
      case "open":
        return void this.#open(replica, from, message);
      case "batch":
        return this.#take(replica, from, message);
      case "call":
        if (calls === undefined) this.#parts.counters.forwardsBroken++;
        else void calls.carryOut(from, message);
        return;
      case "returned":
        return calls?.returned(message);
      default:
        return queue.receive(message, this.#nowMs);
    }
  }

  async #open(
    replica: ShardReplica,
    from: number,
    { token, name }: ForwardMessage & { kind: "open" },
  ): Promise<void> {
    const asked = `${replica.number}/${name}`;
    if ((this.#asked.get(asked) ?? 0) >= token) return;
    this.#asked.delete(asked);
    this.#asked.set(asked, token);
    const [oldest] = this.#asked.keys();
    if (this.#asked.size > writersMax && oldest !== undefined) this.#asked.delete(oldest);
    try {
      const epoch = await replica.openWriter(name);
      this.#send(replica.number, from, { kind: "opened", token, epoch });
    } catch (error) {
      // Asked again when the time is up, here or at another leader.
      this.#refused(toError(error));
    }
  }

  #take(replica: ShardReplica, from: number, batch: ForwardMessage & { kind: "batch" }): void {
    if (!batch.requests.every(({ kind }) => replica.takes(kind))) {
      this.#parts.counters.forwardsBroken++;
      return;
    }
    const ready = replica.prepare(batch.requests);
    if (ready === undefined) return this.#decide(replica, from, batch);
    ready
      .then((end) => {
        if (!this.#isClosed) this.#decide(replica, from, batch, end);
      })
      .catch((error: unknown) => this.#refused(toError(error)));
  }

  /** Answers with what is decided, up to the first that is not. */
  #decide(
    replica: ShardReplica,
    from: number,
    { name, epoch, first, requests }: ForwardMessage & { kind: "batch" },
    end: () => void = () => undefined,
  ): void {
    const verdicts: Array<Verdict | undefined> = requests.map(() => undefined);
    let open = requests.length;
    let fenced = false;
    const answer = (): void => {
      end();
      if (this.#isClosed) return;
      const until = verdicts.indexOf(undefined);
      const decided = (until < 0 ? verdicts : verdicts.slice(0, until)) as Verdict[];
      const message = { kind: "answers", epoch, first, verdicts: decided, fenced } as const;
      this.#send(replica.number, from, message);
    };
    for (const [at, request] of requests.entries()) {
      const stamp = { name, epoch, sequence: first + at };
      const done = (error: Error | undefined, timeUs: number, refusal: number): void => {
        if (error === undefined) verdicts[at] = { timeUs, refusal };
        else this.#refused(error);
        if (isCodedError(error, "STORE_WRITER_FENCED")) fenced = true;
        if (--open === 0) answer();
      };
      try {
        replica.take(stamp, request, done);
      } catch (error) {
        done(toError(error), 0, 0);
      }
    }
  }

  #refused(error: Error): void {
    this.#parts.counters.forwardsRefused++;
    if (isCodedError(error)) return;
    this.#parts.logger.error("cluster.forward_failed", { reason: error.message });
  }

  #plan(): void {
    this.#cancel = this.#parts.clock.schedule(tickMs, () => {
      for (const [shard, { queue, calls }] of this.#places) {
        queue.setLeader(this.#parts.peers.leaderOf(shard), this.#nowMs);
        queue.tick(this.#nowMs);
        calls?.tick();
      }
      this.#plan();
    });
  }
}
