// A simulated machine that runs a store on Raft: disk and key-value stores outlive its processes, and
// clock and network are shared with the other machines. One seed decides everything.

import {
  type Cancel,
  type Clock,
  type LogFields,
  type Logger,
  SeededRandom,
  SimClock,
  SimDisk,
  type SimProcessClock,
} from "../../src/base/index.ts";
import {
  type CopySettings,
  Forwarder,
  type ForwardSettings,
  type KeepSettings,
  RaftLogs,
} from "../../src/cluster/index.ts";
import { MemoryDriver } from "../../src/kv/index.ts";
import { defaultLogSettings, openLog, type WriteAheadLog } from "../../src/log/index.ts";
import {
  defaultHostSettings,
  defaultRaftSettings,
  formatRaftDir,
  type HostSettings,
  type Identity,
  type Member,
  MemoryNetwork,
  openRaftHost,
  type RaftHost,
} from "../../src/raft/index.ts";
import {
  type LocalStore,
  openStore,
  type StoreSettings,
  storeSettingsDefault,
} from "../../src/store/index.ts";

export const clusterId = "c2".repeat(16);
const raftDir = "data/raft";

export const quickRaft: HostSettings = {
  ...defaultHostSettings,
  raft: { ...defaultRaftSettings, electionTicks: 5, heartbeatTicks: 1, snapshotTicks: 10 },
  keptEntries: 4,
};

export type ReplicaWorld = {
  readonly clock: SimClock;
  readonly random: SeededRandom;
  readonly network: MemoryNetwork;
  readonly settings: HostSettings;
  /** Numbers of all members. */
  readonly voters: readonly number[];
  /** How much log is kept for members that are away. */
  keep?: KeepSettings;
  copies?: CopySettings;
  forwarding?: ForwardSettings;
};

export function createReplicaWorld(
  seed: number | string,
  voters: readonly number[],
  settings = quickRaft,
): ReplicaWorld {
  const random = new SeededRandom(seed);
  const clock = new SimClock({ random: random.split("clock") });
  return {
    clock,
    random,
    network: new MemoryNetwork(clock, random.split("network")),
    settings,
    voters,
  };
}

/** The clock of a process on a machine whose wall clock may be off. */
export class ReplicaClock implements Clock {
  readonly #clock: SimProcessClock;
  readonly #offsetUs: () => number;

  constructor(clock: SimProcessClock, offsetUs: () => number) {
    this.#clock = clock;
    this.#offsetUs = offsetUs;
  }

  wallUs(): number {
    return this.#clock.wallUs() + this.#offsetUs();
  }

  elapsedMs(): number {
    return this.#clock.elapsedMs();
  }

  schedule(delayMs: number, task: () => void): Cancel {
    return this.#clock.schedule(delayMs, task);
  }

  soon(task: () => void): void {
    this.#clock.soon(task);
  }

  kill(): void {
    this.#clock.kill();
  }
}

export type ReplicaProcess = {
  readonly clock: ReplicaClock;
  readonly log: WriteAheadLog;
  readonly host: RaftHost;
  readonly logs: RaftLogs;
  /** Undefined until the store is opened. */
  forwarder: Forwarder | undefined;
  /** Undefined until the store is started. */
  store: LocalStore | undefined;
};

export class ReplicaMachine {
  readonly node: number;
  readonly siteId: string;
  readonly events: Array<{ event: string; fields: LogFields | undefined }> = [];
  readonly disk: SimDisk;
  readonly kv: MemoryDriver;
  /** Told of each named phase of its store. */
  onPhase: (name: string) => void = () => undefined;
  process: ReplicaProcess | undefined;
  failure: Error | undefined;
  identity: Identity = { clusterId, siteId: "", diskId: "" };
  readonly #world: ReplicaWorld;
  readonly #joins: boolean;
  readonly #forwards: boolean;
  #lives = 0;
  /** How far its wall clock is off. */
  wallOffsetUs = 0;

  /**
   * `joins`: its groups have no members before others say so. Without `forwards` it decides whatever
   * it is asked for itself, or refuses it.
   */
  constructor(node: number, world: ReplicaWorld, { joins = false, forwards = true } = {}) {
    this.node = node;
    this.#joins = joins;
    this.#forwards = forwards;
    this.siteId = String(node).padStart(32, "0");
    this.#world = world;
    const random = world.random.split(`machine ${node}`);
    this.disk = new SimDisk({ clock: world.clock, random });
    this.kv = new MemoryDriver({ clock: world.clock, random });
  }

