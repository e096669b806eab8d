// A simulated machine that runs the store: disk, key-value stores and clock outlive the processes.
// `boot` starts a process, `kill` ends it, `crash` cuts the power. One seed decides everything.

import {
  type Clock,
  type LogFields,
  type Logger,
  SeededRandom,
  SimClock,
  SimDisk,
} from "../../src/base/index.ts";
import { MemoryDriver } from "../../src/kv/index.ts";
import { defaultLogSettings, openLog, type WriteAheadLog } from "../../src/log/index.ts";
import {
  groupSettingsDefault,
  type LocalStore,
  openStore,
  type StoreSettings,
  storeSettingsDefault,
} from "../../src/store/index.ts";

/** Settings of a store whose one group has a write buffer of this size. */
export function withBuffer(writeBufferBytesMax: number): Pick<StoreSettings, "groups"> {
  return { groups: [{ ...groupSettingsDefault, writeBufferBytesMax }] };
}

export type MachineOptions = {
  readonly seed: number | string;
  readonly store?: Partial<StoreSettings>;
  readonly segmentBytes?: number;
  /** Chance that a power cut tears a sector which was not synced. */
  readonly tornChance?: number;
};

export type Process = {
  readonly store: LocalStore;
  readonly log: WriteAheadLog;
  readonly clock: Clock;
};

export class StoreMachine {
  readonly clock: SimClock;
  readonly disk: SimDisk;
  readonly kv: MemoryDriver;
  readonly random: SeededRandom;
  readonly events: Array<{ event: string; fields: LogFields | undefined }> = [];
  readonly phases = new Map<string, number>();
  onPhase: ((name: string) => void) | undefined;
  readonly #options: MachineOptions;
  #boots = 0;
  #process: { clock: ReturnType<SimClock["createProcess"]> } | undefined;

  constructor(options: MachineOptions) {
    this.#options = options;
    this.random = new SeededRandom(options.seed);
    this.clock = new SimClock({ random: this.random.split("clock") });
    const { tornChance } = options;
    this.disk = new SimDisk({
      ...{ clock: this.clock, random: this.random },
      ...(tornChance === undefined ? {} : { tornChance }),
    });
    this.kv = new MemoryDriver({ clock: this.clock, random: this.random });
  }

  readonly logger: Logger = {
    debug: () => undefined,
    info: (event, fields) => this.#note(event, fields),
    warn: (event, fields) => this.#note(event, fields),
    error: (event, fields) => this.#note(event, fields),
  };

  /** Starts a process up to an opened store; `start` is left to the caller. */
  async open(over: Partial<StoreSettings> = {}): Promise<Process> {
    const clock = this.clock.createProcess();
    this.#process = { clock };
    const disk = this.disk.attach();
    const kv = this.kv.attach();
    const { logger } = this;
    const log = await openLog(
      {
        ...defaultLogSettings,
        segmentBytes: this.#options.segmentBytes ?? 64 * 1024,
        zeroFillBytes: 16 * 1024,
      },
      // Drawn anew for each process: segment ids never repeat on a real machine.
      { disk, clock, random: this.random.split(`log ${++this.#boots}`), logger },
      "data/log",
    );
    if (!(await disk.exists("data/db"))) {
      await disk.makeDir("data/db");
      await disk.syncDir("data");
    }
    const store = await openStore(
      {
        ...storeSettingsDefault,
        shards: 2,
        dir: "data/db",
        quarantineDir: "data/quarantine",
        ...this.#options.store,
        ...over,
      },
      { disk, kv, log, clock, logger, phase: (name) => this.#phase(name) },
    );
    return { store, log, clock };
  }

  async boot(): Promise<Process> {
    const process = await this.clock.complete(this.open(), 600_000);
    await this.clock.complete(process.store.start(), 600_000);
    return process;
  }

  kill(): void {
    this.#process?.clock.kill();
    this.disk.kill();
    this.kv.kill();
  }

  crash(): void {
    this.#process?.clock.kill();
    this.disk.crash();
    this.kv.crash();
  }

  async stop(process: Process): Promise<void> {
    await this.clock.complete(process.store.close(), 600_000);
    await this.clock.complete(process.log.close(), 600_000);
  }

  #phase(name: string): void {
    this.phases.set(name, (this.phases.get(name) ?? 0) + 1);
    this.onPhase?.(name);
  }

  #note(event: string, fields: LogFields | undefined): void {
    this.events.push({ event, fields });
  }
}

/** Another shard fills the log with 180 kB: what nobody needs of it goes. */
export async function turnLogOver({ clock }: StoreMachine, store: LocalStore): Promise<void> {
  for (let n = 0; n < 60; n++) {
    const written = new Promise<void>((resolve) => {
      const writes = [{ key: `k${n}`, value: Buffer.alloc(3_000) }];
      store.state("x").write(writes, [], () => resolve());
    });
    await clock.complete(written);
  }
  await clock.complete(store.checkpoint());
  await clock.advance(1_000);
}
