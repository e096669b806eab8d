// A cluster of Raft hosts on simulated disks, one clock and one network, with a register machine
// that lives in memory. A node can be killed, lose its power, its disk, or bits of it.

import {
  SeededRandom,
  SimClock,
  SimDisk,
  type SimProcessClock,
  silentLogger,
} from "../../src/base/index.ts";
import { defaultLogSettings, openLog, type WriteAheadLog } from "../../src/log/index.ts";
import {
  type CommandEntry,
  defaultHostSettings,
  defaultRaftSettings,
  formatRaftDir,
  type Group,
  type HostSettings,
  type Identity,
  type Member,
  MemoryNetwork,
  openRaftHost,
  type RaftHost,
  type StateMachine,
} from "../../src/raft/index.ts";

export const clusterId = "c1".repeat(16);
export const raftDir = "data/raft";
export const logDir = "data/log";
const logSettings = {
  ...defaultLogSettings,
  segmentBytes: 64 * 1024,
  zeroFillBytes: 64 * 1024,
  flushBytesMax: 16 * 1024,
};

export const testSettings: HostSettings = {
  ...defaultHostSettings,
  raft: { ...defaultRaftSettings, electionTicks: 5, heartbeatTicks: 1, snapshotTicks: 10 },
  snapshotChunkBytes: 512,
  keptEntries: 4,
};

/** Keeps all commands as text; version 1 of its snapshots is one text a line. */
export class ListMachine implements StateMachine {
  readonly version = 1;
  readonly durableIndex = 0;
  texts: string[] = [];
  indexes: number[] = [];
  terms: number[] = [];

  apply(entries: readonly CommandEntry[]): string[] {
    return entries.map(({ index, term, data }) => {
      this.indexes.push(index);
      this.terms.push(term);
      this.texts.push(Buffer.from(data).toString());
      return `${this.texts.length}`;
    });
  }

  capture(): Iterable<Uint8Array> {
    return [Buffer.from(JSON.stringify(this.texts))];
  }

  async install(_head: unknown, pieces: AsyncIterable<Uint8Array>): Promise<void> {
    const parts: Uint8Array[] = [];
    for await (const piece of pieces) parts.push(Uint8Array.from(piece));
    const text = Buffer.concat(parts).toString();
    this.texts = text === "" ? [] : (JSON.parse(text) as string[]);
    this.indexes = [];
    this.terms = [];
  }
}

export type Station = {
  readonly node: number;
  readonly siteId: string;
  disk: SimDisk;
  identity: Identity;
  clock: SimProcessClock | undefined;
  log: WriteAheadLog | undefined;
  host: RaftHost | undefined;
  failures: Error[];
  readonly removed: number[];
  readonly machines: Map<number, ListMachine>;
};

export class RaftCluster {
  readonly clock: SimClock;
  readonly random: SeededRandom;
  readonly network: MemoryNetwork;
  readonly stations: Station[] = [];
  readonly settings: HostSettings;

  constructor(options: { seed?: number | string; settings?: Partial<HostSettings> } = {}) {
    this.random = new SeededRandom(options.seed ?? 1);
    this.clock = new SimClock({ random: this.random.split("clock") });
    this.network = new MemoryNetwork(this.clock, this.random.split("network"));
    this.settings = { ...testSettings, ...options.settings };
  }

  /** Formats `count` disks and starts hosts that know each other. */
  async form(count: number, groups: readonly number[] = [1]): Promise<void> {
    for (let node = 1; node <= count; node++) this.stations.push(await this.createStation(node));
    for (const station of this.stations) await this.boot(station);
    for (const station of this.stations) await this.admitAll(station);
    const voters = this.stations.map(({ node }) => node);
    for (const station of this.stations) {
      for (const group of groups) {
        const configuration = { voters, learners: [] };
        await this.complete(
          hostOf(station).createGroup({ group, node: station.node, configuration }),
        );
      }
    }
  }

  async createStation(node: number): Promise<Station> {
    const siteId = String(node).padStart(32, "0");
    const station: Station = {
      node,
      siteId,
      disk: this.#newDisk(node),
      identity: { clusterId, siteId, diskId: "" },
      clock: undefined,
      log: undefined,
      host: undefined,
      failures: [],
      removed: [],
      machines: new Map(),
    };
    await this.format(station);
    return station;
  }

