// What a durable shared group keeps in `state`: a cursor over its filter, and the messages at or below
// it that somebody holds. It is a virtual session: its cursor moves when a message is dealt, both
// change in one write, and a reader pushes what is next.
//
// Invariants
// - Nothing is dealt from here before the group's claim is durable.
// - After an end without notice everything up to the durable "may have been sent" counts as sent.
// - Of messages recorded above the stored cursor none is dealt twice.

import { type CodedError, isCodedError, sleep } from "../../base/index.ts";
import type {
  DeliverableTtv,
  MapWrite,
  MissedReport,
  Positions,
  Subscriber,
  SubscriberPort,
} from "../../store/index.ts";
import type { Checkpointed, Checkpointer } from "../checkpointer.ts";
import type { SessionContext } from "../context.ts";
import { isExpired } from "../core/choose.ts";
import {
  type AssignedRecord,
  encodeAssigned,
  encodeCursor,
  encodeGroup,
  encodeIds,
  type IdsRecord,
} from "../core/records.ts";
import { Reservation } from "../core/reservation.ts";
import { type GroupKeys, groupKeys } from "../keys.ts";
import type { BuiltWrites } from "../state-writer.ts";
import { deleteKey } from "../stored-session.ts";
import {
  type Assignment,
  type AssignmentHost,
  Assignments,
  type CollectedAssignments,
} from "./assignments.ts";
import type { StoredGroup } from "./stored-group.ts";

/** `refused`: no member can take it, so it is done with. */
export type DealOutcome = "taken" | "wait" | "refused";

/** The group, as its store sees it. */
export interface GroupHost {
  /** Older messages come first: nothing new is taken now. */
  readonly isBusy: boolean;
  deal(message: DeliverableTtv, assignment: Assignment, inDoubt: boolean): DealOutcome;
  returned(assignment: Assignment): void;
  unsure(assignment: Assignment): void;
  /** Nothing is left to do for it. */
  finished(assignment: Assignment): void;
  /** Members may be able to go on, or the group to end. */
  ready(): void;
}

export type GroupStoreOptions = {
  readonly context: SessionContext;
  /** The whole shared filter. */
  readonly name: string;
  readonly filter: string;
  readonly host: GroupHost;
};

type Collected = { readonly changes: CollectedAssignments; readonly ids: IdsRecord | undefined };
type Settle = (error: CodedError | undefined) => void;

export class GroupStore implements Checkpointed, SubscriberPort<undefined>, AssignmentHost {
  /** For log lines. */
  readonly clientId: string;
  readonly assignments = new Assignments();
  /** What an earlier process left. */
  readonly restored: Array<{ readonly assignment: Assignment; readonly record: AssignedRecord }> =
    [];
  readonly #context: SessionContext;
  readonly #filter: string;
  readonly #host: GroupHost;
  readonly #keys: GroupKeys;
  readonly #checkpointer: Checkpointer;
  readonly #cursor: Map<number, number>;
  readonly #reservation: Reservation;
  readonly #start: Positions;
  /** Records above the stored cursor, as "shard:time". */
  readonly #recovered = new Set<string>();
  #dropped: number;
  #epoch: number | undefined;
  #subscriber: Subscriber<undefined> | undefined;
  #atTail = new Set<number>();
  #cursorChanged = false;
  #waits = false;
  #closed = false;

