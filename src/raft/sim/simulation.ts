// One seed from beginning to end: faults first, with safety checked after every event; then all is
// healed and the nodes must agree, make progress and keep their leader, in bounded virtual time.
//
// Equal seeds and options give equal runs: the hash over all events shows it.

import { SeededRandom } from "../../base/index.ts";
import { createConfiguration, membersOf } from "../core/membership.ts";
import { type Entry, type NodeId, noNode } from "../core/types.ts";
import { Checker, Violation } from "./checker.ts";
import type { SimContext } from "./context.ts";
import { type Coverage, createCoverage } from "./coverage.ts";
import { Faults } from "./faults.ts";
import type { FlawName } from "./flaws.ts";
import { ClientHistory } from "./history.ts";
import { SimHost } from "./host.ts";
import { mix, registerCount } from "./machine.ts";
import { type Parcel, SimNetwork } from "./network.ts";
import { EventQueue } from "./queue.ts";
import { drawHardStart } from "./start.ts";
import { drawSwarm, type FaultName, type Swarm } from "./swarm.ts";

export type SimOptions = {
  readonly seed: number;
  /** Events before healing. */
  readonly steps: number;
  /** Fault classes left out. */
  readonly without?: ReadonlySet<FaultName>;
  readonly flaw?: FlawName;
  /** Keeps the last so many events as text. */
  readonly traceMax?: number;
};

export type SimResult = {
  readonly seed: number;
  readonly events: number;
  readonly hash: number;
  readonly coverage: Coverage;
  readonly swarm: Swarm;
  /** Rule and facts of the first broken promise. */
  readonly failure: { readonly rule: string; readonly message: string } | undefined;
  readonly trace: readonly string[];
};

/** Healing must be done in so many longest election time-outs of virtual time. */
const healElectionsMax = 60;
/** For so many election time-outs the healed cluster must keep its leader. */
const stableElections = 3;

export function simulate(options: SimOptions): SimResult {
  const simulation = new Simulation(options);
  let failure: SimResult["failure"];
  try {
    simulation.run();
  } catch (error) {
    const rule = error instanceof Violation ? error.rule : "core never fails";
    failure = { rule, message: error instanceof Error ? error.message : String(error) };
  }
  return { ...simulation.result(), failure };
}

/** Faults that may unseat a leader without being injected at a moment of their own. */
const unsteadyFaults: readonly FaultName[] = ["loss", "typeloss", "hold", "replay"];
/** Far below an election time-out. */
const quickDelayMsMax = 20;

class Simulation {
  readonly #options: SimOptions;
  readonly #queue = new EventQueue();
  readonly #coverage = createCoverage();
  readonly #checker = new Checker();
  readonly #history = new ClientHistory();
  readonly #swarm: Swarm;
  readonly #context: SimContext;
  readonly #hosts = new Map<NodeId, SimHost>();
  readonly #faults: Faults;
  readonly #random: { readonly work: SeededRandom; readonly clock: SeededRandom };
  readonly #trace: string[] = [];
  #working = true;
  #drifting: boolean;
  #events = 0;
  #hash = 0;

