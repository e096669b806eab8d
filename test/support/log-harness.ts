// Small logs for tests: tiny segments, records, and a log on simulated disk and clock.

import { type Disk, SeededRandom, SimClock, SimDisk, silentLogger } from "../../src/base/index.ts";
import {
  defaultLogSettings,
  type LogComponents,
  type LogRecord,
  type LogSettings,
  openLog,
  type WriteAheadLog,
} from "../../src/log/index.ts";

export const logDir = "data/log";

export const tinySettings: LogSettings = {
  ...defaultLogSettings,
  segmentBytes: 4096,
  flushBytesMax: 1024,
  flushRecordsMax: 16,
  spareSegmentsMax: 2,
  recordBytesMax: 64 * 1024,
  pendingBytesMax: 64 * 1024,
  zeroFillBytes: 2048,
};

export function makeRecord(
  shard: number,
  index: number,
  payload: string | Uint8Array = `payload ${shard}/${index}`,
  rest: Partial<LogRecord> = {},
): LogRecord {
  const bytes = typeof payload === "string" ? Buffer.from(payload) : payload;
  return { shard, epoch: 1, index, term: 1, kind: 7, version: 1, payload: bytes, ...rest };
}

/** A machine with one process that has the log open. */
export class LogHarness {
  readonly clock: SimClock;
  readonly disk: SimDisk;
  readonly random: SeededRandom;
  readonly settings: LogSettings;
  // One stream for all processes: ids of segments never repeat.
  readonly #logRandom: SeededRandom;
  failures: Error[] = [];
  fullChanges: boolean[] = [];

  constructor(options: { seed?: number | string; settings?: Partial<LogSettings> } = {}) {
    this.random = new SeededRandom(options.seed ?? 1);
    this.clock = new SimClock({ random: this.random.split("clock") });
    this.disk = new SimDisk({ clock: this.clock, random: this.random });
    this.#logRandom = this.random.split("log");
    this.settings = { ...tinySettings, ...options.settings };
  }

  components(disk: Disk = this.disk.attach()): LogComponents {
    return {
      disk,
      clock: this.clock,
      random: this.#logRandom,
      logger: silentLogger,
      onFailure: (error) => this.failures.push(error),
      onFull: (full) => this.fullChanges.push(full),
    };
  }

  open(settings: Partial<LogSettings> = {}): Promise<WriteAheadLog> {
    const merged = { ...this.settings, ...settings };
    return this.clock.complete(openLog(merged, this.components(), logDir));
  }

  /** Appends and waits until all are durable. */
  async appendAll(log: WriteAheadLog, records: readonly LogRecord[]): Promise<void> {
    await this.clock.complete(appendAll(log, records));
  }

  read(log: WriteAheadLog, shard: number, from = 1): Promise<LogRecord[]> {
    return this.clock.complete(readAll(log, shard, from));
  }

  close(log: WriteAheadLog): Promise<void> {
    return this.clock.complete(log.close());
  }

  /** Names in the folder of the log. */
  async names(): Promise<string[]> {
    const entries = await this.clock.complete(this.disk.list(logDir));
    return entries.map(({ name }) => name);
  }
}

export function appendOne(log: WriteAheadLog, record: LogRecord): Promise<void> {
  return new Promise((resolve, reject) => {
    log.append(record, (error) => (error === undefined ? resolve() : reject(error)));
  });
}

export async function appendAll(log: WriteAheadLog, records: readonly LogRecord[]): Promise<void> {
  await Promise.all(records.map((record) => appendOne(log, record)));
}

/** All records of a shard, copied. */
export async function readAll(log: WriteAheadLog, shard: number, from = 1): Promise<LogRecord[]> {
  const found: LogRecord[] = [];
  await log.read(shard, from, (record) => {
    found.push({ ...record, payload: Buffer.from(record.payload) });
  });
  return found;
}

export function indexesOf(records: readonly LogRecord[]): number[] {
  return records.map(({ index }) => index);
}

export function payloadsOf(records: readonly LogRecord[]): string[] {
  return records.map(({ payload }) => Buffer.from(payload).toString());
}

export function recordsOf(shard: number, from: number, to: number): LogRecord[] {
  const records: LogRecord[] = [];
  for (let index = from; index <= to; index++) records.push(makeRecord(shard, index));
  return records;
}
