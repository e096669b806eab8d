import { expect, test } from "vitest";
import { ApiKeys, parseKeys } from "../../../src/admin/keys.ts";
import {
  readFile,
  replaceFile,
  SeededRandom,
  SimClock,
  SimDisk,
  silentLogger,
} from "../../../src/base/index.ts";

function machine() {
  const clock = new SimClock();
  const disk = new SimDisk({ clock, random: new SeededRandom(1) });
  const random = new SeededRandom(2);
  const events: string[] = [];
  const logger = { ...silentLogger, warn: (event: string) => events.push(event) };
  const open = async () => {
    await clock.complete(disk.makeDir("admin"));
    return clock.complete(ApiKeys.open("admin", { disk, random, logger, nowMs: () => 7 }));
  };
  return { clock, disk, events, open };
}

test("the first key is made once, told once, and known after a power cut", async () => {
  const { open, disk } = machine();
  const first = await open();
  expect(first.firstSecret).toMatch(/^fs_/);
  disk.crash();
  const again = await open();
  expect(again.firstSecret).toBeUndefined();
  expect(again.keys.find(first.firstSecret as string)).toMatchObject({
    name: "first",
    role: "admin",
  });
});

test("no secret is kept, only its hash", async () => {
  const { open, disk, clock } = machine();
  const { firstSecret } = await open();
  const text = (await clock.complete(readFile(disk, "admin/keys.json"))).toString();
  expect(text).not.toContain((firstSecret as string).slice("fs_12345678_".length));
});

test("a key that differs in any character is not known", async () => {
  const { open } = machine();
  const { keys, firstSecret = "" } = await open();
  for (let at = 0; at < firstSecret.length; at++) {
    const other = firstSecret[at] === "a" ? "b" : "a";
    const text = firstSecret.slice(0, at) + other + firstSecret.slice(at + 1);
    expect(keys.find(text), text).toBeUndefined();
  }
  for (const text of ["", "x".repeat(10_000), `${firstSecret} `, firstSecret.slice(0, -1)]) {
    expect(keys.find(text)).toBeUndefined();
  }
});

test("a name is given once, and the last admin key cannot be deleted", async () => {
  const { open, clock } = machine();
  const { keys } = await open();
  const viewer = await clock.complete(keys.create("v", "viewer"));
  await expect(clock.complete(keys.create("v", "admin"))).rejects.toThrow("a key named v already");
  const [first] = keys.list();
  await expect(clock.complete(keys.delete(first?.id ?? ""))).rejects.toThrow(
    "last key of the role",
  );
  await clock.complete(keys.delete(viewer.id));
  await expect(clock.complete(keys.delete(viewer.id))).rejects.toThrow("there is no key");
  expect(keys.list()).toHaveLength(1);
});

test("keys that could not be made durable are not in force", async () => {
  const { open, clock, disk } = machine();
  const { keys } = await open();
  disk.inject({ on: "fdatasync", fails: "ENOSPC" });
  await expect(clock.complete(keys.create("v", "viewer"))).rejects.toThrow("no space");
  expect(keys.list()).toHaveLength(1);
  await clock.complete(keys.create("v", "viewer"));
});

test("a damaged file is set aside and told; all keys are void and a new first one is made", async () => {
  const { open, clock, disk, events } = machine();
  const first = await open();
  await clock.complete(replaceFile(disk, "admin/keys.json", Buffer.from("{}")));
  const again = await open();
  expect(again.firstSecret).toBeDefined();
  expect(again.keys.find(first.firstSecret as string)).toBeUndefined();
  expect(events).toEqual(["admin.keys_damaged"]);
  expect(await clock.complete(disk.exists("admin/keys.json.damaged"))).toBe(true);
});

test("only what was written is read", () => {
  const key = { id: "a", name: "n", role: "admin", createdMs: 1, hash: "0".repeat(64) };
  const text = (value: unknown): string => JSON.stringify(value);
  expect(parseKeys(text({ format: 1, keys: [key] }))).toHaveLength(1);
  for (const bad of [
    "",
    "null",
    text({ format: 2, keys: [key] }),
    text({ format: 1, keys: [null] }),
    text({ format: 1, keys: [{ ...key, role: "root" }] }),
    text({ format: 1, keys: [{ ...key, hash: "00" }] }),
  ]) {
    expect(parseKeys(bad), bad).toBeUndefined();
  }
});
