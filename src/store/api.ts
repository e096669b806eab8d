// What the store gives to the floors above: appends for publishes, transactions on map databases,
// durable interest, and subscribers that are pushed TTVs in commit order.
//
// All callbacks run synchronously at commit (after the log's fdatasync and the apply), in the log's
// order. Positions are commit times: position p of a shard means "everything with time <= p is
// done". A shard is named by its log number (`ShardNumber`), unique in a data directory for ever.

import type { Cancel, CodedError } from "../base/index.ts";

export type ShardNumber = number;

/** Commit times by shard; a shard that is absent counts as position 0. */
export type Positions = ReadonlyMap<ShardNumber, number>;

// ---------------------------------------------------------------- TTVs

/** What `frame` holds: a bare value, or a whole PUBLISH packet of MQTT 3.1.1 or 5. */
export type TtvForm = "raw" | "v4" | "v5";

/** A topic-time-value as stored. Byte fields are views: copy what must outlive the call. */
export type Ttv = {
  readonly topic: string;
  /** Commit time, unique and growing within a shard. */
  readonly timeUs: number;
  /** Client id of the publisher, "" for the broker itself. */
  readonly publisher: string;
  readonly form: TtvForm;
  readonly qos: 0 | 1 | 2;
  readonly retain: boolean;
  /** Absolute expiry deadline in wall microseconds; 0 = never. */
  readonly expiryUs: number;
  /** Where the frame holds its four bytes of Message Expiry Interval; 0 = nowhere. */
  readonly expiryOffset: number;
  /** Raw value, or PUBLISH packet with DUP clear and the packet id bytes as a slot. */
  readonly frame: Buffer;
};

/** Where a stored TTV lives: enough to read it again after a restart. */
export type TtvRef = {
  readonly shard: ShardNumber;
  readonly generation: number;
  readonly stream: number;
  readonly timeUs: number;
};

// ---------------------------------------------------------------- appending

/** Identity of a durable publisher, for exactly-once at QoS 2. */
export type PublisherClaim = {
  /** Commit time of the session's creation. */
  readonly incarnation: number;
  /** Commit time of the session's last claim: appends of an older owner are refused. */
  readonly ownerEpoch: number;
};

export type AppendRequest = {
  readonly topic: string;
  readonly publisher: string;
  readonly form: TtvForm;
  readonly qos: 0 | 1 | 2;
  readonly retain: boolean;
  readonly expiryUs: number;
  readonly expiryOffset: number;
  /** Belongs to the store until `done`. */
  readonly frame: Uint8Array;
  /** False: nobody durable wants the body; only the evidence is written. */
  readonly keep: boolean;
  /** For QoS 2 publishes of durable sessions: recorded in the same entry as the message. */
  readonly evidence:
    | (PublisherClaim & {
        readonly packetId: number;
        /** Set by the store: the body belongs to another database than this evidence. */
        readonly routed?: boolean;
      })
    | undefined;
  /** Makes a repeat of the same sequence an answer instead of a second TTV. */
  readonly writer?: WriterStamp;
};

/**
 * Appends of one publisher that differ in topic and bytes alone: kept, never expiring, without RETAIN
 * and evidence. Belongs to the store until it has been told of the last of them.
 */
export type AppendRun = {
  readonly publisher: string;
  readonly form: TtvForm;
  readonly qos: 0 | 1 | 2;
  /** One for each. */
  readonly topics: readonly string[];
  /** Their frames back to back: that of the nth goes from `starts[n]` to `starts[n + 1]`. */
  readonly bytes: Uint8Array;
  readonly starts: Uint32Array | readonly number[];
};

/** `count` appends of a run, from that at `from` on. */
export type AppendRunSpan = {
  readonly from: number;
  readonly count: number;
  /** Commit time of the first; those of the others follow without a gap. 0 with an error. */
  readonly timeUs: number;
};

/** Runs once or more: together the spans are the run, those of a shard in their order. */
export type AppendRunDone = (error: CodedError | undefined, span: AppendRunSpan) => void;

/** One append of a named writer, opened with `Store.openWriter`. */
export type WriterStamp = {
  readonly name: string;
  readonly epoch: number;
  /** From 1, without gaps. */
  readonly sequence: number;
};

