// One history of a cluster whose sites come and go: publishers at any node, machines that die and
// return, links that fall silent; meanwhile a site joins, another is lost for good and forgotten, one
// joins and one is evacuated. Then all is healed, and judged.

import { createCounters, isCodedError, type SeededRandom, toError } from "../../src/base/index.ts";
import { encodeRoster } from "../../src/cluster/core/roster-codec.ts";
import type { ClusterNode, RosterCommand } from "../../src/cluster/index.ts";
import { StoreReader } from "../../src/contracts/store-reader.ts";
import { ClusterMachine, ClusterWorld } from "./cluster-machine.ts";
import { appendRequest } from "./store-calls.ts";

export const clusterCoverageHelp = {
  acks: "appends acked",
  unknown: "appends of unknown fate",
  kills: "processes killed",
  powerCuts: "machines that lost their power",
  silences: "links that fell silent",
  learners: "learners that were added",
  promotions: "learners that became voters",
  removals: "members that were removed",
  forgets: "sites that were lost and forgotten",
  evacuations: "sites that were evacuated",
};
export type ClusterCoverage = Record<keyof typeof clusterCoverageHelp, number>;
export const createClusterCoverage = (): ClusterCoverage => createCounters(clusterCoverageHelp);

const groups = [0, 1, 2, 3, 4];
const shards = [1, 2, 3, 4];

export class ClusterRun {
  readonly #world: ClusterWorld;
  readonly #random: SeededRandom;
  readonly #coverage: ClusterCoverage;
  readonly #machines = new Map<string, ClusterMachine>();
  readonly #acked: Array<readonly [value: string, timeUs: number]> = [];
  /** Out of the game: its disk is gone, or it left. */
  readonly #gone = new Set<string>();
  readonly #told: string[] = [];
  #isOver = false;
  #fault: Error | undefined;

  constructor(seed: number, coverage: ClusterCoverage) {
    this.#world = new ClusterWorld(`cluster ${seed}`, ["a", "b", "c"]);
    this.#random = this.#world.random.split("run");
    this.#coverage = coverage;
  }

  /** Resolves with a hash of everything at the end. @throws the first violation. */
  async run(): Promise<string> {
    try {
      return await this.#play();
    } catch (error) {
      const last = this.#told.slice(-30).join("\n");
      throw new Error(`${toError(error).message}; last events:\n${last}`, { cause: error });
    }
  }