  async format(station: Station): Promise<void> {
    const given = {
      clusterId,
      siteId: station.siteId,
      random: this.random.split(`id${this.clock.elapsedMs()}`),
    };
    station.identity = await this.complete(formatRaftDir(station.disk, raftDir, given));
  }

  members(): Member[] {
    return this.stations.map(({ node, siteId, identity }) => {
      const address = { host: `node${node}`, port: 7000 };
      const { diskId } = identity;
      return { node, siteId, diskId, name: `node${node}`, address, removed: false };
    });
  }

  async admitAll(station: Station): Promise<void> {
    await this.complete(hostOf(station).admit(this.members()));
  }

  /** Opens log and host, not the groups. */
  async boot(station: Station): Promise<void> {
    const clock = this.clock.createProcess();
    const disk = station.disk.attach();
    const random = this.random.split(`boot${station.node}.${this.clock.elapsedMs()}`);
    const shared = { disk, clock, random, logger: silentLogger };
    const log = await this.complete(openLog(logSettings, shared, logDir));
    const transport = this.network.host(station.siteId);
    station.machines.clear();
    const machineOf = (group: number): ListMachine => {
      const machine = new ListMachine();
      station.machines.set(group, machine);
      return machine;
    };
    const onFailure = (error: Error): void => {
      station.failures.push(error);
    };
    const onRemoved = (group: number): void => {
      station.removed.push(group);
    };
    const components = { ...shared, log, transport, machineOf, onFailure, onRemoved };
    station.clock = clock;
    station.log = log;
    station.host = await this.complete(
      openRaftHost(this.settings, components, { dir: raftDir, clusterId }),
    );
  }

  /** Boots and opens all groups stored. */
  async restart(station: Station): Promise<void> {
    await this.boot(station);
    for (const group of hostOf(station).storedGroups()) {
      await this.complete(hostOf(station).openGroup(group));
    }
  }

  /** `power`: what was not synced may be lost. */
  stop(station: Station, how: "kill" | "power"): void {
    station.clock?.kill();
    this.network.kill(station.siteId);
    if (how === "kill") station.disk.kill();
    else station.disk.crash();
    station.host = undefined;
    station.log = undefined;
  }

  wipe(station: Station): void {
    station.disk = this.#newDisk(station.node);
  }

  group(node: number, group = 1): Group {
    const found = hostOf(this.station(node)).group(group);
    if (found === undefined) throw new Error(`node ${node} has no group ${group}`);
    return found;
  }

  station(node: number): Station {
    const found = this.stations.find((station) => station.node === node);
    if (found === undefined) throw new Error(`no node ${node}`);
    return found;
  }

  /** The group's leader, once there is one that a majority of those up follows. */
  async leader(group = 1, withinMs = 30_000): Promise<Group> {
    const find = (): Group | undefined => {
      const up = this.stations.flatMap(({ host }) => host?.group(group) ?? []);
      const leader = up.find(({ role }) => role === "leader");
      const followed = up.filter((other) => other.leader === leader?.node).length;
      return leader !== undefined && followed * 2 > this.stations.length ? leader : undefined;
    };
    await this.clock.runUntil(() => find() !== undefined, withinMs);
    return find() as Group;
  }

  async propose(group: Group, ...texts: string[]): Promise<unknown[]> {
    const commands = texts.map((text) => ({ version: 1, data: Buffer.from(text) }));
    return this.complete(group.propose(commands));
  }

  texts(node: number, group = 1): string[] {
    return this.station(node).machines.get(group)?.texts ?? [];
  }

  complete<T>(promise: Promise<T>, withinMs = 60_000): Promise<T> {
    return this.clock.complete(promise, withinMs);
  }

  until(done: () => boolean, withinMs = 60_000): Promise<void> {
    return this.clock.runUntil(done, withinMs);
  }

  async close(): Promise<void> {
    for (const station of this.stations) {
      await this.complete(station.host?.close() ?? Promise.resolve());
      await this.complete(station.log?.close() ?? Promise.resolve());
    }
  }

  #newDisk(node: number): SimDisk {
    const random = this.random.split(`disk${node}.${this.clock.elapsedMs()}`);
    return new SimDisk({ clock: this.clock, random });
  }
}

export function hostOf(station: Station): RaftHost {
  if (station.host === undefined) throw new Error(`node ${station.node} is down`);
  return station.host;
}
