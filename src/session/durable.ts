// A durable session while a connection is attached to it: takes subscriptions and acks, and says what
// of its state has changed. What comes from the store goes through its dispatch (dispatch.ts). Nothing
// of it outlives the connection but its records.
//
// Invariants
// - Cursor and in-flight records are collected into one write, puts of in-flight records first and
//   deletes last, so that a write cut in parts loses and repeats nothing: a record above the stored
//   cursor is recognised at resume.
// - After `stop` nothing is sent and nothing is collected; the closing write takes the exact state.

import { type CodedError, isCodedError } from "../base/index.ts";
import type { MapWrite, Positions, PublisherClaim, SubscriberFilter, Ttv } from "../store/index.ts";
import type {
  DetachCause,
  LiveTarget,
  Session,
  SessionLink,
  SubscribeResult,
  Subscription,
  Will,
} from "./api.ts";
import type { Checkpointed, Checkpointer } from "./checkpointer.ts";
import type { SessionContext } from "./context.ts";
import { chooseDelivery } from "./core/choose.ts";
import { type CollectedChanges, entryOf } from "./core/in-flight.ts";
import type { Outbound } from "./core/outbound.ts";
import {
  type ClaimRecord,
  encodeCursor,
  encodeJob,
  type IdsRecord,
  type SubscriptionRecord,
} from "./core/records.ts";
import type { Reservation } from "./core/reservation.ts";
import { Dispatch } from "./dispatch.ts";
import { DurableSubscriptions, readerOf } from "./durable-subscriptions.ts";
import { sessionErrors } from "./errors.ts";
import { filterLimits } from "./filter-budget.ts";
import { interestOf } from "./groups/interest.ts";
import { SharedMember, sharedTopicFilter } from "./groups/member.ts";
import type { ClosedState, ConnectedState } from "./inspect/table.ts";
import type { SessionKeys } from "./keys.ts";
import { Resends } from "./resends.ts";
import type { CollectedJobs, RetainedJobs } from "./retained-jobs.ts";
import { createJobs, createOutbound, sendQos0 } from "./sending.ts";
import type { BuiltWrites, StateOperation } from "./state-writer.ts";
import { changeWrites, guarded, type StoredSession } from "./stored-session.ts";

/** What a claim has made of the stored session. */
export type ClaimedSession = {
  readonly stored: StoredSession;
  readonly expiryS: number;
  readonly will: Will | undefined;
  /** The reservation that was written with the claim. */
  readonly reservation: Reservation;
};

const serverTakenOver = 0x8e;

export type DetachDurable = (session: DurableSession, cause: DetachCause) => Promise<void>;

type Settle = (error: CodedError | undefined) => void;

export class DurableSession implements Session, LiveTarget, Checkpointed, ConnectedState {
  readonly clientId: string;
  readonly durable = true;
  readonly takes = "unstored";
  readonly claim: PublisherClaim;
  readonly expiryS: number;
  readonly user: string | undefined;
  readonly will: Will | undefined;
  readonly #detach: DetachDurable;
  readonly #context: SessionContext;
  readonly #checkpointer: Checkpointer;
  readonly #stored: StoredSession;
  readonly #link: SessionLink;
  readonly #reservation: Reservation;
  readonly #outbound: Outbound;
  readonly #resends: Resends;
  readonly #jobs: RetainedJobs;
  readonly #subscriptions: DurableSubscriptions;
  readonly #shared: SharedMember;
  readonly #dispatch: Dispatch;
  #opened = false;
  #stopped = false;

