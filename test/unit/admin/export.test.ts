import { beforeAll, describe, expect, test } from "vitest";
import { Downloads } from "../../../src/admin/download.ts";
import type { TaskStore } from "../../../src/admin/task-work.ts";
import { Tasks } from "../../../src/admin/tasks.ts";
import {
  type Disk,
  readFile,
  SeededRandom,
  SimDisk,
  silentLogger,
  sleep,
} from "../../../src/base/index.ts";
import type { LocalStore } from "../../../src/store/index.ts";
import { BrokerWorld } from "../../support/broker-world.ts";
import { publishing } from "../../support/raw-mqtt.ts";

const count = 3500;
let world: BrokerWorld;

beforeAll(async () => {
  world = await BrokerWorld.start();
  const s = await world.connect("s", { properties: { sessionExpiryS: 36_000 } });
  s.subscribe("a/#", { qos: 1 });
  await world.advance(200);
  s.drop();
  for (const name of ["p", "q"]) {
    const p = await world.connect(name);
    for (let sent = 0; sent < count / 2; sent += 50) {
      const ids = Array.from({ length: 50 }, (_, index) => sent + index + 1);
      p.say(...ids.map((id) => publishing(`a/${id % 7}`, `${name}${id}`, { id })));
      await world.advance(30);
    }
  }
  const p = await world.connect("r");
  p.say({
    ...publishing("a/odd", "", { id: 1 }),
    payload: Buffer.from([0xff, 0]),
    properties: {
      contentType: "t",
      userProperties: [["k", "v"]],
      correlationData: Buffer.from("c"),
    },
  } as never);
  await world.advance(200);
});

function machine() {
  const { clock } = world;
  const disk = new SimDisk({ clock, random: new SeededRandom(1) });
  const random = new SeededRandom(2);
  const real = world.store.inner as LocalStore;
  const store: TaskStore = { operator: real.operator, messages: real };
  const open = async (): Promise<Tasks> => {
    await clock.complete(disk.makeDir("admin"));
    // Each process has its own view: what an earlier one still does after a power cut is void.
    const own = disk.attach();
    return clock.complete(Tasks.open("admin", { disk: own, clock, random, logger: silentLogger }));
  };
  const pass = (ms: number): Promise<void> => clock.complete(sleep(clock, ms), ms + 60_000);
  const until = async (tasks: Tasks, id: string, state: string): Promise<void> => {
    for (let look = 0; look < 500 && tasks.get(id).state !== state; look++) await pass(20);
    expect(tasks.get(id).state).toBe(state);
  };
  const linesOf = async (tasks: Tasks, id: string) => {
    const { path, bytes } = tasks.exported(id);
    const text = (await clock.complete(readFile(disk, path))).toString("utf8");
    expect(Buffer.byteLength(text)).toBe(bytes);
    const lines = text.trimEnd().split("\n");
    return lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  };
  return { clock, disk, store, open, pass, until, linesOf };
}

const isEachOnce = (lines: ReadonlyArray<Record<string, unknown>>): void => {
  expect(lines).toHaveLength(count + 1);
  const times = lines.map(({ timeUs }) => timeUs as number);
  expect(times).toEqual([...times].sort((a, b) => a - b));
  expect(new Set(lines.map(({ payload }) => payload)).size).toBe(count + 1);
};

