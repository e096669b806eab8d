// The seam under a shard: a replicated or local sequence of entries. `LocalLog` is the local one
// (index from 1, term 1), on the write-ahead log that all shards share.
//
// Contract for every implementation: entries are committed in the order of their indexes, and every
// index is handed on once, in that order, only when its entry is durable: to `onCommitted` what this
// process proposed, to `onForeign` all else; a failed log commits nothing more. A replicated log also
// says when this process may propose, and what of its proposals is lost.

import {
  asBuffer,
  type Clock,
  type CodedError,
  isCodedError,
  type Logger,
  toError,
} from "../base/index.ts";
import type { LogGap, LogRange, LogRecord, WriteAheadLog } from "../log/index.ts";
import type { Backlogs } from "./backlogs.ts";
import type { CopySource } from "./copies/copy-source.ts";

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
  /**
   * Takes over `payload`, whatever the log has to wait for. Its index is `lastIndex` then. A log
   * that has failed says so by `onFailed`, within this call.
   * REQUIRES: the payload is not above `payloadBytesMax`.
   */
  propose(kind: number, version: number, payload: Buffer): void;
  readonly payloadBytesMax: number;
  /** Entries up to `index` are in the shard's checkpoint. */
  release(index: number): void;
  readonly bytesSinceRelease: number;
  /** It is this shard that keeps the log from going on. */
  readonly pins: boolean;
  /** Why nothing can be proposed now; never there in a log of one process. */
  readonly refusal?: CodedError | undefined;
  /** Resolves when all that was acked before the call, by any process, is handed on here. */
  barrier?(): Promise<void>;
  /** Puts its unreleased entries elsewhere, so that it pins nothing. For one that is stuck. */
  copyBacklog(): Promise<LogRange | undefined>;
}

/** Where shards get their logs from, if not from the write-ahead log of the process alone. */
export interface ShardLogs {
  /** The log of a shard that is about to be opened. Once a process and opening. */
  open(shard: number): ShardLog;
}

export type ShardLogHandlers = {
  readonly onCommitted: (entry: ShardEntry) => void;
  /**
   * The entry would survive the end of the process, but not yet that of the machine. Called before
   * `onCommitted`, in the same order, by logs that can tell.
   */
  readonly onWritten?: (index: number) => void;
  /** The log has failed for good: nothing that is open will be committed. Called once. */
  readonly onFailed: (error: Error) => void;
  /**
   * A committed entry that another process proposed, or one of kind `none`. The next one comes when
   * what is returned has resolved. Only from replicated logs, as all below.
   */
  readonly onForeign?: (entry: ShardEntry) => undefined | Promise<void>;
  /**
   * `onCommitted` never runs for the proposal at `index`. The error says whether it may yet happen
   * (STORE_FATE_UNKNOWN) or certainly did not (STORE_NOT_LEADER, STORE_PROPOSAL_REFUSED).
   */
  readonly onLost?: (index: number, error: CodedError) => void;
  /** This process may propose: all that was committed before is handed on. */
  readonly onClaimed?: () => void;
  /** It may not any more; what is open is told of later. */
  readonly onDeposed?: (reason: CodedError) => void;
  /** What another replica may copy. */
  readonly supply?: CopySource | undefined;
  /**
   * The log does not reach back to what this replica has: it copies what it lacks. `exclusively` runs
   * its last step while no entry is handed on, and gets the index of the checkpoint after it.
   */
  readonly onAdopt?: (
    source: CopySource,
    exclusively: (work: () => Promise<number>) => Promise<void>,
  ) => Promise<void>;
  /** A checkpoint is wanted soon. */
  readonly onWantCheckpoint?: () => void;
};

/** How often a queue that is full is tried again. */
const retryMs = 1;

type Waiting = {
  readonly owner: object;
  readonly append: () => void;
  readonly onError: (error: Error) => void;
};

/**
 * Proposals of all shards on their way to the log. When its queue is full they wait here in the order
 * in which they came, over all shards: an entry never gets ahead of one that it relies on, such as a
 * message of the retained value that was proposed before it. Bounded by the gate, which refuses
 * appends long before the log's queue is full.
 */
