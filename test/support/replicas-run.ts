// One history of a store on three nodes: writers that repeat what they do not know the fate of, map
// writes, readers at replicas, and faults of processes and network. Then all is healed, and judged:
// what was acked is there once, and all replicas hold the same at the same position.

import { createCounters, isCodedError, toError } from "../../src/base/index.ts";
import type { Forwarder } from "../../src/cluster/index.ts";
import { StoreReader } from "../../src/contracts/store-reader.ts";
import type { AppendOutcome, LocalStore } from "../../src/store/index.ts";
import {
  createReplicaWorld,
  ReplicaMachine,
  type ReplicaProcess,
  type ReplicaWorld,
} from "./replica-machine.ts";
import { appendRequest } from "./store-calls.ts";

export const replicasCoverageHelp = {
  acks: "appends acked",
  keysAcked: "map writes acked",
  repeats: "appends tried again",
  kills: "processes killed",
  powerCuts: "machines that lost their power",
  cuts: "nodes cut off, one way or both",
  transfers: "leaders asked to hand over",
  lossyMs: "time with a network that loses, repeats and delays",
  rotations: "generations ended",
  drops: "drops asked for",
  checkpoints: "checkpoints taken",
  claims: "claims proposed",
  depositions: "leaders deposed with a shard",
  batchesRefused: "committed commands refused by their fence",
  fatesRetry: "proposals that did not happen",
  fatesUnknown: "proposals of unknown fate",
  forwardsAcked: "appends acked at whatever node they came to",
  forwardsUnknown: "such appends of unknown fate",
  forwardBatches: "batches of them",
  forwardsRefused: "what a leader could not take of them",
  barriers: "reads behind a barrier",
  foreignRead: "TTVs that readers got at nodes that did not lead",
};

export type ReplicasCoverage = Record<keyof typeof replicasCoverageHelp, number>;

export const createReplicasCoverage = (): ReplicasCoverage => createCounters(replicasCoverageHelp);

const steps = 220;
const stepMs = 50;
const writers = 3;
/** Time after which a client thinks that its node is gone. */
const patienceMs = 2_000;
const nodes = [1, 2, 3] as const;
const state = 2;
const messages = 3;
const groups = [1, state, messages];

const settings = {
  shards: 1,
  stateShards: 1,
  checkpoint: { bytesMax: 16 * 1024, ageMsMax: 2_000 },
} as const;

type Acked = { readonly value: string; readonly timeUs: number };

export class ReplicasRun {
  readonly #world: ReplicaWorld;
  readonly #machines: ReplicaMachine[];
  readonly #coverage: ReplicasCoverage;
  readonly #random;
  readonly #acked: Acked[] = [];
  readonly #keys = new Map<string, string>();
  readonly #readers = new Map<ReplicaProcess, StoreReader>();
  /** What was said last, for a failure. */
  readonly #told: string[] = [];
  #droppedUs = 0;
  #isHealing = false;
  #fault: Error | undefined;
  #clients = 0;

  constructor(seed: number, coverage: ReplicasCoverage) {
    this.#world = createReplicaWorld(`replicas ${seed}`, nodes);
    this.#machines = nodes.map((node) => new ReplicaMachine(node, this.#world));
    this.#coverage = coverage;
    this.#random = this.#world.random.split("run");
  }

  /** Resolves with a hash of everything at the end. @throws the first violation. */
  async run(): Promise<string> {
    try {
      return await this.#play();
    } catch (error) {
      const last = this.#told.slice(-25).join("\n");
      throw new Error(`${toError(error).message}; last events:\n${last}`, { cause: error });
    }
  }

  async #play(): Promise<string> {
    const { clock } = this.#world;
    for (const machine of this.#machines) await clock.complete(machine.format());
    for (const machine of this.#machines) this.#boot(machine);
    for (let writer = 1; writer <= writers; writer++) this.#client(this.#write(writer));
    for (let writer = 1; writer <= 2; writer++) this.#client(this.#writeKeys(writer));
    for (let sender = 1; sender <= 3; sender++) this.#client(this.#forward(sender));
    for (let step = 0; step < steps; step++) {
      if (step > 40 && this.#random.chance(0.08)) this.#disturb();
      await clock.advance(stepMs);
      this.#check();
    }
    await this.#heal();
    return this.#judge();
  }

  // ---------------------------------------------------------------- nodes

  #boot(machine: ReplicaMachine): void {
    const members = this.#machines.map(({ member }) => member);
    const booting = async (): Promise<void> => {
      const process = await machine.boot(members);
      const store = await machine.open(process, settings);
      this.#readers.set(process, new StoreReader(store, ["#"]));
      this.#note(`node ${machine.node} is open`);
    };
    booting().catch((error: unknown) => {
      this.#fault ??= toError(error);
    });
  }

  #stop(machine: ReplicaMachine, how: "kill" | "power"): void {
    const { process } = machine;
    if (process === undefined) return;
    this.#note(`node ${machine.node}: ${how}`);
    this.#coverage[how === "kill" ? "kills" : "powerCuts"]++;
    this.#count(process);
    machine.end(how);
    this.#world.clock.schedule(this.#random.between(100, 4_000), () => this.#boot(machine));
  }

