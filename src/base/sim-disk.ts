// A simulated machine's disk. It outlives the simulated processes that use it: `kill()` ends the
// process (the page cache survives), `crash()` cuts the power (any mix of what was not synced
// survives, see `sim-file.ts` and `sim-names.ts`). After either, handles and calls of the old process
// never complete and the same object serves the next one.
//
// Invariants: everything follows from the seed and the order of calls; what was synced is lost only
// by `flipBit` and `garble`. A call takes effect when it completes; one that a kill or crash catches
// under way may have taken effect wholly, partly or not at all.
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
import { toError } from "./errors.ts";
import type { SeededRandom } from "./random.ts";
import { type FaultRule, SimFaults } from "./sim-faults.ts";
import { SimNames, simError } from "./sim-names.ts";
import {
  type Call,
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
};

const defaultCapacityBytes = 2 ** 40;

export class SimDisk implements Disk {
  readonly counters: SimDiskCounters = createCounters(simDiskCounterHelp);
  readonly #options: SimDiskOptions;
  readonly #random: SeededRandom;
  readonly #faults = new SimFaults<SimDiskOperation>();
  readonly #names = new SimNames();
  readonly #pending = new Map<Call<unknown>, Cancel>();
  #capacityBytes: number;
  #process: SimProcessDisk;
  #generation = 0;

  constructor(options: SimDiskOptions) {
    this.#options = options;
    this.#random = options.random.split("disk");
    this.#capacityBytes = options.capacityBytes ?? defaultCapacityBytes;
    this.#process = this.attach();
  }

  /** A view for one process: after the next `kill` or `crash` no call on it ever completes. */
  attach(): SimProcessDisk {
    const generation = this.#generation;
    return new SimProcessDisk({
      names: this.#names,
      random: this.#random,
      counters: this.counters,
      isAlive: () => generation === this.#generation,
      start: (call) => {
        if (generation === this.#generation) this.#start(call as Call<unknown>);
      },
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
    this.#generation++;
    const caught = [...this.#pending];
    this.#pending.clear();
    for (const [call, cancel] of caught) {
      cancel();
      call.cut?.();
    }
    this.#process = this.attach();
  }

  /** Power loss, for the whole machine. */
  crash(): void {
    this.kill();
    this.#names.losePower(this.#random);
    for (const file of this.#names.files()) file.losePower(this.#random);
  }

  /** Makes matching calls fail, hang or take longer. The result withdraws the rule. */
  inject(rule: FaultRule<SimDiskOperation>): Cancel {
    return this.#faults.add(rule);
  }

  /** Withdraws all rules and lets the calls that hang complete. */
  heal(): void {
    for (const resume of this.#faults.clear()) resume();
  }

  setCapacity(bytes: number): void {
    this.#capacityBytes = bytes;
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

  #start(call: Call<unknown>): void {
    const fault = this.#faults.match(call.operation, call.path);
    if (fault !== undefined) this.counters.faults++;
    const schedule = (): void => {
      const delayMs = this.#delayMs(call.operation) + (fault?.delayMs ?? 0);
      const run = (): void => this.#finish(call, fault?.fails);
      this.#pending.set(call, this.#options.clock.schedule(delayMs, run));
    };
    if (fault?.hangs !== true) {
      schedule();
      return;
    }
    this.#pending.set(call, () => undefined);
    this.#faults.hang(() => {
      if (this.#pending.has(call)) schedule();
    });
  }

  #finish(call: Call<unknown>, fails: "EIO" | "ENOSPC" | undefined): void {
    if (!this.#pending.delete(call)) return;
    if (fails !== undefined) {
      call.damage?.();
      call.done(injectedError(call.operation, call.path, fails));
      return;
    }
    let value: unknown;
    try {
      value = call.effect();
    } catch (error) {
      call.done(toError(error));
      return;
    }
    call.done(undefined, value);
  }

  #delayMs(operation: SimDiskOperation): number {
    const isSync = operation === "fdatasync" || operation === "syncDir";
    const [low, high] = isSync
      ? (this.#options.syncMs ?? [0.1, 2])
      : (this.#options.callMs ?? [0.01, 0.1]);
    return low + ((high - low) * this.#random.below(1000)) / 1000;
  }
}

function injectedError(operation: string, path: string, errno: "EIO" | "ENOSPC"): Error {
  if (errno === "ENOSPC") return diskErrors.full({ path, errno });
  return simError(operation, path, errno);
}
