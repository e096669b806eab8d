// One simulated machine with the real host on it: disk, clock, log and process. It can be killed,
// lose its power, its disk or parts of it, and come back with another program.

import {
  type Disk,
  type SeededRandom,
  type SimClock,
  SimDisk,
  type SimProcessClock,
  silentLogger,
  toError,
} from "../../base/index.ts";
import { defaultLogSettings, openLog, type WriteAheadLog } from "../../log/index.ts";
import { openRaftHost, type RaftHost } from "../host/host.ts";
import { formatRaftDir, type Identity } from "../host/identity.ts";
import type { Member } from "../host/members.ts";
import type { MemoryNetwork } from "../host/memory-transport.ts";
import type { HostSettings } from "../host/ports.ts";
import type { HostCoverage } from "./host-coverage.ts";
import type { HostJudge } from "./host-judge.ts";
import { HostMachine } from "./host-machine.ts";

export const hostClusterId = "5c".repeat(16);
export const hostDir = "data/raft";
export const hostLogDir = "data/log";

/** Small, so that segments are closed and recycled within a seed. */
const logSettings = {
  ...defaultLogSettings,
  segmentBytes: 16 * 1024,
  zeroFillBytes: 8 * 1024,
  flushBytesMax: 4 * 1024,
  recordBytesMax: 8 * 1024,
  pendingBytesMax: 16 * 1024,
};

/** What all nodes of a seed share. */
export type HostWorld = {
  readonly clock: SimClock;
  readonly random: SeededRandom;
  readonly network: MemoryNetwork;
  readonly settings: HostSettings;
  readonly groups: readonly number[];
  readonly judge: HostJudge;
  readonly coverage: HostCoverage;
  readonly machinesTakeTime: boolean;
  readonly paddingBytes: number;
  readonly note: (text: string) => void;
  readonly fail: (error: Error) => void;
};

export class HostNode {
  readonly node: number;
  readonly siteId: string;
  readonly machines = new Map<number, HostMachine>();
  identity: Identity | undefined;
  disk: SimDisk;
  log: WriteAheadLog | undefined;
  host: RaftHost | undefined;
  programVersion = 1;
  /** Its disk, or term and vote of a group, are lost: it stays away. */
  isGone = false;
  /** Data were damaged and are not known to be repaired. */
  isDamaged = false;
  /** An IO error ended the process; it waits to be started again. */
  hasFailed = false;
  /** It is down and will be started, or its groups are being opened. */
  isBusy = false;
  /** How often its process has ended. */
  stops = 0;
  readonly removedFrom = new Set<number>();
  readonly #world: HostWorld;
  #clock: SimProcessClock | undefined;
  #lives = 0;

  constructor(node: number, world: HostWorld) {
    this.node = node;
    this.siteId = String(node).padStart(32, "0");
    this.#world = world;
    this.disk = this.#newDisk();
  }

  get isUp(): boolean {
    return this.host !== undefined && !this.hasFailed;
  }

  get member(): Member {
    const diskId = this.identity?.diskId ?? "";
    const address = { host: `node${this.node}`, port: 7000 };
    const { node, siteId } = this;
    return { node, siteId, diskId, name: `node${node}`, address, removed: false };
  }

  async format(): Promise<void> {
    const random = this.#world.random.split(`identity ${this.node} ${this.#lives}`);
    const given = { clusterId: hostClusterId, siteId: this.siteId, random };
    this.identity = await formatRaftDir(this.disk.attach(), hostDir, given);
  }

