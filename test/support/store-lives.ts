// Stores that outlive their process, for worlds that are killed and started again: the fake one, and
// the real one on a simulated machine. One face for both.

import { type Clock, SimClock } from "../../src/base/index.ts";
import type { Store } from "../../src/store/index.ts";
import { createFakeData, type FakeData, type FakeOptions, FakeStore } from "./fake-store.ts";
import { type MachineOptions, type Process, StoreMachine } from "./store-machine.ts";

/** `kill`: the process dies. `power`: the machine stops, too. */
export type Death = "kill" | "power";

export interface StoreLives {
  readonly clock: SimClock;
  /** A new process with its store opened, not yet started. */
  open(): Promise<{ readonly store: Store; readonly clock: Clock }>;
  die(death: Death): void;
  stop(): Promise<void>;
}

export class FakeLives implements StoreLives {
  readonly clock = new SimClock();
  readonly #options: FakeOptions;
  readonly #data: FakeData;
  #process: { store: FakeStore; clock: ReturnType<SimClock["createProcess"]> } | undefined;

  constructor(options: FakeOptions = {}) {
    this.#options = options;
    this.#data = createFakeData(options);
  }

  async open(): Promise<{ readonly store: Store; readonly clock: Clock }> {
    const clock = this.clock.createProcess();
    const store = new FakeStore(this.clock, this.#options, this.#data);
    this.#process = { store, clock };
    return this.#process;
  }

  die(): void {
    this.#process?.store.crash();
    this.#process?.clock.kill();
  }

  async stop(): Promise<void> {
    this.die();
  }
}

export class MachineLives implements StoreLives {
  readonly machine: StoreMachine;
  #process: Process | undefined;

  constructor(options: MachineOptions) {
    this.machine = new StoreMachine(options);
  }

  get clock(): SimClock {
    return this.machine.clock;
  }

  async open(): Promise<{ readonly store: Store; readonly clock: Clock }> {
    this.#process = await this.machine.open();
    return this.#process;
  }

  die(death: Death): void {
    if (death === "kill") this.machine.kill();
    else this.machine.crash();
  }

  async stop(): Promise<void> {
    if (this.#process !== undefined) await this.machine.stop(this.#process);
    this.machine.kill();
  }
}
