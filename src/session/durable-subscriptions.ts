// The subscriptions of one attached durable session: asked for in call order, in effect once they
// are durable. Several SUBSCRIBEs of a turn share a write.
//
// Invariants: the interest of a filter granted QoS 1 or 2 is counted before its write begins and
// until its removal is durable: by its row, and while that is on its way from here; a filter that the
// session has keeps its start; a filter granted QoS 0 has no durable interest, and starts anew with
// every connection.
// A new filter is read with from the very moment that is its start, although its write is under way:
// what matches in between is dispatched in its place, not passed over now and found by the reader
// of a later connection, behind newer messages. So a message may come before the SUBACK (3.8.4-3).
// Where other nodes write too, a filter starts behind what was acked anywhere before the SUBSCRIBE, and
// what is retained is taken for older than the subscription only behind a barrier that follows its row.

import type { Clock, CodedError } from "../base/index.ts";
import type { MapWrite, Positions, Store, SubscriberFilter } from "../store/index.ts";
import type { SubscribeResult, Subscription } from "./api.ts";
import { type BarrierParts, reachLogs, reachStates } from "./barriers.ts";
import { encodeJob, encodeSubscription, type SubscriptionRecord } from "./core/records.ts";
import { FilterBudget, type FilterLimits } from "./filter-budget.ts";
import type { Interest } from "./groups/interest.ts";
import { sharedTopicFilter } from "./groups/member.ts";
import type { SessionKeys } from "./keys.ts";
import type { RetainedJobs } from "./retained-jobs.ts";
import type { SessionCounters } from "./settings.ts";
import type { BuiltWrites, StateWriter } from "./state-writer.ts";
import { deleteKey, guarded } from "./stored-session.ts";

export type DurableSubscriptionsOptions = {
  readonly store: Store;
  readonly interest: Interest;
  readonly writer: Pick<StateWriter, "submit">;
  readonly keys: SessionKeys;
  readonly epoch: number;
  readonly limits: FilterLimits;
  readonly counters: SessionCounters;
  readonly jobs: RetainedJobs;
  /** A new filter, whose write is under way: it is read with from now on. */
  readonly asked: (record: SubscriptionRecord) => void;
  /** Comes into effect: durable now. */
  readonly added: (record: SubscriptionRecord) => void;
  /** No longer in effect, or never was. */
  readonly removed: (filter: string) => void;
  readonly clock: Clock;
  readonly isStopped: () => boolean;
  readonly stoppedError: () => CodedError;
};

type Change = {
  readonly filter: string;
  readonly before: SubscriptionRecord | undefined;
  readonly after: SubscriptionRecord | undefined;
};

const quotaExceeded = 0x97;
const unspecifiedError = 0x83;

