// What the write-ahead log takes and gives: records of many shards in one stream of flushes.
// One `fdatasync` makes a whole flush durable (docs/formats/log.md).

import type { Clock, Counters, Disk, Histogram, Logger, Random } from "../base/index.ts";
import type { LogCounterHelp } from "./counters.ts";

/** Smallest unit of the log: one entry of one shard. */
export type LogRecord = {
  /** Number of the shard in this data directory, u32, given once and never reused. */
  readonly shard: number;
  /** Epoch of the shard when the record was written, u32. */
  readonly epoch: number;
  /** Position in the shard's own sequence, from 1, without gaps. */
  readonly index: number;
  /** Raft term, 1 in local mode. */
  readonly term: number;
  /** What the payload is; the log does not look inside. u8. */
  readonly kind: number;
  /** Version of the command in the payload, u16. */
  readonly version: number;
  readonly payload: Uint8Array;
};

/**
 * A range of one shard's records that could not be read although it had been synced. Reported at
 * every open until the segment is released; the owner drops what lies at or below its checkpoint.
 */
export type LogGap = {
  readonly shard: number;
  /** First and last lost index; `to` is undefined when it is not known. */
  readonly fromIndex: number;
  readonly toIndex: number | undefined;
  /** Copy of the damaged bytes; undefined when nothing was left, or no room, to copy. */
  readonly quarantinePath: string | undefined;
};

/** Bytes of the log that were synced and are not what was written. */
export type LogDamage = {
  readonly path: string;
  readonly offset: number;
  readonly sizeBytes: number;
  readonly reason: string;
  readonly quarantinePath: string | undefined;
};

export type LogSettings = {
  /** Size of a segment file. A flush that is larger gets a segment of its own size. */
  readonly segmentBytes: number;
  /** Cap of one flush; a larger record makes a flush of its own. */
  readonly flushBytesMax: number;
  readonly flushRecordsMax: number;
  /** Delay before a flush that has something to write. 0: the sync under way is the timer. */
  readonly flushIntervalMs: number;
  /** Delay before a flush when the log was idle. 0: the end of the turn. */
  readonly idleFlushIntervalMs: number;
  /** An empty flush proves the last one synced after this long without appends. */
  readonly idleProofMs: number;
  /** What to do with damage at open: set aside and go on, or refuse to start. */
  readonly onDamage: "quarantine" | "refuse";
  /** Free segments kept for reuse. */
  readonly spareSegmentsMax: number;
  /** Largest payload plus header of a record taken. */
  readonly recordBytesMax: number;
  /** Bytes queued and not yet synced, above which appends are refused. */
  readonly pendingBytesMax: number;
  /** Step in which a new segment is filled with zeros, in the background. */
  readonly zeroFillBytes: number;
};

export const defaultLogSettings: LogSettings = {
  segmentBytes: 64 * 1024 * 1024,
  flushBytesMax: 1024 * 1024,
  flushRecordsMax: 4096,
  flushIntervalMs: 0,
  idleFlushIntervalMs: 0,
  idleProofMs: 1000,
  onDamage: "quarantine",
  spareSegmentsMax: 4,
  recordBytesMax: 8 * 1024 * 1024 + 64 * 1024,
  pendingBytesMax: 64 * 1024 * 1024,
  zeroFillBytes: 1024 * 1024,
};

export type LogComponents = {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  /** Where every sync of a flush is noted. */
  readonly syncTimes?: Histogram;
  /** Told once, before any `done` gets the error. */
  readonly onFailure?: (error: Error) => void;
  /** Told whenever `full` changes. */
  readonly onFull?: (full: boolean) => void;
};

export type LogRange = { readonly firstIndex: number; readonly lastIndex: number };

export type LogPin = {
  /** The shard that keeps the oldest segment. */
  readonly shard: number;
  /** Log bytes from the start of that segment to the end of the log. */
  readonly bytes: number;
};

export type VisitRecord = (record: LogRecord) => void | Promise<void>;

/**
 * The face of the log (implemented by `log.ts`).
 *
 * Records of one shard are appended with consecutive indexes by one owner. An index at or below the
 * last one replaces the suffix from there on (Raft); local mode never does that.
 */
export interface WriteAheadLog {
  /**
   * Queues a record for the next flush. The payload belongs to the log until `done`, which runs
   * once, in append order over all shards, after the record is on stable storage, or with an error.
   * `written` runs once before it, in the same order, when the operating system has the record: an
   * end of the process loses nothing from then on, an end of the machine at most this one flush.
   *
   * @throws when the record is not taken, and then `done` never runs: LOG_CLOSED, LOG_IO_FAILED
   *   (the same error as `failure`), LOG_RECORD_TOO_LARGE, LOG_PENDING_FULL.
   */
  append(record: LogRecord, done: (error: Error | undefined) => void, written?: () => void): void;
  /** Largest payload of a record that is taken. */
  readonly payloadBytesMax: number;
  /** Bytes queued and not yet synced. */
  readonly pendingBytes: number;
  /**
   * No space for the next segment. What is left of the current one, about a whole segment, is the
   * reserve: the owner refuses new writes and goes on with progress writes. Appends are still
   * taken, wait when the reserve is used up, and go on by themselves when there is space.
   */
  readonly full: boolean;
  /** Lowest and highest durable index of a shard; undefined when it has no records. */
  range(shard: number): LogRange | undefined;
  /** Shards with records in the log, to `forget` those that the owner no longer knows. */
  shards(): number[];
  /**
   * Reads the records of one shard from `fromIndex` on, in order, and awaits `visit` for each.
   * Visits what is durable at the call; damage reported at open is passed over. Payloads are views
   * valid during the visit.
   *
   * @throws LOG_RECORD_UNREADABLE when bytes went bad since open.
   */
  read(shard: number, fromIndex: number, visit: VisitRecord): Promise<void>;
  /** No segment was there at open: whoever knows of records in this log has lost them. */
  readonly isNew: boolean;
  /** Damage found at open, per affected shard that has records in the log. */
  readonly gaps: readonly LogGap[];
  /**
   * The gaps of one shard. Also answers for a shard without any readable record, whose records may
   * have been in a damaged flush that no longer tells what it held.
   */
  gapsOf(shard: number): readonly LogGap[];
  /** The damaged places themselves, for `doctor`. */
  readonly damage: readonly LogDamage[];
  /**
   * The owner's checkpoint: records of `shard` up to `index` are no longer needed. Segments that
   * nobody needs are recycled in the background, oldest first.
   */
  release(shard: number, index: number): void;
  /** The shard was dropped: its records no longer pin anything. */
  forget(shard: number): void;
  /** Bytes of this shard's records that are not released, about: to decide when to checkpoint. */
  bytesSinceRelease(shard: number): number;
  /** Who keeps the oldest segment; undefined when nobody does. */
  pinnedBy(): LogPin | undefined;
  /**
   * Copies the shard's unreleased records to a file of their own and releases them. For a shard
   * that cannot checkpoint. Read it with `readBacklog`.
   */
  copyBacklog(shard: number, path: string): Promise<LogRange | undefined>;
  /** Resolves when a later flush on stable storage proves that all appended so far is synced. */
  prove(): Promise<void>;
  /** Removes the free segments that are kept for reuse, but for the one that is next. */
  trim(): Promise<void>;
  /** Bytes of all segment files, free ones included. */
  readonly sizeBytes: number;
  /** The first EIO or fdatasync error; the log takes nothing more after it. */
  readonly failure: Error | undefined;
  readonly counters: Counters<LogCounterHelp>;
  /** Writes what is queued and the proof of it, then closes. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
