// One seed of the whole host: real groups, log, files and frames on simulated machines. Faults
// first, with safety judged all the time; then all is healed, and every group must agree, take
// writes and answer reads in bounded virtual time.
//
// Equal seeds and options give equal runs: the hash over all frames and events shows it.

import { crc32, isCodedError, SeededRandom, SimClock, toError } from "../../base/index.ts";
import { decodeMessage } from "../codec.ts";
import { decodeLetters, openFrame } from "../host/frames.ts";
import type { GroupStatus } from "../host/group.ts";
import { MemoryNetwork, noFaults } from "../host/memory-transport.ts";
import { defaultHostSettings, type HostSettings } from "../host/ports.ts";
import { Violation } from "./checker.ts";
import { createHostCoverage, type HostCoverage } from "./host-coverage.ts";
import { type HostFaultName, HostFaults, hostFaultNames } from "./host-faults.ts";
import { HostJudge } from "./host-judge.ts";
import { encodeHostWrite, encodeRaise, hostRegisters } from "./host-machine.ts";
import { HostNode, type HostWorld, hostClusterId } from "./host-node.ts";

export type HostSimOptions = {
  readonly seed: number;
  /** Operations and faults before healing. */
  readonly steps: number;
  readonly without?: ReadonlySet<HostFaultName>;
  /** Keeps the last so many events as text. */
  readonly traceMax?: number;
};

export type HostSimResult = {
  readonly seed: number;
  /** Frames sent, faults and other things of note. */
  readonly events: number;
  readonly hash: number;
  readonly coverage: HostCoverage;
  readonly failure: { readonly rule: string; readonly message: string } | undefined;
  readonly trace: readonly string[];
};

/** A healed cluster must be well within so much virtual time. */
const healMs = 240_000;
/** How often a fault class takes part in a seed. */
const participation = 0.5;

export async function simulateHosts(options: HostSimOptions): Promise<HostSimResult> {
  const simulation = new HostSimulation(options);
  let failure: HostSimResult["failure"];
  try {
    await simulation.run();
  } catch (error) {
    const rule = error instanceof Violation ? error.rule : "host never fails";
    failure = { rule, message: toError(error).message };
  }
  return { ...simulation.result(), failure };
}

class HostSimulation {
  readonly #options: HostSimOptions;
  readonly #random: SeededRandom;
  readonly #clock: SimClock;
  readonly #world: HostWorld;
  readonly #nodes: HostNode[] = [];
  readonly #faults: HostFaults;
  readonly #enabled: HostFaultName[];
  readonly #trace: string[] = [];
  #hash = 0;
  #events = 0;
  #failure: Error | undefined;
  #isRaised = false;
  #isTakingBack = false;
  #order = 0;