export class LogSender {
  readonly #clock: Clock;
  #waiting: Waiting[] = [];
  #retrying = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  send(proposal: Waiting): void {
    this.#waiting.push(proposal);
    this.#drain();
  }

  #drain(): void {
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      try {
        next.append();
      } catch (error) {
        if (isCodedError(error, "LOG_PENDING_FULL")) return this.#later();
        const { owner, onError } = next;
        this.#waiting = this.#waiting.filter((each) => each.owner !== owner);
        onError(toError(error));
        continue;
      }
      this.#waiting.shift();
    }
  }

  #later(): void {
    if (this.#retrying) return;
    this.#retrying = true;
    this.#clock.schedule(retryMs, () => {
      this.#retrying = false;
      this.#drain();
    });
  }
}

export type LocalLogParts = {
  readonly log: WriteAheadLog;
  readonly sender: LogSender;
  readonly logger: Logger;
  /** Epoch of the shard, written into each record. */
  readonly epoch: () => number;
  readonly backlogs: Backlogs;
};

type Proposal = Pick<LogRecord, "index" | "kind" | "version"> & { readonly payload: Buffer };

export class LocalLog implements ShardLog {
  readonly shard: number;
  readonly #parts: LocalLogParts;
  #handlers: ShardLogHandlers | undefined;
  #lastIndex = 0;
  #failed = false;

  constructor(shard: number, parts: LocalLogParts) {
    this.shard = shard;
    this.#parts = parts;
  }

  get gaps(): readonly LogGap[] {
    const { log, backlogs } = this.#parts;
    return [...log.gapsOf(this.shard), ...backlogs.gapsOf(this.shard)];
  }

  get pins(): boolean {
    return this.#parts.log.pinnedBy()?.shard === this.shard;
  }

  copyBacklog(): Promise<LogRange | undefined> {
    return this.#parts.backlogs.add(this.#parts.log, this.shard);
  }

  get lastIndex(): number {
    return this.#lastIndex;
  }

  get payloadBytesMax(): number {
    return this.#parts.log.payloadBytesMax;
  }

  get bytesSinceRelease(): number {
    return this.#parts.log.bytesSinceRelease(this.shard);
  }

  async replay(
    fromIndex: number,
    visit: (entry: ShardEntry) => void | Promise<void>,
  ): Promise<void> {
    const { log, backlogs } = this.#parts;
    let nextIndex = fromIndex;
    const visitRecord = (record: LogRecord): void | Promise<void> => {
      const { index, kind, version } = record;
      nextIndex = index + 1;
      return visit({ index, kind, version, payload: asBuffer(record.payload) });
    };
    const behindFiles = await backlogs.replay(fromIndex, visitRecord);
    await log.read(this.shard, behindFiles, visitRecord);
    backlogs.replayed(behindFiles, Math.max(behindFiles, nextIndex));
  }

  start(nextIndex: number, handlers: ShardLogHandlers): void {
    const { log, backlogs } = this.#parts;
    this.#lastIndex = nextIndex - 1;
    this.#handlers = handlers;
    // What was copied out of the log must not pin it once more.
    const releasableIndex = Math.min(backlogs.releasableIndex, nextIndex - 1);
    if (releasableIndex > 0) log.release(this.shard, releasableIndex);
  }

  propose(kind: number, version: number, payload: Buffer): void {
    const proposal = { index: ++this.#lastIndex, kind, version, payload };
    this.#parts.sender.send({
      owner: this,
      append: () => this.#append(proposal),
      onError: (error) => this.#fail(error),
    });
  }

  release(index: number): void {
    if (index <= 0) return;
    this.#parts.log.release(this.shard, index);
    this.#parts.backlogs.release(index);
  }

  #append(proposal: Proposal): void {
    if (this.#failed) return; // its owner knows already
    const record = { ...proposal, shard: this.shard, epoch: this.#parts.epoch(), term: 1 };
    const onWritten = this.#handlers?.onWritten;
    this.#parts.log.append(
      record,
      (error) => {
        if (error !== undefined) this.#fail(error);
        else if (!this.#failed) this.#handlers?.onCommitted(proposal);
      },
      onWritten === undefined ? undefined : () => onWritten(proposal.index),
    );
  }

  #fail(error: Error): void {
    if (this.#failed) return;
    this.#failed = true;
    const { logger } = this.#parts;
    logger.error("store.shard_log_failed", { shard: this.shard, reason: error.message });
    this.#handlers?.onFailed(error);
  }
}
