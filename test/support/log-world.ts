// A machine whose processes append to, release and reopen a log while power, process, space and
// device fail under them, and the model that says what must be there afterwards.
//
// The model is the list of appends in call order. After any failure the log must hold exactly what
// some prefix of that list leaves, a prefix that has every acked append in it. That covers order,
// content, replacement and loss at once.

import type { LogRecord, WriteAheadLog } from "../../src/log/index.ts";
import { openLog } from "../../src/log/index.ts";
import { LogHarness, logDir, makeRecord, readAll } from "./log-harness.ts";

type Appended = { readonly record: LogRecord; acked: boolean };

export type WorldCounts = Record<
  | "acked"
  | "crashes"
  | "kills"
  | "closes"
  | "recoveryCrashes"
  | "failures"
  | "fullTurns"
  | "survivedUnacked"
  | "recycled"
  | "rewritten"
  | "cutTails",
  number
>;

export function createWorldCounts(): WorldCounts {
  return {
    acked: 0,
    crashes: 0,
    kills: 0,
    closes: 0,
    recoveryCrashes: 0,
    failures: 0,
    fullTurns: 0,
    survivedUnacked: 0,
    recycled: 0,
    rewritten: 0,
    cutTails: 0,
  };
}

const shardCount = 4;
/** The shard that replaces suffixes, as a Raft group does. */
const replacingShard = 4;
const roomyBytes = 2 ** 40;

export class LogWorld {
  readonly harness: LogHarness;
  readonly counts: WorldCounts;
  #log: WriteAheadLog | undefined;
  /** Appends whose effect is not settled by a recovery yet. */
  #appended: Appended[] = [];
  /** What the last recovery found, per shard, by index. */
  readonly #base = new Map<number, Map<number, LogRecord>>();
  readonly #released = new Map<number, number>();
  readonly #terms = new Map<number, number>();
  readonly events: string[] = [];

  constructor(seed: number | string, counts: WorldCounts) {
    this.harness = new LogHarness({
      seed,
      settings: { segmentBytes: 3072, zeroFillBytes: 1024, pendingBytesMax: 2 ** 30 },
    });
    this.counts = counts;
    for (let shard = 1; shard <= shardCount; shard++) this.#base.set(shard, new Map());
  }

  async run(steps: number): Promise<void> {
    await this.#recover();
    for (let step = 0; step < steps; step++) await this.#step();
    await this.#end();
  }

