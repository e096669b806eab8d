// The hand that breaks things: chooses, at random times, one of the fault classes a seed has.
// Network faults that concern single messages are drawn in network.ts instead.

import type { SeededRandom } from "../../base/index.ts";
import type { MembershipChange, NodeId } from "../core/types.ts";
import type { SimContext } from "./context.ts";
import type { SimHost } from "./host.ts";
import type { FaultName } from "./swarm.ts";

type Action = (faults: Faults) => void;

export class Faults {
  readonly #context: SimContext;
  readonly #hosts: ReadonlyMap<NodeId, SimHost>;
  readonly #random: SeededRandom;
  readonly #electionMs: number;
  #wiped = false;
  #stopped = false;
  /** Everything that was broken or came back: each may cost a leader its office. */
  disturbances = 0;

  constructor(context: SimContext, hosts: ReadonlyMap<NodeId, SimHost>, random: SeededRandom) {
    this.#context = context;
    this.#hosts = hosts;
    this.#random = random;
    const { settings, tickMs } = context.swarm;
    this.#electionMs = settings.electionTicks * tickMs;
  }

  start(): void {
    const { queue, swarm } = this.#context;
    const delay = swarm.faultMs * (0.5 + this.#random.below(1000) / 1000);
    queue.after(Math.floor(delay), () => {
      if (this.#stopped) return;
      // The next one that the seed has, so that leaving one out moves nothing else.
      const first = this.#random.below(actionNames.length);
      const order = [...actionNames.slice(first), ...actionNames.slice(0, first)];
      const name = order.find((each) => swarm.faults.has(each));
      if (name !== undefined) actions.get(name)?.(this);
      this.disturbances++;
      this.start();
    });
  }

  /** Everything mends: the world is whole from here on. */
  heal(): void {
    this.#stopped = true;
    this.#context.network.heal();
    for (const host of this.#hosts.values()) {
      host.hungUntil = 0;
      host.calm = true;
      if (host.isPaused) host.resume();
      this.#restart(host);
    }
  }

  cut(): void {
    const { network, coverage, ids, queue } = this.#context;
    const [left, right] = [this.#pickHost().id, this.#random.pick(ids)];
    const form = this.#random.below(4);
    this.#context.note(() => `cut ${form} at ${left} and ${right}`);
    if (form === 0) {
      coverage.cutsSymmetric++;
      network.cut(left, right);
      network.cut(right, left);
    } else if (form === 1) {
      coverage.cutsOneWay++;
      network.cut(left, right);
    } else if (form === 2) {
      coverage.nodesIsolated++;
      for (const other of ids) this.#separate(left, other);
    } else {
      const side = new Set(ids.filter(() => this.#random.chance(0.5)));
      for (const one of ids) {
        for (const other of ids) if (side.has(one) && !side.has(other)) this.#separate(one, other);
      }
    }
    queue.after(this.#duration(), () => {
      this.disturbances++;
      this.#context.note(() => "links mend");
      network.mend();
    });
  }

  crash(): void {
    const everybody = this.#random.chance(0.1);
    const busy = [...this.#hosts.values()].filter((host) => host.disk.pending.length > 0);
    const [any, some] = [this.#pickHost(), busy[this.#random.below(busy.length)]];
    // A crash is interesting in the middle of a write.
    const victim = this.#random.chance(0.6) ? (some ?? any) : any;
    for (const host of everybody ? this.#hosts.values() : [victim]) {
      const rest = this.#duration();
      if (!host.isUp) continue;
      host.crash();
      this.#context.queue.after(rest, () => {
        this.disturbances++;
        this.disturbances++;
        this.#restart(host);
      });
    }
  }

  pause(): void {
    const host = this.#pickHost();
    const rest = this.#duration();
    if (host.isPaused || !host.isUp) return;
    this.#context.coverage.pauses++;
    host.pause();
    this.#context.queue.after(rest, () => {
      this.disturbances++;
      if (host.isPaused) host.resume();
    });
  }

  slowDisk(): void {
    const host = this.#pickHost();
    const rest = this.#duration();
    if (rest > this.#electionMs) this.#context.coverage.disksHung++;
    host.hungUntil = this.#context.queue.now + rest;
  }

  // One at most, only where a majority keeps intact copies without it, and never together with
  // changes of membership: otherwise a loss would not be a fault of ours.
  wipe(): void {
    const { swarm, coverage, flaw } = this.#context;
    const host = this.#pickHost();
    if (swarm.faults.has("member") || swarm.voters.length < 3) return;
    if (!swarm.voters.includes(host.id) || (this.#wiped && flaw !== "wiped_disk_returns")) return;
    this.#wiped = true;
    coverage.disksWiped++;
    host.wipe();
    if (!host.gone) host.start();
  }

  // One at a time, until it is repaired, and under the same conditions as a wipe.
  rot(): void {
    const { swarm, queue } = this.#context;
    const host = this.#pickHost();
    const rest = this.#duration();
    const hosts = [...this.#hosts.values()];
    if (swarm.faults.has("member") || swarm.faults.has("wipe") || swarm.voters.length < 3) return;
    if (!host.isUp || hosts.some((each) => each.repairing)) return;
    host.rot();
    queue.after(rest, () => {
      this.disturbances++;
      this.#restart(host);
    });
  }

  jump(): void {
    const host = this.#pickHost();
    const count = this.#random.between(2, 2 * this.#context.swarm.settings.electionTicks);
    this.#context.coverage.clocksJumped++;
    for (let done = 0; done < count; done++) host.tick();
  }

  member(): void {
    const leader = this.#pickLeader();
    const node = this.#random.pick(this.#context.ids);
    const op = this.#random.pick(["add", "remove", "learner", "promote"] as const);
    const change: MembershipChange = { op, node };
    if (leader === undefined) return;
    leader.proposeMembership(change);
  }

  transfer(): void {
    const leader = this.#pickLeader();
    const to = this.#random.pick(this.#context.ids);
    leader?.transfer(to);
  }

  campaign(): void {
    this.#pickHost().request((raft) => {
      raft.campaign();
    });
  }

  #restart(host: SimHost): void {
    if (host.isUp || host.gone) return;
    // What others know of a log that has lost entries does not hold any more.
    if (host.repairing) for (const other of this.#hosts.values()) other.raft?.resetPeer(host.id);
    host.start();
  }

  #separate(left: NodeId, right: NodeId): void {
    if (left === right) return;
    this.#context.network.cut(left, right);
    this.#context.network.cut(right, left);
  }

  // From a moment to several elections.
  #duration(): number {
    return 20 + this.#random.below(this.#electionMs * this.#random.pick([1, 3, 6]));
  }

  // Half of the time whoever leads: that is where a fault hurts.
  #pickHost(): SimHost {
    const any = this.#hosts.get(this.#random.pick(this.#context.ids)) as SimHost;
    return this.#random.chance(0.5) ? (this.#pickLeader() ?? any) : any;
  }

  #pickLeader(): SimHost | undefined {
    const leaders = [...this.#hosts.values()].filter((host) => host.raft?.role === "leader");
    return leaders[this.#random.below(leaders.length)];
  }
}

const actions: ReadonlyMap<FaultName, Action> = new Map<FaultName, Action>([
  ["cut", (faults) => faults.cut()],
  ["crash", (faults) => faults.crash()],
  ["pause", (faults) => faults.pause()],
  ["slowdisk", (faults) => faults.slowDisk()],
  ["wipe", (faults) => faults.wipe()],
  ["rot", (faults) => faults.rot()],
  ["jump", (faults) => faults.jump()],
  ["member", (faults) => faults.member()],
  ["transfer", (faults) => faults.transfer()],
  ["campaign", (faults) => faults.campaign()],
]);

const actionNames = [...actions.keys()];