  constructor(options: SimOptions) {
    this.#options = options;
    const root = new SeededRandom(options.seed);
    this.#swarm = drawSwarm(root.split("swarm"), options.without ?? new Set());
    const { voters, learners, spares, faults } = this.#swarm;
    const ids = [...voters, ...learners, ...spares];
    const network = new SimNetwork(
      this.#queue,
      root.split("network"),
      this.#swarm,
      this.#coverage,
      (parcel) => this.#deliver(parcel),
    );
    this.#context = {
      queue: this.#queue,
      swarm: this.#swarm,
      coverage: this.#coverage,
      checker: this.#checker,
      history: this.#history,
      network,
      ids,
      firstConfiguration: createConfiguration(voters, learners),
      flaw: options.flaw,
      timeouts: root.split("timeouts"),
      random: { disk: root.split("disk"), schedule: root.split("schedule") },
      note: (text) => this.#note(text),
      incarnationOf: (node) => this.#hosts.get(node)?.incarnation ?? 0,
      holds: (node, index, term) => this.#hosts.get(node)?.disk.holds(index, term) ?? false,
    };
    this.#random = { work: root.split("work"), clock: root.split("clock") };
    this.#drifting = faults.has("drift");
    for (const id of ids) this.#hosts.set(id, new SimHost(id, this.#context));
    if (faults.has("hardstart")) this.#startHard(root.split("start"), voters);
    this.#faults = new Faults(this.#context, this.#hosts, root.split("faults"));
  }

  run(): void {
    for (const host of this.#hosts.values()) {
      host.start();
      this.#beat(host);
    }
    this.#work();
    this.#faults.start();
    while (this.#events < this.#options.steps && this.#step());
    this.#working = false;
    this.#drifting = false;
    this.#checkStability();
    this.#note(() => "heal");
    this.#faults.heal();
    this.#converge();
    const fault = this.#history.findFault(this.#checker);
    if (fault !== undefined) throw new Violation("clients see one register", fault);
  }

  result(): Omit<SimResult, "failure"> {
    return {
      seed: this.#options.seed,
      events: this.#events,
      hash: mix(this.#hash, this.#checker.chainAt(this.#checker.committedIndex)),
      coverage: this.#coverage,
      swarm: this.#swarm,
      trace: this.#trace,
    };
  }

  #step(): boolean {
    this.#events++;
    return this.#queue.step();
  }

  #startHard(random: SeededRandom, voters: readonly NodeId[]): void {
    const { logs, term } = drawHardStart(random, voters.length);
    this.#coverage.hardStarts++;
    for (const [place, log] of logs.entries()) {
      const host = this.#hosts.get(voters[place] as NodeId) as SimHost;
      host.disk.entries = log;
      host.disk.hardState = { term, vote: 0, commit: 0 };
    }
  }

  #beat(host: SimHost): void {
    const { tickMs } = this.#swarm;
    const drawn = this.#random.clock.between(70, 130);
    const period = this.#drifting ? Math.floor((tickMs * drawn) / 100) : tickMs;
    this.#queue.after(period, () => {
      this.#hash = mix(this.#hash, host.id);
      host.tick();
      if (!host.gone) this.#beat(host);
    });
  }

  #deliver(parcel: Parcel): void {
    const { message } = parcel;
    const { type, from, to, term } = message;
    this.#hash = mix(mix(this.#hash, from * 64 + to), term * 16 + type.length);
    this.#note(() => JSON.stringify(message, hideData));
    const host = this.#hosts.get(to);
    if (host?.isUp) host.receive(parcel);
  }

  // Clients: mostly at a leader, sometimes anywhere; one command, or a burst in one proposal.
  #work(): void {
    const { proposeMs, burstMax, paddingMax, faults } = this.#swarm;
    const random = this.#random.work;
    const delay = random.between(1, proposeMs);
    const [reads, burst, astray] = [random.chance(0.3), random.chance(0.2), random.chance(0.1)];
    const [any, count] = [random.pick(this.#context.ids), random.between(2, burstMax)];
    const [key, padding] = [random.below(registerCount), random.below(paddingMax + 1)];
    this.#queue.after(delay, () => {
      if (!this.#working) return;
      const leaders = [...this.#hosts.values()].filter((host) => host.raft?.role === "leader");
      const host = astray || reads ? this.#hosts.get(any) : leaders[any % leaders.length];
      if (host && reads && faults.has("read")) host.read(key);
      if (host && !reads) {
        const many = burst && faults.has("burst");
        if (many) this.#coverage.batchesProposed++;
        const keys = many ? Array.from({ length: count }, (_, at) => (key + at) % 3) : [key];
        host.propose(keys, padding);
      }
      this.#work();
    });
  }

  // With pre-vote and check-quorum, on a network that only delays, leaders change for a cause.
  #checkStability(): void {
    const { settings, faults, delayMsMax } = this.#swarm;
    if (!settings.preVote || !settings.checkQuorum || delayMsMax > quickDelayMsMax) return;
    if (unsteadyFaults.some((name) => faults.has(name))) return;
    const [elected, causes] = [this.#coverage.leadersElected, this.#faults.disturbances];
    this.#checker.demand(
      elected <= causes + 1,
      "leaders change for a cause",
      () => `${elected} elections, ${causes} faults`,
    );
    this.#coverage.steadySeeds++;
  }

  #converge(): void {
    const { settings, tickMs } = this.#swarm;
    const electionMs = 2 * settings.electionTicks * tickMs;
    const deadline = this.#queue.now + healElectionsMax * electionMs;
    const agreed = this.#runUntil(deadline, () => this.#agreement());
    if (agreed === undefined) throw new Violation("healed nodes agree", this.#describe());
    const { term, id } = agreed;
    this.#runUntil(this.#queue.now + stableElections * electionMs, () => undefined);
    const after = this.#newestLeader();
    if (after?.id !== id || after.raft?.term !== term) {
      const facts = `${id} of term ${term} lost office; ${this.#describe()}`;
      throw new Violation("a healthy cluster keeps its leader", facts);
    }
    if (this.#context.firstConfiguration.voters.length > 0) this.#noteMembers(after);
  }

  #runUntil<T>(deadline: number, done: () => T | undefined): T | undefined {
    let next = this.#queue.now;
    while (this.#queue.now < deadline) {
      if (!this.#step()) return undefined;
      if (this.#queue.now < next) continue;
      next = this.#queue.now + this.#swarm.tickMs;
      const result = done();
      if (result !== undefined) return result;
    }
    return undefined;
  }

  // A leader, an entry of its term proposed after healing, and all members that are not gone with
  // equal logs and states. Removed nodes are told so by their hosts, that is, they stop.
  #agreement(): { readonly id: NodeId; readonly term: number } | undefined {
    const leader = this.#newestLeader();
    const raft = leader?.raft;
    if (leader === undefined || raft === undefined) return undefined;
    const { commit, lastIndex, term, configuration } = raft;
    const members = membersOf(configuration);
    if (commit < lastIndex || this.#checker.termAt(commit) !== term) return undefined;
    for (const host of this.#hosts.values()) {
      if (members.includes(host.id) || host.gone) continue;
      host.crash();
      host.gone = true;
    }
    if (!members.includes(leader.id) || raft.transferTo !== noNode) return undefined;
    for (const member of members) {
      const host = this.#hosts.get(member);
      if (host === undefined || host.gone) continue;
      if (host.raft?.commit !== commit || host.raft.lastIndex !== lastIndex) return undefined;
      if (host.machine.hash !== leader.machine.hash) return undefined;
    }
    if (this.#healedIndex === 0) {
      leader.propose([0], 0);
      this.#healedIndex = raft.lastIndex;
      return undefined;
    }
    if (commit < this.#healedIndex) return undefined;
    // Once more at the next look: a hand-over from before the healing may still be on its way.
    const again = this.#seenTerm === term;
    this.#seenTerm = term;
    return again ? { id: leader.id, term } : undefined;
  }

  #healedIndex = 0;
  #seenTerm = 0;

  #newestLeader(): SimHost | undefined {
    let newest: SimHost | undefined;
    for (const host of this.#hosts.values()) {
      if (host.raft?.role !== "leader") continue;
      if (host.raft.term > (newest?.raft?.term ?? 0)) newest = host;
    }
    return newest;
  }

  #noteMembers(leader: SimHost): void {
    const first = this.#context.firstConfiguration.voters;
    const now = leader.raft?.configuration.voters ?? [];
    const left = first.filter((id) => now.includes(id));
    if (left.length * 2 <= first.length) this.#coverage.membersMajorityReplaced++;
  }

  #describe(): string {
    const lines = [...this.#hosts.values()].map((host) => {
      if (host.raft === undefined) return `${host.id} ${host.gone ? "gone" : "down"}`;
      const { role, term, commit, lastIndex, configuration } = host.raft;
      return `${host.id} ${role} ${term} ${commit}/${lastIndex} [${configuration.voters}]`;
    });
    return lines.join("; ");
  }

  #note(text: () => string): void {
    const { traceMax = 0 } = this.#options;
    if (traceMax === 0) return;
    if (this.#trace.length >= traceMax) this.#trace.shift();
    this.#trace.push(`${this.#events} ${this.#queue.now}ms ${text()}`);
  }
}

function hideData(name: string, value: unknown): unknown {
  if (name !== "entries") return value;
  return (value as Entry[]).map((entry) => `${entry.index}/${entry.term}/${entry.kind}`).join(" ");
}
