// A simulated machine's disk. It outlives the simulated processes that use it: `kill()` ends the
// process (the page cache survives), `crash()` cuts the power (any mix of what was not synced
// survives, see `sim-file.ts` and `sim-names.ts`). After either, handles and calls of the old
// process never complete and the same object serves the next one.
//
// Invariants: everything follows from the seed and the order of calls; what was synced is lost only
// by `flipBit` and `garble`. A call takes effect when it completes; one that a kill or crash
// catches under way may have taken effect wholly, partly or not at all.
// A test that keeps old code running after a kill gives each process its own `attach()`.

import type { Cancel, Clock } from "./clock.ts";
import { createCounters } from "./counters.ts";
import {
  type DirEntry,
  type Disk,
  type DiskFile,
  type DiskSpace,
  diskErrors,
  type OpenMode,
} from "./disk.ts";
import type { SeededRandom } from "./random.ts";
import { SimCalls } from "./sim-calls.ts";
import type { FaultRule, SimErrno } from "./sim-faults.ts";
import { SimNames, simError } from "./sim-names.ts";
import {
  type SimDiskCounters,
  type SimDiskOperation,
  SimProcessDisk,
  simDiskCounterHelp,
} from "./sim-process-disk.ts";

export type SimDiskOptions = {
  readonly clock: Clock;
  readonly random: SeededRandom;
  /** Default 1 TiB. */
  readonly capacityBytes?: number;
  /** What `space()` names; default `ext4`. */
  readonly type?: string;
  /** Bounds of the drawn delays; default 0.01-0.1 ms for a call, 0.1-2 ms for a sync. */
  readonly callMs?: readonly [low: number, high: number];
  readonly syncMs?: readonly [low: number, high: number];
  /** Chance that a sector which was not synced is torn by a power cut; default 1/16. */
  readonly tornChance?: number;
};

const defaultCapacityBytes = 2 ** 40;

export class SimDisk implements Disk {
  readonly counters: SimDiskCounters = createCounters(simDiskCounterHelp);
  readonly #options: SimDiskOptions;
  readonly #random: SeededRandom;
  readonly #names = new SimNames();
  readonly #calls: SimCalls<SimDiskOperation>;
  #capacityBytes: number;
  #process: SimProcessDisk;

  constructor(options: SimDiskOptions) {
    this.#options = options;
    this.#random = options.random.split("disk");
    this.#capacityBytes = options.capacityBytes ?? defaultCapacityBytes;
    this.#calls = new SimCalls<SimDiskOperation>({
      clock: options.clock,
      delayMs: (operation) => this.#delayMs(operation),
      injected: injectedError,
    });
    this.#process = this.attach();
  }

  /** A view for one process: after the next `kill` or `crash` no call on it ever completes. */
  attach(): SimProcessDisk {
    const { generation } = this.#calls;
    return new SimProcessDisk({
      names: this.#names,
      random: this.#random,
      counters: this.counters,
      isAlive: () => generation === this.#calls.generation,
      start: (call) => this.#calls.start(generation, call),
      freeBytes: () => this.freeBytes,
      space: () => ({
        freeBytes: this.freeBytes,
        totalBytes: this.#capacityBytes,
        type: this.#options.type ?? "ext4",
      }),
    });
  }

  /** Process death: the page cache and all names survive. */
  kill(): void {
    this.#calls.cutOff();
    this.#process = this.attach();
  }

  /** Power loss, for the whole machine. */
  crash(): void {
    this.kill();
    this.#names.losePower(this.#random);
    for (const file of this.#names.files()) {
      this.counters.tornSectors += file.losePower(this.#random, this.#options.tornChance);
    }
  }

  /** Makes matching calls fail, hang or take longer. The result withdraws the rule. */
  inject(rule: FaultRule<SimDiskOperation>): Cancel {
    return this.#calls.inject(rule);
  }

  /** Withdraws all rules and lets the calls that hang complete. */
  heal(): void {
    this.#calls.heal();
  }

  setCapacity(bytes: number): void {
    this.#capacityBytes = bytes;
  }

  /** Calls that an injected fault hit. */
  get faultCount(): number {
    return this.#calls.faultCount;
  }

  get freeBytes(): number {
    let used = 0;
    for (const file of this.#names.files()) used += file.allocatedBytes;
    return Math.max(0, this.#capacityBytes - used);
  }

  /** Rot on the medium: flips bit `bit % 8` of byte `bit / 8`, synced or not. */
  flipBit(path: string, bit: number): void {
    const file = this.#names.file(path, "flipBit");
    file.corrupt(Math.floor(bit / 8), (byte) => byte ^ (1 << (bit % 8)));
  }

  /** Rot on the medium: drawn bytes over a range, as a sector that reads back wrong. */
  garble(path: string, offset: number, length: number): void {
    const file = this.#names.file(path, "garble");
    const end = Math.min(offset + length, file.sizeBytes);
    for (let at = offset; at < end; at++) {
      const mask = this.#random.between(1, 255);
      file.corrupt(at, (byte) => byte ^ mask);
    }
  }

  /** What a process would read, without taking time. @throws DISK_NOT_FOUND. */
  peek(path: string): Buffer {
    return this.#names.file(path, "peek").content();
  }

  /** Sectors of the file that a crash may change. */
  dirtySectors(path: string): number {
    return this.#names.file(path, "peek").dirtySectors;
  }

  open(path: string, mode: OpenMode): Promise<DiskFile> {
    return this.#process.open(path, mode);
  }

  list(path: string): Promise<DirEntry[]> {
    return this.#process.list(path);
  }

  exists(path: string): Promise<boolean> {
    return this.#process.exists(path);
  }

  makeDir(path: string): Promise<void> {
    return this.#process.makeDir(path);
  }

  rename(from: string, to: string): Promise<void> {
    return this.#process.rename(from, to);
  }

  remove(path: string): Promise<void> {
    return this.#process.remove(path);
  }

  removeDir(path: string): Promise<void> {
    return this.#process.removeDir(path);
  }

  syncDir(path: string): Promise<void> {
    return this.#process.syncDir(path);
  }

  space(path: string): Promise<DiskSpace> {
    return this.#process.space(path);
  }

  usedBytes(path: string): Promise<number> {
    return this.#process.usedBytes(path);
  }

  #delayMs(operation: SimDiskOperation): number {
    const isSync = operation === "fdatasync" || operation === "syncDir";
    const [low, high] = isSync
      ? (this.#options.syncMs ?? [0.1, 2])
      : (this.#options.callMs ?? [0.01, 0.1]);
    return low + ((high - low) * this.#random.below(1000)) / 1000;
  }
}

function injectedError(operation: string, path: string, errno: SimErrno): Error {
  if (errno === "ENOSPC") return diskErrors.full({ path, errno });
  return simError(operation, path, errno);
}
