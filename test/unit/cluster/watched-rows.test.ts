// Who watches the rows of a map shard at one node hears of all that is written at others, also of what
// came in a copy of another replica, before a barrier lets a reader go on.

import { expect, test } from "vitest";
import { followRows, type LocalStore, type MapShard } from "../../../src/store/index.ts";
import {
  createReplicaWorld,
  ReplicaMachine,
  type ReplicaWorld,
} from "../../support/replica-machine.ts";

const nodes = [1, 2, 3];
const settings = { shards: 1, stateShards: 1, checkpoint: { bytesMax: 1 << 20, ageMsMax: 60_000 } };

class Rig {
  readonly world: ReplicaWorld;
  readonly machines: ReplicaMachine[];

  constructor(seed: string) {
    this.world = createReplicaWorld(seed, nodes);
    this.world.keep = { keepMs: 0, keepBytesMax: 0 };
    this.machines = nodes.map((node) => new ReplicaMachine(node, this.world));
  }

  static async form(seed: string): Promise<Rig> {
    const rig = new Rig(seed);
    for (const machine of rig.machines) await rig.run(machine.format());
    await rig.run(Promise.all(rig.machines.map((machine) => rig.open(machine))));
    return rig;
  }

  run<T>(promise: Promise<T>): Promise<T> {
    return this.world.clock.complete(promise, 3_600_000);
  }

  async open(machine: ReplicaMachine): Promise<LocalStore> {
    const process = await machine.boot(this.machines.map(({ member }) => member));
    return machine.open(process, settings);
  }

  store(node: number): LocalStore {
    return this.machines[node - 1]?.process?.store as LocalStore;
  }

  map(node: number): MapShard {
    return this.store(node).state("owner");
  }

  write(node: number, key: string, value: string | undefined): Promise<void> {
    const bytes = value === undefined ? undefined : Buffer.from(value);
    return this.run(
      new Promise((resolve, reject) => {
        this.map(node).write([{ key, value: bytes }], [], (error) =>
          error === undefined ? resolve() : reject(error),
        );
      }),
    );
  }

  /** What is known at a node, kept up to date. */
  async follow(node: number): Promise<Map<string, string>> {
    const known = new Map<string, string>();
    await this.run(
      followRows(this.map(node), "sub/", {
        put: (key, value) => known.set(key, value.toString()),
        gone: (key) => known.delete(key),
        exchanged: (keys) => {
          for (const key of known.keys()) if (!keys.has(key)) known.delete(key);
        },
      }),
    );
    return known;
  }
}

test("behind a barrier a node knows every row that was acked at another", async () => {
  const rig = await Rig.form("watched 1");
  await rig.write(1, "sub/a", "1");
  const known = await rig.follow(2);
  await rig.write(3, "sub/b", "2");
  await rig.write(1, "other", "3");
  await rig.write(1, "sub/a", undefined);
  await rig.run(rig.map(2).barrier() as Promise<void>);
  expect(Object.fromEntries(known)).toEqual({ "sub/b": "2" });
});

test("rows that came in a copy are compared, and a barrier waits for that", async () => {
  const rig = await Rig.form("watched 2");
  for (const key of ["sub/a", "sub/b", "sub/c"]) await rig.write(1, key, "old");
  const known = await rig.follow(3);
  expect([...known.keys()]).toEqual(["sub/a", "sub/b", "sub/c"]);
  // The others go on without node 3, and cut their logs.
  const [, , third] = rig.machines as [ReplicaMachine, ReplicaMachine, ReplicaMachine];
  for (const other of [1, 2]) {
    const { siteId } = rig.machines[other - 1] as ReplicaMachine;
    rig.world.network.cut(siteId, third.siteId);
    rig.world.network.cut(third.siteId, siteId);
  }
  await rig.write(1, "sub/a", undefined);
  await rig.write(2, "sub/b", "new");
  await rig.write(1, "sub/d", "new");
  for (let round = 0; round < 3; round++) {
    await rig.write(1, "other", `${round}`);
    for (const node of [1, 2]) await rig.run(rig.store(node).checkpoint());
    await rig.world.clock.advance(500);
  }
  expect(known.size).toBe(3);
  rig.world.network.mend();
  await rig.run(rig.map(3).barrier() as Promise<void>);
  expect(third.events.some(({ event }) => event === "store.replica_copied")).toBe(true);
  expect(Object.fromEntries(known)).toEqual({ "sub/b": "new", "sub/c": "old", "sub/d": "new" });
  await rig.write(1, "sub/c", undefined);
  await rig.run(rig.map(3).barrier() as Promise<void>);
  expect(known.has("sub/c")).toBe(false);
});
