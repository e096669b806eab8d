import { describe, expect, test } from "vitest";
import { type ByteConnection, SimClock } from "../../../src/base/index.ts";
import { allowAll, Rights } from "../../../src/broker/access.ts";
import { ConnectionTimers } from "../../../src/broker/connection-timers.ts";
import { createBrokerCounters } from "../../../src/broker/counters.ts";
import { LimitedLog } from "../../../src/broker/limited-log.ts";
import { LiveTrie } from "../../../src/broker/live-subscriptions.ts";
import { waitFor } from "../../../src/broker/waiting.ts";
import { ConnectionOutput, WriteTurn } from "../../../src/broker/write-path.ts";
import { ChunkPool, type ServerConnection } from "../../../src/mqtt/index.ts";
import type { LiveTarget, Subscription } from "../../../src/session/index.ts";

function subscription(filter: string, qos: 0 | 1 | 2 = 1): Subscription {
  const options = { noLocal: false, retainAsPublished: false, retainHandling: 0 } as const;
  return { filter, qos, ...options, identifier: 0 };
}

function target(clientId: string): LiveTarget {
  return { clientId, takes: "all", deliver: () => undefined };
}

describe("LiveTrie", () => {
  const names = (trie: LiveTrie, topic: string) =>
    trie
      .match(topic)
      .map(({ target, subscriptions }) => {
        const filters = subscriptions.map(({ filter, qos }) => `${filter}:${qos}`).sort();
        return `${target.clientId} ${filters.join(" ")}`;
      })
      .sort();

  test("a target comes once, with all of its subscriptions that match", () => {
    const trie = new LiveTrie(100);
    const [a, b] = [target("a"), target("b")];
    trie.set(a, subscription("t/#"));
    trie.set(a, subscription("t/+", 2));
    trie.set(a, subscription("other"));
    trie.set(b, subscription("+/x"));
    expect(names(trie, "t/x")).toEqual(["a t/#:1 t/+:2", "b +/x:1"]);
  });

  test("a change of subscriptions shows in the next match of a topic matched before", () => {
    const trie = new LiveTrie(100);
    const [a, b] = [target("a"), target("b")];
    trie.set(a, subscription("t"));
    expect(names(trie, "t")).toEqual(["a t:1"]);
    trie.set(b, subscription("#"));
    expect(names(trie, "t")).toEqual(["a t:1", "b #:1"]);
    trie.set(a, subscription("t", 2));
    expect(names(trie, "t")).toEqual(["a t:2", "b #:1"]);
    trie.remove(a, "t");
    expect(names(trie, "t")).toEqual(["b #:1"]);
    trie.removeAll(b);
    expect(names(trie, "t")).toEqual([]);
    expect([trie.filterCount, trie.targetCount]).toEqual([0, 0]);
  });

  test("a match that is being used does not change under its reader", () => {
    const trie = new LiveTrie(100);
    const a = target("a");
    trie.set(a, subscription("t"));
    const matches = trie.match("t");
    trie.removeAll(a);
    expect(matches.length).toBe(1);
  });

  test("topics beyond the cache's limit are matched all the same", () => {
    const trie = new LiveTrie(2);
    trie.set(target("a"), subscription("t/+"));
    for (const topic of ["t/1", "t/2", "t/3", "t/1", "u"]) {
      expect(trie.match(topic).length).toBe(topic === "u" ? 0 : 1);
    }
  });

  test("topics of more than a kilobyte are matched and not remembered", () => {
    const trie = new LiveTrie(100);
    trie.set(target("a"), subscription("t/+"));
    for (const length of [1022, 1023, 60_000]) {
      expect(trie.match(`t/${"x".repeat(length)}`).length).toBe(1);
    }
    expect(trie.cachedCount).toBe(1);
  });
});