  #count(process: ReplicaProcess): void {
    const { counters } = process.logs;
    for (const name of [
      "claims",
      "depositions",
      "batchesRefused",
      "fatesRetry",
      "fatesUnknown",
      "forwardBatches",
      "forwardsRefused",
    ] as const) {
      this.#coverage[name] += counters[name];
    }
    const reader = this.#readers.get(process);
    if (reader === undefined) return;
    this.#checkReader(reader);
    this.#coverage.foreignRead += reader.received.length;
  }

  /** A reader gets each TTV once, in the order of commit times. */
  #checkReader(reader: StoreReader): void {
    const times = reader.received.map(({ timeUs }) => timeUs);
    const isOrdered = times.every((timeUs, at) => at === 0 || timeUs > (times[at - 1] as number));
    if (!isOrdered) throw new Error("a reader got TTVs out of order");
    if (new Set(reader.values).size !== reader.values.length) {
      throw new Error("a reader got a value twice");
    }
  }

  // ---------------------------------------------------------------- faults

  #disturb(): void {
    const machine = this.#random.pick(this.#machines);
    const what = this.#random.pick([
      ...["kill", "power", "cut", "oneWay", "transfer", "transfer", "lossy", "rotate"],
      ...["checkpoint", "drop"],
    ]);
    const store = machine.process?.store;
    this.#note(`${what} at node ${machine.node}`);
    switch (what) {
      case "kill":
      case "power":
        return this.#stop(machine, what);
      case "cut":
      case "oneWay":
        return this.#cut(machine, what === "cut");
      case "transfer":
        return this.#transfer(machine);
      case "lossy":
        return this.#loseFrames();
      case "rotate":
        return this.#upkeep(store, "rotations", (open) => open.rotate());
      case "checkpoint":
        return this.#upkeep(store, "checkpoints", (open) => open.checkpoint());
      default: {
        const old = this.#acked.at(-40);
        if (old === undefined) return;
        this.#droppedUs = Math.max(this.#droppedUs, old.timeUs);
        return this.#upkeep(store, "drops", (open) => open.dropUntil(old.timeUs));
      }
    }
  }

  #cut(machine: ReplicaMachine, both: boolean): void {
    const { network, clock } = this.#world;
    this.#coverage.cuts++;
    for (const other of this.#machines) {
      if (other === machine) continue;
      network.cut(machine.siteId, other.siteId);
      if (both) network.cut(other.siteId, machine.siteId);
    }
    clock.schedule(this.#random.between(300, 4_000), () => network.mend());
  }

  #transfer(to: ReplicaMachine): void {
    for (const { process } of this.#machines) {
      for (const group of groups.map((number) => process?.host.group(number))) {
        if (group?.role !== "leader" || group.node === to.node) continue;
        this.#coverage.transfers++;
        try {
          group.transfer(to.node);
        } catch (error) {
          if (!isCodedError(error)) throw error; // one is under way
        }
      }
    }
  }

  #loseFrames(): void {
    const { network, clock } = this.#world;
    const lossyMs = this.#random.between(500, 3_000);
    this.#coverage.lossyMs += lossyMs;
    network.faults = { lossPerMille: 80, repeatPerMille: 40, damagePerMille: 5, delayMsMax: 40 };
    clock.schedule(lossyMs, () => this.#calm());
  }

  #calm(): void {
    this.#world.network.faults = { ...this.#world.network.faults, ...calm };
  }

  #upkeep(
    store: LocalStore | undefined,
    name: "rotations" | "checkpoints" | "drops",
    work: (store: LocalStore) => Promise<unknown>,
  ): void {
    if (store === undefined) return;
    work(store).then(
      () => {
        this.#coverage[name]++;
      },
      (error: unknown) => {
        if (!isCodedError(error) || error.kind !== "retry") this.#fault ??= toError(error);
      },
    );
  }

  // ---------------------------------------------------------------- clients

  #client(work: Promise<void>): void {
    this.#clients++;
    work.then(
      () => {
        this.#clients--;
      },
      (error: unknown) => {
        this.#fault ??= toError(error);
      },
    );
  }

  async #write(writer: number): Promise<void> {
    const name = `w${writer}`;
    const publisher = `p${writer}`;
    const epoch = await this.#insist(messages, (store) => store.openWriter(name, publisher, "t"));
    for (let sequence = 1; !this.#isHealing; sequence++) {
      const value = `${name}.${sequence}`;
      const topic = `t/${this.#random.below(6)}/${sequence % 3}`;
      const stamp = { name, epoch, sequence };
      let tries = 0;
      const outcome = await this.#insist(messages, (store) => {
        if (++tries > 1) this.#coverage.repeats++;
        const request = appendRequest(topic, value, { publisher, writer: stamp });
        return new Promise<AppendOutcome>((resolve, reject) => {
          store.append(request, (error, done) => (done ? resolve(done) : reject(error)));
        });
      });
      if (outcome.kind === "stored") this.#acked.push({ value, timeUs: outcome.timeUs });
      this.#coverage.acks++;
      if (this.#random.chance(0.3)) await this.#pause(this.#random.between(1, 60));
    }
  }

  /** Appends without a stamp at any node, several under way. What is not acked counts once or not. */
  async #forward(sender: number): Promise<void> {
    const publisher = `f${sender}`;
    const open = new Set<Promise<void>>();
    for (let number = 1; !this.#isHealing; number++) {
      const sinks = this.#machines.flatMap(({ process }) => process?.forwarder ?? []);
      const forwarder = sinks[sender % sinks.length];
      const value = `${publisher}.${number}`;
      if (forwarder !== undefined) {
        const sent = this.#send(forwarder, value, publisher);
        // A process that ends tells nobody.
        const heard = Promise.race([sent, this.#pause(20_000)]).then(() => {
          open.delete(heard);
        });
        open.add(heard);
      }
      await this.#pause(this.#random.between(1, open.size > 30 ? 300 : 40));
    }
    await Promise.all(open);
  }

  #send(forwarder: Forwarder, value: string, publisher: string): Promise<void> {
    const request = appendRequest(`t/${this.#random.below(5)}`, value, { publisher });
    return new Promise((resolve) => {
      forwarder.append(request, (error, outcome) => {
        if (outcome?.kind === "stored") {
          this.#acked.push({ value, timeUs: outcome.timeUs });
          this.#coverage.forwardsAcked++;
        } else if (isCodedError(error) && ["retry", "limit"].includes(error.kind)) {
          this.#coverage.forwardsUnknown++;
        } else {
          this.#fault ??= toError(error);
        }
        resolve();
      });
    });
  }

  async #writeKeys(writer: number): Promise<void> {
    for (let round = 1; !this.#isHealing; round++) {
      const key = `k/${writer}/${round % 4}`;
      const value = round % 9 === 0 ? undefined : Buffer.from(`${round}`);
      await this.#insist(state, (store) => {
        const map = store.state("owner");
        if (round % 3 === 0) {
          return map.transact(async (tx) => {
            await tx.get(key);
            if (value === undefined) tx.delete(key);
            else tx.put(key, value);
          });
        }
        return new Promise<unknown>((resolve, reject) => {
          map.write([{ key, value }], [], (error) => (error ? reject(error) : resolve(undefined)));
        });
      });
      if (value === undefined) this.#keys.delete(key);
      else this.#keys.set(key, value.toString());
      this.#coverage.keysAcked++;
      if (this.#random.chance(0.2)) await this.#readAt(key, value?.toString());
      await this.#pause(this.#random.between(1, 50));
    }
  }

  /** Behind a barrier every replica has what was acked; a replica without a quorum says so. */
  async #readAt(key: string, value: string | undefined): Promise<void> {
    const store = this.#random.pick(this.#machines).process?.store;
    if (store === undefined) return;
    const read = async (): Promise<string | undefined> => {
      try {
        await store.barrier(state);
      } catch (error) {
        if (isCodedError(error) && error.kind === "retry") return "refused";
        throw error;
      }
      return (await store.state("owner").get(key))?.value.toString();
    };
    const found = await Promise.race([read(), this.#pause(patienceMs).then(() => "refused")]);
    if (found === "refused") return;
    this.#coverage.barriers++;
    if (found !== value) throw new Error(`behind a barrier ${key} is ${found}, not ${value}`);
  }

  /** Tries at one node after the other, best at the leader, until it is done. */
  async #insist<T>(group: number, attempt: (store: LocalStore) => Promise<T>): Promise<T> {
    for (;;) {
      const open = this.#machines.filter(({ process }) => process?.store !== undefined);
      const leads = open.filter(({ process }) => process?.host.group(group)?.role === "leader");
      const machine = this.#random.pick(
        leads.length > 0 && this.#random.chance(0.9) ? leads : open,
      );
      const store = machine?.process?.store;
      if (store !== undefined) {
        try {
          const done = await Promise.race([
            attempt(store).then((value) => ({ value })),
            this.#pause(patienceMs),
          ]);
          if (done !== undefined) return done.value;
        } catch (error) {
          const mayTryAgain = isCodedError(error) && ["retry", "conflict"].includes(error.kind);
          if (!mayTryAgain) throw error;
        }
      }
      await this.#pause(this.#random.between(5, 80));
    }
  }

  #pause(ms: number): Promise<undefined> {
    return new Promise((resolve) => {
      this.#world.clock.schedule(ms, () => resolve(undefined));
    });
  }

  // ---------------------------------------------------------------- the end

  #check(): void {
    for (const { failure, node } of this.#machines) {
      if (failure !== undefined) this.#fault ??= new Error(`node ${node}: ${failure.message}`);
    }
    if (this.#fault !== undefined) throw this.#fault;
  }

  async #heal(): Promise<void> {
    this.#note("healing");
    const { network, clock } = this.#world;
    this.#isHealing = true;
    network.mend();
    this.#calm();
    const isDone = (): boolean => {
      network.mend();
      return this.#fault !== undefined || (this.#clients === 0 && this.#areEqual());
    };
    await clock.runUntil(isDone, 180_000);
    this.#check();
  }

  /** All are open, and have applied the same, to the end. */
  #areEqual(): boolean {
    return groups.every((number) => {
      const found = this.#machines.map(({ process }) => {
        const group = process?.store === undefined ? undefined : process.host.group(number);
        return group === undefined ? "" : `${group.appliedIndex}/${group.lastIndex}`;
      });
      const [applied, last] = (found[0] as string).split("/");
      return found.every((each) => each === found[0]) && applied === last && applied !== undefined;
    });
  }

  async #judge(): Promise<string> {
    const { clock } = this.#world;
    const hashes: string[][] = [];
    const contents: string[] = [];
    for (const { process } of this.#machines) {
      const store = process?.store as LocalStore;
      this.#count(process as ReplicaProcess);
      const reader = new StoreReader(store, ["#"]);
      await clock.complete(reader.atTail());
      this.#checkReader(reader);
      this.#judgeReader(reader);
      const entries = await clock.complete(store.state("owner").list("", { countMax: 1_000 }));
      const found = new Map(entries.map(({ key, value }) => [key, value.toString()]));
      const expected = [...this.#keys].sort();
      if (JSON.stringify([...found].sort()) !== JSON.stringify(expected)) {
        throw new Error(
          `the map holds ${JSON.stringify([...found])}, not ${JSON.stringify(expected)}`,
        );
      }
      const ofShards = groups.map((shard) => clock.complete(store.operator.logicalHash(shard)));
      hashes.push(await Promise.all(ofShards));
      contents.push(JSON.stringify(reader.received.map(({ value, timeUs }) => [value, timeUs])));
    }
    for (const [at, each] of hashes.entries()) {
      const [first] = hashes;
      if (contents[at] !== contents[0])
        throw new Error(`node ${at + 1} reads other TTVs than node 1`);
      if (each.join() === first?.join()) continue;
      throw new Error(`node ${at + 1} holds ${each.join()}, node 1 ${first?.join()}`);
    }
    return `${hashes[0]?.join()} ${this.#acked.length} ${clock.elapsedMs()}`;
  }

  #judgeReader({ received }: StoreReader): void {
    const times = new Map(received.map(({ value, timeUs }) => [value, timeUs]));
    for (const { value, timeUs } of this.#acked) {
      if (times.get(value) === timeUs) continue;
      if (timeUs <= this.#droppedUs && !times.has(value)) continue;
      throw new Error(`${value}, acked at ${timeUs}, is ${times.get(value) ?? "lost"}`);
    }
  }

  #note(text: string): void {
    this.#told.push(`${Math.round(this.#world.clock.elapsedMs())} ms ${text}`);
  }
}

const calm = { lossPerMille: 0, repeatPerMille: 0, damagePerMille: 0, delayMsMax: 1 } as const;
