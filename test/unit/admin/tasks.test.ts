import { expect, test } from "vitest";
import type { TaskStore } from "../../../src/admin/task-work.ts";
import { Tasks } from "../../../src/admin/tasks.ts";
import {
  CodedError,
  SeededRandom,
  SimClock,
  SimDisk,
  silentLogger,
  sleep,
} from "../../../src/base/index.ts";
import type { GenerationInfo, ShardInfo, WorkOptions } from "../../../src/store/index.ts";

function machine(stepMs = 1000) {
  const clock = new SimClock();
  const disk = new SimDisk({ clock, random: new SeededRandom(1) });
  const random = new SeededRandom(2);
  const visited: number[] = [];
  const dropped: number[] = [];
  const generations = [10, 20, 30].flatMap((toUs) =>
    [1, 2, 3].map((shard) => ({ shard, toUs, state: "sealed", isHeld: false })),
  );
  const state = { failAt: undefined as number | undefined };
  const operator: TaskStore["operator"] = {
    generations: (shard) =>
      generations.filter((each) => each.shard === shard) as unknown as GenerationInfo[],
    dropUntil: async (untilUs) => {
      await sleep(clock, stepMs);
      const due = generations.filter(({ toUs, isHeld }) => toUs <= untilUs && !isHeld);
      for (const each of due) generations.splice(generations.indexOf(each), 1);
      dropped.push(untilUs);
      return due.length;
    },
    explain: async () => ({ streams: [] }) as never,
    shards: () => [1, 2, 3].map((number) => ({ number }) as ShardInfo),
    verify: async ({ shard = 0, onProgress, isCancelled }: WorkOptions = {}) => {
      visited.push(shard);
      for (let done = 1; done <= 4; done++) {
        await sleep(clock, stepMs);
        onProgress?.({ done, total: 4, unit: "blocks", what: "blocks" });
        if (isCancelled?.())
          throw new CodedError("STORE_WORK_CANCELLED", "closed", "cancelled", {});
        if (state.failAt === shard) throw new Error("unreadable");
      }
      return { slabs: 1, blocks: 4, ttvs: 10, findings: [] };
    },
    compact: async () => ({
      ...{ slabs: 0, shards: 1, bytesBefore: 0, bytesAfter: 0, logBytesFreed: 0 },
    }),
    repack: async () => ({
      ...{ slabs: 2, packed: 1, withoutRoom: 0, blocksBefore: 9, blocksAfter: 2 },
      ...{ bytesBefore: 9, bytesAfter: 4, ttvsExpired: 3 },
    }),
  };
  const store: TaskStore = { operator, messages: {} as TaskStore["messages"] };
  const open = async (): Promise<Tasks> => {
    await clock.complete(disk.makeDir("admin"));
    return clock.complete(Tasks.open("admin", { disk, clock, random, logger: silentLogger }));
  };
  const pass = (ms: number): Promise<void> => clock.complete(sleep(clock, ms), 10 * ms + 60_000);
  return { clock, disk, store, open, pass, visited, state, dropped, generations };
}

test("a task goes over all shards, tells how far it is, and sums up what it found", async () => {
  const { open, store, clock, pass } = machine();
  const tasks = await open();
  tasks.begin(store);
  const { id } = await clock.complete(tasks.start("verify", {}));
  await pass(2500);
  const running = tasks.get(id);
  expect(running).toMatchObject({ state: "running", phase: "shard 1 of 3", done: 2, total: 4 });
  expect(running.etaMs).toBeGreaterThan(8000);
  expect(running.etaMs).toBeLessThan(15_000);
  await pass(12_000);
  expect(tasks.get(id)).toMatchObject({
    ...{ state: "done", phase: "done", done: 3, total: 3, unit: "shards" },
    report: { slabs: 3, blocks: 12, ttvs: 30, findings: [] },
  });
  expect(tasks.activeCount).toBe(0);
});

test("packing anew is a task like others", async () => {
  const { open, store, clock, pass } = machine();
  const tasks = await open();
  tasks.begin(store);
  const { id } = await clock.complete(tasks.start("repack", {}));
  await pass(100);
  expect(tasks.get(id)).toMatchObject({
    ...{ kind: "repack", state: "done" },
    report: { slabs: 6, packed: 3, blocksBefore: 27, blocksAfter: 6, ttvsExpired: 9 },
  });
});

test("a paused task stops between two steps, and goes on with its shard when resumed", async () => {
  const { open, store, clock, pass, visited } = machine();
  const tasks = await open();
  tasks.begin(store);
  const { id } = await clock.complete(tasks.start("verify", {}));
  await pass(5500);
  expect((await clock.complete(tasks.steer(id, "pause"))).state).toBe("paused");
  await pass(60_000);
  expect(visited).toEqual([1, 2]);
  await clock.complete(tasks.steer(id, "resume"));
  await pass(20_000);
  expect(visited).toEqual([1, 2, 2, 3]);
  expect(tasks.get(id)).toMatchObject({ state: "done", report: { slabs: 3 } });
});

