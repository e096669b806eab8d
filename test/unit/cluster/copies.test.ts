// A replica that was away for longer than its log reaches back copies what it lacks.

import { expect, test } from "vitest";
import {
  type CopyAnswer,
  type CopyMessage,
  type CopyQuestion,
  decodeCopyMessage,
  encodeCopyMessage,
} from "../../../src/cluster/core/copy-codec.ts";
import { defaultKeepSettings } from "../../../src/cluster/index.ts";
import { StoreReader } from "../../../src/contracts/store-reader.ts";
import type { Group } from "../../../src/raft/index.ts";
import type { LocalStore } from "../../../src/store/index.ts";
import {
  createReplicaWorld,
  ReplicaMachine,
  type ReplicaWorld,
} from "../../support/replica-machine.ts";
import { append, appendRequest } from "../../support/store-calls.ts";

const nodes = [1, 2, 3];
const [meta, state, messages] = [1, 2, 3];
const settings = { shards: 1, stateShards: 1, checkpoint: { bytesMax: 1 << 20, ageMsMax: 60_000 } };

class Rig {
  readonly world: ReplicaWorld;
  readonly machines: ReplicaMachine[];
  #sent = 0;
  readonly values: string[] = [];

  constructor(seed: string) {
    this.world = createReplicaWorld(seed, nodes);
    this.world.keep = { keepMs: 0, keepBytesMax: 0 };
    this.machines = nodes.map((node) => new ReplicaMachine(node, this.world));
  }

  run<T>(promise: Promise<T>): Promise<T> {
    return this.world.clock.complete(promise, 3_600_000);
  }

  async format(): Promise<void> {
    for (const machine of this.machines) await this.run(machine.format());
    await this.run(Promise.all(this.machines.map((machine) => this.open(machine))));
  }

  async open(machine: ReplicaMachine): Promise<LocalStore> {
    const process = await machine.boot(this.machines.map(({ member }) => member));
    return machine.open(process, settings);
  }

  node(number: number): ReplicaMachine {
    return this.machines[number - 1] as ReplicaMachine;
  }

  get leader(): LocalStore {
    const leads = ({ process }: ReplicaMachine): boolean =>
      process?.store !== undefined && process.host.group(messages)?.role === "leader";
    return this.machines.find(leads)?.process?.store as LocalStore;
  }

  /** Node 3 leads nothing. */
  async leadElsewhere(): Promise<void> {
    const ofThird = (): Group[] =>
      [meta, state, messages].flatMap((each) => this.node(3).process?.host.group(each) ?? []);
    while (ofThird().some(({ role }) => role === "leader") || this.leader === undefined) {
      for (const group of ofThird()) if (group.role === "leader") group.transfer(1);
      await this.world.clock.advance(2_000);
    }
  }

  async publish(count: number, expiryUs = 0): Promise<void> {
    for (let at = 0; at < count; at++) {
      const value = `${++this.#sent}`;
      const topic = `t/${this.#sent % 5}/${this.#sent % 3}`;
      await this.run(
        append(this.leader, appendRequest(topic, value, { publisher: "p", expiryUs })),
      );
      this.values.push(value);
    }
  }

  async write(count: number): Promise<void> {
    for (let at = 0; at < count; at++) {
      const key = `k/${at % 7}`;
      const leads = this.machines.find(
        ({ process }) => process?.host.group(state)?.role === "leader",
      );
      const map = leads?.process?.store?.state("owner");
      const value = at % 5 === 4 ? undefined : Buffer.from(`${at}`);
      await this.run(
        new Promise<void>((resolve, reject) => {
          map?.write([{ key, value }], [], (error) => (error ? reject(error) : resolve()));
        }),
      );
    }
  }

  /** Everything is checkpointed and cut on those that are open. */
  async cut(): Promise<void> {
    for (const { process } of this.machines) {
      if (process?.store !== undefined) await this.run(process.store.checkpoint());
    }
    await this.world.clock.advance(500);
    await this.publish(1);
    await this.write(1);
    for (const { process } of this.machines) {
      if (process?.store !== undefined) await this.run(process.store.checkpoint());
    }
    await this.world.clock.advance(500);
  }