  constructor(options: HostSimOptions) {
    this.#options = options;
    const random = new SeededRandom(`hosts ${options.seed}`);
    this.#random = random.split("clients");
    const swarm = random.split("swarm");
    this.#clock = new SimClock({ random: random.split("clock") });
    const network = new MemoryNetwork(this.#clock, random.split("network"));
    network.faults = {
      lossPerMille: swarm.pick([0, 0, 20, 100]),
      repeatPerMille: swarm.pick([0, 0, 20]),
      damagePerMille: swarm.pick([0, 0, 10]),
      delayMsMax: swarm.pick([2, 20, 80]),
    };
    network.tap = (_from, _to, frame) => this.#onFrame(frame);
    this.#enabled = hostFaultNames.filter((name) => {
      const drawn = swarm.chance(participation);
      return drawn && options.without?.has(name) !== true;
    });
    const groupCount = swarm.pick([1, 1, 2, 3]);
    this.#world = {
      clock: this.#clock,
      random,
      network,
      settings: drawSettings(swarm),
      groups: Array.from({ length: groupCount }, (_, place) => place + 1),
      judge: new HostJudge(),
      coverage: createHostCoverage(),
      machinesTakeTime: swarm.chance(0.3),
      paddingBytes: swarm.pick([0, 500, 3_000]),
      note: (text) => this.#note(text),
      fail: (error) => {
        this.#failure ??= error;
      },
    };
    const count = swarm.pick([1, 3, 3, 3, 5]);
    for (let node = 1; node <= count; node++) this.#nodes.push(new HostNode(node, this.#world));
    this.#faults = new HostFaults(this.#world, this.#nodes);
  }

  async run(): Promise<void> {
    await this.#form();
    const faultRate = this.#enabled.length === 0 ? 0 : 0.08;
    for (let step = 0; step < this.#options.steps; step++) {
      await this.#clock.advance(this.#random.between(1, 120));
      this.#check();
      if (this.#random.chance(faultRate)) {
        const name = this.#random.pick(this.#enabled);
        await this.#clock.complete(this.#faults.strike(name), healMs);
      } else this.#operate();
      for (const node of this.#nodes) {
        if (node.hasFailed) node.stop("power");
        if (!node.isUp) this.#faults.restartLater(node);
      }
    }
    await this.#heal();
    await this.#converge();
    this.#world.judge.judgeHistories();
  }

  result(): Omit<HostSimResult, "failure"> {
    const { coverage, network } = this.#world;
    coverage.framesLost += network.counts.lost;
    coverage.framesRepeated += network.counts.repeated;
    coverage.leadersSeen = this.#world.judge.leaderCount;
    const { seed } = this.#options;
    return { seed, events: this.#events, hash: this.#hash, coverage, trace: this.#trace };
  }

  async #form(): Promise<void> {
    const complete = <T>(promise: Promise<T>): Promise<T> => this.#clock.complete(promise, healMs);
    for (const node of this.#nodes) await complete(node.format());
    const members = this.#nodes.map(({ member }) => member);
    const voters = members.map(({ node }) => node);
    for (const node of this.#nodes) {
      await complete(node.start());
      await complete(node.host?.admit(members) ?? Promise.resolve());
      for (const group of this.#world.groups) {
        const configuration = { voters, learners: [] };
        const made = node.host?.createGroup({ group, node: node.node, configuration });
        if (made) await complete(made);
      }
    }
  }

  #note(text: string): void {
    const line = `${this.#clock.elapsedMs().toFixed(1)} ${text}`;
    this.#hash = crc32(line, this.#hash);
    this.#events++;
    const { traceMax = 0 } = this.#options;
    if (traceMax === 0) return;
    this.#trace.push(line);
    if (this.#trace.length > traceMax) this.#trace.shift();
  }

  #onFrame(bytes: Buffer): void {
    this.#hash = crc32(bytes, this.#hash);
    this.#events++;
    const frameBytesMax = Number.MAX_SAFE_INTEGER;
    const check = { clusterId: hostClusterId, frameBytesMax, knows: () => true };
    const frame = openFrame(bytes, check);
    if (typeof frame === "string" || frame.kind !== "messages") return;
    // What a disk says that is nobody's does not count: nobody may listen to it.
    const isKnown = this.#nodes.some((node) => {
      return node.identity?.diskId === frame.diskId && !node.isGone;
    });
    if (!isKnown) return;
    try {
      for (const { group, message } of decodeLetters(frame.body) ?? []) {
        this.#world.judge.sent(group, decodeMessage(message));
      }
    } catch (error) {
      this.#failure ??= toError(error);
    }
  }

  #check(): void {
    if (this.#failure !== undefined) throw this.#failure;
    for (const node of this.#nodes) {
      if (!node.isUp || node.isGone) continue;
      const statuses = node.host?.status() ?? [];
      for (const { group, role, term, state, failure } of statuses) {
        if (
          state === "failed" &&
          !node.hasFailed &&
          !isCodedError(failure?.cause, "RAFT_HOST_FAILED")
        ) {
          throw failure ?? new Error("a group has failed");
        }
        if (role === "leader") this.#world.judge.leads(group, term, node.node);
      }
      const isMended = statuses.length > 0 && statuses.every((status) => status.state === "up");
      if (node.isDamaged && isMended && !node.isBusy) node.isDamaged = false;
    }
  }

  #operate(): void {
    const group = this.#random.pick(this.#world.groups);
    const up = this.#nodes.filter((node) => node.isUp && !node.isGone);
    const leaders = up.filter(({ host }) => host?.group(group)?.role === "leader");
    const pool = leaders.length > 0 && this.#random.chance(0.8) ? leaders : up;
    if (pool.length === 0) return;
    const node = this.#random.pick(pool);
    const kind = this.#random.below(10);
    if (kind < 3) this.#read(node, group);
    else if (kind === 3 && this.#mayRaise(group)) this.#raise(node, group);
    else this.#write(node, group);
  }

  /** Moments of clients, all different. */
  #now(): number {
    return this.#clock.elapsedMs() * 1e6 + this.#order++;
  }

  #write(node: HostNode, group: number): void {
    const { judge, coverage } = this.#world;
    const key = this.#random.below(hostRegisters);
    const padding = this.#random.pick([0, 0, 30, 400, 1_500]);
    const write = judge.beginWrite(group, key, this.#now());
    const data = encodeHostWrite(key, write.value, padding);
    const proposed = node.host?.group(group)?.propose([{ version: 1, data }]);
    if (proposed === undefined) {
      write.void();
      return;
    }
    proposed.then(
      () => {
        write.end(this.#now());
        coverage.writesDone++;
      },
      (error: unknown) => {
        if (!isCodedError(error)) this.#failure ??= toError(error);
        else if (refusals.has(error.code)) {
          write.void();
          coverage.writesRefused++;
          if (error.code === "RAFT_DISK_FULL") coverage.refusedFull++;
        } else coverage.writesUnknown++;
      },
    );
  }

  #read(node: HostNode, group: number): void {
    const key = this.#random.below(hostRegisters);
    const begin = this.#now();
    const machine = node.machine(group);
    const asked = node.host?.group(group)?.read();
    if (asked === undefined || machine === undefined) return;
    asked.then(
      () => {
        const value = machine.values[key] ?? 0;
        this.#world.judge.read(group, key, value, { begin, end: this.#now() });
        this.#world.coverage.readsDone++;
      },
      (error: unknown) => {
        if (!isCodedError(error)) this.#failure ??= toError(error);
      },
    );
  }

  #mayRaise(group: number): boolean {
    const isNew = this.#nodes.every(
      (node) => node.programVersion === 2 && (node.isUp || node.isGone),
    );
    return group === 1 && isNew && !this.#isRaised;
  }

  #raise(node: HostNode, group: number): void {
    this.#isRaised = true;
    const raised = node.host?.group(group)?.propose([{ version: 1, data: encodeRaise(2) }]);
    raised?.catch((error: unknown) => {
      if (!isCodedError(error)) this.#failure ??= toError(error);
      this.#isRaised = false;
    });
  }

  async #heal(): Promise<void> {
    this.#note("all is healed");
    const { network } = this.#world;
    network.mend();
    network.faults = { ...noFaults, delayMsMax: 5 };
    for (const node of this.#nodes) {
      node.disk.heal();
      node.disk.setCapacity(2 ** 40);
      if (node.hasFailed) node.stop("power");
    }
    await this.#clock.runUntil(() => {
      for (const node of this.#nodes) if (!node.isUp) this.#faults.restartLater(node);
      return this.#nodes.every((node) => node.isGone || (node.isUp && !node.isBusy));
    }, healMs);
  }

  async #converge(): Promise<void> {
    for (const group of this.#world.groups) {
      try {
        await this.#clock.runUntil(() => this.#isWell(group), healMs);
      } catch (error) {
        if (this.#failure !== undefined) throw this.#failure;
        throw new Violation("liveness", `${toError(error).message}\n${this.#describe(group)}`);
      }
      await this.#settleGroup(group);
    }
    await this.#clock.advance(2_000);
    this.#check();
    this.#judgeEnd();
    // Counts what the processes still alive have counted.
    for (const node of this.#nodes) node.stop("kill");
  }

  #describe(group: number): string {
    const lines = this.#nodes.map(({ node, host, isGone, removedFrom }) => {
      const {
        role,
        state,
        term,
        leader,
        commit,
        applied,
        lastIndex,
        persisted,
        startIndex,
        configuration,
      } = host?.group(group)?.status() ?? {};
      const facts = {
        isGone,
        removed: [...removedFrom],
        role,
        state,
        term,
        leader,
        commit,
        applied,
      };
      const log = { startIndex, lastIndex, persisted, ...configuration };
      return `node ${node} ${JSON.stringify({ ...facts, ...log })}`;
    });
    return lines.join("\n");
  }

  #isWell(group: number): boolean {
    if (this.#failure !== undefined) throw this.#failure;
    const alive = this.#nodes.filter(({ isGone }) => !isGone);
    const states = alive.map(({ host }) => host?.group(group)?.status());
    const leader = states.find((status) => status?.role === "leader");
    if (leader === undefined) return false;
    this.#takeBack(group, leader);
    return (
      !this.#isTakingBack &&
      states.every((status) => status?.state === "up" && status.leader === leader.id)
    );
  }

  // A node that was removed becomes a learner again, so that all can be compared.
  #takeBack(group: number, { id, configuration }: GroupStatus): void {
    const { voters, learners } = configuration;
    const outside = this.#nodes.find(({ node, isGone }) => {
      return !isGone && !voters.includes(node) && !learners.includes(node);
    });
    if (outside === undefined || this.#isTakingBack) return;
    this.#isTakingBack = true;
    const leader = this.#nodes.find(({ node }) => node === id)?.host?.group(group);
    const change = leader?.changeMembership({ op: "learner", node: outside.node });
    change
      ?.catch((error: unknown) => {
        // Lost with its leader, or one is under way: asked again at the next look.
        if (!isCodedError(error)) this.#failure ??= toError(error);
      })
      .finally(() => {
        this.#isTakingBack = false;
      });
  }

  async #settleGroup(group: number): Promise<void> {
    const { judge } = this.#world;
    await this.#writeLast(group);
    const alive = this.#nodes.filter(({ isGone }) => !isGone);
    const appliedAt = (node: HostNode): number => node.host?.group(group)?.appliedIndex ?? 0;
    // Of all: who led before the write need not be the one that took it.
    const goal = Math.max(...alive.map(appliedAt));
    const isThere = (node: HostNode): boolean => appliedAt(node) >= goal;
    await this.#clock.runUntil(() => alive.every(isThere), healMs);
    for (let key = 0; key < hostRegisters; key++) {
      for (const node of alive) {
        const at = this.#now();
        const value = node.machine(group)?.values[key] ?? 0;
        judge.read(group, key, value, { begin: at, end: at });
      }
    }
  }

  /** What is refused for now, as space is found again, is asked again. */
  async #writeLast(group: number): Promise<void> {
    const endMs = this.#clock.elapsedMs() + healMs;
    for (;;) {
      const leads = this.#nodes.find(({ host }) => host?.group(group)?.role === "leader");
      const write = this.#world.judge.beginWrite(group, 0, this.#now());
      const data = encodeHostWrite(0, write.value, 0);
      try {
        const proposed = leads?.host?.group(group)?.propose([{ version: 1, data }]);
        if (proposed === undefined) throw new Violation("liveness", `group ${group} has no leader`);
        await this.#clock.complete(proposed, healMs);
        write.end(this.#now());
        return;
      } catch (error) {
        if (isCodedError(error) && refusals.has(error.code)) write.void();
        if (this.#clock.elapsedMs() > endMs) {
          throw new Violation(
            "liveness",
            `group ${group} took no write: ${toError(error).message}`,
          );
        }
        await this.#clock.advance(500);
      }
    }
  }

  #judgeEnd(): void {
    for (const group of this.#world.groups) {
      const alive = this.#nodes.filter(({ isGone }) => !isGone);
      const [first, ...others] = alive.map((node) => node.machine(group));
      for (const other of others) {
        if (other?.hash !== first?.hash) {
          throw new Violation("equal states", `group ${group} differs at the end`);
        }
      }
      if (first?.activeVersion === 2) this.#world.coverage.versionsRaised++;
    }
  }
}

/** The write certainly did not happen. */
const refusals = new Set([
  "RAFT_NOT_LEADER",
  "RAFT_LIMIT_REACHED",
  "RAFT_DISK_FULL",
  "RAFT_PROPOSAL_DROPPED",
]);

function drawSettings(swarm: SeededRandom): HostSettings {
  const electionTicks = swarm.pick([5, 8]);
  return {
    ...defaultHostSettings,
    raft: {
      ...defaultHostSettings.raft,
      electionTicks,
      heartbeatTicks: swarm.pick([1, 2]),
      snapshotTicks: 2 * electionTicks,
      inflightMessagesMax: swarm.pick([1, 4, 64]),
      appendEntriesMax: swarm.pick([1, 8, 64]),
    },
    snapshotChunkBytes: swarm.pick([64, 512]),
    snapshotCredits: swarm.pick([1, 4]),
    snapshotLogBytes: swarm.pick([4_000, 16_000, 64_000]),
    keptEntries: swarm.pick([0, 4, 50]),
    keptLogBytes: swarm.pick([0, 20_000]),
    waitTicksMax: 100,
  };
}
