// The unfinished QoS 1 and 2 messages of a session, and which of their records have to be written.
//
// Invariants: a packet id belongs to at most one entry; entries are kept in send order; the delete
// of a record is wanted only if its key may exist. `collect` hands the changes to a write; until it
// is settled with `committed` or `failed`, later changes gather for the next one.

import type { Ttv } from "../../store/index.ts";
import type { Dealt } from "./dealt.ts";
import type { InFlightRecord, InFlightSource } from "./records.ts";

/**
 * - `waiting`: not sent on this connection;
 * - `sent`: waits for PUBACK or PUBREC;
 * - `released`: PUBREC came, waits for PUBCOMP;
 * - `orphaned`: a QoS 2 message that was sent once and whose body is gone: only its id is held.
 */
export type Stage = "waiting" | "sent" | "released" | "orphaned";

export type InFlight = {
  readonly sendNumber: number;
  readonly packetId: number;
  readonly qos: 1 | 2;
  readonly retain: boolean;
  readonly identifiers: readonly number[];
  readonly source: InFlightSource;
  readonly sizeBytes: number;
  stage: Stage;
  /** It may have been sent on an earlier connection. */
  dup: boolean;
  /** It was sent on this connection or is new on it: it holds a slot of the window. */
  inWindow: boolean;
  /** The body, while it has to be sent. */
  message: Ttv | undefined;
  /** Its record may exist. */
  stored: boolean;
  /** What the record says of `sent`: left behind on purpose, and made exact at an orderly end. */
  storedSent: boolean;
  /** Its record is durable: QoS 2 may be sent. */
  bound: boolean;
  /** Its release is durable: PUBREL may be sent. */
  releaseBound: boolean;
  /** False: it has no record, its shared group answers for it. */
  kept: boolean;
  /** Its shared group, as long as it is the group's. */
  dealt: Dealt | undefined;
  /** Its shared group may still ask for the record. */
  awaitsGroup: boolean;
};

export type CollectedChanges = {
  readonly puts: ReadonlyArray<{ readonly entry: InFlight; readonly record: InFlightRecord }>;
  readonly deletes: readonly number[];
};

export class InFlightTable {
  readonly #byId = new Map<number, InFlight>();
  #dirty = new Set<InFlight>();
  #deletes = new Set<number>();
  /** Finished; their records stay until their groups have forgotten them. */
  readonly #awaiting = new Set<InFlight>();
  #nextSendNumber = 1;

  get size(): number {
    return this.#byId.size;
  }

  get hasChanges(): boolean {
    return this.#dirty.size > 0 || this.#deletes.size > 0;
  }

  takeSendNumber(): number {
    return this.#nextSendNumber++;
  }

  has(packetId: number): boolean {
    return this.#byId.has(packetId);
  }

  get(packetId: number): InFlight | undefined {
    return this.#byId.get(packetId);
  }

  /** In send order. */
  values(): IterableIterator<InFlight> {
    return this.#byId.values();
  }

  add(entry: InFlight): void {
    this.#byId.set(entry.packetId, entry);
    this.changed(entry);
  }

  /**
   * Takes an entry read at resume, in send order. An older one under the same id was finished: the
   * id was taken again, only the delete of its record is missing.
   */
  restore(entry: InFlight): void {
    const older = this.#byId.get(entry.packetId);
    if (older !== undefined) this.remove(older);
    this.#byId.set(entry.packetId, entry);
    this.#nextSendNumber = Math.max(this.#nextSendNumber, entry.sendNumber + 1);
  }

  changed(entry: InFlight): void {
    if (entry.kept) this.#dirty.add(entry);
  }

  remove(entry: InFlight): void {
    this.#byId.delete(entry.packetId);
    this.#dirty.delete(entry);
    if (!entry.stored) return;
    if (entry.awaitsGroup) this.#awaiting.add(entry);
    else this.#deletes.add(entry.sendNumber);
  }

  /** The group asks no more. True: the record of a finished entry may go now. */
  forgotten(entry: InFlight): boolean {
    entry.awaitsGroup = false;
    if (!this.#awaiting.delete(entry)) return false;
    this.#deletes.add(entry.sendNumber);
    return true;
  }

  collect(): CollectedChanges {
    const puts = [...this.#dirty].map((entry) => {
      const record = recordOf(entry);
      entry.stored = true;
      entry.storedSent = record.sent;
      return { entry, record };
    });
    const deletes = [...this.#deletes];
    this.#dirty = new Set();
    this.#deletes = new Set();
    return { puts, deletes };
  }

  /** As `collect`, with every record exact about what was sent. */
  collectExact(): CollectedChanges {
    for (const entry of this.#byId.values()) {
      if (recordOf(entry).sent !== entry.storedSent) this.changed(entry);
    }
    return this.collect();
  }

  failed(changes: CollectedChanges): void {
    for (const { entry } of changes.puts) {
      if (this.#byId.get(entry.packetId) === entry) this.#dirty.add(entry);
    }
    for (const sendNumber of changes.deletes) this.#deletes.add(sendNumber);
  }
}

export function recordOf(entry: InFlight): InFlightRecord {
  const { packetId, qos, retain, sizeBytes, identifiers, source } = entry;
  const sent = entry.dup || entry.stage !== "waiting";
  const released = entry.stage === "released";
  return { packetId, qos, retain, sent, released, sizeBytes, identifiers, source };
}

/** An entry as it stands at resume. Without an orderly end everything may have been sent. */
export function entryOf(sendNumber: number, record: InFlightRecord, exact: boolean): InFlight {
  const { packetId, qos, retain, sizeBytes, identifiers, source } = record;
  return {
    sendNumber,
    packetId,
    qos,
    retain,
    sizeBytes,
    identifiers,
    source,
    stage: record.released ? "released" : "waiting",
    dup: record.sent || !exact,
    inWindow: false,
    message: source.kind === "retained" ? source.message : undefined,
    stored: true,
    storedSent: record.sent,
    bound: true,
    releaseBound: record.released,
    kept: true,
    dealt: undefined,
    awaitsGroup: false,
  };
}