describe("Rights", () => {
  const client = { clientId: "c", user: undefined };

  const prefixes = { closedPrefixes: ["$SYS", "$internal"], readablePrefixes: ["$SYS"] };

  test.each([
    ["$SYS", false, true],
    ["$SYS/broker", false, true],
    ["$SYS/broker/connection/host.bridge/state", true, true],
    ["$SYS/broker/connection/a/b/state", false, true],
    ["$SYS/broker/connection/a/state/x", false, true],
    ["$SYS/broker/connection//state", false, true],
    ["$SYSTEM/broker", true, true],
    ["$internal/x", false, false],
    ["$internal", false, false],
    ["$sparkplug/x", true, true],
    ["SYS/$SYS", true, true],
    ["/$SYS", true, true],
  ])("%s: clients may publish: %s, read: %s", (topic, publish, read) => {
    const rights = new Rights(allowAll, prefixes);
    expect(rights.may("publish", client, topic)).toBe(publish);
    expect(rights.mayWill(client, topic)).toBe(publish);
    expect(rights.may("receive", client, topic)).toBe(read);
    expect(rights.may("subscribe", client, topic)).toBe(read);
  });

  test("the rules are asked about the rest", () => {
    const asked: string[] = [];
    const access = {
      authorize: (action: string, { clientId }: { clientId: string }, topic: string) => {
        asked.push(`${action} ${clientId} ${topic}`);
        return false;
      },
    };
    const rights = new Rights(access, prefixes);
    expect(rights.may("subscribe", client, "a/#")).toBe(false);
    expect(rights.may("subscribe", client, "$SYS/#")).toBe(false);
    expect(rights.may("subscribe", client, "$internal/#")).toBe(false);
    expect(asked).toEqual(["subscribe c a/#", "subscribe c $SYS/#"]);
  });
});

describe("LimitedLog", () => {
  test("each event has its own budget a second, and says once what was left out", async () => {
    const clock = new SimClock();
    const lines: string[] = [];
    const note = (event: string, fields = {}) => lines.push(`${event} ${JSON.stringify(fields)}`);
    const quiet = () => undefined;
    const log = new LimitedLog({ debug: quiet, info: quiet, warn: note, error: quiet }, clock, 2);
    for (let n = 0; n < 5; n++) log.warn("a", { n });
    log.warn("b", {});
    await clock.advance(1000);
    for (let n = 5; n < 8; n++) log.warn("a", { n });
    await clock.advance(1000);
    log.warn("a", {});
    expect(lines).toEqual([
      'a {"n":0}',
      'a {"n":1}',
      "b {}",
      'a {"n":5,"suppressed":3}',
      'a {"n":6}',
      'a {"suppressed":1}',
    ]);
  });
});

describe("ConnectionOutput", () => {
  function plot() {
    const clock = new SimClock();
    const pool = new ChunkPool();
    const writes: Buffer[] = [];
    let unsentBytes = 0;
    let busy = false;
    let ended = false;
    let rooms = 0;
    const transport: ByteConnection = {
      remote: "device:1",
      get unsentBytes() {
        return unsentBytes;
      },
      write(bytes) {
        writes.push(Buffer.from(bytes));
        if (busy) unsentBytes += bytes.length;
      },
      pause: () => undefined,
      resume: () => undefined,
      end: () => {
        ended = true;
      },
      destroy: () => undefined,
    };
    const turn = new WriteTurn(clock, pool, createBrokerCounters());
    const output = new ConnectionOutput(turn, transport, 1000, () => {
      rooms++;
    });
    return {
      clock,
      output,
      writes,
      setBusy: (value: boolean) => {
        busy = value;
      },
      drain: () => {
        unsentBytes = 0;
        output.drained();
      },
      rooms: () => rooms,
      ended: () => ended,
    };
  }

  test("what is said in one turn is one write at its end", async () => {
    const { clock, output, writes } = plot();
    output.buffer.write(Buffer.from("a"));
    output.buffer.write(Buffer.from("b"));
    expect(writes).toEqual([]);
    await clock.advance(0);
    expect(writes.map(String)).toEqual(["ab"]);
  });

  test("a connection that is busy is left alone until its network has taken the last write", async () => {
    const { clock, output, writes, setBusy, drain } = plot();
    setBusy(true);
    output.buffer.write(Buffer.from("a"));
    await clock.advance(0);
    output.buffer.write(Buffer.from("b"));
    await clock.advance(10);
    output.buffer.write(Buffer.from("c"));
    await clock.advance(10);
    expect(writes.map(String)).toEqual(["a"]);
    drain();
    expect(writes.map(String)).toEqual(["a", "bc"]);
  });

  test("room is told once half of the bound is free, and only after a refusal", async () => {
    const { clock, output, setBusy, drain, rooms } = plot();
    setBusy(true);
    output.buffer.write(Buffer.alloc(900));
    await clock.advance(0);
    drain();
    expect(rooms()).toBe(0);
    output.buffer.write(Buffer.alloc(900));
    await clock.advance(0);
    expect([output.admits(100), output.admits(101)]).toEqual([true, false]);
    output.buffer.write(Buffer.alloc(600));
    drain();
    // The second write is with the network now, and above half of the bound.
    expect(rooms()).toBe(0);
    drain();
    expect(rooms()).toBe(1);
    drain();
    expect(rooms()).toBe(1);
  });

  test("one message of any size is admitted to an empty buffer", () => {
    const { output } = plot();
    expect(output.admits(1_000_000)).toBe(true);
  });

  test("answers may pile up to twice the bound before the client is not read", () => {
    const { output } = plot();
    output.buffer.write(Buffer.alloc(2000));
    expect(output.isOver()).toBe(false);
    output.buffer.write(Buffer.alloc(1));
    expect(output.isOver()).toBe(true);
  });

  test("the end sends what is queued", () => {
    const { output, writes, ended } = plot();
    output.buffer.write(Buffer.from("bye"));
    output.finish();
    expect([writes.map(String), ended()]).toEqual([["bye"], true]);
  });
});