  /** Folders of slabs of the message shard. */
  async foldersOf({ disk }: ReplicaMachine): Promise<string[]> {
    const entries = await this.run(disk.attach().list("data/db/messages/s0003"));
    return entries.map(({ name }) => name).filter((name) => /^g\d/.test(name));
  }

  async rotate(): Promise<void> {
    await this.run(this.leader.rotate());
  }

  async settle(): Promise<void> {
    const areEqual = (): boolean =>
      [meta, state, messages].every((number) => {
        const found = this.machines.map(({ process }) => process?.host.group(number));
        return found.every(
          (group) =>
            group !== undefined &&
            group.appliedIndex === found[0]?.appliedIndex &&
            group.appliedIndex === group.lastIndex,
        );
      });
    await this.world.clock.runUntil(areEqual, 600_000);
  }

  async expectEqual(): Promise<void> {
    await this.settle();
    const hashes: string[] = [];
    for (const { process } of this.machines) {
      const store = process?.store as LocalStore;
      const ofShards: string[] = [];
      for (const shard of [meta, state, messages]) {
        ofShards.push(await this.run(store.operator.logicalHash(shard)));
      }
      hashes.push(ofShards.join());
      const reader = new StoreReader(store, ["#"]);
      await this.run(reader.atTail());
      expect(reader.values).toEqual(this.values);
      reader.subscriber.close();
    }
    expect(new Set(hashes).size).toBe(1);
    for (const { failure } of this.machines) expect(failure).toBeUndefined();
  }
}

type Copied = Record<"slabsKept" | "slabsCopied" | "slabsResumed" | "shard", number>;

/** What a node said of the copies of its message shard. */
function copiedBy(machine: ReplicaMachine): Copied[] {
  return machine.events
    .filter(({ event }) => event === "store.replica_copied")
    .map(({ fields }) => fields as Copied)
    .filter(({ shard }) => shard === messages);
}

async function begin(seed: string): Promise<Rig> {
  const rig = new Rig(seed);
  await rig.format();
  await rig.leadElsewhere();
  await rig.publish(40);
  await rig.rotate();
  await rig.publish(20);
  await rig.settle();
  await rig.cut();
  return rig;
}

/** The others go on, and cut their logs. */
async function goOn(rig: Rig): Promise<void> {
  await rig.publish(15);
  await rig.rotate();
  await rig.publish(15);
  await rig.write(12);
  await rig.cut();
}

test("a replica that was away for long gets only the slabs that it lacks", async () => {
  const rig = await begin("copies 1");
  await rig.run(rig.node(3).stop());
  await goOn(rig);
  await rig.run(rig.open(rig.node(3)));
  await rig.expectEqual();
  const [copied] = copiedBy(rig.node(3));
  expect(copied).toMatchObject({ slabsKept: 1, slabsCopied: 2, slabsResumed: 0 });
  expect(await rig.foldersOf(rig.node(3))).toHaveLength(3);
});

test("readers of a replica go on through a copy: each TTV once, in order", async () => {
  const rig = await begin("copies 2");
  const { network } = rig.world;
  const third = rig.node(3);
  const reader = new StoreReader(third.process?.store as LocalStore, ["#"]);
  const late = new StoreReader(third.process?.store as LocalStore, ["t/1/+"], { room: 2 });
  await rig.run(reader.atTail());
  for (const { siteId } of [rig.node(1), rig.node(2)]) {
    network.cut(siteId, third.siteId);
    network.cut(third.siteId, siteId);
  }
  await goOn(rig);
  network.mend();
  await rig.settle();
  late.giveRoom(1_000);
  await rig.publish(10);
  await rig.settle();
  await rig.run(Promise.all([reader.atTail(), late.atTail()]));
  expect(copiedBy(third)).toHaveLength(1);
  expect(reader.values).toEqual(rig.values);
  expect(late.values).toEqual(rig.values.filter((value) => Number(value) % 5 === 1));
  expect(third.process?.host.counters.snapshotsInstalled).toBeGreaterThan(0);
  await rig.expectEqual();
});

const phases = ["page", "slab", "synced", "staged", "left", "switched", "entered"];

