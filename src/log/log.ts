// The log as its owners see it: opens, appends, reads, releases, closes.
//
// Invariants: what an owner may rely on stands in types.ts; segments are retired from the oldest
// end only, when no shard has unreleased records in them and no read is under way. How bytes lie is
// left to format.ts, damage to recovery.ts, the disk's pace to group-commit.ts.

import { assert, type Counters, parentDir } from "../base/index.ts";
import { writeBacklog } from "./backlog.ts";
import { createLogCounters, type LogCounterHelp } from "./counters.ts";
import type { DamageReport } from "./damage.ts";
import { logErrors } from "./errors.ts";
import { recordBytes, recordHeaderBytes, segmentHeaderBytes } from "./format.ts";
import { type AppendDone, GroupCommit } from "./group-commit.ts";
import { NewestMark } from "./newest.ts";
import { readRecords } from "./record-reader.ts";
import { type Recovered, recover } from "./recovery.ts";
import { type FreeFile, type Segment, SegmentPool } from "./segments.ts";
import { ShardIndex } from "./shard-index.ts";
import type {
  LogComponents,
  LogDamage,
  LogGap,
  LogPin,
  LogRange,
  LogRecord,
  LogSettings,
  VisitRecord,
  WriteAheadLog,
} from "./types.ts";

/**
 * Opens the log in `dir`, made when missing. Resolves when all that it found is durable.
 * @throws LOG_DAMAGED under `onDamage: "refuse"`, LOG_VERSION_UNKNOWN, LOG_IO_FAILED,
 *   LOG_SETTINGS_INVALID, or what the disk says about the folder.
 */
export async function openLog(
  settings: LogSettings,
  components: LogComponents,
  dir: string,
): Promise<WriteAheadLog> {
  checkSettings(settings);
  const { disk } = components;
  if (!(await disk.exists(dir))) {
    await disk.makeDir(dir);
    await disk.syncDir(parentDir(dir));
  }
  const counters = createLogCounters();
  const index = new ShardIndex();
  const place = { dir, settings, components, counters, index };
  const recovered = await recover(place);
  const log = new Log(place, recovered);
  await log.start(recovered);
  return log;
}

const GiB = 1024 ** 3;

/** Bounds within which the format and the loops hold. */
const settingBounds: ReadonlyArray<readonly [name: keyof LogSettings, min: number, max: number]> = [
  ["segmentBytes", 2048, 2 * GiB],
  ["flushBytesMax", 256, GiB],
  ["flushRecordsMax", 1, 1_000_000],
  ["recordBytesMax", recordHeaderBytes, GiB],
  ["zeroFillBytes", segmentHeaderBytes, GiB],
];

function checkSettings(settings: LogSettings): void {
  for (const [name, min, max] of settingBounds) {
    const value = Number(settings[name]);
    const isGood = Number.isInteger(value) && value >= min && value <= max;
    if (!isGood) throw logErrors.settingsInvalid({ name, value, min, max });
  }
}

type LogPlace = {
  readonly dir: string;
  readonly settings: LogSettings;
  readonly components: LogComponents;
  readonly counters: Counters<LogCounterHelp>;
  readonly index: ShardIndex;
};

class Log implements WriteAheadLog {
  readonly counters: Counters<LogCounterHelp>;
  readonly gaps: readonly LogGap[];
  readonly isNew: boolean;
  readonly #place: LogPlace;
  readonly #index: ShardIndex;
  readonly #report: DamageReport;
  readonly #pool: SegmentPool;
  readonly #newest: NewestMark;
  readonly #commit: GroupCommit;
  /** In log order; the last one is written to, unless the log is full. */
  readonly #segments: Segment[];
  /** Files without a readable header. They lie somewhere among those found at open. */
  readonly #lostFiles: FreeFile[];
  readonly #firstOwnOrder: number;
  #closing: Promise<void> | undefined;