  async #play(): Promise<string> {
    for (const name of ["a", "b", "c"]) this.#machine(name).start();
    for (const publisher of ["p1", "p2", "p3"]) this.#begin(this.#publish(publisher));
    let isDone = false;
    this.#begin(
      this.#operate().then(() => {
        isDone = true;
      }),
    );
    const { clock } = this.#world;
    for (let step = 0; !isDone; step++) {
      if (step > 6_000) throw new Error("the sites did not come and go in ten minutes");
      if (step > 30 && this.#random.chance(0.12)) this.#disturb();
      await clock.advance(100);
      this.#check();
    }
    this.#isOver = true;
    // Longer than a forwarder tries: what is under way has come to rest.
    await clock.advance(20_000);
    await clock.runUntil(() => this.#fault !== undefined || this.#isEven(["b", "d", "e"]), 120_000);
    this.#check();
    return this.#judge();
  }

  /** What an operator does in the meantime. */
  async #operate(): Promise<void> {
    await this.#until(() => this.#open().length === 3);
    await this.#join("d");
    await this.#until(() => this.#isPlaced(["a", "b", "c", "d"]));
    this.#note("the machine of c is lost");
    this.#gone.add("c");
    this.#machine("c").end("power");
    await this.#order("c", "forget");
    this.#coverage.forgets++;
    await this.#join("e");
    await this.#until(() => this.#isPlaced(["a", "b", "d", "e"]));
    await this.#order("a", "evacuate");
    this.#coverage.evacuations++;
    await this.#until(() => this.#stateOf("a") === "left" && this.#isPlaced(["b", "d", "e"]));
    this.#gone.add("a");
    this.#machine("a").end("kill");
  }

  async #join(name: string): Promise<void> {
    this.#note(`${name} joins`);
    const machine = this.#machine(name);
    await machine.join(() => this.#open()[0]?.node);
    machine.start();
  }

  /** Tried at one node after the other until it is done. */
  async #order(name: string, kind: "forget" | "evacuate"): Promise<void> {
    this.#note(`${kind} ${name}`);
    for (;;) {
      const roster = this.#open().map(({ node }) => node?.roster)[0];
      const site = [...(roster?.roster.sites.values() ?? [])].find((each) => each.name === name);
      if (roster !== undefined && site !== undefined) {
        const command: RosterCommand = { kind, node: site.node };
        // A process that ends tells nobody.
        const asked = roster.change(command).then(
          () => true,
          (error: unknown) => this.#passing(error),
        );
        if ((await Promise.race([asked, this.#pause(20_000)])) === true) return;
      }
      await this.#pause(100);
    }
  }

  /** Refused where the others are not active yet. */
  #passing(error: unknown): false {
    if (!isCodedError(error)) this.#fault ??= toError(error);
    return false;
  }

  async #publish(publisher: string): Promise<void> {
    for (let number = 1; !this.#isOver; number++) {
      const store = this.#random.pick([...this.#open(), undefined])?.node?.store;
      if (store !== undefined) {
        const value = `${publisher}.${number}`;
        const request = appendRequest(`t/${number % 7}`, value, { publisher });
        store.append(request, (error, outcome) => {
          if (outcome?.kind === "stored") {
            this.#acked.push([value, outcome.timeUs]);
            this.#coverage.acks++;
          } else if (isCodedError(error) && ["retry", "limit", "closed"].includes(error.kind)) {
            this.#coverage.unknown++;
          } else {
            this.#fault ??= toError(error);
          }
        });
      }
      await this.#pause(this.#random.between(20, 200));
    }
  }

  // ---------------------------------------------------------------- faults

  /** One machine at a time: a majority always comes back. */
  #disturb(): void {
    const { network, clock } = this.#world;
    const names = [...this.#machines.keys()].filter((name) => !this.#gone.has(name));
    const name = this.#random.pick(names);
    if (this.#random.chance(0.4)) {
      const other = this.#random.pick(names);
      if (other === name) return;
      this.#note(`${name} to ${other} falls silent`);
      this.#coverage.silences++;
      clock.schedule(this.#random.between(300, 4_000), network.silence(name, other));
      return;
    }
    const machine = this.#machine(name);
    if (!machine.isUp || names.some((each) => !this.#machine(each).isUp)) return;
    const how = this.#random.chance(0.5) ? "kill" : "power";
    this.#note(`${name}: ${how}`);
    this.#coverage[how === "kill" ? "kills" : "powerCuts"]++;
    machine.end(how);
    clock.schedule(this.#random.between(100, 3_000), () => {
      if (!this.#gone.has(name)) machine.start();
    });
  }

  // ---------------------------------------------------------------- what stands

  #machine(name: string): ClusterMachine {
    const known = this.#machines.get(name);
    if (known !== undefined) return known;
    const machine = new ClusterMachine(name, this.#world);
    this.#machines.set(name, machine);
    return machine;
  }

  #open(): Array<ClusterMachine & { node: ClusterNode }> {
    return [...this.#machines.values()].filter(
      (machine): machine is ClusterMachine & { node: ClusterNode } =>
        machine.node !== undefined && !this.#gone.has(machine.name),
    );
  }

  #stateOf(name: string): string | undefined {
    for (const { node } of this.#open()) {
      if (node.roster.group.role !== "leader") continue;
      return [...node.roster.roster.sites.values()].find((site) => site.name === name)?.state;
    }
    return undefined;
  }

  /** Every group is led, and just these sites vote in it. */
  #isPlaced(names: readonly string[]): boolean {
    const open = this.#open();
    const wanted = open.filter(({ name }) => names.includes(name)).map(({ node }) => node.node);
    if (wanted.length !== names.length) return false;
    return groups.every((group) => {
      const leader = open.find(({ node }) => node.host.group(group)?.role === "leader");
      const configuration = leader?.node.host.group(group)?.status().configuration;
      const voters = [...wanted].sort((one, other) => one - other).join();
      return configuration?.voters.join() === voters && configuration.learners.length === 0;
    });
  }

  /** The same, with nothing left to apply and leaders even. */
  #isEven(names: readonly string[]): boolean {
    if (!this.#isPlaced(names)) return false;
    const open = this.#open();
    const counts = open.map(
      ({ node }) => node.host.status().filter(({ role }) => role === "leader").length,
    );
    if (Math.max(...counts) - Math.min(...counts) > 1) return false;
    return groups.every((group) => {
      const found = open.map(({ node }) => node.host.group(group)?.status());
      const last = found[0]?.commit;
      return found.every((each) => each?.applied === last && each?.lastIndex === last);
    });
  }

  async #judge(): Promise<string> {
    const { clock } = this.#world;
    const rosters = new Set<string>();
    const hashes = new Map<string, string>();
    for (const { name, node } of this.#open()) {
      rosters.add(encodeRoster(node.roster.roster).toString("hex"));
      hashes.set(name, await this.#hashesOf(node));
      const reader = new StoreReader(node.store, ["#"]);
      await clock.complete(reader.atTail());
      const times = new Map(reader.received.map(({ value, timeUs }) => [value, timeUs]));
      if (times.size !== reader.received.length) throw new Error(`${name} has a value twice`);
      for (const [value, timeUs] of this.#acked) {
        if (times.get(value) === timeUs) continue;
        throw new Error(
          `${value}, acked at ${timeUs}, is ${times.get(value) ?? "lost"} at ${name}`,
        );
      }
      for (const { event, fields } of this.#machine(name).events) {
        if (event !== "cluster.shard_moved") continue;
        const op = fields?.op;
        if (op === "learner") this.#coverage.learners++;
        else this.#coverage[op === "promote" ? "promotions" : "removals"]++;
      }
    }
    if (rosters.size !== 1) throw new Error("nodes hold different rosters");
    const all = new Set(hashes.values());
    if (all.size !== 1) {
      throw new Error(`nodes hold different stores: ${JSON.stringify([...hashes])}`);
    }
    return `${[...rosters]} ${[...all]} ${this.#acked.length} ${clock.elapsedMs()}`;
  }

  /** Of each shard, at the position it stands at. */
  async #hashesOf({ store, host }: ClusterNode): Promise<string> {
    const { clock } = this.#world;
    const found: string[] = [];
    for (const shard of shards) {
      const hash = await clock.complete(store.operator.logicalHash(shard));
      found.push(`${shard} at ${host.group(shard)?.appliedIndex}: ${hash.slice(0, 16)}`);
    }
    return found.join(", ");
  }

  #check(): void {
    for (const { name, failure } of this.#machines.values()) {
      if (failure === undefined || this.#gone.has(name)) continue;
      this.#fault ??= new Error(`${name} ended: ${failure.message}`);
    }
    if (this.#fault !== undefined) throw this.#fault;
  }

  async #until(isDone: () => boolean): Promise<void> {
    while (!isDone()) await this.#pause(200);
  }

  #begin(work: Promise<void>): void {
    work.catch((error: unknown) => {
      this.#fault ??= toError(error);
    });
  }

  #pause(ms: number): Promise<undefined> {
    return new Promise((resolve) => {
      this.#world.clock.schedule(ms, () => resolve(undefined));
    });
  }

  #note(text: string): void {
    this.#told.push(`${Math.round(this.#world.clock.elapsedMs())} ms ${text}`);
  }
}