describe("an export", () => {
  test("holds each stored message once, in the order of time, with all that its publisher said", async () => {
    const { open, store, clock, until, linesOf } = machine();
    const tasks = await open();
    tasks.begin(store);
    const { id } = await clock.complete(tasks.start("export", { filter: "#" }));
    await until(tasks, id, "done");
    const lines = await linesOf(tasks, id);
    isEachOnce(lines);
    expect(lines.at(-1)).toMatchObject({
      ...{ topic: "a/odd", publisher: "r", qos: 1, payloadBase64: "/wA=" },
      properties: { contentType: "t", userProperties: [["k", "v"]], correlationData: "Yw==" },
    });
    expect(tasks.get(id)).toMatchObject({
      ...{ done: count + 1, total: count + 1, unit: "messages" },
      report: { messages: count + 1 },
    });
  });

  test("takes only what its filter and times ask for", async () => {
    const { open, store, clock, until, linesOf } = machine();
    const tasks = await open();
    tasks.begin(store);
    const all = await clock.complete(tasks.start("export", { filter: "a/3" }));
    await until(tasks, all.id, "done");
    const lines = await linesOf(tasks, all.id);
    expect(lines).toHaveLength(count / 7);
    const [fromUs, toUs] = [lines[100], lines[199]].map((line) => line?.timeUs as number);
    const part = await clock.complete(
      tasks.start("export", { filter: "a/3", fromUs: fromUs as number, toUs: toUs as number }),
    );
    await until(tasks, part.id, "done");
    expect(await linesOf(tasks, part.id)).toEqual(lines.slice(100, 200));
  });

  test("pauses and goes on, and survives an orderly end and a power cut, with each message once", async () => {
    const { open, store, clock, disk, pass, until, linesOf } = machine();
    let tasks = await open();
    tasks.begin(store);
    const { id } = await clock.complete(tasks.start("export", { filter: "#" }));
    await pass(12);
    await clock.complete(tasks.steer(id, "pause"));
    await pass(1000);
    const { done } = tasks.get(id);
    expect(done).toBeLessThan(count);
    await clock.complete(tasks.steer(id, "resume"));
    await pass(8);
    await clock.complete(tasks.close());
    disk.crash();
    tasks = await open();
    tasks.begin(store);
    await pass(9);
    disk.crash();
    tasks = await open();
    tasks.begin(store);
    await until(tasks, id, "done");
    isEachOnce(await linesOf(tasks, id));
  });

  test("that is cancelled, or forgotten, leaves no file", async () => {
    const { open, store, clock, disk, pass, until } = machine();
    const tasks = await open();
    tasks.begin(store);
    const one = await clock.complete(tasks.start("export", { filter: "#" }));
    await pass(8);
    await clock.complete(tasks.steer(one.id, "cancel"));
    expect(() => tasks.exported(one.id)).toThrow("cannot download task");
    const two = await clock.complete(tasks.start("export", { filter: "a/1" }));
    await until(tasks, two.id, "done");
    await clock.complete(tasks.remove(two.id));
    expect(await clock.complete(disk.list("admin/exports"))).toEqual([]);
  });

  test("stops where the node needs the room", async () => {
    const { open, store, clock, disk, until } = machine();
    const attach = disk.attach.bind(disk);
    const small = { freeBytes: 1000, totalBytes: 1e12, type: "ext4" };
    disk.attach = () => Object.assign(attach(), { space: async () => small });
    const tasks = await open();
    tasks.begin(store);
    const { id } = await clock.complete(tasks.start("export", { filter: "#" }));
    await until(tasks, id, "failed");
    expect(tasks.get(id).error).toContain("the node needs them");
    expect(await clock.complete(disk.list("admin/exports"))).toEqual([]);
  });

  test("is read as fast as its reader takes it, by four readers at once", async () => {
    const { open, store, clock, disk, until } = machine();
    const tasks = await open();
    tasks.begin(store);
    const { id } = await clock.complete(tasks.start("export", { filter: "#" }));
    await until(tasks, id, "done");
    const { path, bytes } = tasks.exported(id);
    const downloads = new Downloads(disk);
    const openOne = (keyId: string) => clock.complete(downloads.open(path, bytes, keyId));
    const streams = [await openOne("a"), await openOne("a")];
    await expect(openOne("a")).rejects.toThrow("of this key are at their limit of 2");
    streams.push(await openOne("b"), await openOne("b"));
    await expect(openOne("c")).rejects.toThrow("downloads are at their limit of 4");
    await clock.complete((streams[0] as ReadableStream).cancel());
    await expect(openOne("b")).rejects.toThrow("of this key");
    const again = await openOne("a");
    const text = await clock.complete(new Response(again).text());
    expect(Buffer.byteLength(text)).toBe(bytes);
    await openOne("c");
  });

  test("whose file cannot be read any more gives its reader's place back", async () => {
    const isOpen = { count: 0 };
    const file = {
      read: () => Promise.reject(new Error("EIO")),
      close: async () => {
        isOpen.count--;
      },
    };
    const open = async () => {
      isOpen.count++;
      return file;
    };
    const downloads = new Downloads({ open } as unknown as Disk);
    for (let each = 0; each < 5; each++) {
      const stream = await downloads.open("exports/a", 100, "a");
      await expect(new Response(stream).text()).rejects.toThrow("EIO");
    }
    expect(isOpen.count).toBe(0);
  });
});
