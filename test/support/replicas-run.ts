// One history of a store on three nodes: writers that repeat what they do not know the fate of, map
// writes, readers at replicas, and faults of processes and network. Then all is healed, and judged:
// what was acked is there once, and all replicas hold the same at the same position.

import { isCodedError, toError } from "../../src/base/index.ts";
import { defaultForwardSettings } from "../../src/cluster/index.ts";
import { StoreReader } from "../../src/contracts/store-reader.ts";
import type { Configuration, HostSettings, MembershipChange } from "../../src/raft/index.ts";
import type { AppendOutcome, LocalStore } from "../../src/store/index.ts";
import { ReplicaFaults } from "./replica-faults.ts";
import {
  createReplicaWorld,
  quickRaft,
  ReplicaMachine,
  type ReplicaProcess,
  type ReplicaWorld,
} from "./replica-machine.ts";
import {
  flag,
  judgeTransfers,
  messagesGroup,
  publishOnce,
  type ReplicaClients,
  stateGroup,
  transfer,
  writeKeys,
} from "./replicas-clients.ts";
import type { ReplicasCoverage } from "./replicas-coverage.ts";
import { appendRequest } from "./store-calls.ts";

const steps = 220;
const stepMs = 50;
const writers = 3;
/** Time after which a client thinks that its node is gone. */
const patienceMs = 2_000;
const state = stateGroup;
const messages = messagesGroup;
const groups = [1, state, messages];

const settings = {
  shards: 1,
  stateShards: 1,
  checkpoint: { bytesMax: 16 * 1024, ageMsMax: 2_000 },
} as const;

/** The time is not known of what was answered as a repeat. */
type Acked = { readonly value: string; readonly timeUs: number | undefined };

export class ReplicasRun {
  readonly #world: ReplicaWorld;
  readonly #faults: ReplicaFaults;
  /** Members, and who is to become one. */
  #machines: ReplicaMachine[];
  #lastNode: number;
  #isReplacing = false;
  /** Their hosts are not there yet. */
  readonly #booting = new Set<ReplicaMachine>();
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

