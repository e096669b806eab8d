// What a durable session takes from the store while its connection is there: messages come from the
// store's reader one by one, go into the window, and move the cursor.
//
// Invariants
// - The cursor of a shard is the time up to which everything matching was dispatched; what is
//   unfinished below it is in flight.
// - What was recorded above the stored cursor is recognised when it comes again.
// - Owed messages come first, then live and retained ones in turn.
// - Nothing is taken before `open` and after `stop`.

import type {
  DeliverableTtv,
  MissedReport,
  Subscriber,
  SubscriberFilter,
  SubscriberPort,
  Ttv,
  TtvRun,
} from "../store/index.ts";
import type { Subscription } from "./api.ts";
import { BacklogTrim } from "./backlog-trim.ts";
import type { SessionContext } from "./context.ts";
import { type Choice, chooseDelivery, chooseRetained, isExpired } from "./core/choose.ts";
import type { Outbound } from "./core/outbound.ts";
import type { CursorRecord } from "./core/records.ts";
import type { Reservation } from "./core/reservation.ts";
import { Pump } from "./pump.ts";
import type { Resends } from "./resends.ts";
import type { RetainedJobs } from "./retained-jobs.ts";

export type DispatchParts = {
  readonly clientId: string;
  readonly outbound: Outbound;
  readonly reservation: Reservation;
  readonly resends: Resends;
  readonly jobs: RetainedJobs;
  /** What the session reads with now. */
  readonly filters: () => SubscriberFilter<Subscription>[];
  /** Slots may have become free. */
  readonly freed: () => void;
  /** So many messages were gone before they were taken. */
  readonly lost: (count: number) => void;
  /** Records have changed. `urgent`: sending waits for them. */
  readonly changed: (urgent: boolean) => void;
};

export class Dispatch implements SubscriberPort<Subscription> {
  readonly #context: SessionContext;
  readonly #parts: DispatchParts;
  readonly #pumps: Pump;
  readonly #cursor: Map<number, number>;
  /** Records above the stored cursor, as "shard:time": dispatched already. */
  readonly #recovered = new Set<string>();
  #subscriber: Subscriber<Subscription> | undefined;
  #dropped: number;
  #trim: BacklogTrim | undefined;
  #mayTrim: boolean;
  #state: "waiting" | "open" | "stopped" = "waiting";
  #cursorChanged = false;
  #liveWaits = false;
  #turn: "live" | "retained" = "live";
  #offering = false;

  constructor(context: SessionContext, parts: DispatchParts, from: CursorRecord) {
    this.#context = context;
    this.#parts = parts;
    this.#pumps = new Pump(context.clock, () => this.#pumpOnce());
    this.#cursor = new Map(from.positions);
    this.#dropped = from.dropped;
    this.#mayTrim = context.settings.backlogMax < Number.POSITIVE_INFINITY;
  }