/**
 * - `stored`: durable and applied under this commit time.
 * - `repeat`: the evidence shows that this packet id was taken already; nothing was written now,
 *   and what was written then is durable.
 */
export type AppendOutcome =
  | { readonly kind: "stored"; readonly timeUs: number }
  | { readonly kind: "repeat" };

export type AppendDone = (
  error: CodedError | undefined,
  outcome: AppendOutcome | undefined,
) => void;

/** QoS 2 evidence of one publisher. Open before the first evidence append of a connection. */
export interface EvidenceFace {
  /** Loads what is known of this incarnation and refuses older owners from now on. */
  open(publisher: string, claim: PublisherClaim): Promise<void>;
  /** Packet ids taken and not released, sorted. `open` must have resolved. */
  list(publisher: string, claim: PublisherClaim): number[];
  /** Removes the evidence of one id; durable at `done`. Releasing an unknown id is no error. */
  release(
    publisher: string,
    claim: PublisherClaim,
    packetId: number,
    done: (error: CodedError | undefined, known: boolean) => void,
  ): void;
  /** Forgets the publisher in memory (its connection has closed); disk is left alone. */
  close(publisher: string, claim: PublisherClaim): void;
  /** The incarnation has ended: removes all of its evidence. Resolves when durable. */
  end(publisher: string, incarnation: number): Promise<void>;
}

// ---------------------------------------------------------------- map databases

export type MapEntry = {
  readonly key: string;
  /** Commit time of the write: the version. */
  readonly timeUs: number;
  readonly value: Buffer;
};

/** An absolute write. `value` undefined deletes. */
export type MapWrite = { readonly key: string; readonly value: Uint8Array | undefined };

/** Must hold when the writes are decided; `timeUs` undefined = the key is absent. */
export type MapGuard = { readonly key: string; readonly timeUs: number | undefined };

/** Is told of rows as they are applied here, whoever has written them. */
export interface MapWatcher {
  /** Within the apply, in the order of the log; `value` undefined: deleted. */
  applied(key: string, value: Buffer | undefined): void;
  /** The rows are those of another replica now; barriers wait for what is returned. */
  replaced(): Promise<void> | undefined;
}

/** Reads of a transaction: each is remembered and checked for conflicts at commit. */
export interface MapTransaction {
  get(key: string): Promise<MapEntry | undefined>;
  /** Entries whose key begins with `prefix`, in key order. */
  list(prefix: string, countMax: number): Promise<MapEntry[]>;
  put(key: string, value: Uint8Array): void;
  delete(key: string): void;
  /** Fails the transaction with STORE_PRECONDITION_FAILED when it does not hold at commit. */
  assertPresent(key: string): void;
  assertAbsent(key: string): void;
}

/**
 * One shard of a map database. Keys are strings of levels joined by "/" (at most 64 KiB as UTF-8,
 * no U+0000); they sort level by level. Escape foreign text with `escapeLevel`.
 */
export interface MapShard {
  readonly number: ShardNumber;
  /** Commit time of the last applied write. */
  readonly appliedUs: number;
  get(key: string): Promise<MapEntry | undefined>;
  /** Entries in key order whose key begins with `prefix`, after `afterKey` when given. */
  list(prefix: string, options: { afterKey?: string; countMax: number }): Promise<MapEntry[]>;
  /**
   * Entries under `prefix` whose remaining levels match an MQTT topic filter, in key order.
   * Skips from level to level: keys read stay near keys returned (`keysRead`).
   */
  match(
    prefix: string,
    filter: string,
    options: { afterKey?: string; countMax: number },
  ): Promise<{ entries: MapEntry[]; nextAfterKey: string | undefined; keysRead: number }>;
  /**
   * Blind writes with guards, decided in call order and applied as one entry. `done` gets the
   * commit time, or STORE_GUARD_FAILED when a guard does not hold.
   */
  write(
    writes: readonly MapWrite[],
    guards: readonly MapGuard[],
    done: (error: CodedError | undefined, timeUs: number) => void,
  ): void;
  /** Optimistic transaction; runs `body` again on a conflict, at most 8 times. */
  transact<T>(body: (tx: MapTransaction) => Promise<T>): Promise<{ timeUs: number; value: T }>;
  /** Tells of rows under `prefix` from now on; what is there already has to be listed. */
  watch(prefix: string, watcher: MapWatcher): Cancel;
  /**
   * Resolves when all that was acked before the call, at any node, is applied here and known to those
   * who watch. Undefined: nobody else writes here. Rejects where no quorum answers in some seconds.
   */
  barrier(): Promise<void> | undefined;
}

