import { describe, expect, test } from "vitest";
import { Traces } from "../../../src/admin/traces.ts";
import { type LogFields, SeededRandom, SimClock, sleep } from "../../../src/base/index.ts";
import { Tap, type TapEvent } from "../../../src/broker/index.ts";

function world() {
  const clock = new SimClock();
  const logged: Array<{ event: string; fields: LogFields | undefined }> = [];
  const log = (event: string, fields?: LogFields): void => {
    logged.push({ event, fields });
  };
  const logger = { debug: log, info: log, warn: log, error: log };
  const traces = new Traces({ clock, random: new SeededRandom(1), logger });
  const tap = new Tap();
  const pass = (ms: number): Promise<void> => clock.complete(sleep(clock, ms), ms + 60_000);
  const does = (clientId: string, topic?: string): void => {
    const facts = { qos: 1 };
    const event: TapEvent = { event: "publish", clientId, facts, ...(topic && { topic }) };
    tap.ofMessage(event);
  };
  return { clock, logged, traces, tap, pass, does };
}

describe("a trace", () => {
  test("of a client has what that client does, numbered, in the log and to be read", () => {
    const { traces, tap, does, logged } = world();
    const { id } = traces.start(tap, { clientId: "a", minutes: 1 });
    does("a", "x/1");
    does("b", "x/1");
    does("a");
    const { lines } = traces.lines(id, 0, 10);
    expect(lines.map(({ number, clientId, topic }) => [number, clientId, topic])).toEqual([
      [1, "a", "x/1"],
      [2, "a", undefined],
    ]);
    expect(traces.lines(id, 1, 10).lines).toHaveLength(1);
    expect(logged).toEqual([
      { event: "trace.publish", fields: { trace: id, clientId: "a", topic: "x/1", qos: 1 } },
      { event: "trace.publish", fields: { trace: id, clientId: "a", qos: 1 } },
    ]);
  });

  test("of a filter has what happens to its topics, whoever it is", () => {
    const { traces, tap, does } = world();
    const { id } = traces.start(tap, { filter: "x/+", minutes: 1 });
    does("a", "x/1");
    does("b", "x/2");
    does("b", "y");
    does("b");
    expect(traces.lines(id, 0, 10).lines.map(({ topic }) => topic)).toEqual(["x/1", "x/2"]);
  });

  test("ends by itself, and by hand, and then nobody watches any more", async () => {
    const { traces, tap, does, pass, logged } = world();
    const short = traces.start(tap, { clientId: "a", minutes: 1 });
    const long = traces.start(tap, { clientId: "a", minutes: 60 });
    await pass(60_001);
    does("a");
    expect(traces.list().map(({ state, lines }) => [state, lines])).toEqual([
      ["ended", 0],
      ["running", 1],
    ]);
    expect(traces.stop(long.id)).toMatchObject({ state: "ended", lines: 1 });
    traces.stop(short.id);
    expect(tap.watchesMessages).toBe(false);
    expect(logged.filter(({ event }) => event === "trace.ended")).toHaveLength(2);
  });

  test("keeps the newest lines, short ones, and tells how many it left out", () => {
    const { traces, tap, does, logged } = world();
    const { id } = traces.start(tap, { clientId: "a", minutes: 1 });
    for (let count = 0; count < 700; count++) does("a", `${count}/${"x".repeat(60_000)}`);
    expect(traces.list()).toMatchObject([{ lines: 700, linesGone: 200, unlogged: 500 }]);
    expect(logged).toHaveLength(200);
    const { lines, hasMore } = traces.lines(id, 0, 100);
    expect([lines[0]?.number, lines.length, hasMore]).toEqual([201, 100, true]);
    expect(JSON.stringify(lines).length).toBeLessThan(50_000);
  });

  test("finds room where an older one has ended, and none while sixteen run", () => {
    const { traces, tap } = world();
    const all = Array.from({ length: 16 }, () => traces.start(tap, { clientId: "a", minutes: 1 }));
    expect(() => traces.start(tap, { clientId: "a", minutes: 1 })).toThrow("at their limit of 16");
    traces.stop(all[3]?.id ?? "");
    const { id } = traces.start(tap, { clientId: "b", minutes: 1 });
    expect(traces.list().map((each) => each.id)).toContain(id);
    expect(() => traces.lines(all[3]?.id ?? "", 0, 1)).toThrow("there is no trace");
  });
});