test("one that is paused and resumed before it saw so is answered at once, and is at work once", async () => {
  const { open, store, clock, pass, visited } = machine();
  const tasks = await open();
  tasks.begin(store);
  const { id } = await clock.complete(tasks.start("verify", {}));
  await pass(500);
  for (let round = 0; round < 3; round++) {
    await clock.complete(tasks.steer(id, "pause"), 100);
    expect(await clock.complete(tasks.steer(id, "resume"), 100)).toMatchObject({
      state: "running",
    });
  }
  await pass(30_000);
  // What was under way is given up, those that had not begun never do.
  expect(visited).toEqual([1, 1, 2, 3]);
  expect(tasks.get(id)).toMatchObject({ state: "done", report: { slabs: 3 } });
});

test("a cancelled task ends, and what has ended cannot be steered", async () => {
  const { open, store, clock, pass } = machine();
  const tasks = await open();
  tasks.begin(store);
  const { id } = await clock.complete(tasks.start("verify", {}));
  await clock.complete(tasks.steer(id, "cancel"));
  await pass(20_000);
  expect(tasks.get(id).state).toBe("cancelled");
  for (const verb of ["pause", "resume", "cancel"] as const) {
    await expect(clock.complete(tasks.steer(id, verb))).rejects.toThrow(`cannot ${verb} task`);
  }
});

test("a task survives a restart: the shards behind it are not done again", async () => {
  const { open, store, clock, pass, visited, disk } = machine();
  const before = await open();
  before.begin(store);
  const { id } = await clock.complete(before.start("verify", {}));
  await pass(5500);
  await clock.complete(before.close());
  disk.crash();
  const after = await open();
  expect(after.get(id).state).toBe("running");
  after.begin(store);
  await pass(20_000);
  expect(visited).toEqual([1, 2, 2, 3]);
  expect(after.get(id)).toMatchObject({ state: "done", report: { slabs: 3, blocks: 12 } });
});

test("a task that fails says why", async () => {
  const { open, store, clock, pass, state } = machine();
  state.failAt = 2;
  const tasks = await open();
  tasks.begin(store);
  const { id } = await clock.complete(tasks.start("verify", {}));
  await pass(20_000);
  expect(tasks.get(id)).toMatchObject({
    state: "failed",
    error: "unreadable",
    report: { slabs: 1 },
  });
});

test("no more than four are at work, and only before a node is none", async () => {
  const { open, store, clock } = machine();
  const tasks = await open();
  await expect(clock.complete(tasks.start("verify", {}))).rejects.toThrow("not ready");
  tasks.begin(store);
  for (let count = 0; count < 4; count++) await clock.complete(tasks.start("verify", {}));
  await expect(clock.complete(tasks.start("verify", {}))).rejects.toThrow("at their limit of 4");
  await clock.complete(tasks.close());
});

test("one shard only, if it exists", async () => {
  const { open, store, clock, pass, visited } = machine();
  const tasks = await open();
  tasks.begin(store);
  await expect(clock.complete(tasks.start("verify", { shard: 9 }))).rejects.toThrow("no shard 9");
  await clock.complete(tasks.start("verify", { shard: 2 }));
  await pass(10_000);
  expect(visited).toEqual([2]);
});

test("a damaged file of tasks is forgotten, not fatal", async () => {
  const { open, clock, disk } = machine();
  await open();
  const file = await clock.complete(disk.open("admin/tasks.json", "create"));
  await clock.complete(file.close());
  expect((await open()).list()).toEqual([]);
});

test("a drop goes from the oldest on, tells how far it is, and can be stopped between two ends", async () => {
  const { open, store, clock, pass, dropped } = machine();
  const tasks = await open();
  tasks.begin(store);
  const { id } = await clock.complete(tasks.start("drop", { untilUs: 20 }));
  await pass(500);
  const running = tasks.get(id);
  expect(running).toMatchObject({ done: 0, total: 6, unit: "generations", phase: "dropping" });
  await clock.complete(tasks.steer(id, "pause"));
  await pass(10_000);
  expect(dropped).toEqual([10]);
  await clock.complete(tasks.steer(id, "resume"));
  await pass(10_000);
  expect(dropped).toEqual([10, 20]);
  expect(tasks.get(id)).toMatchObject({ state: "done", report: { generations: 6, held: 0 } });
});

test("a drop tells what is held and stays, and waits until the folders are gone", async () => {
  const { open, store, clock, pass, generations } = machine();
  const tasks = await open();
  tasks.begin(store);
  Object.assign(generations[0] as object, { isHeld: true });
  const removing = { shard: 2, toUs: 5, state: "dropping", isHeld: true };
  generations.push(removing);
  const { id } = await clock.complete(tasks.start("drop", { untilUs: 10 }));
  await pass(5000);
  expect(tasks.get(id)).toMatchObject({ state: "running", phase: "removing folders", done: 2 });
  generations.splice(generations.indexOf(removing), 1);
  await pass(1000);
  expect(tasks.get(id)).toMatchObject({ state: "done", report: { generations: 2, held: 1 } });
});

test("a task that has ended is forgotten, one that has not is not", async () => {
  const { open, store, clock, pass } = machine();
  const tasks = await open();
  tasks.begin(store);
  const { id } = await clock.complete(tasks.start("verify", {}));
  await expect(clock.complete(tasks.remove(id))).rejects.toThrow("cannot forget task");
  await pass(20_000);
  await clock.complete(tasks.remove(id));
  expect((await open()).list()).toEqual([]);
});