  get member(): Member {
    const { node, siteId, identity } = this;
    const address = { host: `node${node}`, port: 7000 };
    const { diskId } = identity;
    return { node, siteId, diskId, name: `node${node}`, address, removed: false };
  }

  readonly logger: Logger = {
    debug: () => undefined,
    info: (event, fields) => void this.events.push({ event, fields }),
    warn: (event, fields) => void this.events.push({ event, fields }),
    error: (event, fields) => void this.events.push({ event, fields }),
  };

  /** Makes its directory. Once, before the first boot. */
  async format(): Promise<void> {
    const random = this.#world.random.split(`identity ${this.node}`);
    const given = { clusterId, siteId: this.siteId, random };
    this.identity = await formatRaftDir(this.disk.attach(), raftDir, given);
  }

  /** Starts a process up to its host; `members` are made known to it. */
  async boot(members: readonly Member[]): Promise<ReplicaProcess> {
    const { clock: world, network, settings } = this.#world;
    const voters = this.#joins ? [] : this.#world.voters;
    const life = ++this.#lives;
    const clock = new ReplicaClock(world.createProcess(), () => this.wallOffsetUs);
    const disk = this.disk.attach();
    const random = this.#world.random.split(`boot ${this.node} ${life}`);
    const shared = { disk, clock, random, logger: this.logger };
    const onFailure = (error: Error): void => {
      if (life === this.#lives) this.failure ??= error;
    };
    this.failure = undefined;
    const logSettings = {
      ...defaultLogSettings,
      segmentBytes: 64 * 1024,
      zeroFillBytes: 16 * 1024,
    };
    const log = await openLog(logSettings, { ...shared, onFailure }, "data/log");
    const { keep, copies } = this.#world;
    const logs = new RaftLogs(
      { node: this.node, voters, ...(keep && { keep }), ...(copies && { copies }) },
      { clock, log, logger: this.logger },
    );
    const transport = network.host(this.siteId);
    const { machineOf } = logs;
    const components = { ...shared, log, transport, machineOf, onFailure };
    const host = await openRaftHost(settings, components, { dir: raftDir, clusterId });
    await host.admit(members);
    logs.attach(host);
    this.process = { clock, log, host, logs, forwarder: undefined, store: undefined };
    return this.process;
  }

  /** Opens and starts the store of a process. */
  async open(process: ReplicaProcess, over: Partial<StoreSettings> = {}): Promise<LocalStore> {
    const disk = this.disk.attach();
    if (!(await disk.exists("data/db"))) {
      await disk.makeDir("data/db");
      await disk.syncDir("data");
    }
    const { clock, log, logs } = process;
    const onFailure = (error: Error): void => {
      if (this.process === process) this.failure ??= error;
    };
    const forwarder = new Forwarder({
      ...{ peers: logs, clock, logger: this.logger, counters: logs.counters },
      name: `node ${this.node}.${this.#lives}`,
      settings: this.#world.forwarding,
    });
    logs.onTold = (shard, from, bytes) => forwarder.receive(shard, from, bytes);
    process.forwarder = forwarder;
    const store = await openStore(
      { ...storeSettingsDefault, dir: "data/db", quarantineDir: "data/quarantine", ...over },
      {
        ...{ disk, kv: this.kv.attach(), log, clock, logger: this.logger, onFailure },
        ...{ shardLogs: logs, ...(this.#forwards && { fronts: forwarder }) },
        phase: (name) => this.onPhase(name),
      },
    );
    await store.start();
    process.store = store;
    return store;
  }

  /** Ends the process in order. */
  async stop(): Promise<void> {
    const { process } = this;
    if (process === undefined) return;
    process.forwarder?.close();
    await process.store?.close();
    await process.host.close();
    await process.log.close();
    this.end("kill");
  }

  /** Ends the process at once; `power` loses what was not synced. */
  end(how: "kill" | "power"): void {
    this.#lives++;
    this.process?.clock.kill();
    this.process = undefined;
    this.#world.network.kill(this.siteId);
    if (how === "kill") {
      this.disk.kill();
      this.kv.kill();
    } else {
      this.disk.crash();
      this.kv.crash();
    }
  }
}
