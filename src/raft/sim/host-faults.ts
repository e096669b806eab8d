// Faults for simulated hosts, drawn from the seed: of processes, disks, network, clocks, identity,
// program and membership.
//
// Damage is planned so that an intact copy of every acknowledged entry remains: at most one node is
// damaged or away for good at a time, and rot hits only what a later flush or segment proves synced;
// damage to the very last flush cannot be told from a torn write by anybody.

import {
  isCodedError,
  type SeededRandom,
  syncFully,
  toError,
  writeFully,
} from "../../base/index.ts";
import { type HostNode, type HostWorld, hostDir, hostLogDir } from "./host-node.ts";

export const hostFaultNames = [
  "kill",
  "power",
  "allpower",
  "pause",
  "hang",
  "eio",
  "enospc",
  "rot",
  "misdirect",
  "slot",
  "meta",
  "snaprot",
  "wipe",
  "identity",
  "cut",
  "transfer",
  "member",
  "remove",
  "checkpoint",
  "upgrade",
] as const;

export type HostFaultName = (typeof hostFaultNames)[number];

const sectorBytes = 512;

export class HostFaults {
  readonly #world: HostWorld;
  readonly #nodes: readonly HostNode[];
  readonly #random: SeededRandom;

  constructor(world: HostWorld, nodes: readonly HostNode[]) {
    this.#world = world;
    this.#nodes = nodes;
    this.#random = world.random.split("faults");
  }

