// Nodes of a simulated cluster that serve MQTT, whole: disks and key-value stores outlive their
// processes, clock and network are shared. One seed decides everything.
//
//   const cluster = new MqttCluster(seed);
//   await cluster.start();
//   const client = await SimClient.connect(cluster.machine("a"), "one");

import {
  type LogFields,
  type Logger,
  SeededRandom,
  SimClock,
  SimDisk,
  SimNetwork,
  type SimProcessClock,
  toError,
} from "../../src/base/index.ts";
import { MemoryDriver } from "../../src/kv/index.ts";
import type { NodeParts } from "../../src/node/assemble.ts";
import { assembleServingNode } from "../../src/node/cluster/serving-node.ts";
import { createSettings } from "../../src/node/config/config.ts";
import type { Settings } from "../../src/node/config/keys.ts";
import { composeNode, type RunningNode } from "../../src/node/node.ts";
import type { Death } from "./store-lives.ts";

const memberPort = 7400;
const mqttPort = 1883;
const limitMs = 600_000;

export type ClusterEvent = {
  readonly atMs: number;
  readonly level: "info" | "warn" | "error";
  readonly event: string;
  readonly fields: LogFields | undefined;
};

/** Configuration refuses MQTT on a cluster where it does not hold all that it promises. */
function settingsOf(name: string, names: readonly string[], config: object): Settings {
  const served = createSettings({
    authentication: { chain: ["anonymous"] },
    data: { dir: "data", ballast: "0" },
    listeners: { tcp: { host: name, port: mqttPort } },
    log: { segmentBytes: "256KiB", spareSegmentsMax: 2 },
    databases: { messages: { shards: 2 }, state: { shards: 2 } },
    store: { checkpointBytes: "64KiB", checkpointAge: "5s" },
    ...config,
  });
  const { cluster } = createSettings({
    cluster: {
      ...{ name: "sim", node: name, storeOnly: true, host: name, port: memberPort },
      ...{ expect: names.length, trustNetwork: true },
      seeds: names.map((each) => `${each}=${each}:${memberPort}`),
    },
  });
  return { ...served, cluster: { ...cluster, storeOnly: false } };
}

export class MqttCluster {
  readonly random: SeededRandom;
  readonly clock: SimClock;
  readonly network: SimNetwork;
  readonly machines: readonly MqttMachine[];

  constructor(seed: number | string, config: object = {}, names = ["a", "b", "c"]) {
    this.random = new SeededRandom(seed);
    this.clock = new SimClock({ random: this.random.split("clock") });
    const random = this.random.split("network");
    this.network = new SimNetwork({ clock: this.clock, random, delayMs: [0.02, 0.4] });
    this.machines = names.map(
      (name) => new MqttMachine(this, name, settingsOf(name, names, config)),
    );
  }

  machine(name: string): MqttMachine {
    const found = this.machines.find((machine) => machine.name === name);
    if (found === undefined) throw new Error(`there is no machine ${name}`);
    return found;
  }

  /** Starts all that are down; resolves when every one is ready and reaches the others. */
  async start(): Promise<void> {
    for (const machine of this.machines) if (!machine.isAlive) machine.begin();
    await this.settled();
  }

  /** Until every node that runs is ready and reaches all others that run. */
  async settled(): Promise<void> {
    const alive = () => this.machines.filter(({ isAlive }) => isAlive);
    await this.clock.runUntil(
      () =>
        alive().some(({ failure }) => failure !== undefined) ||
        alive().every(({ node, peers }) => node && peers.length === alive().length - 1),
      limitMs,
    );
    for (const { failure } of alive()) if (failure !== undefined) throw failure;
  }

  /** Ends everything, so that nothing of it runs on. */
  end(): void {
    for (const machine of this.machines) machine.die("kill");
  }
}

export class MqttMachine {
  readonly name: string;
  /** Where clients reach it. */
  readonly host: string;
  readonly port = mqttPort;
  readonly clock: SimClock;
  readonly network: SimNetwork;
  readonly disk: SimDisk;
  readonly kv: MemoryDriver;
  /** What it said in all of its lives. */
  readonly events: ClusterEvent[] = [];
  /** Running and ready. */
  node: RunningNode | undefined;
  /** What the running node is made of. */
  parts: NodeParts | undefined;
  /** Why it did not start, or what ended it. */
  failure: Error | undefined;
  readonly #random: SeededRandom;
  readonly #settings: Settings;
  #process: SimProcessClock | undefined;
  #boots = 0;

  constructor(cluster: MqttCluster, name: string, settings: Settings) {
    this.name = name;
    this.host = name;
    this.clock = cluster.clock;
    this.network = cluster.network;
    this.#settings = settings;
    this.#random = cluster.random.split(`machine ${name}`);
    this.disk = new SimDisk({ clock: this.clock, random: this.#random });
    this.kv = new MemoryDriver({ clock: this.clock, random: this.#random });
  }

  /** A process exists, ready or starting. */
  get isAlive(): boolean {
    return this.#process !== undefined;
  }

  /** Numbers of the other nodes that it reaches. */
  get peers(): readonly number[] {
    return this.parts?.member?.channel.peers() ?? [];
  }

  /** Begins to start a process; `node` is there when it is ready. */
  begin(): void {
    const process = this.clock.createProcess();
    this.#process = process;
    this.failure = undefined;
    const isAlive = (): boolean => this.#process === process;
    const fail = (error: unknown): void => {
      if (isAlive()) this.failure ??= toError(error);
    };
    composeNode(
      this.#settings,
      {
        clock: process,
        random: this.#random.split(`boot ${++this.#boots}`),
        disk: this.disk.attach(),
        kv: this.kv.attach(),
        network: this.network.host(this.name),
        logger: this.#logger(isAlive),
      },
      async (context) => {
        const assembled = await assembleServingNode(context);
        if (isAlive()) this.parts = assembled.parts;
        return assembled;
      },
    ).then((node) => {
      if (!isAlive()) return;
      this.node = node;
      node.failed.catch(fail);
    }, fail);
  }

  /** Ends the process at once; `power` loses what was not synced. */
  die(death: Death): void {
    if (!this.isAlive) return;
    this.#process?.kill();
    this.#process = undefined;
    this.node = undefined;
    this.parts = undefined;
    if (death === "kill") {
      this.disk.kill();
      this.kv.kill();
      this.network.kill(this.name);
    } else {
      this.disk.crash();
      this.kv.crash();
      this.network.powerOff(this.name);
    }
  }

  /** SIGTERM; resolves when the process has ended. */
  async stop(): Promise<void> {
    const { node } = this;
    if (node !== undefined) await this.clock.complete(node.close(), limitMs);
    this.die("kill");
  }

  #logger(isAlive: () => boolean): Logger {
    const note = (level: ClusterEvent["level"]) => (event: string, fields?: LogFields) => {
      if (isAlive()) this.events.push({ atMs: this.clock.elapsedMs(), level, event, fields });
    };
    return {
      debug: () => undefined,
      info: note("info"),
      warn: note("warn"),
      error: note("error"),
    };
  }
}
