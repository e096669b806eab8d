// What a durable session reserves ahead of use, so that an end without notice is safe:
// - packet ids: new messages of the next owner start behind the reservation, so an id that was sent
//   and is not recorded is not given to another message;
// - "may have been sent" times by shard: a message is sent only when it lies at or below the durable
//   one, so the next owner knows which messages must carry DUP (above the cursor, not above it).
//
// Both lie ahead of what is needed and are renewed early, so that sending rarely waits. Nothing
// here writes: `renewal` gives the record to write, `committed` takes it into use.

import { PacketIds } from "./packet-ids.ts";
import type { IdsRecord } from "./records.ts";

/** Largest number of ids reserved at a time: a quarter of all, so that ends do not wrap into it. */
const reservedMax = 16_384;
/** Smallest: small windows still take ids quickly. */
const reservedMin = 256;
/** In windows: a renewal writes what is in flight too, so it must be rare at full speed. */
const reservedWindows = 16;
/** With less than this part left a renewal is urgent. */
const urgentPart = 8;

export type ReservationSettings = {
  readonly windowMax: number;
  readonly sentAheadUs: number;
};

/** Where the shards stand now. */
export type Horizon = { readonly tail: ReadonlyMap<number, number>; readonly wallUs: number };

export class Reservation {
  readonly ids: PacketIds;
  readonly #settings: ReservationSettings;
  readonly #size: number;
  /** Durable: a message at or below may be sent. */
  readonly #sentUntil: Map<number, number>;
  /** From owners that ended without notice. */
  readonly #doubtUntil: Map<number, number>;
  #reservedEnd: number;
  #wanted = false;
  #urgent = false;
  /** A renewal is being written. */
  #renewing = false;

  constructor(settings: ReservationSettings, stored: IdsRecord | undefined) {
    this.#settings = settings;
    this.#size = reservedIds(settings.windowMax);
    const last = stored ?? newIds;
    const start = last.exact ? last.next : last.reservedEnd;
    this.ids = new PacketIds(start, start);
    this.#reservedEnd = start;
    this.#sentUntil = new Map();
    this.#doubtUntil = new Map(last.doubtUntil);
    for (const [shard, timeUs] of last.exact ? [] : last.sentUntil) {
      const known = this.#doubtUntil.get(shard) ?? 0;
      this.#doubtUntil.set(shard, Math.max(known, timeUs));
    }
  }

  /** A record should be written soon; `urgent` when sending waits for it. */
  get wanted(): boolean {
    return this.#wanted;
  }

  get urgent(): boolean {
    return this.#urgent;
  }

  /** Whether the message may be sent now. False asks for a renewal. */
  allows(shard: number, timeUs: number): boolean {
    const until = this.#sentUntil.get(shard) ?? 0;
    if (timeUs > until) {
      this.#want(true);
      return false;
    }
    if (until - timeUs < this.#settings.sentAheadUs / 2) this.#want(false);
    return true;
  }

  /** Position of the next id, to go back to with `rewind`. */
  get next(): number {
    return this.ids.next;
  }

  rewind(position: number): void {
    this.ids.rewind(position);
  }

  /** An id for a new message. Undefined asks for a renewal. */
  take(inUse: (packetId: number) => boolean): number | undefined {
    const packetId = this.ids.take(inUse);
    // A fast reader may take the other half sooner than a lazy write comes.
    if (this.ids.left < this.#size / 2) this.#want(this.ids.left < this.#size / urgentPart);
    return packetId;
  }

  /** As `take`, for several that follow each other. See `PacketIds.takeRow`. */
  takeRow(count: number, inUse: (packetId: number) => boolean): number | undefined {
    const first = this.ids.takeRow(count, inUse);
    if (this.ids.left < this.#size / 2) this.#want(this.ids.left < this.#size / urgentPart);
    return first;
  }

  inDoubt(shard: number, timeUs: number): boolean {
    return timeUs <= (this.#doubtUntil.get(shard) ?? 0);
  }

  /** The record that reserves anew from here. */
  renewal(at: Horizon, cursor: ReadonlyMap<number, number>): IdsRecord {
    this.#wanted = false;
    this.#urgent = false;
    this.#renewing = true;
    const sentUntil = new Map<number, number>();
    for (const [shard, timeUs] of at.tail) {
      // The next commit time is hardly below the wall clock: an idle shard's tail is long past.
      const ahead = Math.max(timeUs, at.wallUs) + this.#settings.sentAheadUs;
      sentUntil.set(shard, Math.max(ahead, this.#sentUntil.get(shard) ?? 0));
    }
    const next = this.ids.next;
    const reservedEnd = Math.max(this.#reservedEnd, next + this.#size);
    return { exact: false, next, reservedEnd, sentUntil, doubtUntil: this.#doubt(cursor) };
  }

  committed(record: IdsRecord): void {
    this.#renewing = false;
    this.#reservedEnd = Math.max(this.#reservedEnd, record.reservedEnd);
    this.ids.extend(this.#reservedEnd);
    for (const [shard, timeUs] of record.sentUntil) this.#sentUntil.set(shard, timeUs);
  }

  /** The write failed: it is wanted as before. */
  failed(): void {
    this.#renewing = false;
    this.#wanted = true;
  }

  /** The record of an orderly end: no id in doubt, nothing sent above the cursor. */
  exact(cursor: ReadonlyMap<number, number>): IdsRecord {
    const next = this.ids.next;
    const doubtUntil = this.#doubt(cursor);
    return { exact: true, next, reservedEnd: next, sentUntil: new Map(), doubtUntil };
  }

  #want(urgent: boolean): void {
    if (this.#renewing) return;
    this.#wanted = true;
    if (urgent) this.#urgent = true;
  }

  /** Doubt that the cursor has passed is settled. */
  #doubt(cursor: ReadonlyMap<number, number>): Map<number, number> {
    const open = new Map<number, number>();
    for (const [shard, timeUs] of this.#doubtUntil) {
      if (timeUs > (cursor.get(shard) ?? 0)) open.set(shard, timeUs);
    }
    return open;
  }
}

const newIds: IdsRecord = {
  exact: true,
  next: 1,
  reservedEnd: 1,
  sentUntil: new Map(),
  doubtUntil: new Map(),
};

function reservedIds(windowMax: number): number {
  return Math.min(reservedMax, Math.max(reservedMin, windowMax * reservedWindows));
}