  constructor(place: LogPlace, recovered: Recovered) {
    this.#place = place;
    this.counters = place.counters;
    this.#index = place.index;
    this.#report = recovered.report;
    this.gaps = recovered.report.gaps;
    this.isNew = recovered.segments.length === 0 && recovered.lostFiles.length === 0;
    this.#segments = recovered.segments;
    this.#lostFiles = recovered.lostFiles;
    this.#firstOwnOrder = recovered.nextOrder;
    this.#newest = new NewestMark(place.components, place.dir);
    this.#pool = new SegmentPool(place, place.counters, {
      onReady: () => this.#commit.retry(),
      onFull: (full) => place.components.onFull?.(full),
      onError: (error) => this.#commit.fail(error),
    });
    this.#commit = new GroupCommit({ ...place, pool: this.#pool }, recovered, place.counters, {
      onSegment: (segment) => {
        this.#segments.push(segment);
        this.#newest.begun(segment.order);
      },
      onSynced: (segment, offset, spans) => {
        for (const span of spans) this.#index.addSpan(segment, offset, span);
      },
      onRecordSettled: (record) => this.#settle(record),
    });
    for (const state of this.#index.states()) state.queuedIndex = state.lastIndex;
  }

  async start(recovered: Recovered): Promise<void> {
    const { freeFiles, liveBytes, fileNumber } = recovered;
    try {
      await this.#pool.adopt(freeFiles, liveBytes, fileNumber);
      await this.#commit.openFirst();
    } catch (error) {
      await this.#pool.close();
      throw error;
    }
    this.#retireFree();
  }

  append(record: LogRecord, done: AppendDone, written?: () => void): void {
    const { settings, dir } = this.#place;
    if (this.#commit.failure !== undefined) throw this.#commit.failure;
    if (this.#closing !== undefined) throw logErrors.closed({ path: dir });
    const sizeBytes = recordBytes(record);
    if (sizeBytes > settings.recordBytesMax) {
      this.counters.refused++;
      throw logErrors.recordTooLarge({ sizeBytes, recordBytesMax: settings.recordBytesMax });
    }
    const pendingBytes = this.#commit.pendingBytes;
    // One record is always taken, whatever its size, or a small limit would stop the log for ever.
    if (pendingBytes > 0 && pendingBytes + sizeBytes > settings.pendingBytesMax) {
      this.counters.refused++;
      throw logErrors.pendingFull({ pendingBytes, pendingBytesMax: settings.pendingBytesMax });
    }
    const state = this.#index.obtain(record.shard);
    const { queuedIndex } = state;
    assert(!state.forgotten, "the shard was forgotten");
    assert(record.index >= 1, "indexes start at 1");
    assert(queuedIndex === undefined || record.index <= queuedIndex + 1, "an index was left out");
    assert(record.index > state.releasedIndex, "the index was released already");
    state.queuedIndex = record.index;
    state.pendingRecords++;
    state.unreleasedBytes += sizeBytes;
    this.#commit.append(record, done, written);
  }

  get payloadBytesMax(): number {
    return this.#place.settings.recordBytesMax - recordHeaderBytes;
  }

  get pendingBytes(): number {
    return this.#commit.pendingBytes;
  }

  get full(): boolean {
    return this.#pool.full || this.#commit.isFull;
  }

  get failure(): Error | undefined {
    return this.#commit.failure;
  }

  get sizeBytes(): number {
    return this.#pool.fileBytes;
  }

  async trim(): Promise<void> {
    if (this.#closing !== undefined) throw logErrors.closed({ path: this.#place.dir });
    await this.#pool.trim();
  }

  get damage(): readonly LogDamage[] {
    return this.#report.damage;
  }

  gapsOf(shard: number): readonly LogGap[] {
    return this.#report.gapsOf(shard);
  }

  range(shard: number): LogRange | undefined {
    return this.#index.range(shard);
  }

  shards(): number[] {
    return this.#index.shards();
  }

  async read(shard: number, fromIndex: number, visit: VisitRecord): Promise<void> {
    if (this.#closing !== undefined) throw logErrors.closed({ path: this.#place.dir });
    const state = this.#index.get(shard);
    if (state === undefined) return;
    try {
      await readRecords(this.#place.components.disk, state, fromIndex, visit);
    } finally {
      this.#retireFree();
    }
  }

  release(shard: number, index: number): void {
    this.#index.release(shard, index);
    this.#retireFree();
    this.#commit.requestProof();
  }

  forget(shard: number): void {
    this.#index.forget(shard);
    this.#retireFree();
  }

  bytesSinceRelease(shard: number): number {
    return this.#index.get(shard)?.unreleasedBytes ?? 0;
  }

  pinnedBy(): LogPin | undefined {
    const oldest = this.#segments[0];
    if (oldest === undefined || oldest.pins.size === 0) return undefined;
    let bytes = 0;
    for (const segment of this.#segments) bytes += segment.endOffset;
    let shard = -1;
    for (const candidate of oldest.pins.keys()) {
      if (shard < 0 || this.bytesSinceRelease(candidate) > this.bytesSinceRelease(shard)) {
        shard = candidate;
      }
    }
    return { shard, bytes };
  }

  async copyBacklog(shard: number, path: string): Promise<LogRange | undefined> {
    const { components, settings } = this.#place;
    const caps = { bytesMax: settings.flushBytesMax, recordsMax: settings.flushRecordsMax };
    const range = await writeBacklog(components, path, caps, (visit) => this.read(shard, 0, visit));
    if (range !== undefined) this.release(shard, range.lastIndex);
    return range;
  }

  prove(): Promise<void> {
    return this.#commit.prove();
  }

  close(): Promise<void> {
    this.#closing ??= this.#closeAll();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #closeAll(): Promise<void> {
    try {
      await this.#commit.close();
    } finally {
      await this.#pool.close();
      await this.#newest.settled();
    }
  }

  #settle(record: LogRecord): void {
    const state = this.#index.get(record.shard);
    if (state === undefined) return;
    state.pendingRecords--;
    this.#index.settle(state);
  }

  // Only from the oldest end, so that what is left never has a hole that is not damage.
  #retireFree(): void {
    if (this.#closing !== undefined || this.failure !== undefined) return;
    let oldest = this.#segments[0];
    while (oldest !== undefined && oldest !== this.#commit.current) {
      if (oldest.pins.size > 0 || oldest.readers > 0) break;
      this.#segments.shift();
      this.#pool.retire(oldest);
      oldest = this.#segments[0];
    }
    if (oldest !== undefined && oldest.order < this.#firstOwnOrder) return;
    for (const file of this.#lostFiles.splice(0)) this.#pool.retire(file);
  }
}
