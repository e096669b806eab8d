// A durable session while a connection is attached to it: dispatches from the store into the
// window, takes acks, and says what of its state has changed. Nothing of it outlives the
// connection but its records.
//
// Invariants
// - The cursor of a shard is the time up to which everything matching was dispatched; what is
//   unfinished below it is in flight. Both are collected into one write, puts of in-flight records
//   first and deletes last, so that a write cut in parts loses and repeats nothing: a record above
//   the stored cursor is recognised at resume.
// - After `stop` nothing is sent and nothing is collected; the closing write takes the exact state.

import type { CodedError } from "../base/index.ts";
import type {
  DeliverableTtv,
  MapWrite,
  MissedReport,
  PublisherClaim,
  Subscriber,
  SubscriberFilter,
  SubscriberPort,
  Ttv,
} from "../store/index.ts";
import type {
  DetachCause,
  LiveTarget,
  Session,
  SessionLink,
  SubscribeResult,
  Subscription,
  Will,
} from "./api.ts";
import { BacklogTrim } from "./backlog-trim.ts";
import type { Checkpointed, Checkpointer } from "./checkpointer.ts";
import type { SessionContext } from "./context.ts";
import { type Choice, chooseDelivery, chooseRetained, isExpired } from "./core/choose.ts";
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
import { DurableSubscriptions, readerOf } from "./durable-subscriptions.ts";
import { sessionErrors } from "./errors.ts";
import { interestOf } from "./groups/interest.ts";
import { SharedMember, sharedTopicFilter } from "./groups/member.ts";
import type { ClosedState, ConnectedState } from "./inspect/table.ts";
import type { SessionKeys } from "./keys.ts";
import { Pump } from "./pump.ts";
import { Resends } from "./resends.ts";
import type { CollectedJobs, RetainedJobs } from "./retained-jobs.ts";
import { createJobs, createOutbound, sendQos0 } from "./sending.ts";
import type { BuiltWrites } from "./state-writer.ts";
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