// ---------------------------------------------------------------- interest and subscribers

/** A filter of a subscriber, with what the subscriber wants to know when it matched. */
export type SubscriberFilter<T = unknown> = {
  readonly filter: string;
  /** First commit time of interest, exclusive, by shard (absent = 0). */
  readonly start: Positions;
  /** Keeps messages from being dropped as unwanted; false for subscriptions granted QoS 0. */
  readonly durable: boolean;
  /** Given back with each match. */
  readonly context: T;
};

/**
 * A TTV on its way to subscribers: one object for all of them. Valid during the call, and what keeps it
 * copies it field by field: one that comes from a slab looks each up when it is asked, so a spread
 * (`{ ...ttv }`) has none of them.
 */
export type DeliverableTtv = Ttv & { readonly ref: TtvRef };

/**
 * TTVs of one shard and stream that follow each other for a reader: of one form, QoS and retain flag,
 * none of them expires, and the same filters match them all. Valid during the call.
 */
export interface TtvRun {
  readonly kind: "stored";
  readonly count: number;
  readonly form: TtvForm;
  readonly qos: 0 | 1 | 2;
  readonly retain: boolean;
  /** Where they stand, but for their times. */
  readonly ref: Omit<TtvRef, "timeUs">;
  /** Frames back to back, those of the run among them; views, never to be written to. */
  readonly frames: Buffer;
  /** Distinct topics where the run comes from; ids are below it. */
  readonly topicCount: number;
  timeUs(index: number): number;
  /** In `frames`; for `count` the end of the last one. */
  frameStart(index: number): number;
  frameBytes(index: number): number;
  topicId(index: number): number;
  topic(index: number): string;
}

export interface SubscriberPort<T = unknown> {
  /**
   * The next TTV of a shard in time order that matches at least one filter past its start.
   * True = taken, the shard's position is its time now. False = no room: it is offered again
   * after `wake()`. Called synchronously; must not call back into the subscriber.
   */
  offer(ttv: DeliverableTtv, matches: readonly T[]): boolean;
  /**
   * Several at once, for ports that take them. Returns how many were taken, from the first on: the
   * others are offered one by one.
   */
  offerRun?(run: TtvRun, matches: readonly T[]): number;
  /** The position of a shard moved past TTVs that did not match. Cheap; called rarely. */
  moved(shard: ShardNumber, positionUs: number): void;
  /** Retention or damage removed TTVs before this subscriber got them. */
  missed(report: MissedReport): void;
  /** Everything of a shard that matches was taken: from here on it comes as it commits. */
  reachedTail?(shard: ShardNumber): void;
}

export type MissedReport = {
  readonly shard: ShardNumber;
  readonly fromUs: number;
  readonly toUs: number;
  readonly count: number;
  /** True when `count` is only an upper bound. */
  readonly estimated: boolean;
  readonly reason: "expired" | "damaged" | "restored";
};

/** A reader of all log shards: in the realtime pool where it is at the tail, else catching up. */
export interface Subscriber<T = unknown> {
  /** Position by shard: everything matching at or below was taken. */
  position(shard: ShardNumber): number;
  positions(): Map<ShardNumber, number>;
  /** True when nothing that matches is left to offer on any shard. */
  readonly atTail: boolean;
  /** Room again: offers resume, round-robin over the shards. */
  wake(): void;
  /** Adds a filter or replaces the one with the same text (its start is kept by the caller). */
  setFilter(filter: SubscriberFilter<T>): void;
  removeFilter(filter: string): void;
  close(): void;
}

export type SubscriberOptions<T> = {
  readonly filters: readonly SubscriberFilter<T>[];
  readonly positions: Positions;
  readonly port: SubscriberPort<T>;
};

