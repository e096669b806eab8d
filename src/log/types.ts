// What the write-ahead log takes and gives: records of many shards in one stream of flushes.
// One `fdatasync` makes a whole flush durable (docs/formats/log.md).

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

/** A range of one shard's records that could not be read although it had been synced. */
export type LogGap = {
  readonly shard: number;
  /** First and last lost index; `to` is undefined when it is not known. */
  readonly fromIndex: number;
  readonly toIndex: number | undefined;
  /** Copy of the damaged bytes. */
  readonly quarantinePath: string;
};

export type LogSettings = {
  /** Size of a segment file. Default 64 MiB. */
  readonly segmentBytes: number;
  /** Cap of one flush; a larger record makes a flush of its own. Default 1 MiB and 4,096. */
  readonly flushBytesMax: number;
  readonly flushRecordsMax: number;
  /** Delay before a flush that has something to write. Default 0: the sync under way is the timer. */
  readonly flushIntervalMs: number;
  /** Delay before a flush when the log was idle. Default 0. */
  readonly idleFlushIntervalMs: number;
  /** What to do with damage at open: set aside and go on, or refuse to start. */
  readonly onDamage: "quarantine" | "refuse";
  /** Free segments kept for reuse. */
  readonly spareSegmentsMax: number;
  /** Largest record taken. Default 8 MiB + 64 KiB. */
  readonly recordBytesMax: number;
};

/**
 * The face of the log (implemented by `log.ts`).
 *
 * Records of one shard are appended with consecutive indexes by one owner. `done` runs once per
 * append, in append order over all shards, after the record is on stable storage, or with an error.
 */
export interface WriteAheadLog {
  /** Queues a record for the next flush. The payload belongs to the log until `done`. */
  append(record: LogRecord, done: (error: Error | undefined) => void): void;
  /** Bytes queued and not yet synced. */
  readonly pendingBytes: number;
  /** Lowest and highest index of a shard still readable; undefined when it has no records. */
  range(shard: number): { readonly firstIndex: number; readonly lastIndex: number } | undefined;
  /**
   * Reads the records of one shard from `fromIndex` on, in order, and awaits `visit` for each.
   * Only records that are durable are visited. Payloads are views valid during the visit.
   */
  read(
    shard: number,
    fromIndex: number,
    visit: (record: LogRecord) => void | Promise<void>,
  ): Promise<void>;
  /** Damage found at open. */
  readonly gaps: readonly LogGap[];
  /**
   * The owner's checkpoint: records of `shard` up to `index` are no longer needed. Segments that
   * nobody needs are recycled.
   */
  release(shard: number, index: number): Promise<void>;
  /** The shard was dropped: its records no longer pin anything. */
  forget(shard: number): Promise<void>;
  /** Log bytes written since the shard's last release, to decide when to checkpoint. */
  bytesSinceRelease(shard: number): number;
  /** Bytes of all segment files. */
  readonly sizeBytes: number;
  /** The first EIO or fdatasync error; the log takes nothing more after it. */
  readonly failure: Error | undefined;
  close(): Promise<void>;
}