test("a power cut at each step of a copy leaves the one state or the other", async () => {
  const rig = await begin("copies 3");
  const third = rig.node(3);
  let cuts = 0;
  // A map of one page has one of it.
  const steps = [...phases, ...phases.slice(1)];
  for (const [round, phase] of steps.entries()) {
    await rig.run(third.stop());
    await goOn(rig);
    let left = round < phases.length ? 1 : 2;
    third.onPhase = (name) => {
      if (name !== `copy.${phase}` || --left !== 0) return;
      cuts++;
      third.end("power");
      rig.world.clock.schedule(50, () => void rig.open(third));
    };
    void rig.open(third);
    await rig.settle();
    third.onPhase = () => undefined;
    expect(left, phase).toBeLessThanOrEqual(0);
  }
  await rig.expectEqual();
  expect(cuts).toBe(steps.length);
  await rig.run(third.stop());
  await rig.run(rig.open(third));
  await rig.expectEqual();
  const store = third.process?.store as LocalStore;
  expect(await rig.foldersOf(third)).toHaveLength(store.operator.generations(messages).length);
}, 120_000);

test("a copy that lost its source goes on at the next, and keeps the slabs that it has", async () => {
  const rig = await begin("copies 4");
  const third = rig.node(3);
  await rig.run(third.stop());
  await goOn(rig);
  await rig.rotate();
  await rig.publish(5);
  await rig.cut();
  let slabs = 0;
  third.onPhase = (name) => {
    if (name !== "copy.slab" || ++slabs !== 2) return;
    const leads = ({ process }: ReplicaMachine): boolean =>
      process?.host.group(messages)?.role === "leader";
    const source = rig.machines.find(leads) as ReplicaMachine;
    source.end("power");
    rig.world.clock.schedule(20_000, () => void rig.open(source));
  };
  void rig.open(third);
  await rig.settle();
  const [copied] = copiedBy(third);
  expect(copied?.slabsResumed).toBeGreaterThan(0);
  await rig.expectEqual();
}, 120_000);

test("a replica that was away for a short time finds what it lacks in the log", async () => {
  const rig = new Rig("copies 5");
  rig.world.keep = defaultKeepSettings;
  await rig.format();
  await rig.leadElsewhere();
  await rig.run(rig.node(3).stop());
  await goOn(rig);
  await rig.world.clock.advance(20_000);
  await rig.run(rig.open(rig.node(3)));
  await rig.expectEqual();
  expect(rig.node(3).process?.logs.counters.copyQuestions).toBe(0);
});

test("a sealed slab that has lost a block is copied anew", async () => {
  const rig = await begin("copies 6");
  const third = rig.node(3);
  await rig.run(third.stop());
  await goOn(rig);
  const path = "data/db/messages/s0003/g00000001/blocks";
  const kv = await rig.run(third.kv.attach().open(path));
  const [first] = await rig.run(kv.cursor({}).next(1));
  await rig.run(
    kv
      .batch()
      .delete(first?.[0] as Buffer)
      .write({ sync: true }),
  );
  await rig.run(kv.close());
  await rig.run(rig.open(third));
  await rig.expectEqual();
  expect(copiedBy(third)[0]).toMatchObject({ slabsKept: 0, slabsCopied: 3 });
});

test("messages about copies come back as they were, and broken ones are refused", () => {
  const after = Buffer.from([1, 2]);
  const rows = [[Buffer.from("k"), Buffer.from("v")] as const];
  const questions: CopyQuestion[] = [
    { kind: "facts", token: 7, from: 300 },
    { kind: "slab", number: 2, pack: 1, store: "index", after },
    { kind: "map", after: undefined },
    { kind: "hash", number: 9 },
  ];
  const answers: CopyAnswer[] = [
    { kind: "rows", rows, isEnd: true },
    { kind: "hash", hash: "ab" },
    { kind: "busy" },
    { kind: "gone" },
  ];
  const all: CopyMessage[] = [
    ...questions.map((question, id) => ({ kind: "question", id, question }) as const),
    ...answers.map((answer, id) => ({ kind: "answer", id, answer }) as const),
  ];
  for (const message of all) {
    const bytes = encodeCopyMessage(message);
    expect(decodeCopyMessage(bytes)).toEqual(message);
    for (let end = 0; end < bytes.length; end++) {
      expect(decodeCopyMessage(bytes.subarray(0, end))).toBeUndefined();
    }
    expect(decodeCopyMessage(Buffer.concat([bytes, Buffer.from([0])]))).toBeUndefined();
  }
});