  async #step(): Promise<void> {
    const { random, clock } = this.harness;
    const draw = random.below(100);
    if (draw < 45) this.#append(random.between(1, 12));
    else if (draw < 68) await clock.advance(random.below(40) / 10);
    else if (draw < 72) await clock.advance(random.below(2500));
    else if (draw < 82) this.#release();
    else if (draw < 85) await this.#fill();
    else if (draw < 88) this.#injectFault();
    else await this.#stop(draw);
    if (this.#log?.failure !== undefined) {
      this.counts.failures++;
      await this.#restart("kill");
    }
  }

  #append(count: number): void {
    const { random } = this.harness;
    for (let each = 0; each < count; each++) {
      const log = this.#log;
      if (log === undefined || log.failure !== undefined) return;
      const shard = random.between(1, shardCount);
      const last = this.#lastIndex(shard);
      const record = makeRecord(
        shard,
        this.#nextIndex(shard, last),
        random.bytes(random.chance(0.03) ? random.below(5000) : random.below(200)),
        { term: this.#terms.get(shard) ?? 1, kind: random.below(256) },
      );
      const entry = { record, acked: false };
      this.#appended.push(entry);
      this.events.push(`append ${shard}/${record.index}`);
      log.append(record, (error) => {
        if (error !== undefined) return;
        entry.acked = true;
        this.counts.acked++;
      });
    }
  }

  #nextIndex(shard: number, last: number): number {
    const { random } = this.harness;
    if (shard !== replacingShard || !random.chance(0.15)) return last + 1;
    const lowest = (this.#released.get(shard) ?? 0) + 1;
    const index = Math.max(lowest, last - random.below(5));
    if (index <= last) this.#terms.set(shard, (this.#terms.get(shard) ?? 1) + 1);
    return index;
  }

  #lastIndex(shard: number): number {
    for (const { record } of this.#appended.toReversed()) {
      if (record.shard === shard) return record.index;
    }
    const indexes = [...(this.#base.get(shard) as Map<number, LogRecord>).keys()];
    return Math.max(this.#released.get(shard) ?? 0, ...indexes);
  }

  // An owner checkpoints what is durable, and remembers it.
  #release(): void {
    const { random } = this.harness;
    const shard = random.between(1, shardCount);
    const range = this.#log?.range(shard);
    if (range === undefined || this.#log === undefined) return;
    // Entries that a queued record may still replace are not applied yet, so never released.
    let highest = range.lastIndex;
    for (const { record, acked } of this.#appended) {
      if (record.shard === shard && !acked) highest = Math.min(highest, record.index - 1);
    }
    if (highest < range.firstIndex) return;
    const index = random.between(range.firstIndex, highest);
    this.events.push(`release ${shard}/${index}`);
    this.#released.set(shard, Math.max(this.#released.get(shard) ?? 0, index));
    this.#log.release(shard, index);
  }

  async #fill(): Promise<void> {
    const { disk, clock, random } = this.harness;
    this.events.push("full");
    disk.setCapacity(2 ** 40 - disk.freeBytes + random.below(4096));
    this.#append(random.between(1, 30));
    await clock.advance(random.below(3000));
    if (this.#log?.full === true) this.counts.fullTurns++;
    if (random.chance(0.3)) await this.#stop(random.between(88, 99));
    disk.setCapacity(roomyBytes);
  }

  #injectFault(): void {
    const { disk, random } = this.harness;
    const on = random.pick(["write", "fdatasync", "syncDir", "open", "names"] as const);
    const isSpace = (on === "write" || on === "open") && random.chance(0.7);
    this.events.push(`fault ${on} ${isSpace ? "ENOSPC" : "EIO"}`);
    disk.inject({ on, path: logDir, fails: isSpace ? "ENOSPC" : "EIO", skip: random.below(6) });
  }

  async #stop(draw: number): Promise<void> {
    if (draw < 94) await this.#restart("crash");
    else if (draw < 97) await this.#restart("kill");
    else await this.#restart("close");
  }

  async #restart(how: "crash" | "kill" | "close"): Promise<void> {
    const { disk, clock, random } = this.harness;
    this.events.push(how);
    if (how === "close" && this.#log !== undefined) {
      await clock.complete(this.#log.close().catch(() => undefined));
      disk.kill();
      this.counts.closes++;
    } else if (how === "crash") {
      disk.crash();
      this.counts.crashes++;
    } else {
      disk.kill();
      this.counts.kills++;
    }
    this.#log = undefined;
    disk.heal();
    while (random.chance(0.35)) await this.#crashRecovery();
    await this.#recover();
  }

  async #crashRecovery(): Promise<void> {
    const { harness } = this;
    this.events.push("crash in recovery");
    const opening = openLog(harness.settings, harness.components(), logDir);
    opening.catch(() => undefined);
    await harness.clock.advance(harness.random.below(60) / 10);
    if (harness.random.chance(0.7)) harness.disk.crash();
    else harness.disk.kill();
    this.counts.recoveryCrashes++;
  }

  async #recover(): Promise<void> {
    // A space fault that is still armed may end the open of a copy; the owner starts again.
    this.#log = await this.harness.open();
    this.events.push("open");
    const log = this.#log;
    if (log.damage.length > 0) throw new Error(`damage without damage: ${log.damage[0]?.reason}`);
    await this.#compare(log);
    for (const [shard, index] of this.#released) log.release(shard, index);
    this.counts.rewritten += log.counters.rewrittenFlushes;
    this.counts.cutTails += log.counters.cutTails;
  }

  async #compare(log: WriteAheadLog): Promise<void> {
    const found = new Map<number, Map<number, LogRecord>>();
    for (let shard = 1; shard <= shardCount; shard++) {
      const lowest = (this.#released.get(shard) ?? 0) + 1;
      const records = await this.harness.clock.complete(readAll(log, shard, lowest));
      const byIndex = new Map(records.map((record) => [record.index, record]));
      if (byIndex.size !== records.length) throw new Error(`shard ${shard}: a record came twice`);
      found.set(shard, byIndex);
    }
    let acked = 0;
    for (const [position, entry] of this.#appended.entries()) if (entry.acked) acked = position + 1;
    for (let length = this.#appended.length; length >= acked; length--) {
      if (!this.#matches(found, this.#appended.slice(0, length))) continue;
      this.counts.survivedUnacked += length - acked;
      for (const [shard, records] of found) this.#base.set(shard, records);
      this.#appended = [];
      return;
    }
    throw new Error(`what was recovered is no prefix of the appends with all ${acked} acked`);
  }

  #matches(found: Map<number, Map<number, LogRecord>>, prefix: readonly Appended[]): boolean {
    for (const [shard, base] of this.#base) {
      const lowest = (this.#released.get(shard) ?? 0) + 1;
      const expected = new Map(base);
      for (const { record } of prefix) {
        if (record.shard !== shard) continue;
        for (const index of expected.keys()) if (index >= record.index) expected.delete(index);
        expected.set(record.index, record);
      }
      for (const index of expected.keys()) if (index < lowest) expected.delete(index);
      const actual = found.get(shard) as Map<number, LogRecord>;
      if (actual.size !== expected.size) return false;
      for (const [index, record] of expected) {
        if (!isEqual(actual.get(index), record)) return false;
      }
    }
    return true;
  }

  /** With space and a sound device everything queued becomes durable, and the log stays small. */
  async #end(): Promise<void> {
    const { disk, clock } = this.harness;
    disk.heal();
    await clock.advance(30_000);
    if (this.#log?.failure !== undefined) await this.#restart("kill");
    const log = this.#log as WriteAheadLog;
    if (log.pendingBytes > 0) throw new Error("appends stay queued although there is space");
    if (this.#appended.some(({ acked }) => !acked)) throw new Error("an append was never answered");
    this.counts.recycled += log.counters.segmentsRecycled;
    await this.#restart("close");
  }
}

function isEqual(a: LogRecord | undefined, b: LogRecord): boolean {
  return (
    a !== undefined &&
    a.index === b.index &&
    a.term === b.term &&
    a.kind === b.kind &&
    Buffer.from(a.payload).equals(b.payload)
  );
}