  constructor(seed: number, coverage: ReplicasCoverage, size: number) {
    const nodes = Array.from({ length: size }, (_, at) => at + 1);
    this.#world = createReplicaWorld(`replicas ${seed}`, nodes, hasty);
    this.#world.keep = { keepMs: 1_500, keepBytesMax: 32 * 1024 };
    this.#world.copies = { answerMs: 100, patienceMs: 1_000, bytesPerSecondMax: 1024 * 1024 };
    this.#world.forwarding = { ...defaultForwardSettings, answerMs: 300, waitMs: 2_500 };
    this.#machines = nodes.map((node) => new ReplicaMachine(node, this.#world));
    this.#lastNode = size;
    this.#coverage = coverage;
    this.#random = this.#world.random.split("run");
    this.#faults = new ReplicaFaults({
      ...{ world: this.#world, random: this.#random.split("faults"), coverage, groups },
      machines: () => this.#machines,
      areWhole: () => !this.#isReplacing && this.#areEqual(30),
      stop: (machine, how, awayMs) => this.#stop(machine, how, awayMs),
      replace: (machine, how) => this.#client(this.#replace(machine, how)),
      upkeep: (machine, what) => this.#maintain(machine, what),
    });
  }

  /** Resolves with a hash of everything at the end. @throws the first violation. */
  async run(): Promise<string> {
    try {
      return await this.#play();
    } catch (error) {
      const last = [...this.#told.slice(-25), ...this.#describe()].join("\n");
      throw new Error(`${toError(error).message}; last events:\n${last}`, { cause: error });
    }
  }

  async #play(): Promise<string> {
    const { clock } = this.#world;
    for (const machine of this.#machines) await clock.complete(machine.format());
    for (const machine of this.#machines) this.#boot(machine);
    for (let writer = 1; writer <= writers; writer++) this.#client(this.#write(writer));
    for (let writer = 1; writer <= 2; writer++) {
      const after = (key: string, value: string | undefined) => this.#keyAcked(key, value);
      this.#client(writeKeys(this.#clientParts, writer, after));
    }
    for (let client = 1; client <= 2; client++) {
      this.#client(transfer(this.#clientParts, client));
      this.#client(flag(this.#clientParts, client));
      this.#client(publishOnce(this.#clientParts, client));
    }
    for (let sender = 1; sender <= 3; sender++) this.#client(this.#forward(sender));
    for (let step = 0; step < steps; step++) {
      if (step > 40 && this.#random.chance(0.1)) {
        const what = this.#faults.disturb();
        if (what !== undefined) this.#note(what);
      }
      await clock.advance(stepMs);
      this.#check();
    }
    await this.#heal();
    return this.#judge();
  }

  // ---------------------------------------------------------------- nodes

  #boot(machine: ReplicaMachine): void {
    if (machine.process !== undefined || this.#booting.has(machine)) return;
    this.#booting.add(machine);
    const members = this.#machines.map(({ member }) => member);
    const booting = async (): Promise<void> => {
      const process = await machine.boot(members);
      this.#booting.delete(machine);
      const store = await machine.open(process, settings);
      this.#readers.set(process, new StoreReader(store, ["#"]));
      this.#note(`node ${machine.node} is open`);
    };
    booting().catch((error: unknown) => {
      this.#booting.delete(machine);
      if (!isFull(error)) {
        this.#fault ??= toError(error);
        return;
      }
      // Started again, as whoever runs it would do.
      this.#end(machine, "kill");
      this.#bootLater(machine, 500);
    });
  }

  #bootLater(machine: ReplicaMachine, delayMs: number): void {
    this.#world.clock.schedule(delayMs, () => {
      if (this.#machines.includes(machine)) this.#boot(machine);
    });
  }

  #stop(machine: ReplicaMachine, how: "kill" | "power", awayMs: number): void {
    const { process } = machine;
    if (process === undefined) return;
    this.#note(`node ${machine.node}: ${how}`);
    this.#coverage[how === "kill" ? "kills" : "powerCuts"]++;
    this.#end(machine, how);
    this.#bootLater(machine, awayMs);
  }

  #end(machine: ReplicaMachine, how: "kill" | "power"): void {
    if (machine.process !== undefined) this.#count(machine.process);
    this.#countCopies(machine);
    machine.end(how);
  }

  #countCopies({ events }: ReplicaMachine): void {
    for (const { event, fields } of events.splice(0)) {
      if (event !== "store.replica_copied") continue;
      this.#coverage.copies++;
      for (const name of ["slabsKept", "slabsCopied", "slabsResumed"] as const) {
        this.#coverage[name] += Number(fields?.[name] ?? 0);
      }
    }
  }

  /** A new member in the place of one whose disk is gone, or that moves elsewhere. */
  async #replace(old: ReplicaMachine, how: "wipe" | "move"): Promise<void> {
    this.#isReplacing = true;
    this.#coverage[how === "wipe" ? "wipes" : "moves"]++;
    const fresh = new ReplicaMachine(++this.#lastNode, this.#world, { joins: true });
    await fresh.format();
    if (how === "wipe") {
      this.#end(old, "power");
      this.#machines = this.#machines.filter((machine) => machine !== old);
    }
    this.#machines = [...this.#machines, fresh];
    for (const machine of this.#machines) await this.#admit(machine, fresh);
    this.#boot(fresh);
    const { node } = fresh;
    for (const group of groups) {
      await this.#change(group, { op: "learner", node }, ({ learners }) => learners.includes(node));
    }
    for (const group of groups) {
      await this.#change(group, { op: "promote", node }, ({ voters }) => voters.includes(node));
      const gone = old.node;
      await this.#change(
        group,
        { op: "remove", node: gone },
        ({ voters }) => !voters.includes(gone),
      );
    }
    this.#note(`node ${node} is in the place of node ${old.node}`);
    if (how === "move") {
      this.#machines = this.#machines.filter((machine) => machine !== old);
      this.#end(old, "kill");
    }
    while (!this.#areEqual(30)) await this.#pause(200);
    this.#isReplacing = false;
  }

  /** Tells a node of a new one; again while its disk is full. */
  async #admit(machine: ReplicaMachine, { member }: ReplicaMachine): Promise<void> {
    for (;;) {
      try {
        return await machine.process?.host.admit([member]);
      } catch (error) {
        if (!isFull(error)) throw error;
      }
      await this.#pause(100);
    }
  }

  async #change(
    number: number,
    change: MembershipChange,
    isDone: (configuration: Configuration) => boolean,
  ): Promise<void> {
    for (;;) {
      const group = this.#machines
        .map(({ process }) => process?.host.group(number))
        .find((each) => each?.role === "leader");
      const status = group?.status();
      if (status !== undefined && isDone(status.configuration)) return;
      const peer = status?.peers.find(({ node }) => node === change.node);
      const isBehind = change.op === "promote" && (peer?.match ?? 0) < (status?.commit ?? 0) - 20;
      if (group !== undefined && !isBehind) {
        const changing = group.changeMembership(change).catch((error: unknown) => {
          if (!isCodedError(error)) throw error; // another change is under way, or another leads
        });
        await Promise.race([changing, this.#pause(1_000)]);
      }
      await this.#pause(50);
    }
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
    this.#coverage.repairs += process.host.counters.groupsRepaired;
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

  // ---------------------------------------------------------------- upkeep

  /** Of generations the leader decides, whomever it befell. */
  #maintain(machine: ReplicaMachine, what: "rotate" | "checkpoint" | "drop"): void {
    const leads = this.#machines.find(
      ({ process }) => process?.host.group(messages)?.role === "leader",
    );
    const { store } = (what === "checkpoint" ? machine : (leads ?? machine)).process ?? {};
    if (what === "rotate") return this.#upkeep(store, "rotations", (open) => open.rotate());
    if (what === "checkpoint") {
      return this.#upkeep(store, "checkpoints", (open) => open.checkpoint());
    }
    const old = this.#acked.at(-40);
    const { timeUs } = old ?? {};
    if (timeUs === undefined) return;
    this.#droppedUs = Math.max(this.#droppedUs, timeUs);
    this.#upkeep(store, "drops", (open) => open.dropUntil(timeUs));
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
    const publisher = `p${writer}`;
    let openings = 0;
    // An opening of unknown fate may yet happen, and fence those of its name.
    const { name, epoch } = await this.#insist(messages, async (store) => {
      const name = `w${writer}.${++openings}`;
      return { name, epoch: await store.openWriter(name, publisher, "t") };
    });
    for (let sequence = 1; !this.#isHealing; sequence++) {
      const value = `w${writer}.${sequence}`;
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
      const sinks = this.#machines.flatMap(({ process }) => process?.store ?? []);
      const store = sinks[sender % sinks.length];
      const value = `${publisher}.${number}`;
      if (store !== undefined) {
        const sent = this.#send(store, value, publisher);
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

  #send(store: LocalStore, value: string, publisher: string): Promise<void> {
    const request = appendRequest(`t/${this.#random.below(5)}`, value, { publisher });
    return new Promise((resolve) => {
      store.append(request, (error, outcome) => {
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

  get #clientParts(): ReplicaClients {
    return {
      ...{ random: this.#random, coverage: this.#coverage, isOver: () => this.#isHealing },
      pause: (ms) => this.#pause(ms),
      insist: (group, attempt) => this.#insist(group, attempt),
      acked: (value, timeUs) => void this.#acked.push({ value, timeUs }),
    };
  }

  async #keyAcked(key: string, value: string | undefined): Promise<void> {
    if (value === undefined) this.#keys.delete(key);
    else this.#keys.set(key, value);
    if (this.#random.chance(0.2)) await this.#readAt(key, value);
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

  /** Tries at one node after the other until it is done. */
  async #insist<T>(group: number, attempt: (store: LocalStore) => Promise<T>): Promise<T> {
    for (;;) {
      const open = this.#machines.filter(({ process }) => process?.store !== undefined);
      const leads = open.filter(({ process }) => process?.host.group(group)?.role === "leader");
      const machine = this.#random.pick(
        leads.length > 0 && this.#random.chance(0.3) ? leads : open,
      );
      const { process } = machine ?? {};
      const store = process?.store;
      if (store !== undefined) {
        try {
          const done = await Promise.race([
            attempt(store).then((value) => ({ value })),
            this.#pause(patienceMs),
          ]);
          if (done !== undefined) {
            const isAway = process?.host.group(group)?.role !== "leader";
            if (isAway) this.#coverage.doneAway++;
            return done.value;
          }
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
    this.#faults.calm();
    const isDone = (): boolean =>
      this.#fault !== undefined || (this.#clients === 0 && this.#areEqual(0));
    await clock.runUntil(isDone, 180_000);
    // What its owner has given up may still be on its way to a leader: rest is two seconds without it.
    for (let before = ""; before !== this.#applied(); ) {
      before = this.#applied();
      await clock.advance(2_000);
      await clock.runUntil(isDone, 180_000);
    }
    this.#check();
  }

  #applied(): string {
    const groupsOf = ({ process }: ReplicaMachine) =>
      groups.map((number) => process?.host.group(number)?.appliedIndex ?? 0);
    return this.#machines.map(groupsOf).join();
  }

  /** All are open, whole, and have applied the same, to the end. */
  #areEqual(lagMax: number): boolean {
    return groups.every((number) => {
      const found = this.#machines.map(({ process }) =>
        process?.store === undefined ? undefined : process.host.group(number),
      );
      const lastIndex = Math.max(...found.map((group) => group?.lastIndex ?? 0));
      return found.every(
        (group) =>
          group?.status().state === "up" && group.appliedIndex >= Math.max(1, lastIndex - lagMax),
      );
    });
  }

  #describe(): string[] {
    const lines = [`${this.#clients} clients${this.#isReplacing ? ", a member is replaced" : ""}`];
    for (const { node, process } of this.#machines) {
      const isOpen = process?.store !== undefined;
      lines.push(`node ${node}: ${process === undefined ? "down" : isOpen ? "open" : "opens"}`);
      for (const number of groups) {
        const status = process?.host.group(number)?.status();
        if (status === undefined) continue;
        const { role, term, state, commit, applied, lastIndex, configuration } = status;
        const facts = { role, term, state, commit, applied, lastIndex, ...configuration };
        lines.push(`  group ${number}: ${JSON.stringify(facts)}`);
      }
    }
    return lines;
  }

  async #judge(): Promise<string> {
    const { clock } = this.#world;
    const hashes: string[][] = [];
    const contents: string[] = [];
    for (const machine of this.#machines) {
      const { process } = machine;
      this.#countCopies(machine);
      const store = process?.store as LocalStore;
      this.#count(process as ReplicaProcess);
      const reader = new StoreReader(store, ["#"]);
      await clock.complete(reader.atTail());
      this.#checkReader(reader);
      this.#judgeReader(reader);
      const entries = await clock.complete(store.state("owner").list("", { countMax: 10_000 }));
      const found = new Map(entries.map(({ key, value }) => [key, value.toString()]));
      judgeTransfers(found);
      const keys = JSON.stringify([...found].filter(([key]) => key.startsWith("k/")).sort());
      const expected = JSON.stringify([...this.#keys].sort());
      if (keys !== expected) throw new Error(`the map holds ${keys}, not ${expected}`);
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
      const foundUs = times.get(value);
      if (foundUs !== undefined && (timeUs ?? foundUs) === foundUs) continue;
      // A repeat is of something older.
      if (foundUs === undefined && (timeUs ?? 1) <= this.#droppedUs) continue;
      throw new Error(`${value}, acked at ${timeUs}, is ${times.get(value) ?? "lost"}`);
    }
  }

  #note(text: string): void {
    this.#told.push(`${Math.round(this.#world.clock.elapsedMs())} ms ${text}`);
  }
}

/** Fates stay open for seconds, not for as long as a client waits. */
const hasty: HostSettings = { ...quickRaft, waitTicksMax: 25 };

const isFull = (error: unknown): boolean =>
  isCodedError(error) && /_FULL$|SYNC_FAILED$/.test(error.code);