  /** `from`: what is stored of it, or where it begins. */
  constructor(options: GroupStoreOptions, from: StoredGroup | { readonly start: Positions }) {
    const { context, name, filter, host } = options;
    this.#context = context;
    this.clientId = name;
    this.#filter = filter;
    this.#host = host;
    this.#keys = groupKeys(name);
    this.#checkpointer = context.checkpointer(context.store.state(name));
    const stored = "epoch" in from ? from : undefined;
    this.#start = "epoch" in from ? from.cursor : from.start;
    this.#cursor = new Map(this.#start);
    this.#dropped = stored?.dropped ?? 0;
    this.#epoch = stored?.epoch;
    const sentAheadUs = context.settings.sentAheadMs * 1000;
    this.#reservation = new Reservation({ windowMax: 1, sentAheadUs }, stored?.ids);
    for (const { number, record } of stored?.assigned ?? []) {
      const assignment = this.assignments.restore(number, record, this);
      this.restored.push({ assignment, record });
      const { shard, timeUs } = record.ref;
      if (timeUs > (this.#cursor.get(shard) ?? 0)) this.#recovered.add(`${shard}:${timeUs}`);
    }
  }

  get name(): string {
    return this.clientId;
  }

  /** Everything up to here was there before this group was durable. */
  get start(): Positions {
    return this.#start;
  }

  get cursor(): Positions {
    return this.#cursor;
  }

  /** Messages that retention or damage removed before they were dealt. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Messages wait to be dealt that have not expired; an upper bound. */
  get hasWaiting(): boolean {
    if (this.isDrained) return false;
    const { store, clock } = this.#context;
    const nowUs = clock.wallUs();
    return store.logShards.some((shard) => {
      const when = { afterUs: this.#cursor.get(shard) ?? 0, nowUs };
      return store.interest.mayWait(this.#filter, shard, when) ?? true;
    });
  }

  /** Nothing that matches is left to be dealt. */
  get isDrained(): boolean {
    return this.#context.store.logShards.every((shard) => this.#atTail.has(shard));
  }

  // -------------------------------------------------------------- life

  /** Resolves when the group is durable. Tries until then, or until it is closed. */
  async create(): Promise<void> {
    const { clock, settings, logger, counters } = this.#context;
    const { writer } = this.#checkpointer;
    for (let delayMs = settings.retryDelayMs; !this.#closed && this.#epoch === undefined; ) {
      const cursor = { positions: this.#cursor, dropped: this.#dropped };
      const writes = [
        { key: this.#keys.cursor, value: encodeCursor(cursor) },
        { key: this.#keys.claim, value: encodeGroup(this.name) },
      ];
      const guards = [{ key: this.#keys.claim, timeUs: undefined }];
      try {
        this.#epoch = await writer.write(() => ({ writes, guards }));
      } catch (error) {
        if (isCodedError(error, "STORE_GUARD_FAILED") && (await this.#removeLeft())) continue;
        counters.writesFailed++;
        logger.warn("session.group_not_created", { group: this.name, error });
        if (isCodedError(error) && error.kind === "closed") return;
        await sleep(clock, delayMs);
        delayMs = Math.min(2 * delayMs, settings.retryDelayMsMax);
      }
    }
    this.begin();
  }

  /** A removal that was cut short has left something behind. */
  async #removeLeft(): Promise<boolean> {
    try {
      const claim = await this.#checkpointer.writer.shard.get(this.#keys.claim);
      this.#epoch = claim?.timeUs;
      await this.remove();
      return true;
    } catch (error) {
      this.#epoch = undefined;
      this.#context.logger.warn("session.group_not_removed", { group: this.name, error });
      return false;
    }
  }

  /** The store serves: reading may begin. */
  begin(): void {
    if (this.#closed || this.#subscriber !== undefined || this.#epoch === undefined) return;
    const positions = new Map(this.#cursor);
    const start = positions;
    const filters = [{ filter: this.#filter, start, durable: true, context: undefined }];
    this.#subscriber = this.#context.store.subscribe({ filters, positions, port: this });
  }

  /** A message waits for a member with room. */
  get waits(): boolean {
    return this.#waits;
  }

  wake(): void {
    if (!this.#waits || this.#host.isBusy) return;
    this.#waits = false;
    this.#subscriber?.wake();
  }

  /** Reads and writes nothing more. */
  close(): void {
    if (this.#closed) return;
    this.#adoptPositions();
    this.#closed = true;
    this.#subscriber?.close();
    this.#checkpointer.forget(this);
  }

  /** Removes what is stored. REQUIRES: closed, or not created. Resolves when that is durable. */
  async remove(): Promise<void> {
    const epoch = this.#epoch;
    if (epoch === undefined) return;
    const { writer } = this.#checkpointer;
    const { claim, cursor, ids, outPrefix } = this.#keys;
    // Behind it in the queue, what is listed is all there is.
    await writer.write(() => this.#guarded([deleteKey(ids)], epoch));
    for (;;) {
      const left = await writer.shard.list(outPrefix, { countMax: removedMax });
      if (left.length === 0) break;
      const outs = left.map(({ key }) => deleteKey(key));
      await writer.write(() => this.#guarded(outs, epoch));
    }
    await writer.write(() => this.#guarded([cursor, claim].map(deleteKey), epoch));
    this.#epoch = undefined;
  }

  /** The exact state at an orderly end. REQUIRES: closed, no member is connected. */
  async writeExact(): Promise<void> {
    const epoch = this.#epoch;
    if (epoch === undefined) return;
    const changes = this.assignments.collectExact();
    const ids = this.#reservation.exact(this.#cursor);
    const writes = this.#writes({ changes, ids });
    await this.#checkpointer.writer.write(() => this.#guarded(writes, epoch));
  }

  // -------------------------------------------------------------- messages come in

  offer(ttv: DeliverableTtv): boolean {
    if (this.#closed) return false;
    const taken = this.#take(ttv);
    if (taken) this.#cursor.set(ttv.ref.shard, ttv.timeUs);
    else this.#stall(ttv.ref.shard);
    if (this.#reservation.wanted) this.#changed(this.#reservation.urgent);
    return taken;
  }

  moved(shard: number, positionUs: number): void {
    if (!this.#closed) this.#cursor.set(shard, positionUs);
  }

  missed(report: MissedReport): void {
    this.#context.counters.missed += report.count;
    this.#context.logger.warn("session.group_missed", { group: this.name, ...report });
    this.#dropped += report.count;
    this.#cursorChanged = true;
    this.#changed(false);
  }

  reachedTail(shard: number): void {
    this.#atTail.add(shard);
    if (this.isDrained) this.#host.ready();
  }

  #take(ttv: DeliverableTtv): boolean {
    if (this.#host.isBusy) return false;
    const { shard } = ttv.ref;
    if (this.#recovered.size > 0 && this.#recovered.delete(`${shard}:${ttv.timeUs}`)) return true;
    const { clock, counters } = this.#context;
    if (ttv.expiryUs !== 0 && isExpired(ttv, clock.wallUs())) {
      counters.expiredDropped++;
      return true;
    }
    if (!this.#reservation.allows(shard, ttv.timeUs)) return false;
    const assignment = this.assignments.create({ ...ttv.ref }, this);
    const inDoubt = this.#reservation.inDoubt(shard, ttv.timeUs);
    const outcome = this.#host.deal(ttv, assignment, inDoubt);
    if (outcome === "wait") return false;
    this.#cursorChanged = true;
    this.#changed(false);
    return true;
  }

  #stall(shard: number): void {
    this.#waits = true;
    this.#atTail.delete(shard);
  }

  #adoptPositions(): void {
    for (const [shard, timeUs] of this.#subscriber?.positions() ?? []) {
      if (timeUs > (this.#cursor.get(shard) ?? 0)) this.#cursor.set(shard, timeUs);
    }
  }

  // -------------------------------------------------------------- state goes out

  dealt(assignment: Assignment): void {
    if (this.#closed) {
      // The group is not durable any more: there is nothing to wait for.
      assignment.member?.assigned(assignment);
      return;
    }
    this.assignments.dealt(assignment);
    this.#changed(assignment.qos === 2);
  }

  finished(assignment: Assignment, then?: () => void): void {
    this.#host.finished(assignment);
    if (this.#closed) {
      then?.();
      return;
    }
    this.assignments.finish(assignment, then);
    // Somebody waits for the end of the record, or nobody does.
    if (this.assignments.hasChanges) this.#changed(then !== undefined);
  }

  returned(assignment: Assignment): void {
    this.#host.returned(assignment);
  }

  unsure(assignment: Assignment): void {
    this.#host.unsure(assignment);
  }

  collect(): (BuiltWrites & { settle: Settle }) | undefined {
    const epoch = this.#epoch;
    const wanted = this.#reservation.wanted;
    const hasChanges = this.#cursorChanged || this.assignments.hasChanges || wanted;
    if (this.#closed || epoch === undefined || !hasChanges) return undefined;
    const { store, clock } = this.#context;
    const changes = this.assignments.collect();
    const horizon = { tail: store.tail(), wallUs: clock.wallUs() };
    const ids = wanted ? this.#reservation.renewal(horizon, this.#cursor) : undefined;
    this.#cursorChanged = false;
    const settle: Settle = (error) => this.#settle(error, { changes, ids });
    return { ...this.#guarded(this.#writes({ changes, ids }), epoch), settle };
  }

  /** One group has one owner in a process: only damage of its claim leads here. */
  fenced(): void {
    this.#context.logger.error("session.group_fenced", { group: this.name });
    this.close();
  }

  #settle(error: CodedError | undefined, { changes, ids }: Collected): void {
    if (error !== undefined) {
      this.assignments.failed(changes);
      this.#cursorChanged = true;
      if (ids !== undefined) this.#reservation.failed();
      return;
    }
    if (ids !== undefined) this.#reservation.committed(ids);
    this.assignments.committed(changes);
    this.#host.ready();
  }

  #changed(urgent: boolean): void {
    if (!this.#closed) this.#checkpointer.mark(this, urgent);
  }

  /** Puts of assignments first, deletes last: such a write may be cut off anywhere. */
  #writes({ changes, ids }: Collected): MapWrite[] {
    const keys = this.#keys;
    const writes: MapWrite[] = changes.puts.map(({ assignment, record }) => ({
      key: keys.out(assignment.number),
      value: encodeAssigned(record),
    }));
    const cursor = { positions: this.#cursor, dropped: this.#dropped };
    writes.push({ key: keys.cursor, value: encodeCursor(cursor) });
    if (ids !== undefined) writes.push({ key: keys.ids, value: encodeIds(ids) });
    for (const number of changes.deletes) writes.push(deleteKey(keys.out(number)));
    return writes;
  }

  #guarded(writes: readonly MapWrite[], epoch: number): BuiltWrites {
    return { writes, guards: [{ key: this.#keys.claim, timeUs: epoch }] };
  }
}

/** Deletes of one write of a removal. */
const removedMax = 900;
