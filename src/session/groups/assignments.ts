// The messages of a durable group that are in the hands of members or on their way back, and which of
// their records have to be written.
//
// A record is written only for what outlives a checkpoint: QoS 1 that is acked at once has none. QoS 2
// to a durable member has one before the member binds it. QoS 2 to a member without stored state has
// none: the cursor is durably past it before it is sent, so that after a crash it reaches nobody else.

import type { TtvRef } from "../../store/index.ts";
import type { Dealt } from "../core/dealt.ts";
import type { AssignedRecord } from "../core/records.ts";
import type { Member } from "./member.ts";

/** Whoever keeps an assignment. */
export interface AssignmentHost {
  /** A member holds it now. */
  dealt(assignment: Assignment): void;
  finished(assignment: Assignment, then?: () => void): void;
  returned(assignment: Assignment): void;
  unsure(assignment: Assignment): void;
}

export class Assignment implements Dealt {
  readonly number: number;
  readonly ref: TtvRef;
  readonly #host: AssignmentHost;
  /** Undefined: nobody holds it. */
  member: Member | undefined;
  qos: 1 | 2 = 1;
  /** Somebody may have seen it. */
  sent = false;
  /** Its record may exist. */
  stored = false;
  /** Counts how often it was dealt. */
  round = 0;
  #isOver = false;

  constructor(number: number, ref: TtvRef, host: AssignmentHost) {
    this.number = number;
    this.ref = ref;
    this.#host = host;
  }

  get waitsForGroup(): boolean {
    return true;
  }

  /** QoS 2 for somebody who keeps nothing: no record, the cursor alone. */
  get isUnrecorded(): boolean {
    return this.qos === 2 && this.member?.durable === false;
  }

  to(member: Member, qos: 1 | 2): void {
    this.member = member;
    this.qos = qos;
    this.round++;
  }

  /** The member took it. It may have acked it at once. */
  taken(): void {
    if (!this.#isOver) this.#host.dealt(this);
  }

  /** No member took it. */
  kept(): void {
    this.member = undefined;
  }

  done(): void {
    this.#isOver = true;
    this.#host.finished(this);
  }

  bound(then: () => void): void {
    this.#isOver = true;
    this.#host.finished(this, then);
  }

  back(sent: boolean): void {
    if (sent) this.sent = true;
    this.member = undefined;
    this.#host.returned(this);
  }

  unsure(): void {
    this.#host.unsure(this);
  }
}

type Put = {
  readonly assignment: Assignment;
  readonly round: number;
  readonly record: AssignedRecord;
};

export type CollectedAssignments = {
  readonly puts: readonly Put[];
  /** Without a record: held by members since this round, behind the cursor of the same write. */
  readonly passed: ReadonlyArray<{ readonly assignment: Assignment; readonly round: number }>;
  readonly deletes: readonly number[];
};

export class Assignments {
  readonly #open = new Map<number, Assignment>();
  #dirty = new Set<Assignment>();
  #deletes = new Map<number, Array<() => void>>();
  /** Deletes that are being written. */
  readonly #leaving = new Map<number, Array<() => void>>();
  #nextNumber = 1;

  get hasChanges(): boolean {
    return this.#dirty.size > 0 || this.#deletes.size > 0;
  }

  get size(): number {
    return this.#open.size;
  }

  values(): IterableIterator<Assignment> {
    return this.#open.values();
  }

  create(ref: TtvRef, host: AssignmentHost): Assignment {
    return new Assignment(this.#nextNumber++, ref, host);
  }

  /** Takes one that an earlier process left. */
  restore(number: number, record: AssignedRecord, host: AssignmentHost): Assignment {
    const assignment = new Assignment(number, record.ref, host);
    assignment.qos = record.qos;
    assignment.sent = record.sent;
    assignment.stored = true;
    this.#open.set(number, assignment);
    this.#nextNumber = Math.max(this.#nextNumber, number + 1);
    return assignment;
  }

  /** It was dealt, for the first time or again. */
  dealt(assignment: Assignment): void {
    this.#open.set(assignment.number, assignment);
    this.#dirty.add(assignment);
  }

  /** `then` runs when its record is durably gone. */
  finish(assignment: Assignment, then: (() => void) | undefined): void {
    const { number, stored } = assignment;
    this.#open.delete(number);
    this.#dirty.delete(assignment);
    if (!stored) {
      then?.();
      return;
    }
    const waiting = this.#deletes.get(number) ?? [];
    if (then !== undefined) waiting.push(then);
    this.#deletes.set(number, waiting);
  }

  collect(): CollectedAssignments {
    const puts: Put[] = [];
    const passed: Array<{ assignment: Assignment; round: number }> = [];
    for (const assignment of this.#dirty) {
      const { round } = assignment;
      if (assignment.isUnrecorded) {
        passed.push({ assignment, round });
        // One that was meant for somebody else before.
        if (assignment.stored) this.#deletes.set(assignment.number, []);
        assignment.stored = false;
        continue;
      }
      assignment.stored = true;
      puts.push({ assignment, round, record: recordOf(assignment) });
    }
    this.#dirty = new Set();
    const deletes = [...this.#deletes.keys()];
    for (const [number, waiting] of this.#deletes) this.#leaving.set(number, waiting);
    this.#deletes = new Map();
    return { puts, passed, deletes };
  }

  /** Everything that is open, for an orderly end. REQUIRES: no member holds anything. */
  collectExact(): CollectedAssignments {
    for (const assignment of this.#open.values()) this.#dirty.add(assignment);
    return this.collect();
  }

  /** Durable: members may go on with what they hold. */
  committed(collected: CollectedAssignments): void {
    for (const number of collected.deletes) {
      const waiting = this.#leaving.get(number) ?? [];
      this.#leaving.delete(number);
      for (const then of waiting) then();
    }
    for (const { assignment, round } of [...collected.puts, ...collected.passed]) {
      if (assignment.round === round) assignment.member?.assigned(assignment);
    }
  }

  failed(collected: CollectedAssignments): void {
    for (const { assignment } of [...collected.puts, ...collected.passed]) {
      if (this.#open.get(assignment.number) === assignment) this.#dirty.add(assignment);
    }
    for (const number of collected.deletes) {
      const waiting = this.#leaving.get(number) ?? [];
      this.#leaving.delete(number);
      this.#deletes.set(number, [...waiting, ...(this.#deletes.get(number) ?? [])]);
    }
  }
}

function recordOf({ ref, qos, sent, member }: Assignment): AssignedRecord {
  // What is with a member may have been sent, at QoS 1; at QoS 2 the member's own record says so.
  const isOut = qos === 1 && member !== undefined;
  return { ref: { ...ref }, qos, clientId: member?.clientId ?? "", sent: sent || isOut };
}