export class DurableSession
  implements Session, LiveTarget, Checkpointed, ConnectedState, SubscriberPort<Subscription>
{
  readonly clientId: string;
  readonly durable = true;
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
  readonly #pumps: Pump;
  readonly #cursor: Map<number, number>;
  /** Records above the stored cursor, as "shard:time": dispatched already. */
  readonly #recovered = new Set<string>();
  #subscriber: Subscriber<Subscription> | undefined;
  #dropped: number;
  #trim: BacklogTrim | undefined;
  #mayTrim: boolean;
  #cursorChanged = false;
  #opened = false;
  #stopped = false;
  #liveWaits = false;
  #turn: "live" | "retained" = "live";
  #offering = false;

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
    this.#pumps = new Pump(context.clock, () => this.#pumpOnce());
    this.#cursor = new Map(stored.cursor);
    this.#dropped = stored.dropped;
    this.#mayTrim = context.settings.backlogMax < Number.POSITIVE_INFINITY;
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
      took: () => this.#renewIfWanted(),
      pump: () => this.#pump(),
    });
    const ready = (): void => this.#pump();
    this.#resends = new Resends(context, {
      ...{ clientId: this.clientId, outbound: this.#outbound, ready },
    });
    this.#jobs = createJobs(context, host, {
      subscription: (filter) => this.#subscriptions.get(filter),
      send: (message, subscription, dup) => this.#retained(message, subscription, dup),
      ready,
    });
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
    return this.#outbound.blocked || this.#subscriber?.atTail !== true;
  }

  /** What a look at all sessions needs of it once it is closed. */
  get closedState(): ClosedState {
    const cursor = new Map(this.#cursor);
    return { cursor, inFlight: this.#outbound.table.size, dropped: this.#dropped };
  }

  /** Passes over what was not sent yet. Resolves when that is durable. */
  skipBacklog(): Promise<void> {
    if (this.#stopped) return Promise.reject(this.#stoppedError());
    this.#trim?.close();
    this.#trim = undefined;
    this.#mayTrim = false;
    this.#subscriber?.close();
    this.#subscriber = undefined;
    for (const [shard, timeUs] of this.#context.store.tail()) this.#cursor.set(shard, timeUs);
    this.#pump();
    const { writer } = this.#checkpointer;
    // Behind it nothing older is on its way.
    return writer
      .write(() => guarded(this.keys, this.epoch, [this.#cursorWrite()]))
      .then(() => undefined);
  }

  /** As it stands in the store, the incarnation spelled out. */
  get claimRecord(): ClaimRecord {
    return { ...this.#stored.claim, incarnation: this.#stored.incarnation };
  }

  /** Its last state is not waited for any more and must not be written. */
  abandoned = false;

  // -------------------------------------------------------------- the connection's calls

  open(): void {
    if (this.#opened || this.#stopped) return;
    this.#opened = true;
    for (const { subscription } of this.#subscriptions.current()) this.#listen(subscription);
    this.#outbound.open();
    this.#jobs.advance();
    this.#pump();
  }

  #listen(subscription: Subscription): void {
    if (!this.#opened || this.#stopped) return;
    const { live, groups } = this.#context;
    const { filter } = subscription;
    if (sharedTopicFilter(filter) === undefined) live.set(this, subscription);
    else this.#shared.join(groups.group(filter), subscription);
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
    this.#pump();
  }

  detach(cause: DetachCause): Promise<void> {
    return this.#detach(this, cause);
  }

  /** No more deliveries, no more acks. Idempotent. */
  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#adoptPositions();
    this.#subscriber?.close();
    this.#trim?.close();
    this.#jobs.stop();
    this.#checkpointer.forget(this);
    this.#context.live.removeAll(this);
    this.#shared.stop();
  }

  /** A write behind the closing one would leave records that a removal does not know. */
  #stoppedError(): CodedError {
    return sessionErrors.stopped({ clientId: JSON.stringify(this.clientId) });
  }

  /** The store knows best how far this session has got past what does not match. */
  #adoptPositions(): void {
    // Within an offer the store does not know yet whether the message was taken.
    if (this.#subscriber === undefined || this.#offering) return;
    for (const [shard, timeUs] of this.#subscriber.positions()) {
      if (timeUs > (this.#cursor.get(shard) ?? 0)) this.#cursor.set(shard, timeUs);
    }
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
    sendQos0(this.#context, this.#link, message, choice);
    this.#jobs.noteLive(message.topic);
  }

  offer(ttv: DeliverableTtv, matches: readonly Subscription[]): boolean {
    if (this.#stopped) return false;
    this.#offering = true;
    let taken: boolean;
    try {
      taken = this.#take(ttv, matches);
    } finally {
      // A fault is the store's to count: it offers again later, and must find the session as before.
      this.#offering = false;
    }
    if (!taken) this.#liveWaits = true;
    else this.#cursor.set(ttv.ref.shard, ttv.timeUs);
    this.#renewIfWanted();
    return taken;
  }

  moved(shard: number, positionUs: number): void {
    // Not worth a write of its own: a cursor above the last match is at the tail anyway.
    if (!this.#stopped) this.#cursor.set(shard, positionUs);
  }

  missed(report: MissedReport): void {
    this.#context.counters.missed += report.count;
    this.#lost(report.count);
    this.#context.logger.warn("session.messages_missed", { clientId: this.clientId, ...report });
  }

  // -------------------------------------------------------------- state goes out

  collect(): (BuiltWrites & { settle: Settle }) | undefined {
    if (this.#stopped || !this.#hasChanges()) return undefined;
    const changes = this.#outbound.table.collect();
    const jobs = this.#jobs.collect();
    const { store, clock } = this.#context;
    const ids = this.#reservation.wanted
      ? this.#reservation.renewal({ tail: store.tail(), wallUs: clock.wallUs() }, this.#cursor)
      : undefined;
    this.#cursorChanged = false;
    const writes = this.#writes(changes, jobs, ids);
    const settle: Settle = (error) => this.#settle(error, { changes, jobs, ids });
    return { ...guarded(this.#stored.keys, this.epoch, writes), settle };
  }

  /** The exact state at an orderly end, and what settles it. REQUIRES: stopped. */
  collectExact(): { writes: MapWrite[]; settle: Settle } {
    const { keys } = this.#stored;
    const changes = this.#outbound.table.collectExact();
    const jobs = this.#jobs.collect();
    const ids = this.#reservation.exact(this.#cursor);
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
    this.stop();
    this.#link.end(serverTakenOver);
  }

  // -------------------------------------------------------------- making the parts

  #createSubscriptions(): DurableSubscriptions {
    const { store, settings, counters, live } = this.#context;
    return new DurableSubscriptions(
      {
        store,
        interest: interestOf(this.#context, this.clientId),
        counters,
        writer: this.#checkpointer.writer,
        keys: this.#stored.keys,
        epoch: this.epoch,
        countMax: settings.subscriptionsMax,
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
          this.#subscriber?.removeFilter(filter);
          live.remove(this, filter);
        },
      },
      this.#stored.subscriptions,
    );
  }

  #readWith(record: SubscriptionRecord): void {
    if (this.#stopped || sharedTopicFilter(record.subscription.filter) !== undefined) return;
    this.#subscriber?.setFilter(readerOf(record));
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
      } else if (source.ref.timeUs > (this.#cursor.get(source.ref.shard) ?? 0)) {
        this.#recovered.add(`${source.ref.shard}:${source.ref.timeUs}`);
      }
    }
  }

  // -------------------------------------------------------------- dispatching

  /** True: the message is dealt with and the cursor may pass it. */
  #take(ttv: DeliverableTtv, matches: readonly Subscription[]): boolean {
    const { shard } = ttv.ref;
    if (this.#recovered.size > 0 && this.#recovered.delete(`${shard}:${ttv.timeUs}`)) return true;
    const choice = chooseDelivery(ttv, matches, this.clientId);
    if (choice === undefined) return true;
    // Two system clocks are read for the wall time: not for messages that never expire.
    if (ttv.expiryUs !== 0 && isExpired(ttv, this.#context.clock.wallUs())) {
      this.#context.counters.expiredDropped++;
      return true;
    }
    if (this.#turn === "retained" && this.#jobs.ready) return false;
    const inDoubt = this.#reservation.inDoubt(shard, ttv.timeUs);
    // At most once: what may have been sent at QoS 0 is not sent again.
    if (choice.qos === 0 && choice.owed && inDoubt) return true;
    if (choice.owed && choice.qos < 2 && !this.#reservation.allows(shard, ttv.timeUs)) return false;
    // At QoS 2 too: before its options changed it may have been sent at QoS 1.
    const source = { kind: "log", ref: { ...ttv.ref } } as const;
    if (this.#outbound.dispatch({ message: ttv, choice, source, dup: inDoubt }) === "wait") {
      if (choice.qos !== 0 || this.#outbound.blocked) return false;
      this.#context.counters.qos0Dropped++;
    }
    this.#taken(ttv.topic, choice);
    return true;
  }

  #taken(topic: string, choice: Choice): void {
    if (choice.owed) {
      this.#cursorChanged = true;
      this.#changed(false);
    }
    this.#jobs.noteLive(topic);
    if (!this.#jobs.ready) return;
    this.#turn = "retained";
    if (this.#pumps.isRunning) this.#pumps.run();
    else this.#pumps.soon(() => this.#pump());
  }

  #retained(message: Ttv, subscription: Subscription, dup: boolean): "taken" | "wait" {
    if (subscription.noLocal && message.publisher === this.clientId) return "taken";
    const choice = chooseRetained(message, subscription);
    const source = { kind: "retained", message } as const;
    const outcome = this.#outbound.dispatch({ message, choice, source, dup });
    this.#renewIfWanted();
    return outcome;
  }

  #acked(fault: number | undefined): number | undefined {
    if (fault === undefined) this.#pump();
    return fault;
  }

  /** Sends what may be sent: owed messages first, then live and retained ones in turn. */
  #pump(): void {
    if (this.#stopped || !this.#opened) return;
    if (this.#offering && !this.#pumps.isRunning) {
      this.#pumps.soon(() => this.#pump());
      return;
    }
    this.#pumps.run();
    this.#shared.freed();
  }

  #pumpOnce(): void {
    if (this.#stopped) return;
    this.#outbound.pump(this.#context.clock.wallUs());
    if (this.#outbound.resuming) {
      this.#resends.read();
      return;
    }
    if (this.#trim !== undefined) return;
    if (this.#subscriber === undefined) {
      if (this.#mayTrim) {
        this.#startTrim();
        return;
      }
      this.#subscriber = this.#startLive();
      this.#liveWaits = true;
    }
    if (this.#outbound.blocked) return;
    if (this.#jobs.ready && (this.#turn === "retained" || !this.#liveWaits)) {
      if (this.#jobs.sendOne()) {
        this.#turn = "live";
        this.#pumps.run();
      }
    }
    if (!this.#liveWaits) return;
    this.#liveWaits = false;
    this.#subscriber.wake();
  }

  #startLive(): Subscriber<Subscription> {
    const filters = this.#filters();
    return this.#context.store.subscribe({ filters, positions: new Map(this.#cursor), port: this });
  }

  #filters(): SubscriberFilter<Subscription>[] {
    const own = [...this.#subscriptions.read()].filter(
      ({ subscription }) => sharedTopicFilter(subscription.filter) === undefined,
    );
    return own.map(readerOf);
  }

  /** Before the first delivery of a resumed session: what is above `backlogMax` is passed over. */
  #startTrim(): void {
    this.#mayTrim = false;
    const { clientId } = this;
    const backlog = { clientId, filters: this.#filters(), positions: new Map(this.#cursor) };
    this.#trim = new BacklogTrim(this.#context, backlog, ({ positions, dropped }) => {
      this.#trim = undefined;
      if (this.#stopped) return;
      for (const [shard, timeUs] of positions) this.#cursor.set(shard, timeUs);
      if (dropped > 0) this.#lost(dropped);
      this.#pump();
    });
  }

  #lost(count: number): void {
    this.#dropped += count;
    this.#cursorChanged = true;
    this.#changed(false);
  }

  // -------------------------------------------------------------- changes of state

  #changed(urgent: boolean): void {
    if (!this.#stopped) this.#checkpointer.mark(this, urgent);
  }

  #cursorWrite(): MapWrite {
    const cursor = { positions: this.#cursor, dropped: this.#dropped };
    return { key: this.keys.cursor, value: encodeCursor(cursor) };
  }

  #renewIfWanted(): void {
    if (this.#reservation.wanted) this.#changed(this.#reservation.urgent);
  }

  #hasChanges(): boolean {
    return (
      this.#cursorChanged ||
      this.#outbound.table.hasChanges ||
      this.#jobs.hasChanges ||
      this.#reservation.wanted
    );
  }

  #writes(changes: CollectedChanges, jobs: CollectedJobs, ids: IdsRecord | undefined): MapWrite[] {
    const cursor = { positions: this.#cursor, dropped: this.#dropped };
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
      this.#pump();
      return;
    }
    this.#outbound.table.failed(changes);
    this.#jobs.failed(jobs);
    this.#cursorChanged = true;
    if (ids !== undefined) this.#reservation.failed();
  }
}