  async strike(name: HostFaultName): Promise<void> {
    const node = this.#victim();
    this.#world.note(`fault ${name} at ${node?.node ?? "nobody"}`);
    if (name === "allpower") {
      this.#cutAllPower();
      return;
    }
    if (node === undefined) return;
    switch (name) {
      case "kill":
        this.#world.coverage.kills++;
        this.#restartLater(node, "kill");
        break;
      case "power":
        this.#world.coverage.powerCuts++;
        this.#restartLater(node, "power");
        break;
      case "pause":
        this.#world.coverage.pauses++;
        node.jump(this.#random.between(600, 60_000));
        break;
      case "hang":
        this.#hang(node);
        break;
      case "eio":
        this.#failDisk(node);
        break;
      case "enospc":
        this.#fillDisk(node);
        break;
      case "cut":
        this.#cutLink(node);
        break;
      case "transfer":
        this.#transfer(node);
        break;
      case "checkpoint":
        this.#checkpoint(node);
        break;
      case "member":
        this.#changeMembers("learner");
        break;
      case "remove":
        this.#changeMembers("remove");
        break;
      case "upgrade":
        this.#upgrade(node);
        break;
      default:
        await this.#damage(name, node);
    }
  }

  /** Brings back what is down and can come back. */
  restartLater(node: HostNode): void {
    if (node.isGone || node.isBusy || node.isUp) return;
    node.isBusy = true;
    const stops = node.stops;
    this.#world.clock.schedule(this.#random.between(10, 3_000), () => {
      // A power cut of all nodes has planned another start.
      if (stops === node.stops) void this.#start(node);
    });
  }

  #victim(): HostNode | undefined {
    // One that is gone and talks in vain has its own end.
    const up = this.#nodes.filter(({ isUp, isBusy, isGone }) => isUp && !isBusy && !isGone);
    if (up.length === 0) return undefined;
    const leads = up.filter(({ host }) => host?.status().some(({ role }) => role === "leader"));
    // Half of the faults go to whoever leads.
    return leads.length > 0 && this.#random.chance(0.5)
      ? this.#random.pick(leads)
      : this.#random.pick(up);
  }

  #restartLater(node: HostNode, how: "kill" | "power"): void {
    node.stop(how);
    this.restartLater(node);
  }

  async #start(node: HostNode): Promise<void> {
    const { stops } = node;
    this.#world.note(`node ${node.node} starts`);
    try {
      await node.start();
      if (stops === node.stops) node.isBusy = false;
    } catch (error) {
      if (stops === node.stops) this.#notStarted(node, error);
    }
  }

  #notStarted(node: HostNode, error: unknown): void {
    this.#world.note(`node ${node.node} does not start: ${toError(error).message}`);
    if (isCodedError(error, "RAFT_META_LOST")) {
      this.#world.coverage.metasLost++;
      node.stop("kill");
      node.isGone = true;
      return;
    }
    // An error of the disk, injected or for want of space: it is tried again.
    if (!isDiskError(error)) this.#world.fail(toError(error));
    node.stop("kill");
    this.restartLater(node);
  }

  #cutAllPower(): void {
    this.#world.coverage.allPowerCuts++;
    for (const node of this.#nodes) {
      if (node.isGone) continue;
      node.stop("power");
      this.restartLater(node);
    }
  }

  #hang(node: HostNode): void {
    this.#world.coverage.disksHung++;
    const { disk } = node;
    disk.inject({ on: "fdatasync", path: "log/", times: Infinity, hangs: true });
    this.#world.clock.schedule(this.#random.between(100, 8_000), () => disk.heal());
  }

  #failDisk(node: HostNode): void {
    this.#world.coverage.eioNodes++;
    const on = this.#random.pick(["fdatasync", "fdatasync", "write"] as const);
    node.disk.inject({ on, path: this.#random.pick(["log/", "meta", "snapshots"]), fails: "EIO" });
  }

  #fillDisk(node: HostNode): void {
    this.#world.coverage.disksFull++;
    const { disk } = node;
    const untilMs = this.#random.between(500, 10_000);
    if (this.#random.chance(0.5)) {
      // Room for the log and none for snapshots, as when the last of it is spent on one.
      const on = this.#random.pick(["write", "open"] as const);
      const heal = disk.inject({ on, path: /\/manifest/, fails: "ENOSPC", times: Infinity });
      this.#world.clock.schedule(untilMs, heal);
      return;
    }
    disk.setCapacity(2 ** 40 - disk.freeBytes + this.#random.below(4_096));
    this.#world.clock.schedule(untilMs, () => disk.setCapacity(2 ** 40));
  }

  #cutLink(node: HostNode): void {
    const other = this.#random.pick(this.#nodes);
    if (other === node) return;
    this.#world.coverage.linksCut++;
    this.#world.network.cut(node.siteId, other.siteId);
    if (this.#random.chance(0.6)) this.#world.network.cut(other.siteId, node.siteId);
    this.#world.clock.schedule(this.#random.between(200, 6_000), () => this.#world.network.mend());
  }

  #transfer(node: HostNode): void {
    const group = node.host?.group(this.#random.pick(this.#world.groups));
    const other = this.#random.pick(this.#nodes);
    try {
      group?.transfer(other.node);
      if (group) this.#world.coverage.transfers++;
    } catch (error) {
      // Not the leader, or not a voter: declined.
      if (!isCodedError(error)) throw error;
    }
  }

  #checkpoint(node: HostNode): void {
    const group = node.host?.group(this.#random.pick(this.#world.groups));
    group?.checkpoint().catch((error: unknown) => {
      if (!isCodedError(error)) this.#world.fail(toError(error));
    });
  }

  // The last node becomes a learner, or leaves, and comes back as a learner, then as a voter.
  #changeMembers(away: "learner" | "remove"): void {
    const id = this.#random.pick(this.#world.groups);
    const target = this.#nodes.at(-1);
    const groups = this.#nodes.map(({ host }) => host?.group(id));
    const leader = groups.find((group) => group?.role === "leader");
    const isHurt = this.#nodes.some(({ isDamaged, isGone }) => isDamaged || isGone);
    if (leader === undefined || target === undefined || isHurt || this.#nodes.length < 3) return;
    const { voters, learners } = leader.status().configuration;
    const { node } = target;
    const op = voters.includes(node) ? away : learners.includes(node) ? "promote" : "learner";
    leader.changeMembership({ op, node }).then(
      () => {
        this.#world.coverage.membersChanged++;
        if (op === "remove") this.#world.coverage.membersRemoved++;
      },
      (error: unknown) => {
        if (!isCodedError(error)) this.#world.fail(toError(error));
      },
    );
  }

  #upgrade(node: HostNode): void {
    if (node.programVersion === 2) return;
    node.programVersion = 2;
    this.#world.coverage.programsUpgraded++;
    this.#restartLater(node, "kill");
  }

  get #mayDamage(): boolean {
    const { length } = this.#nodes;
    if (length < 3) return false;
    // Where a change of membership is under way a majority may hang on any one.
    const isWhole = (node: HostNode): boolean =>
      node.isUp &&
      !node.isBusy &&
      !node.isDamaged &&
      !node.isGone &&
      (node.host?.status() ?? []).every(
        ({ state, configuration, configurationIndex, commit }) =>
          state === "up" && configuration.voters.length === length && configurationIndex <= commit,
      );
    return this.#nodes.every(isWhole);
  }

  async #damage(name: HostFaultName, node: HostNode): Promise<void> {
    const { coverage } = this.#world;
    if (name === "identity") {
      await this.#mistakeIdentity(node);
      return;
    }
    if (name === "slot") {
      this.#rotSlots(node, 1);
      return;
    }
    if (!this.#mayDamage) return;
    if (name === "meta") {
      this.#rotSlots(node, 2);
      return;
    }
    node.isDamaged = true;
    if (name === "wipe") {
      node.stop("power");
      node.wipe();
      coverage.disksWiped++;
      await this.#expectRefused(node, "RAFT_DIR_MISSING");
      // Formatted anew it may talk as much as it likes: nobody listens.
      await node.format();
      await this.#talkInVain(node);
      return;
    }
    const isDone =
      name === "snaprot" ? await this.#rotSnapshot(node) : await this.#rotLog(node, name);
    if (!isDone) node.isDamaged = false;
    this.restartLater(node);
  }

  async #mistakeIdentity(node: HostNode): Promise<void> {
    node.stop("kill");
    await this.#expectRefused(node, "RAFT_IDENTITY_FOREIGN", "f".repeat(32));
    this.restartLater(node);
  }

  async #expectRefused(node: HostNode, code: string, siteId?: string): Promise<void> {
    try {
      await node.start(siteId);
    } catch (error) {
      // An injected fault of the disk may come first.
      if (isCodedError(error, code)) this.#world.coverage.identitiesRefused++;
      else if (!isDiskError(error)) throw error;
      node.stop("kill");
      return;
    }
    throw new Error(`node ${node.node} started where ${code} was due`);
  }

  async #talkInVain(node: HostNode): Promise<void> {
    await node.start();
    const { host } = node;
    if (host === undefined) return;
    await host.admit(this.#nodes.map(({ member }) => member));
    const voters = this.#nodes.map((other) => other.node);
    for (const group of this.#world.groups) {
      const created = await host.createGroup({
        group,
        node: node.node,
        configuration: { voters, learners: [] },
      });
      created.campaign();
    }
    this.#world.clock.schedule(5_000, () => node.stop("kill"));
  }

  #rotSlots(node: HostNode, count: number): void {
    node.stop("power");
    const path = `${hostDir}/meta`;
    const bytes = node.disk.peek(path);
    // Of a write that the power cut has torn one slot alone is left: that one is not touched.
    const isWhole = bytes
      .subarray(20, 60)
      .equals(bytes.subarray(sectorBytes + 20, sectorBytes + 60));
    const slots = count === 2 ? [0, 1] : [this.#random.below(2)];
    for (const slot of isWhole ? slots : []) {
      node.disk.garble(path, slot * sectorBytes + this.#random.below(60), 4);
    }
    if (count === 2) node.isDamaged = isWhole;
    else if (isWhole) this.#world.coverage.slotsMended++;
    this.restartLater(node);
  }

  async #rotSnapshot(node: HostNode): Promise<boolean> {
    node.stop("power");
    const group = this.#random.pick(this.#world.groups);
    const folder = `${hostDir}/snapshots/${String(group).padStart(8, "0")}`;
    const files = (await node.disk.list(folder)).filter(({ name }) =>
      /^(data|manifest)/.test(name),
    );
    const { name } = this.#random.pick(files);
    const path = `${folder}/${name}`;
    const { length } = node.disk.peek(path);
    if (length === 0) return false;
    node.disk.garble(path, this.#random.below(length), 2);
    this.#world.coverage.snapshotsRotted++;
    return true;
  }

  // Only in segments that a later one proves synced.
  async #rotLog(node: HostNode, name: HostFaultName): Promise<boolean> {
    node.stop("power");
    const { disk } = node;
    const segments = (await disk.list(hostLogDir))
      .filter((entry) => entry.name.endsWith(".wal"))
      .map((entry) => `${hostLogDir}/${entry.name}`)
      .map((path) => ({ path, bytes: disk.peek(path) }))
      .sort((one, other) => orderOf(one.bytes) - orderOf(other.bytes));
    const [source] = segments.slice(-1);
    const closed = segments.slice(0, -1);
    if (source === undefined || closed.length === 0) return false;
    const { path, bytes } = this.#random.pick(closed);
    const at = sectorBytes * this.#random.between(1, Math.floor(bytes.length / sectorBytes) - 2);
    if (name === "rot") {
      disk.garble(path, at, this.#random.between(1, 700));
      this.#world.coverage.logsRotted++;
      return true;
    }
    const stray = source.bytes.subarray(at, at + sectorBytes);
    const file = await disk.open(path, "write");
    await writeFully(file, stray, at);
    await syncFully(file);
    await file.close();
    this.#world.coverage.writesMisdirected++;
    return true;
  }
}

function isDiskError(error: unknown): boolean {
  return isCodedError(error) && /^(DISK|LOG_IO|RAFT_HOST|RAFT_GROUP_FAILED)/.test(error.code);
}

/** Place of a segment's use, as its header says. */
function orderOf(segment: Buffer): number {
  return segment.length < 26 ? 0 : Number(segment.readBigUInt64BE(18));
}