export class DurableSubscriptions {
  readonly #options: DurableSubscriptionsOptions;
  /** As asked for: writes may be under way. */
  readonly #wanted = new Map<string, SubscriptionRecord>();
  /** In effect. */
  readonly #current = new Map<string, SubscriptionRecord>();
  /** What was asked for so far has been written, or not; where other nodes write too. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(options: DurableSubscriptionsOptions, records: readonly SubscriptionRecord[]) {
    this.#options = options;
    const tail = options.store.tail();
    for (const record of records) {
      const { subscription } = record;
      // What was published while the session was away is skipped at QoS 0.
      const start = subscription.qos === 0 ? tail : record.start;
      const known = { subscription, start };
      this.#wanted.set(subscription.filter, known);
      this.#current.set(subscription.filter, known);
    }
  }

  get(filter: string): Subscription | undefined {
    return this.#current.get(filter)?.subscription;
  }

  get size(): number {
    return this.#current.size;
  }

  current(): Iterable<SubscriptionRecord> {
    return this.#current.values();
  }

  /** What messages are read with: in effect, or asked for. */
  *read(): Iterable<SubscriptionRecord> {
    yield* this.#wanted.values();
    for (const [filter, record] of this.#current) if (!this.#wanted.has(filter)) yield record;
  }

  subscribe(subscriptions: readonly Subscription[]): Promise<readonly SubscribeResult[]> {
    if (!this.#options.store.isShared) return this.#subscribe(subscriptions);
    return this.#inTurn(async () => {
      await reachLogs(this.#barrierParts);
      return this.#subscribe(subscriptions);
    });
  }

  unsubscribe(filters: readonly string[]): Promise<readonly boolean[]> {
    if (!this.#options.store.isShared) return this.#unsubscribe(filters);
    return this.#inTurn(() => this.#unsubscribe(filters));
  }

  /** Begins when what was asked for before has been written. */
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(() => {
      if (this.#options.isStopped()) throw this.#options.stoppedError();
      return work();
    });
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  get #barrierParts(): BarrierParts {
    const { store, clock, isStopped } = this.#options;
    return { store, clock, isOver: isStopped };
  }

  #subscribe(subscriptions: readonly Subscription[]): Promise<readonly SubscribeResult[]> {
    const tail = this.#options.store.tail();
    const changes: Change[] = [];
    const jobs: MapWrite[] = [];
    const budget = new FilterBudget(this.#options.limits, this.#wanted.keys());
    const results = subscriptions.map((subscription) => {
      const { filter } = subscription;
      const before = this.#wanted.get(filter);
      if (before === undefined && !budget.take(filter)) {
        this.#options.counters.subscriptionsRefused++;
        return { subscription, reasonCode: quotaExceeded, isNew: false };
      }
      const isNew = before === undefined;
      const record = { subscription, start: before?.start ?? tail };
      changes.push(this.#want(filter, record));
      if (isNew) this.#options.asked(record);
      if (asksRetained(subscription, isNew)) {
        const job = this.#options.jobs.create(filter);
        jobs.push({ key: this.#options.keys.job(filter), value: encodeJob(job) });
      }
      return { subscription, reasonCode: subscription.qos, isNew };
    });
    return new Promise((resolve) => {
      if (changes.length === 0) {
        resolve(results);
        return;
      }
      this.#submit(changes, jobs, (error) => {
        resolve(error === undefined ? results : results.map((result) => refused(result, error)));
      });
    });
  }

  #unsubscribe(filters: readonly string[]): Promise<readonly boolean[]> {
    const changes: Change[] = [];
    const jobs: MapWrite[] = [];
    // Given up before and not yet durably: nobody may be told so before it is.
    const leaving = new Map<string, SubscriptionRecord>();
    const existed = filters.map((filter) => {
      if (!this.#wanted.has(filter)) {
        const record = this.#current.get(filter);
        if (record === undefined) return false;
        leaving.set(filter, record);
        jobs.push(deleteKey(this.#options.keys.sub(filter)));
        return false;
      }
      changes.push(this.#want(filter, undefined));
      if (this.#options.jobs.remove(filter)) jobs.push(deleteKey(this.#options.keys.job(filter)));
      return true;
    });
    return new Promise((resolve, reject) => {
      if (changes.length === 0 && jobs.length === 0) {
        resolve(existed);
        return;
      }
      this.#submit(changes, jobs, (error) => {
        if (error !== undefined) return reject(error);
        this.#forget(leaving);
        resolve(existed);
      });
    });
  }

  /** They are gone from the store, also if the first attempt to remove them had failed. */
  #forget(leaving: ReadonlyMap<string, SubscriptionRecord>): void {
    for (const [filter, record] of leaving) {
      if (this.#wanted.get(filter) === record) this.#apply([this.#want(filter, undefined)]);
    }
  }

  #want(filter: string, after: SubscriptionRecord | undefined): Change {
    const before = this.#wanted.get(filter);
    if (after === undefined) this.#wanted.delete(filter);
    else this.#wanted.set(filter, after);
    if (isLasting(after)) {
      const { interest } = this.#options;
      interest.hold(filter, after.start);
      if (!isLasting(before)) interest.join(filter, after.start);
    }
    return { filter, before, after };
  }

  #submit(
    changes: readonly Change[],
    jobs: readonly MapWrite[],
    then: (error: CodedError | undefined) => void,
  ): void {
    this.#options.writer.submit({
      build: () => this.#build(changes, jobs),
      done: (error) => {
        const { interest } = this.#options;
        for (const { filter, after } of changes) if (isLasting(after)) interest.release(filter);
        if (error !== undefined) {
          this.#undo(changes);
          then(error);
          return;
        }
        this.#apply(changes);
        this.#whenCounted(changes, () => then(undefined));
      },
    });
  }

