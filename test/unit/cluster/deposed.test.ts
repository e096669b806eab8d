// What a process that loses its claim may not take into the next one.

import { expect, test, vi } from "vitest";
import { storeErrors } from "../../../src/store/errors.ts";
import type { LocalStore } from "../../../src/store/index.ts";
import { LogShard } from "../../../src/store/log-shard.ts";
import {
  createReplicaWorld,
  ReplicaMachine,
  type ReplicaProcess,
  type ReplicaWorld,
} from "../../support/replica-machine.ts";
import { append, appendRequest } from "../../support/store-calls.ts";

type Rig = {
  readonly world: ReplicaWorld;
  readonly process: ReplicaProcess;
  readonly store: LocalStore;
  /** The group of this shard takes nothing, once. */
  refuseOnce(shard: number): void;
  run<T>(promise: Promise<T>): Promise<T>;
};

async function boot(): Promise<Rig> {
  const world = createReplicaWorld("deposed", [1]);
  const machine = new ReplicaMachine(1, world, { forwards: false });
  const run = <T>(promise: Promise<T>): Promise<T> => world.clock.complete(promise, 3_600_000);
  await run(machine.format());
  const process = await run(machine.boot([machine.member]));
  const store = await run(machine.open(process, { shards: 1 }));
  const refuseOnce = (shard: number): void => {
    const group = process.host.group(shard);
    if (group === undefined) throw new Error("no such group");
    const { enter } = group;
    group.enter = () => {
      group.enter = enter;
      throw storeErrors.limitReached({ limit: "test", max: 0 });
    };
  };
  return { world, process, store, refuseOnce, run };
}

/** The log shard of a store that has one. */
async function logShardOf({ store, run }: Rig): Promise<LogShard> {
  const appends = vi.spyOn(LogShard.prototype, "append");
  await run(stored(store, "first"));
  const [shard] = appends.mock.contexts;
  appends.mockRestore();
  if (!(shard instanceof LogShard)) throw new Error("nothing was appended");
  return shard;
}

const inTime = (rig: Rig): Promise<void> => rig.world.clock.advance(5_000);
const stored = (store: LocalStore, value: string) => append(store, appendRequest("t", value));

test("keys of a write that was refused while it was cooked are as they were", async () => {
  const rig = await boot();
  const shard = rig.store.state("owner");
  const write = (value: Buffer): Promise<unknown> =>
    new Promise((resolve, reject) => {
      const guard = { key: "k", timeUs: undefined };
      const done = (error: unknown): void => (error ? reject(error) : resolve(undefined));
      shard.write([{ key: "k", value }], [guard], done);
    });
  rig.refuseOnce(shard.number);
  const large = write(Buffer.alloc(300_000)).catch((error) => error.code);
  expect(await rig.run(large)).toBe("STORE_PROPOSAL_REFUSED");
  await inTime(rig);
  expect(await rig.run(shard.get("k"))).toBeUndefined();
  await rig.run(write(Buffer.from("new")));
  expect((await rig.run(shard.get("k")))?.value.toString()).toBe("new");
});

test("a generation whose beginning was refused is not appended to", async () => {
  const rig = await boot();
  const { store } = rig;
  const shard = await logShardOf(rig);
  const { generations } = shard;
  const prepare = generations.prepareNext.bind(generations);
  const large = Buffer.alloc(262_000);
  let lost = "";
  vi.spyOn(generations, "prepareNext").mockImplementationOnce(async (number) => {
    const next = await prepare(number);
    // The rotation does not fit behind it: it is proposed within the rotation's cooking.
    rig.refuseOnce(shard.number);
    append(store, appendRequest("large", "", { frame: large })).catch(({ code }) => {
      lost = code;
    });
    return next;
  });
  const rotation = rig.run(shard.rotate()).catch(({ code }) => code);
  expect(await rotation).toBe("STORE_NOT_LEADER");
  expect(lost).toBe("STORE_PROPOSAL_REFUSED");
  expect(generations.cooking).toBe(generations.current);
  await inTime(rig);
  await rig.run(append(store, appendRequest("new", "x")));
  await rig.run(shard.rotate());
  expect(generations.cooking).toBe(generations.current);
});

test("commit times of a new claim follow those of the last one, whatever the wall clock says", async () => {
  const rig = await boot();
  const { store, run, world } = rig;
  const shard = await logShardOf(rig);
  const before = await run(stored(store, "before"));
  world.clock.stepWall(-3_600_000_000);
  rig.refuseOnce(shard.number);
  const refused = stored(store, "refused").catch(({ code }) => code);
  expect(await run(refused)).toBe("STORE_PROPOSAL_REFUSED");
  await inTime(rig);
  const after = await run(stored(store, "after"));
  if (before.kind !== "stored" || after.kind !== "stored") throw new Error("not stored");
  expect(after.timeUs).toBeGreaterThan(before.timeUs);
});

test("repeats of an append that was refused under an earlier claim are new", async () => {
  const rig = await boot();
  const { store, run } = rig;
  const shard = await logShardOf(rig);
  const epoch = await run(store.openWriter("w", "p", "t"));
  const request = appendRequest("t", "x", { writer: { name: "w", epoch, sequence: 1 } });
  rig.refuseOnce(shard.number);
  const lost = append(store, request).catch(({ code }) => code);
  expect(await run(lost)).toBe("STORE_PROPOSAL_REFUSED");
  await inTime(rig);
  expect(await run(append(store, request))).toMatchObject({ kind: "stored" });
});
