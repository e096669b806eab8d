// The seam under a shard: a replicated or local sequence of entries. `LocalLog` is the local one
// (index from 1, term 1), on the write-ahead log that all shards share.
//
// Contract for every implementation: entries proposed are committed in the order of their
// indexes; `onCommitted` runs once per entry, in that order, only when the entry is durable; a
// failed log commits nothing more.

import type { Logger } from "../base/index.ts";
import type { LogGap, WriteAheadLog } from "../log/index.ts";

export type ShardEntry = {
  readonly index: number;
  readonly kind: number;
  readonly version: number;
  /** Valid while the entry is being applied. */
  readonly payload: Buffer;
};

export interface ShardLog {
  readonly shard: number;
  /** Index of the last entry proposed or found. */
  readonly lastIndex: number;
  /** Damage found when the log was opened, as far as it concerns this shard. */
  readonly gaps: readonly LogGap[];
  /** Reads durable entries from `fromIndex` on, before the first `propose`. */
  replay(fromIndex: number, visit: (entry: ShardEntry) => void | Promise<void>): Promise<void>;
  /** From now on committed entries go to `onCommitted`; proposals are taken from `nextIndex`. */
  start(nextIndex: number, handlers: ShardLogHandlers): void;
  /** Takes over `payload`. Returns the entry's index. */
  propose(kind: number, version: number, payload: Buffer): number;
  /** Entries up to `index` are in the shard's checkpoint. */
  release(index: number): void;
  readonly bytesSinceRelease: number;
}

export type ShardLogHandlers = {
  readonly onCommitted: (entry: ShardEntry) => void;
  /** The log has failed for good: nothing that is open will be committed. Called once. */
  readonly onFailed: (error: Error) => void;
};

export class LocalLog implements ShardLog {
  readonly shard: number;
  readonly gaps: readonly LogGap[];
  readonly #log: WriteAheadLog;
  readonly #logger: Logger;
  readonly #epoch: () => number;
  #handlers: ShardLogHandlers | undefined;
  #lastIndex = 0;
  #failed = false;

  constructor(shard: number, log: WriteAheadLog, epoch: () => number, logger: Logger) {
    this.shard = shard;
    this.#log = log;
    this.#epoch = epoch;
    this.#logger = logger;
    this.gaps = log.gapsOf(shard);
  }

  get lastIndex(): number {
    return this.#lastIndex;
  }

  get bytesSinceRelease(): number {
    return this.#log.bytesSinceRelease(this.shard);
  }

  async replay(
    fromIndex: number,
    visit: (entry: ShardEntry) => void | Promise<void>,
  ): Promise<void> {
    await this.#log.read(this.shard, fromIndex, (record) => {
      const { index, kind, version } = record;
      return visit({ index, kind, version, payload: record.payload as Buffer });
    });
  }

  start(nextIndex: number, handlers: ShardLogHandlers): void {
    this.#lastIndex = nextIndex - 1;
    this.#handlers = handlers;
  }

  propose(kind: number, version: number, payload: Buffer): number {
    const index = ++this.#lastIndex;
    const record = {
      shard: this.shard,
      epoch: this.#epoch(),
      index,
      term: 1,
      kind,
      version,
      payload,
    };
    this.#log.append(record, (error) => {
      if (error === undefined) this.#handlers?.onCommitted({ index, kind, version, payload });
      else this.#fail(error);
    });
    return index;
  }

  release(index: number): void {
    if (index > 0) this.#log.release(this.shard, index);
  }

  #fail(error: Error): void {
    if (this.#failed) return;
    this.#failed = true;
    this.#logger.error("store.shard_log_failed", { shard: this.shard, reason: error.message });
    this.#handlers?.onFailed(error);
  }
}
