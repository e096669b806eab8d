import { expect, test, vi } from "vitest";
import type { AdminClient, Message } from "../../../src/admin/client.ts";
import { settle } from "../../../src/base/index.ts";
import { createSub } from "../../../src/cli/commands/sub.ts";
import type { IncomingMessage } from "../../../src/cli/mqtt-client.ts";
import { Replay } from "../../../src/cli/replay.ts";
import { FakeBroker } from "../../support/fake-mqtt-client.ts";
import { run } from "../../support/run-command.ts";

const stored = (payload: string, timeUs = 1): Message => ({
  ...{ topic: "t", timeUs, publisher: "p", qos: 1, retain: false, payloadBytes: 1, payload },
});
const live = (payload: string, isRetained = false): IncomingMessage => ({
  ...{ topic: "t", payload: Buffer.from(payload), qos: 1, isRetained, isDuplicate: false },
  ...{ userProperties: [], contentType: undefined, responseTopic: undefined },
  messageExpiryS: undefined,
});

/** Pages that are answered one by one, with what comes live before each. */
function world(pages: ReadonlyArray<readonly [before: readonly IncomingMessage[], Message[]]>) {
  const printed: string[] = [];
  const replay = new Replay(({ payload }) => {
    printed.push(Buffer.from(payload).toString());
    return true;
  });
  let at = 0;
  const queryHistory = vi.fn(async () => {
    const [before = [], items = []] = pages[at++] ?? [];
    for (const message of before) replay.take(message);
    return at < pages.length ? { items, next: String(at) } : { items };
  });
  return { printed, replay, admin: { queryHistory } as unknown as AdminClient, queryHistory };
}

const past = { filter: "t", fromUs: 5 };

test("the past comes first, then what came meanwhile; what came both ways comes once", async () => {
  const { printed, replay, admin, queryHistory } = world([
    [[], [stored("1"), stored("2")]],
    [
      [live("4"), live("5")],
      [stored("3"), stored("4"), stored("5")],
    ],
    [[live("6")], []],
  ]);
  await replay.run(admin, past);
  replay.take(live("7"));
  expect(printed).toEqual(["1", "2", "3", "4", "5", "6", "7"]);
  expect(queryHistory.mock.calls[0]).toEqual([
    { query: { filter: "t", fromUs: 5, payload: true, whole: true, limit: 1000 } },
  ]);
});

test("the same payload said again is another message, and a retained one is never taken for stored", async () => {
  const { printed, replay, admin } = world([
    [[live("on", true), live("on"), live("on")], [stored("on")]],
  ]);
  await replay.run(admin, past);
  expect(printed).toEqual(["on", "on", "on"]);
});

test("a retained message that comes with the subscription is printed beside the same one stored", async () => {
  const { printed, replay, admin } = world([[[live("on", true)], [stored("on")]]]);
  await replay.run(admin, past);
  expect(printed).toEqual(["on", "on"]);
});

test("what is old in the past is not taken for what comes now", async () => {
  const old = Array.from({ length: 1000 }, () => stored("on"));
  const since = Array.from({ length: 200 }, (_, index) => stored(String(index)));
  const { printed, replay, admin } = world([
    [[], old],
    [[live("on")], since],
  ]);
  await replay.run(admin, past);
  expect(printed.slice(-1)).toEqual(["on"]);
  expect(printed).toHaveLength(1201);
});

test("too much of the present while the past is printed ends it in a sentence", async () => {
  const many = Array.from({ length: 100_001 }, (_, index) => live(String(index)));
  const { replay, admin } = world([[many, []]]);
  await expect(replay.run(admin, past)).rejects.toThrow("came while the past was printed");
});

test("sub --from subscribes, asks the node, and ends at its count wherever that falls", async () => {
  const asked: string[] = [];
  vi.stubGlobal("fetch", async (url: string) => {
    asked.push(url);
    return new Response(JSON.stringify({ items: [stored("1"), stored("2", 7)] }));
  });
  try {
    const broker = new FakeBroker();
    const line = ["-t", "t", "--from", "2026-01-01T00:00:00Z", "-C", "3", "-o", "json"];
    const { io, exit } = run(createSub(broker.connect), line);
    await vi.waitFor(() => expect(io.stdout()).toContain('"2"'));
    await settle();
    broker.deliver("t", "3");
    expect(await exit).toBe(0);
    const lines = io.stdout().trimEnd().split("\n");
    expect(lines.map((text) => JSON.parse(text).payload)).toEqual(["1", "2", "3"]);
    expect(JSON.parse(lines[1] ?? "").timeUs).toBe(7);
    expect(asked).toHaveLength(1);
    expect(asked[0]).toContain("fromUs=1767225600000000&payload=true");
  } finally {
    vi.unstubAllGlobals();
  }
});

test("--from goes with one topic filter that is not shared", async () => {
  for (const topics of [
    ["-t", "a", "-t", "b"],
    ["-t", "$share/g/a"],
  ]) {
    const { exit } = run(createSub(new FakeBroker().connect), [...topics, "--from", "1h"]);
    expect(await exit).toBe(2);
  }
});
