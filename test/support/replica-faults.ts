// What befalls the machines of simulated replicas, one fault at a time: ends of processes, cuts and a
// bad network, slow and full disks, steps of wall clocks, rot in the log, members that are replaced.
//
// Which of them a seed has is drawn once. What takes data away (rot, a wiped disk) comes only when all
// members are whole: at least one intact copy of everything acked is left.

import { type Cancel, isCodedError, type SeededRandom } from "../../src/base/index.ts";
import type { ReplicaMachine, ReplicaWorld } from "./replica-machine.ts";
import type { ReplicasCoverage } from "./replicas-coverage.ts";

export const faultNames = [
  ...(["kill", "power", "cut", "oneWay", "transfer", "lossy", "rotate", "checkpoint"] as const),
  ...(["drop", "slow", "full", "clock", "rot", "wipe", "move", "away"] as const),
];
export type FaultName = (typeof faultNames)[number];

export type FaultHost = {
  readonly world: ReplicaWorld;
  readonly random: SeededRandom;
  readonly coverage: ReplicasCoverage;
  readonly groups: readonly number[];
  machines(): readonly ReplicaMachine[];
  /** All are open and have applied the same, but for what is on its way. */
  areWhole(): boolean;
  stop(machine: ReplicaMachine, how: "kill" | "power", awayMs: number): void;
  replace(machine: ReplicaMachine, how: "wipe" | "move"): void;
  upkeep(machine: ReplicaMachine, what: "rotate" | "checkpoint" | "drop"): void;
};

/** The default of a simulated disk. */
const roomy = 2 ** 40;

export class ReplicaFaults {
  readonly #host: FaultHost;
  readonly #names: readonly FaultName[];
  readonly #undo = new Set<Cancel>();

  constructor(host: FaultHost) {
    this.#host = host;
    const { random } = host;
    this.#names = faultNames.filter(() => random.chance(0.65));
  }

  /** Resolves with what it did, for the story of a failure; undefined: nothing. */
  disturb(): string | undefined {
    const { random } = this.#host;
    if (this.#names.length === 0) return undefined;
    const machine = random.pick(this.#host.machines());
    const name = random.pick(this.#names);
    this.#apply(name, machine);
    return `${name} at node ${machine.node}`;
  }

  /** The end of what lasts. */
  calm(): void {
    for (const undo of [...this.#undo]) undo();
  }

  #apply(name: FaultName, machine: ReplicaMachine): void {
    const { random, coverage, upkeep, stop } = this.#host;
    switch (name) {
      case "kill":
      case "power":
        return stop(machine, name, random.between(100, 4_000));
      case "away":
        return stop(machine, "power", random.between(4_000, 9_000));
      case "cut":
      case "oneWay":
        return this.#cut(machine, name === "cut");
      case "transfer":
        return this.#transfer(machine);
      case "lossy":
        return this.#loseFrames();
      case "slow":
        return this.#slow(machine);
      case "full":
        return this.#fill(machine);
      case "clock":
        coverage.clockSteps++;
        machine.wallOffsetUs += random.between(-120_000_000, 120_000_000);
        return;
      case "rot":
        return this.#rot(machine);
      case "wipe":
      case "move":
        if (this.#host.areWhole()) this.#host.replace(machine, name);
        return;
      default:
        return upkeep(machine, name);
    }
  }

  /** Ends by itself, or when all is calmed. */
  #for(ms: number, undo: () => void): void {
    const end = (): void => {
      this.#undo.delete(end);
      undo();
    };
    this.#undo.add(end);
    this.#host.world.clock.schedule(ms, () => {
      if (this.#undo.has(end)) end();
    });
  }

  #cut(machine: ReplicaMachine, both: boolean): void {
    const { world, random, coverage, machines } = this.#host;
    const { network } = world;
    coverage.cuts++;
    for (const other of machines()) {
      if (other === machine) continue;
      network.cut(machine.siteId, other.siteId);
      if (both) network.cut(other.siteId, machine.siteId);
    }
    this.#for(random.between(300, 6_000), () => network.mend());
  }

  #transfer(to: ReplicaMachine): void {
    const { coverage, groups, machines } = this.#host;
    for (const { process } of machines()) {
      for (const group of groups.map((number) => process?.host.group(number))) {
        if (group?.role !== "leader" || group.node === to.node) continue;
        coverage.transfers++;
        try {
          group.transfer(to.node);
        } catch (error) {
          if (!isCodedError(error)) throw error; // one is under way
        }
      }
    }
  }

  #loseFrames(): void {
    const { world, random, coverage } = this.#host;
    const lossyMs = random.between(500, 3_000);
    coverage.lossyMs += lossyMs;
    world.network.faults = {
      ...{ lossPerMille: 80, repeatPerMille: 40, damagePerMille: 5, delayMsMax: 40 },
    };
    this.#for(lossyMs, () => {
      world.network.faults = {
        ...{ lossPerMille: 0, repeatPerMille: 0, damagePerMille: 0, delayMsMax: 1 },
      };
    });
  }

  #slow({ disk }: ReplicaMachine): void {
    const { random, coverage } = this.#host;
    coverage.slowDisks++;
    const delayMs = random.between(50, 1_500);
    const rule = { on: "fdatasync", delayMs, times: Number.POSITIVE_INFINITY } as const;
    this.#for(random.between(500, 4_000), disk.inject(rule));
  }

  #fill(machine: ReplicaMachine): void {
    const { random, coverage } = this.#host;
    const { disk, kv } = machine;
    coverage.fullDisks++;
    disk.setCapacity(roomy - disk.freeBytes + random.between(0, 4_096));
    const times = Number.POSITIVE_INFINITY;
    const rules = random.chance(0.5)
      ? [kv.inject({ on: "write", fails: "ENOSPC", times })]
      : [kv.inject({ on: "sync", fails: "ENOSPC", times })];
    this.#for(random.between(500, 3_000), () => {
      disk.setCapacity(roomy);
      for (const cancel of rules) cancel();
    });
  }

  /** One bit of the log of a machine without power. */
  #rot(machine: ReplicaMachine): void {
    const { random, coverage, stop, areWhole } = this.#host;
    if (machine.process === undefined || !areWhole()) return;
    stop(machine, "power", random.between(300, 2_000));
    void machine.disk.list("data/log").then((entries) => {
      const path = `data/log/${random.pick(entries).name}`;
      const written = machine.disk.peek(path).findLastIndex((byte) => byte !== 0) + 1;
      if (written === 0) return;
      coverage.rots++;
      machine.disk.flipBit(path, random.below(8 * written));
    });
  }
}
