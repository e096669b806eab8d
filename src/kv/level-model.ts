// Where LevelDB keeps what was written, and what of it a power cut leaves: the model under the
// memory twin. Pure state; when a flush or sync finishes is decided by `memory.ts`.
//
// A batch goes to the current log file; when that is full the log is switched and the old one is
// turned into a synced table some time later, after which its batches are durable. A synced write
// syncs the current log file only. So an older log may lose its end while a newer one is whole.
// Within a log a power cut loses its unsynced end; sometimes it loses a hole, since LevelDB's
// reader skips a block that was not written and goes on with the next. Opening turns the logs
// into tables.

import { assert, type SeededRandom } from "../base/index.ts";
import { SortedMap } from "./sorted-map.ts";

export type LevelOperation = { readonly key: Buffer; readonly value: Buffer | undefined };

export type LevelBatch = {
  readonly operations: readonly LevelOperation[];
  readonly sizeBytes: number;
};

type LogFile = {
  readonly batches: LevelBatch[];
  /** Batches from the first on that are on the medium. */
  syncedCount: number;
  sizeBytes: number;
};

/** A sync under way: what it makes durable when it finishes. */
export type LevelTicket = ReadonlyArray<{ readonly log: LogFile; readonly count: number }>;

export class LevelModel {
  readonly #tables = new SortedMap();
  #old: LogFile | undefined;
  #current: LogFile = newLog();
  // A failed write leaves its batch in doubt until the next open decides.
  #inDoubt: LevelBatch | undefined;

  get currentLogBytes(): number {
    return this.#current.sizeBytes;
  }

  append(batch: LevelBatch): void {
    this.#current.batches.push(batch);
    this.#current.sizeBytes += batch.sizeBytes;
  }

  doubt(batch: LevelBatch): void {
    this.#inDoubt = batch;
  }

  /** Requires that the log before has become a table. */
  switchLog(): void {
    assert(this.#old === undefined, "one old log at a time");
    this.#old = this.#current;
    this.#current = newLog();
  }

  finishFlush(): void {
    if (this.#old === undefined) return;
    applyAll(this.#tables, this.#old.batches);
    this.#old = undefined;
  }

  /** What a batch written with `sync: true` brings along: the current log, nothing older. */
  syncCurrent(): void {
    this.#current.syncedCount = this.#current.batches.length;
  }

  beginSync(): LevelTicket {
    const logs = this.#old === undefined ? [this.#current] : [this.#old, this.#current];
    return logs.map((log) => ({ log, count: log.batches.length }));
  }

  finishSync(ticket: LevelTicket): void {
    for (const { log, count } of ticket) log.syncedCount = Math.max(log.syncedCount, count);
  }

  /** Rot: of everything on the medium only what `keeps` approves of is left. */
  rot(keeps: (key: Buffer) => boolean): void {
    this.finishFlush();
    applyAll(this.#tables, this.#current.batches);
    this.#current = newLog();
    const view = this.#tables.snapshot();
    for (let place = view.first; ; place = view.after(place)) {
      const entry = view.at(place);
      if (entry === undefined) return;
      if (!keeps(entry[0])) this.#tables.delete(entry[0]);
    }
  }

  losePower(random: SeededRandom): void {
    this.#settleDoubt(random);
    for (const log of [this.#old, this.#current]) {
      if (log === undefined) continue;
      const kept = survivors(log, random);
      log.batches.splice(0, log.batches.length, ...kept);
      log.syncedCount = kept.length; // what is left lies on the medium
    }
  }

  /** What opening does: replays the logs into tables, which are synced. Returns what is visible. */
  recover(random: SeededRandom | undefined): SortedMap {
    if (random !== undefined) this.#settleDoubt(random);
    this.#inDoubt = undefined;
    this.finishFlush();
    applyAll(this.#tables, this.#current.batches);
    this.#current = newLog();
    const visible = new SortedMap();
    const view = this.#tables.snapshot();
    for (let place = view.first; ; place = view.after(place)) {
      const entry = view.at(place);
      if (entry === undefined) return visible;
      visible.set(...entry);
    }
  }

  #settleDoubt(random: SeededRandom): void {
    if (this.#inDoubt !== undefined && random.chance(0.5)) this.append(this.#inDoubt);
    this.#inDoubt = undefined;
  }
}

export function applyAll(map: SortedMap, batches: readonly LevelBatch[]): void {
  for (const batch of batches) {
    for (const { key, value } of batch.operations) {
      if (value === undefined) map.delete(key);
      else map.set(key, value);
    }
  }
}

/** One cut in four leaves a hole in a log instead of only cutting its end. */
const holeChance = 1 / 4;

function survivors(log: LogFile, random: SeededRandom): LevelBatch[] {
  const { batches, syncedCount } = log;
  if (random.chance(holeChance)) {
    return batches.filter((_, index) => index < syncedCount || random.chance(0.5));
  }
  return batches.slice(0, random.between(syncedCount, batches.length));
}

function newLog(): LogFile {
  return { batches: [], syncedCount: 0, sizeBytes: 0 };
}
