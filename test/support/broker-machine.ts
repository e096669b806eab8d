// A simulated machine that runs whole nodes, one after the other: disk, key-value stores, network and
// clock outlive the processes. A process is killed or loses its power at once, at any moment or
// inside a named phase; nothing that it still had to do takes effect.
//
//   const machine = new BrokerMachine(seed);
//   machine.aim({ phase: "takeover.committed", count: 2, death: "power" });
//   await machine.start();
//   if (machine.node === undefined) … // the aim was hit while starting

import {
  type LogFields,
  type Logger,
  SeededRandom,
  SimClock,
  SimDisk,
  SimNetwork,
} from "../../src/base/index.ts";
import { MemoryDriver } from "../../src/kv/index.ts";
import { assembleNode } from "../../src/node/assembly.ts";
import { createSettings } from "../../src/node/config/config.ts";
import { composeNode, type RunningNode } from "../../src/node/node.ts";
import type { Death } from "./store-lives.ts";

export const brokerHost = "broker";
export const brokerPort = 1883;

/** The `count`th time from now that the phase is reached, the process dies in it. */
export type Aim = { readonly phase: string; readonly count: number; readonly death: Death };

/** Phases in which a death is worth a try. */
export const aimedPhases = [
  "takeover.stopped",
  "takeover.committed",
  "takeover.claimed",
  "session.checkpoint",
  "session.checkpointed",
  "checkpoint.captured",
  "checkpoint.prepared",
  "checkpoint.committed",
  "checkpoint.released",
  "generation.rotated",
  "generation.sealed",
  "slab.sealed",
  "slab.written",
] as const;

export type MachineEvent = {
  readonly atMs: number;
  readonly level: "warn" | "error";
  readonly event: string;
  readonly fields: LogFields | undefined;
};

const limitMs = 600_000;

const settings = createSettings({
  data: { dir: "data", ballast: "0" },
  listeners: { tcp: { port: brokerPort } },
  log: { segmentBytes: "64KiB", spareSegmentsMax: 2 },
  databases: { messages: { shards: 2 }, state: { shards: 2 } },
  mqtt: { inflightMax: 20 },
  store: { checkpointBytes: "64KiB", checkpointAge: "5s" },
});

export class BrokerMachine {
  readonly clock: SimClock;
  readonly disk: SimDisk;
  readonly kv: MemoryDriver;
  readonly network: SimNetwork;
  /** Warnings and errors of the last lives. */
  readonly events: MachineEvent[] = [];
  /** What a node said when it could not go on; never right in this world. */
  failure: Error | undefined;
  /** Running and ready. */
  node: RunningNode | undefined;
  readonly #random: SeededRandom;
  #process: ReturnType<SimClock["createProcess"]> | undefined;
  #boots = 0;
  #aim: { readonly aim: Aim; left: number } | undefined;

  constructor(seed: number | string) {
    const random = new SeededRandom(seed);
    this.#random = random;
    this.clock = new SimClock({ random: random.split("clock") });
    this.disk = new SimDisk({ clock: this.clock, random });
    this.kv = new MemoryDriver({ clock: this.clock, random });
    const { clock } = this;
    this.network = new SimNetwork({ clock, random, delayMs: [0.02, 0.4], cutEvery: 8 });
  }

  /** A process exists, ready or starting. */
  get isAlive(): boolean {
    return this.#process !== undefined;
  }

  aim(aim: Aim | undefined): void {
    this.#aim = aim === undefined ? undefined : { aim, left: aim.count };
  }

  /** Begins to start a process; `node` is there when it is ready. */
  begin(): void {
    const process = this.clock.createProcess();
    this.#process = process;
    const isAlive = (): boolean => this.#process === process;
    const started = composeNode(
      settings,
      {
        clock: process,
        random: this.#random.split(`boot ${++this.#boots}`),
        disk: this.disk.attach(),
        kv: this.kv.attach(),
        network: this.network.host(brokerHost),
        logger: this.#logger(isAlive),
        phase: (name) => {
          if (isAlive()) this.#reached(name);
        },
      },
      assembleNode,
    );
    started.then(
      (node) => {
        if (!isAlive()) return;
        this.node = node;
        node.failed.then((error) => {
          if (isAlive()) this.failure ??= error;
        });
      },
      (error) => {
        if (isAlive()) this.failure ??= error;
      },
    );
  }

  /** Runs until the process is ready, dead or failed. */
  async ready(): Promise<void> {
    const isSettled = () => this.node !== undefined || !this.isAlive || this.failure !== undefined;
    await this.clock.runUntil(isSettled, limitMs);
    if (this.failure !== undefined) throw this.failure;
  }

  async start(): Promise<void> {
    this.begin();
    await this.ready();
  }

  die(death: Death): void {
    if (!this.isAlive) return;
    this.#end();
    if (death === "kill") {
      this.disk.kill();
      this.kv.kill();
      this.network.kill(brokerHost);
    } else {
      this.disk.crash();
      this.kv.crash();
      this.network.powerOff(brokerHost);
    }
  }

  /** SIGTERM. False: the process died on the way. */
  async stop(): Promise<boolean> {
    const { node } = this;
    if (node === undefined) return false;
    let isDone = false;
    node.close().then(
      () => {
        isDone = true;
      },
      (error) => {
        this.failure ??= error;
      },
    );
    const isSettled = () => isDone || !this.isAlive || this.failure !== undefined;
    await this.clock.runUntil(isSettled, limitMs);
    if (this.failure !== undefined) throw this.failure;
    if (isDone) this.die("kill");
    return isDone;
  }

  #end(): void {
    this.#process?.kill();
    this.#process = undefined;
    this.node = undefined;
    this.#aim = undefined;
  }

  #reached(name: string): void {
    const aimed = this.#aim;
    if (aimed?.aim.phase !== name) return;
    aimed.left--;
    if (aimed.left === 0) this.die(aimed.aim.death);
  }

  #logger(isAlive: () => boolean): Logger {
    const note = (level: MachineEvent["level"]) => (event: string, fields?: LogFields) => {
      if (!isAlive()) return;
      this.events.push({ atMs: this.clock.elapsedMs(), level, event, fields });
    };
    const nothing = () => undefined;
    return { debug: nothing, info: nothing, warn: note("warn"), error: note("error") };
  }
}
