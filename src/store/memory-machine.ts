// A machine that is only memory: disk and key-value stores that outlive the nodes and stores that run
// on them, and lose with the power what was not synced. For tests of programs that embed Flagstone;
// calls take no time, so a start takes milliseconds.

import { type Clock, SeededRandom, SimDisk } from "../base/index.ts";
import { MemoryDriver } from "../kv/index.ts";

/** A log in memory starts fast with small segments; they grow in number as they must. */
export const memorySegmentBytes = 64 * 1024;

const noDelay = { callMs: [0, 0], syncMs: [0, 0], flushMs: [0, 0] } as const;

export class MemoryMachine {
  readonly disk: SimDisk;
  readonly kv: MemoryDriver;
  readonly #random: SeededRandom;
  #boots = 0;

  /** `clock` completes the calls; `seed` decides what a power cut leaves of unsynced writes. */
  constructor(clock: Clock, seed: number | string = 1) {
    const random = new SeededRandom(seed);
    this.#random = random;
    this.disk = new SimDisk({ clock, random, type: "memory", ...noDelay });
    this.kv = new MemoryDriver({ clock, random, ...noDelay });
  }

  /** Randomness for the next process: no two boots of a machine draw the same. */
  nextRandom(): SeededRandom {
    this.#boots++;
    return this.#random.split(`boot ${this.#boots}`);
  }

  /** Ends the process: nothing it still had to do takes effect, what it wrote is there. */
  kill(): void {
    this.disk.kill();
    this.kv.kill();
  }

  /** Cuts the power: what was synced is there, of the rest any part may be. */
  crash(): void {
    this.disk.crash();
    this.kv.crash();
  }
}