  /** As it stands now. The positions go on moving. */
  get cursor(): CursorRecord {
    return { positions: this.#cursor, dropped: this.#dropped };
  }

  /** Nothing is left to be read. */
  get isAtTail(): boolean {
    return this.#subscriber?.atTail === true;
  }

  /** The cursor is to be written. */
  get hasChanges(): boolean {
    return this.#cursorChanged;
  }

  collected(): void {
    this.#cursorChanged = false;
  }

  failed(): void {
    this.#cursorChanged = true;
  }

  /** In flight, from a record: what lies above the cursor was dispatched before an unclean end. */
  restored(shard: number, timeUs: number): void {
    if (timeUs > (this.#cursor.get(shard) ?? 0)) this.#recovered.add(`${shard}:${timeUs}`);
  }

  // -------------------------------------------------------------- life

  open(): void {
    if (this.#state !== "waiting") return;
    this.#state = "open";
    this.pump();
  }

  /** Takes nothing more; the cursor stands then. */
  stop(): void {
    if (this.#state === "stopped") return;
    this.#state = "stopped";
    this.#adoptPositions();
    this.#subscriber?.close();
    this.#trim?.close();
  }

  /** The store knows best how far this session has got past what does not match. */
  #adoptPositions(): void {
    // Within an offer the store does not know yet whether the message was taken.
    if (this.#subscriber === undefined || this.#offering) return;
    for (const [shard, timeUs] of this.#subscriber.positions()) {
      if (timeUs > (this.#cursor.get(shard) ?? 0)) this.#cursor.set(shard, timeUs);
    }
  }

  setFilter(filter: SubscriberFilter<Subscription>): void {
    this.#subscriber?.setFilter(filter);
  }

  removeFilter(filter: string): void {
    this.#subscriber?.removeFilter(filter);
  }

  /** Passes over everything that was not sent yet. */
  skip(): void {
    this.#trim?.close();
    this.#trim = undefined;
    this.#mayTrim = false;
    this.#subscriber?.close();
    this.#subscriber = undefined;
    for (const [shard, timeUs] of this.#context.store.tail()) this.#cursor.set(shard, timeUs);
    this.pump();
  }

  // -------------------------------------------------------------- messages come in

  offer(ttv: DeliverableTtv, matches: readonly Subscription[]): boolean {
    if (this.#state === "stopped") return false;
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
    this.renewIfWanted();
    return taken;
  }

  /** What goes at QoS 1 as it is, at once; all else, and what needs a second look, one by one. */
  offerRun(run: TtvRun, matches: readonly Subscription[]): number {
    const { outbound, jobs, reservation } = this.#parts;
    if (this.#state === "stopped" || this.#recovered.size > 0 || !jobs.isIdle) return 0;
    if (run.qos !== 1 || run.retain || !isPlainMatch(matches)) return 0;
    const { shard } = run.ref;
    if (reservation.inDoubt(shard, run.timeUs(0))) return 0;
    if (!reservation.allows(shard, run.timeUs(run.count - 1))) return 0;
    this.#offering = true;
    let taken = 0;
    try {
      taken = outbound.dispatchOwed(run);
    } finally {
      this.#offering = false;
    }
    if (taken > 0) {
      this.#cursor.set(shard, run.timeUs(taken - 1));
      this.#moved();
    }
    this.renewIfWanted();
    return taken;
  }

  moved(shard: number, positionUs: number): void {
    // Not worth a write of its own: a cursor above the last match is at the tail anyway.
    if (this.#state !== "stopped") this.#cursor.set(shard, positionUs);
  }

  missed(report: MissedReport): void {
    const { counters, logger } = this.#context;
    counters.missed += report.count;
    this.#lost(report.count);
    logger.warn("session.messages_missed", { clientId: this.#parts.clientId, ...report });
  }

  /** A retained message, from a job. */
  retained(message: Ttv, subscription: Subscription, dup: boolean): "taken" | "wait" {
    const { clientId, outbound } = this.#parts;
    if (subscription.noLocal && message.publisher === clientId) return "taken";
    const choice = chooseRetained(message, subscription);
    const source = { kind: "retained", message } as const;
    const outcome = outbound.dispatch({ message, choice, source, dup });
    this.renewIfWanted();
    return outcome;
  }

  /** True: the message is dealt with and the cursor may pass it. */
  #take(ttv: DeliverableTtv, matches: readonly Subscription[]): boolean {
    const { clientId, jobs, outbound, reservation } = this.#parts;
    const { shard } = ttv.ref;
    if (this.#recovered.size > 0 && this.#recovered.delete(`${shard}:${ttv.timeUs}`)) return true;
    const choice = chooseDelivery(ttv, matches, clientId);
    if (choice === undefined) return true;
    // Two system clocks are read for the wall time: not for messages that never expire.
    if (ttv.expiryUs !== 0 && isExpired(ttv, this.#context.clock.wallUs())) {
      this.#context.counters.expiredDropped++;
      return true;
    }
    if (this.#turn === "retained" && jobs.ready) return false;
    const inDoubt = reservation.inDoubt(shard, ttv.timeUs);
    // At most once: what may have been sent at QoS 0 is not sent again.
    if (choice.qos === 0 && choice.owed && inDoubt) return true;
    if (choice.owed && choice.qos < 2 && !reservation.allows(shard, ttv.timeUs)) return false;
    // At QoS 2 too: before its options changed it may have been sent at QoS 1.
    const source = { kind: "log", ref: { ...ttv.ref } } as const;
    if (outbound.dispatch({ message: ttv, choice, source, dup: inDoubt }) === "wait") {
      if (choice.qos !== 0 || outbound.blocked) return false;
      this.#context.counters.qos0Dropped++;
    } else jobs.noteLive(ttv, { ...ttv.ref, bringsNext: matches.some(bringsAll) });
    this.#taken(choice);
    return true;
  }

  #taken(choice: Choice): void {
    const { jobs } = this.#parts;
    if (choice.owed) this.#moved();
    if (!jobs.ready) return;
    this.#turn = "retained";
    if (this.#pumps.isRunning) this.#pumps.run();
    else this.#pumps.soon(() => this.pump());
  }

  #lost(count: number): void {
    this.#dropped += count;
    this.#parts.lost(count);
    this.#moved();
  }

  #moved(): void {
    this.#cursorChanged = true;
    this.#parts.changed(false);
  }

  renewIfWanted(): void {
    const { reservation, changed } = this.#parts;
    if (reservation.wanted) changed(reservation.urgent);
  }

  // -------------------------------------------------------------- going on

  /** Sends what may be sent: owed messages first, then live and retained ones in turn. */
  pump(): void {
    if (this.#state !== "open") return;
    if (this.#offering && !this.#pumps.isRunning) {
      this.#pumps.soon(() => this.pump());
      return;
    }
    this.#pumps.run();
    this.#parts.freed();
  }

  #pumpOnce(): void {
    if (this.#state === "stopped") return;
    const { outbound, resends, jobs } = this.#parts;
    outbound.pump(this.#context.clock.wallUs());
    if (outbound.resuming) {
      resends.read();
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
    if (outbound.blocked) return;
    if (jobs.ready && (this.#turn === "retained" || !this.#liveWaits)) {
      if (jobs.sendOne()) {
        this.#turn = "live";
        this.#pumps.run();
      }
    }
    if (!this.#liveWaits) return;
    this.#liveWaits = false;
    this.#subscriber.wake();
  }

  #startLive(): Subscriber<Subscription> {
    const filters = this.#parts.filters();
    return this.#context.store.subscribe({ filters, positions: new Map(this.#cursor), port: this });
  }

  /** Before the first delivery of a resumed session: what is above `backlogMax` is passed over. */
  #startTrim(): void {
    this.#mayTrim = false;
    const { clientId, filters } = this.#parts;
    const backlog = { clientId, filters: filters(), positions: new Map(this.#cursor) };
    this.#trim = new BacklogTrim(this.#context, backlog, ({ positions, dropped }) => {
      this.#trim = undefined;
      if (this.#state === "stopped") return;
      for (const [shard, timeUs] of positions) this.#cursor.set(shard, timeUs);
      if (dropped > 0) this.#lost(dropped);
      this.pump();
    });
  }
}

/** What brought one message brings the stored ones behind it too, whoever published them. */
function bringsAll({ qos, noLocal }: Subscription): boolean {
  return qos > 0 && !noLocal;
}

/** A message at QoS 1 goes out at QoS 1, once, whoever published it, with nothing added. */
function isPlainMatch(matches: readonly Subscription[]): boolean {
  let granted = 0;
  for (const { qos, noLocal, identifier } of matches) {
    if (noLocal || identifier !== 0) return false;
    granted = Math.max(granted, qos);
  }
  return granted > 0;
}