  /**
   * What makes a shared group durable is durable before the subscription that needs it is told, and
   * what retained messages are compared with is known.
   */
  #whenCounted(changes: readonly Change[], then: () => void): void {
    const waits = changes.flatMap(({ filter }) => this.#options.interest.settled(filter) ?? []);
    if (this.#options.store.isShared) waits.push(this.#startJobs(changes));
    if (waits.length === 0) then();
    else Promise.all(waits).then(then, then);
  }

  #build(changes: readonly Change[], jobs: readonly MapWrite[]): BuiltWrites {
    const { keys, epoch } = this.#options;
    const writes = changes.map(({ filter, after }) => ({
      key: keys.sub(filter),
      value: after === undefined ? undefined : encodeSubscription(after),
    }));
    return guarded(keys, epoch, [...writes, ...jobs]);
  }

  #apply(changes: readonly Change[]): void {
    const { interest, store, added, removed } = this.#options;
    for (const { filter, before, after } of changes) {
      if (isLasting(before) && !isLasting(after)) interest.leave(filter);
      if (after === undefined) {
        this.#current.delete(filter);
        // Asked for again meanwhile: it is the new one that is read with.
        if (!this.#wanted.has(filter)) removed(filter);
      } else {
        this.#current.set(filter, after);
        added(after);
      }
    }
    if (!store.isShared) this.#noteStarts(changes);
  }

  async #startJobs(changes: readonly Change[]): Promise<void> {
    const { jobs } = this.#options;
    if (!changes.some(({ filter, after }) => after !== undefined && jobs.has(filter))) return;
    await Promise.all([reachStates(this.#barrierParts), reachLogs(this.#barrierParts)]);
    this.#noteStarts(changes);
  }

  /** Everything that is retained from now on comes live. */
  #noteStarts(changes: readonly Change[]): void {
    const { jobs, store } = this.#options;
    const start = this.#stateTail();
    const tail = store.tail();
    for (const { filter, after } of changes) {
      if (after !== undefined) jobs.subscribed(filter, start, tail);
    }
  }

  /** Last change first, so that each finds what it replaced. */
  #undo(changes: readonly Change[]): void {
    for (const { filter, before, after } of [...changes].reverse()) {
      // A later change builds on this one and on its interest: it stays counted.
      if (this.#wanted.get(filter) !== after) continue;
      if (isLasting(after) && !isLasting(before)) this.#options.interest.leave(filter);
      if (before === undefined) {
        this.#wanted.delete(filter);
        this.#options.removed(filter);
      } else this.#wanted.set(filter, before);
      if (after !== undefined) this.#options.jobs.remove(filter);
    }
  }

  #stateTail(): Positions {
    const shards = this.#options.store.stateShards;
    return new Map(shards.map((shard) => [shard.number, shard.appliedUs]));
  }
}

/** Retain Handling (3.3.1-9 to 3.3.1-11). Groups get no retained messages. */
export function asksRetained(subscription: Subscription, isNew: boolean): boolean {
  if (sharedTopicFilter(subscription.filter) !== undefined) return false;
  return subscription.retainHandling === 0 || (subscription.retainHandling === 1 && isNew);
}

function isLasting(record: SubscriptionRecord | undefined): record is SubscriptionRecord {
  return record !== undefined && record.subscription.qos > 0;
}

function refused(result: SubscribeResult, error: CodedError): SubscribeResult {
  if (result.reasonCode >= 0x80) return result;
  const reasonCode = error.kind === "limit" ? quotaExceeded : unspecifiedError;
  return { ...result, reasonCode };
}

/** As the store reads with it. REQUIRES: not a shared one. */
export function readerOf({
  subscription,
  start,
}: SubscriptionRecord): SubscriberFilter<Subscription> {
  const { filter, qos } = subscription;
  return { filter, start, durable: qos > 0, context: subscription };
}
