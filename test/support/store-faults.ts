// What goes wrong with the volume in a simulated history of the store: calls that fail, a volume that
// runs full, and bits that flip while the machine is off.

import type { SeededRandom } from "../../src/base/index.ts";
import { decodeBlock } from "../../src/store/layout/block.ts";
import { layoutOf } from "./log-layout.ts";
import { MemoryDisk } from "./memory-disk.ts";
import type { StoreMachine } from "./store-machine.ts";

export const faultCountsZero = {
  fullTurns: 0,
  failedWrites: 0,
  failedSyncs: 0,
  failedLogSyncs: 0,
  failedOpens: 0,
  noSpace: 0,
  slowCalls: 0,
  flippedBits: 0,
  rottenSectors: 0,
  rottenStores: 0,
  lostFiles: 0,
  rottenBlocks: 0,
};
export type FaultCounts = typeof faultCountsZero;

/** The catalogue is small and written once: losing it and its copy one after the other is not played. */
const spared = /quarantine|\/meta\//;

export type RottenBlock = {
  readonly path: string;
  readonly shard: number;
  readonly timesUs: readonly number[];
};

const endedBlocks = /^data\/db\/messages\/s\d+\/g\d+[^/]*\/blocks$/;

function shardOf(path: string): number {
  return Number(/\/s(\d+)\//.exec(path)?.[1] ?? -1);
}

export const roomyBytes = 2 ** 40;

export class Faults {
  readonly counts: FaultCounts = { ...faultCountsZero };
  readonly #machine: StoreMachine;
  readonly #random: SeededRandom;

  constructor(machine: StoreMachine, random: SeededRandom) {
    this.#machine = machine;
    this.#random = random;
  }

  /** The next calls of some kind fail. */
  inject(): void {
    const { disk, kv } = this.#machine;
    const fails = this.#random.chance(0.5) ? "ENOSPC" : "EIO";
    const skip = this.#random.below(4);
    const dice = this.#random.below(22);
    if (dice < 2) {
      this.counts.failedLogSyncs++;
      disk.inject({ on: "fdatasync", path: "data/log", fails: "EIO", skip });
    } else if (dice < 3) {
      this.counts.failedSyncs++;
      kv.inject({ on: "sync", fails: "EIO", skip });
    } else if (dice < 7) {
      this.counts.noSpace++;
      kv.inject({ on: "sync", fails: "ENOSPC", skip });
    } else if (dice < 10) {
      this.counts.failedWrites++;
      kv.inject({ on: "flush", fails, skip });
    } else if (dice < 12) {
      this.counts.slowCalls++;
      disk.inject({ on: "fdatasync", delayMs: this.#random.between(1, 20), skip, times: 2 });
      kv.inject({ on: "sync", delayMs: this.#random.between(1, 200), skip });
    } else {
      this.counts[fails === "ENOSPC" ? "noSpace" : "failedWrites"]++;
      kv.inject({ on: "write", fails, skip, times: this.#random.between(1, 3) });
    }
    if (!this.#random.chance(0.3)) return;
    this.counts.failedOpens++;
    kv.inject({ on: "open", fails: "ENOSPC", times: 2 });
  }

  fillDisk(): void {
    const { disk } = this.#machine;
    this.counts.fullTurns++;
    disk.setCapacity(roomyBytes - disk.freeBytes + this.#random.below(24 * 1024));
  }

  heal(): void {
    const { disk, kv } = this.#machine;
    disk.setCapacity(roomyBytes);
    disk.heal();
    kv.heal();
  }

  /** Rot in one place of a machine that is off, but not below `soundDir`. Says where. */
  async rot(soundDir?: string): Promise<string> {
    const { disk, kv } = this.#machine;
    if (this.#random.chance(0.4)) {
      const stores = kv.paths.filter((path) => !spared.test(path));
      if (stores.length > 0) return this.#rotStore(this.#random.pick(stores));
    }
    const files = (await this.#files("data")).filter(
      (path) =>
        disk.peek(path).length > 0 && (soundDir === undefined || !path.startsWith(soundDir)),
    );
    if (files.length === 0) return "nothing";
    const path = this.#random.pick(files);
    const dice = this.#random.below(10);
    if (dice < 6) {
      this.counts.flippedBits++;
      const bit = this.#usedOffset(path) * 8 + this.#random.below(8);
      disk.flipBit(path, bit);
      return `bit ${bit} of ${path}`;
    }
    if (dice < 8) {
      this.counts.rottenSectors++;
      const sector = Math.floor(this.#usedOffset(path) / 512);
      if (await this.#takesProof(path, sector * 512, sector * 512 + 512)) return "nothing";
      disk.garble(path, sector * 512, 512);
      return `sector ${sector} of ${path}`;
    }
    if (path.startsWith("data/log")) return "nothing";
    this.counts.lostFiles++;
    await this.#machine.clock.complete(disk.remove(path));
    return `${path}, which is gone`;
  }

  /**
   * Rot in a block of a generation that has ended, under a store at work. Resolves with what lies in the
   * block: whoever reads it from now on gets it, from memory, or is told.
   */
  rotBlock(): RottenBlock | undefined {
    const { kv } = this.#machine;
    const slabs = kv.paths.filter((path) => endedBlocks.test(path)).sort();
    // The newest generation of each shard may be the current one.
    const ended = slabs.filter((path, at) => shardOf(slabs[at + 1] ?? "") === shardOf(path));
    if (ended.length === 0) return undefined;
    const path = this.#random.pick(ended);
    const blocks = kv.peek(path);
    if (blocks.length === 0) return undefined;
    const [key, value] = this.#random.pick(blocks);
    const timesUs: number[] = [];
    try {
      const block = decodeBlock(value);
      for (let at = 0; at < block.count; at++) timesUs.push(block.timeUs(at));
    } catch {
      return undefined; // it is rotten already
    }
    this.counts.rottenBlocks++;
    kv.flipBit(path, key, this.#random.below(value.length * 8));
    return { path, shard: shardOf(path), timesUs };
  }

  /**
   * The last flush says that the one before was synced. Where damage takes both, nothing tells it from
   * a write that a power cut has torn.
   */
  async #takesProof(path: string, from: number, to: number): Promise<boolean> {
    if (!path.startsWith("data/log")) return false;
    const { disk } = this.#machine;
    const copy = new MemoryDisk();
    for (const each of await this.#files("data/log")) {
      copy.files.set(each, Buffer.from(disk.peek(each)));
    }
    const layout = await layoutOf(copy);
    const taken = layout.filter((each) => each.path === path && each.from < to && each.to > from);
    return taken.length > 1 && taken.at(-1) === layout.at(-1);
  }

  /** Mostly where something was written: segments of the log are filled with zeros ahead. */
  #usedOffset(path: string): number {
    const bytes = this.#machine.disk.peek(path);
    let offset = 0;
    for (let draw = 0; draw < 16; draw++) {
      offset = this.#random.below(bytes.length);
      if (bytes[offset] !== 0) break;
    }
    return offset;
  }

  /** A store that does not open, or that opens and lacks some of what was synced. */
  #rotStore(path: string): string {
    const { kv } = this.#machine;
    this.counts.rottenStores++;
    const share = this.#random.pick([0, 0.5, 0.95]);
    const keeps = (): boolean => this.#random.chance(share);
    if (this.#random.chance(0.5)) {
      kv.damage(path, keeps);
      return `${path} does not open`;
    }
    kv.hollow(path, keeps);
    return `${path} has lost entries`;
  }

  async #files(dir: string): Promise<string[]> {
    const { clock, disk } = this.#machine;
    const found: string[] = [];
    if (!(await clock.complete(disk.exists(dir)))) return found;
    for (const { name, isDirectory } of await clock.complete(disk.list(dir))) {
      const path = `${dir}/${name}`;
      if (spared.test(path)) continue;
      if (isDirectory) found.push(...(await this.#files(path)));
      else found.push(path);
    }
    return found;
  }
}