describe("waitFor", () => {
  test("tells late once, and apart what comes after it", async () => {
    const clock = new SimClock();
    const told: string[] = [];
    let resolve: (value: number) => void = () => undefined;
    const promise = new Promise<number>((done) => {
      resolve = done;
    });
    waitFor(clock, 100, promise, {
      value: (value) => told.push(`value ${value}`),
      error: () => told.push("error"),
      late: () => told.push("late"),
      valueAfter: (value) => told.push(`after ${value}`),
    });
    await clock.advance(99);
    expect(told).toEqual([]);
    await clock.advance(1);
    resolve(5);
    await clock.advance(1);
    expect(told).toEqual(["late", "after 5"]);
  });

  test("an error after late is nobody's business any more", async () => {
    const clock = new SimClock();
    const told: string[] = [];
    let reject: (error: Error) => void = () => undefined;
    const promise = new Promise<number>((_resolve, fail) => {
      reject = fail;
    });
    const waiter = {
      value: () => told.push("value"),
      error: () => told.push("error"),
      late: () => told.push("late"),
    };
    waitFor(clock, 100, promise, waiter);
    await clock.advance(200);
    reject(new Error("x"));
    await clock.advance(1);
    expect(told).toEqual(["late"]);
    expect(clock.pendingCount).toBe(0);
  });
});

describe("ConnectionTimers", () => {
  /** A core with one deadline, which notes when it was found to have passed. */
  function timed(deadlineMs: number) {
    const clock = new SimClock();
    const core = {
      deadlineMs: deadlineMs as number | undefined,
      passedMs: [] as number[],
      tick(nowMs: number): void {
        if (core.deadlineMs === undefined || nowMs < core.deadlineMs) return;
        core.passedMs.push(nowMs);
        core.deadlineMs = undefined;
      },
    };
    const timers = new ConnectionTimers(clock, core as unknown as ServerConnection);
    timers.watch();
    return { clock, core, timers };
  }

  test("bytes that arrive while a turn takes long are read before the deadline is judged", async () => {
    const { clock, core } = timed(1000);
    // In the turn in which the timer is due, what can be read comes behind timers.
    clock.schedule(1000, () => {
      core.deadlineMs = 2500;
    });
    await clock.advance(2400);
    expect(core.passedMs).toEqual([]);
    await clock.advance(100);
    expect(core.passedMs).toEqual([2500]);
  });

  test("nothing is judged once they have been stopped, not even what was due", async () => {
    const { clock, core, timers } = timed(1000);
    clock.schedule(1000, () => timers.stop());
    await clock.advance(5000);
    expect(core.passedMs).toEqual([]);
  });
});