  /** Opens log, host, and the groups stored. @throws what they say. */
  async start(siteId = this.siteId): Promise<void> {
    const { network, settings, random, clock: world } = this.#world;
    const life = ++this.#lives;
    const clock = world.createProcess();
    this.#clock = clock;
    const disk: Disk = this.disk.attach();
    const drawn = random.split(`life ${this.node} ${life}`);
    const shared = { disk, clock, random: drawn, logger: silentLogger };
    const onFailure = (error: Error): void => this.#onFailure(error, life);
    const log = await openLog(logSettings, { ...shared, onFailure }, hostLogDir);
    if (life !== this.#lives) return;
    const transport = network.host(this.siteId);
    const machineOf = (group: number): HostMachine => this.#createMachine(group, clock);
    const onRemoved = (group: number): void => {
      this.removedFrom.add(group);
    };
    const components = { ...shared, log, transport, machineOf, onFailure, onRemoved };
    const place = { dir: hostDir, clusterId: hostClusterId, siteId };
    const host = await openRaftHost(settings, components, place);
    if (life !== this.#lives) return;
    this.log = log;
    this.host = host;
    this.hasFailed = false;
    if (!host.members().some(({ node }) => node === this.node)) return;
    for (const group of this.#world.groups) {
      await host.openGroup(group);
      if (life !== this.#lives) return;
    }
  }

  /** Ends the process; `power` loses what was not synced. */
  stop(how: "kill" | "power"): void {
    this.#collect();
    this.#lives++;
    this.stops++;
    this.#clock?.kill();
    this.#world.network.kill(this.siteId);
    if (how === "kill") this.disk.kill();
    else this.disk.crash();
    this.host = undefined;
    this.log = undefined;
    this.hasFailed = false;
    this.isBusy = false;
  }

  wipe(): void {
    this.disk = this.#newDisk();
    this.isGone = true;
  }

  /** The clock of this process alone runs ahead. */
  jump(deltaMs: number): void {
    const clock = this.#clock;
    if (clock === undefined) return;
    const real = clock.elapsedMs.bind(clock);
    clock.elapsedMs = () => real() + deltaMs;
  }

  machine(group: number): HostMachine | undefined {
    return this.machines.get(group);
  }

  /** Adds what the host counted to the coverage; called before its end. */
  #collect(): void {
    const counters = this.host?.counters;
    if (counters === undefined) return;
    const { coverage } = this.#world;
    coverage.stallsNoted += counters.stalls;
    coverage.flushesHung += counters.flushesHung;
    coverage.repairsBegun += counters.groupsRepairing;
    coverage.repairsEnded += counters.groupsRepaired;
    coverage.strangersHeard += counters.refusedSender;
    coverage.snapshotsTaken += counters.snapshotsTaken;
    coverage.snapshotsInstalled += counters.snapshotsInstalled;
    coverage.removalsTold += counters.removalsTold;
    coverage.snapshotsResumed += counters.snapshotsResumed;
    const damaged = ["refusedLength", "refusedMagic", "refusedVersion", "refusedCluster"] as const;
    for (const name of damaged) coverage.framesDamaged += counters[name];
    coverage.framesDamaged += counters.refusedCrc;
  }

  #createMachine(group: number, clock: SimProcessClock): HostMachine {
    const { judge, machinesTakeTime, paddingBytes } = this.#world;
    const place = { group, node: this.node };
    const guard = (check: () => void): void => {
      try {
        check();
      } catch (error) {
        this.#world.fail(toError(error));
      }
    };
    const later = (task: () => void): void => {
      clock.schedule(1, task);
    };
    const { programVersion } = this;
    const machine = new HostMachine(
      { programVersion, later: machinesTakeTime ? later : undefined, paddingBytes },
      {
        applied: (index, term, hash) => guard(() => judge.applied(place, index, term, hash)),
        installed: (index, hash) => guard(() => judge.installed(place, index, hash)),
      },
    );
    this.machines.set(group, machine);
    return machine;
  }

  #onFailure(error: Error, life: number): void {
    if (life !== this.#lives) return;
    this.#world.note(`node ${this.node} ends: ${error.message}`);
    this.hasFailed = true;
  }

  #newDisk(): SimDisk {
    const random = this.#world.random.split(`disk ${this.node} ${this.#lives}`);
    return new SimDisk({ clock: this.#world.clock, random });
  }
}