  constructor(
    context: SessionContext,
    claimed: ClaimedSession,
    link: SessionLink,
    detach: DetachDurable,
  ) {
    const { stored } = claimed;
    this.#context = context;
    this.#stored = stored;
    this.#link = link;
    this.#detach = detach;
    this.clientId = stored.claim.clientId;
    this.user = stored.claim.user;
    this.expiryS = claimed.expiryS;
    this.will = claimed.will;
    this.claim = { incarnation: stored.incarnation, ownerEpoch: stored.epoch };
    this.#checkpointer = context.checkpointer(context.store.state(this.clientId));
    this.#reservation = claimed.reservation;
    const host = {
      link,
      durable: true,
      isStopped: () => this.#stopped,
      changed: (urgent: boolean) => this.#changed(urgent),
    };
    this.#outbound = createOutbound(context, host, this.#reservation);
    this.#shared = new SharedMember({
      ...{ clientId: this.clientId, durable: true, link, outbound: this.#outbound },
      mayTake: () => this.#opened && !this.#stopped,
      took: () => this.#dispatch.renewIfWanted(),
      pump: () => this.#dispatch.pump(),
    });
    const ready = (): void => this.#dispatch.pump();
    this.#resends = new Resends(context, {
      ...{ clientId: this.clientId, outbound: this.#outbound, ready },
    });
    this.#jobs = createJobs(context, host, {
      subscription: (filter) => this.#subscriptions.get(filter),
      send: (message, subscription, dup) => this.#dispatch.retained(message, subscription, dup),
      ready,
    });
    const parts = {
      ...{ clientId: this.clientId, outbound: this.#outbound, reservation: this.#reservation },
      ...{ resends: this.#resends, jobs: this.#jobs },
      filters: () => this.#filters(),
      freed: () => this.#shared.freed(),
      lost: (count: number) => link.lost?.(count),
      changed: (urgent: boolean) => this.#changed(urgent),
    };
    const from = { positions: stored.cursor, dropped: stored.dropped };
    this.#dispatch = new Dispatch(context, parts, from);
    this.#subscriptions = this.#createSubscriptions();
    this.#restore();
  }

  get epoch(): number {
    return this.#stored.epoch;
  }

  get keys(): SessionKeys {
    return this.#stored.keys;
  }

  /** Messages wait that were not sent yet. */
  get hasBacklog(): boolean {
    return this.#outbound.blocked || !this.#dispatch.isAtTail;
  }

  /** What a look at all sessions needs of it once it is closed. */
  get closedState(): ClosedState {
    const { positions, dropped } = this.#dispatch.cursor;
    return { cursor: new Map(positions), inFlight: this.#outbound.inFlightCount, dropped };
  }

  /** Passes over what was not sent yet. Resolves when that is durable. */
  skipBacklog(): Promise<void> {
    if (this.#stopped) return Promise.reject(this.#stoppedError());
    this.#dispatch.skip();
    // Behind it nothing older is on its way.
    return new Promise((resolve, reject) => {
      this.#submit({
        build: () => guarded(this.keys, this.epoch, [this.#cursorWrite()]),
        done: (error) => (error === undefined ? resolve() : reject(error)),
      });
    });
  }

  /** What is refused for a newer claim ends the connection. */
  #submit({ build, done }: StateOperation): void {
    this.#checkpointer.writer.submit({
      build,
      done: (error, timeUs) => {
        done(error, timeUs);
        if (isCodedError(error, "STORE_GUARD_FAILED") && !this.#stopped) this.fenced();
      },
    });
  }

  /** As it stands in the store, the incarnation spelled out. */
  get claimRecord(): ClaimRecord {
    return { ...this.#stored.claim, incarnation: this.#stored.incarnation };
  }

  /** Its last state is not waited for any more and must not be written. */
  abandoned = false;
  /** Somebody else has claimed the session: nothing is written of it here any more. */
  isFenced = false;
  /** When its connection came, at a node of a cluster. */
  arrivedUs = 0;

  // -------------------------------------------------------------- the connection's calls

  open(): void {
    if (this.#opened || this.#stopped) return;
    this.#opened = true;
    for (const { subscription } of this.#subscriptions.current()) this.#listen(subscription);
    this.#outbound.open();
    this.#jobs.advance();
    this.#dispatch.open();
  }

  #listen(subscription: Subscription): void {
    if (!this.#opened || this.#stopped) return;
    const { live, groups } = this.#context;
    const { filter } = subscription;
    if (sharedTopicFilter(filter) === undefined) live.set(this, subscription);
    else this.#shared.join(groups.group(filter), subscription);
  }

  get subscriptionCount(): number {
    return this.#subscriptions.size;
  }

  *subscriptions(): Iterable<Subscription> {
    for (const { subscription } of this.#subscriptions.current()) yield subscription;
  }

  subscribe(subscriptions: readonly Subscription[]): Promise<readonly SubscribeResult[]> {
    if (this.#stopped) return Promise.reject(this.#stoppedError());
    return this.#subscriptions.subscribe(subscriptions);
  }

  unsubscribe(filters: readonly string[]): Promise<readonly boolean[]> {
    if (this.#stopped) return Promise.reject(this.#stoppedError());
    return this.#subscriptions.unsubscribe(filters);
  }

  sendRetained(results: readonly SubscribeResult[]): void {
    for (const { subscription } of results) this.#jobs.activate(subscription.filter);
  }

  puback(packetId: number, _reasonCode: number): number | undefined {
    return this.#acked(this.#outbound.puback(packetId));
  }

  pubacks(packetIds: Uint16Array, count: number): number | undefined {
    return this.#acked(this.#outbound.pubacks(packetIds, count));
  }

  pubrec(packetId: number, reasonCode: number): number | undefined {
    return this.#acked(this.#outbound.pubrec(packetId, reasonCode));
  }

  pubcomp(packetId: number, _reasonCode: number): number | undefined {
    return this.#acked(this.#outbound.pubcomp(packetId));
  }

  drained(): void {
    this.#dispatch.pump();
  }

  detach(cause: DetachCause): Promise<void> {
    return this.#detach(this, cause);
  }

  /** No more deliveries, no more acks. Idempotent. */
  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#dispatch.stop();
    this.#jobs.stop();
    this.#checkpointer.forget(this);
    this.#context.live.removeAll(this);
    this.#shared.stop();
  }

  /** A write behind the closing one would leave records that a removal does not know. */
  #stoppedError(): CodedError {
    return sessionErrors.stopped({ clientId: JSON.stringify(this.clientId) });
  }

  endLink(reasonCode: number): void {
    this.#link.end(reasonCode);
  }

  // -------------------------------------------------------------- messages come in

  /** Unstored messages, straight from the publisher: only QoS 0 is left to be served that way. */
  deliver(message: Ttv, subscriptions: readonly Subscription[], stored: boolean): void {
    if (stored || this.#stopped || !this.#opened) return;
    const choice = chooseDelivery(message, subscriptions, this.clientId);
    // Unstored at QoS 1 or 2: published before this subscription's interest was counted.
    if (choice === undefined || choice.qos !== 0) return;
    if (sendQos0(this.#context, this.#link, message, choice)) this.#jobs.noteLive(message);
  }

  // -------------------------------------------------------------- state goes out

  collect(): (BuiltWrites & { settle: Settle }) | undefined {
    if (this.#stopped || !this.#hasChanges()) return undefined;
    const changes = this.#outbound.collect();
    const jobs = this.#jobs.collect();
    const { store, clock } = this.#context;
    const ids = this.#reservation.wanted
      ? this.#reservation.renewal({ tail: store.tail(), wallUs: clock.wallUs() }, this.#positions)
      : undefined;
    this.#dispatch.collected();
    const writes = this.#writes(changes, jobs, ids);
    const settle: Settle = (error) => this.#settle(error, { changes, jobs, ids });
    return { ...guarded(this.#stored.keys, this.epoch, writes), settle };
  }

  /** The exact state at an orderly end, and what settles it. REQUIRES: stopped. */
  collectExact(): { writes: MapWrite[]; settle: Settle } {
    const { keys } = this.#stored;
    const changes = this.#outbound.collectExact();
    const jobs = this.#jobs.collect();
    const ids = this.#reservation.exact(this.#positions);
    const over = jobs.filter(({ record }) => record === undefined);
    const writes = this.#writes(changes, over, ids);
    for (const record of this.#jobs.exact()) {
      writes.push({ key: keys.job(record.filter), value: encodeJob(record) });
    }
    const settle: Settle = (error) => {
      if (error === undefined) {
        this.#outbound.tellGroups(changes);
        return;
      }
      this.#outbound.table.failed(changes);
      this.#jobs.failed(jobs);
    };
    return { writes, settle };
  }

  fenced(): void {
    this.isFenced = true;
    this.stop();
    this.#link.end(serverTakenOver);
  }

  // -------------------------------------------------------------- making the parts

  #createSubscriptions(): DurableSubscriptions {
    const { store, clock, settings, counters, live } = this.#context;
    return new DurableSubscriptions(
      {
        ...{ store, clock, isStopped: () => this.#stopped },
        stoppedError: () => this.#stoppedError(),
        interest: interestOf(this.#context, this.clientId),
        counters,
        writer: { submit: (operation) => this.#submit(operation) },
        keys: this.#stored.keys,
        epoch: this.epoch,
        limits: filterLimits(settings),
        jobs: this.#jobs,
        asked: (record) => this.#readWith(record),
        added: (record) => {
          this.#readWith(record);
          this.#listen(record.subscription);
        },
        removed: (filter) => {
          if (this.#stopped) return;
          if (sharedTopicFilter(filter) !== undefined) {
            this.#shared.leave(filter);
            return;
          }
          this.#dispatch.removeFilter(filter);
          live.remove(this, filter);
        },
      },
      this.#stored.subscriptions,
    );
  }

  #readWith(record: SubscriptionRecord): void {
    if (this.#stopped || sharedTopicFilter(record.subscription.filter) !== undefined) return;
    this.#dispatch.setFilter(readerOf(record));
  }

  #restore(): void {
    const exact = this.#stored.ids?.exact ?? false;
    for (const job of this.#stored.jobs) this.#jobs.restore(job);
    for (const { sendNumber, record } of this.#stored.inFlight) {
      this.#outbound.restore(entryOf(sendNumber, record, exact));
      const { source } = record;
      if (source.kind === "retained") {
        this.#jobs.restoreInFlight(source.message);
      } else if (source.group !== undefined) {
        // Nothing of its own: the cursor of the group has passed it.
      } else {
        this.#dispatch.restored(source.ref.shard, source.ref.timeUs);
      }
    }
  }

  #filters(): SubscriberFilter<Subscription>[] {
    const own = [...this.#subscriptions.read()].filter(
      ({ subscription }) => sharedTopicFilter(subscription.filter) === undefined,
    );
    return own.map(readerOf);
  }

  #acked(fault: number | undefined): number | undefined {
    if (fault === undefined) this.#dispatch.pump();
    return fault;
  }

  // -------------------------------------------------------------- changes of state

  get #positions(): Positions {
    return this.#dispatch.cursor.positions;
  }

  #changed(urgent: boolean): void {
    if (!this.#stopped) this.#checkpointer.mark(this, urgent);
  }

  #cursorWrite(): MapWrite {
    return { key: this.keys.cursor, value: encodeCursor(this.#dispatch.cursor) };
  }

  #hasChanges(): boolean {
    return (
      this.#dispatch.hasChanges ||
      this.#outbound.hasChanges ||
      this.#jobs.hasChanges ||
      this.#reservation.wanted
    );
  }

  #writes(changes: CollectedChanges, jobs: CollectedJobs, ids: IdsRecord | undefined): MapWrite[] {
    const { cursor } = this.#dispatch;
    return changeWrites(this.#stored.keys, { changes, jobs, ids, cursor });
  }

  #settle(
    error: CodedError | undefined,
    collected: { changes: CollectedChanges; jobs: CollectedJobs; ids: IdsRecord | undefined },
  ): void {
    const { changes, jobs, ids } = collected;
    if (error === undefined) {
      if (ids !== undefined) this.#reservation.committed(ids);
      this.#outbound.committed(changes);
      this.#jobs.committed(jobs);
      this.#dispatch.pump();
      return;
    }
    this.#outbound.table.failed(changes);
    this.#jobs.failed(jobs);
    this.#dispatch.failed();
    if (ids !== undefined) this.#reservation.failed();
  }
}