/** Filters that make a message worth keeping; counted by filter text, without sessions. */
export interface InterestFace {
  /** True when somebody durable wants this topic. */
  wants(topic: string): boolean;
  /**
   * Counts one durable subscription of `filter` that wants what is newer than `start`. At start-up
   * called for every stored subscription before `Store.start`, so that replay sees the filters.
   */
  add(filter: string, start: Positions): void;
  remove(filter: string): void;
  /** Time of the last TTV that matched, by shard; undefined when it has to be scanned for. */
  lastMatchUs(filter: string, shard: ShardNumber): number | undefined;
  /**
   * Whether something that matched after `afterUs` may still wait, not expired at `nowUs`. False is
   * certain; undefined when it has to be scanned for.
   */
  mayWait(
    filter: string,
    shard: ShardNumber,
    when: { readonly afterUs: number; readonly nowUs: number },
  ): boolean | undefined;
  /** Of a filter that is counted, for as long as it is: what `anyWaits` judges by. */
  timesOf(filter: string): MatchTimes | undefined;
  /**
   * `mayWait` of any filter on any shard, for readers and filters in very great numbers: nothing is
   * looked up for a filter, and the positions once. An unknown filter has to be scanned for: true.
   */
  anyWaits(filters: Iterable<MatchTimes | undefined>, after: Positions, nowUs: number): boolean;
}

/** A filter that is counted: when it matched last, kept up to date for as long as it is counted. */
export type MatchTimes = { readonly filter: { readonly text: string } };

// ---------------------------------------------------------------- the store

export interface Store {
  /** Shards of all log databases, in order of their numbers. */
  readonly logShards: readonly ShardNumber[];
  /** The map database `state`, by owner key (client id, topic, group). */
  state(ownerKey: string): MapShard;
  readonly stateShards: readonly MapShard[];
  readonly interest: InterestFace;
  readonly evidence: EvidenceFace;

  /** Where an append of this topic and publisher goes. */
  shardOf(topic: string, publisher: string): ShardNumber;
  /** Routes by topic to a database and by publisher to a shard. `done` in commit order. */
  append(request: AppendRequest, done: AppendDone): void;
  /**
   * Opens a writer on the shard of `publisher`; its epoch refuses whoever opened it before. `topic`
   * is what it appends to, where that may be routed to another database than `messages`.
   */
  openWriter(name: string, publisher: string, topic?: string): Promise<number>;
  /** Commit time of what was appended under this stamp; undefined when it was not. */
  writerResult(stamp: WriterStamp, publisher: string, topic?: string): number | undefined;
  /** Forgets a writer that appends nothing more. Resolves when durable. */
  closeWriter(name: string, publisher: string, topic?: string): Promise<void>;
  /** Why appends would not be taken now: full disk, quota, write buffer at its brim, failure. */
  readonly refusal: CodedError | undefined;
  /** The same for what is published to this topic: databases may have quotas of their own. */
  refusalOf(topic: string): CodedError | undefined;
  /**
   * Calls back once when `refusal`, or `refusalOf` the topic, has become undefined, unless it is
   * cancelled before.
   */
  onceWritable(listener: () => void, topic?: string): Cancel;
  /** Applied commit time of every log shard: where a new filter starts. */
  tail(): Map<ShardNumber, number>;
  /** Other nodes write as well: what is not applied here may have been acked there. */
  readonly isShared: boolean;
  /** As that of a map shard, for any shard. @throws STORE_SHARD_NOT_FOUND. */
  barrier(shard: ShardNumber): Promise<void> | undefined;

  /** Offers begin in a later turn of the event loop, without a `wake`. */
  subscribe<T>(options: SubscriberOptions<T>): Subscriber<T>;
  /** TTVs by reference, undefined where the body is gone. Order of the input. */
  fetch(refs: readonly TtvRef[]): Promise<Array<Ttv | undefined>>;

  /** Ends the current generation of every shard of a database (default `messages`). */
  rotate(database?: string): Promise<void>;
  /** Drops sealed generations that end at or before `untilUs`. */
  dropUntil(untilUs: number, database?: string): Promise<void>;
  /** Brings every dirty shard's checkpoint up to now. */
  checkpoint(): Promise<void>;
  /** Begins to serve: replays the log over all log shards. Interest must have been added before. */
  start(): Promise<void>;
  close(): Promise<void>;
}
