import { EventEmitter } from "node:events";
import { describe, expect, test } from "vitest";
import { settle, silentLogger } from "../../../src/base/index.ts";
import { killPhase, watchTestSignals } from "../../../src/cli/test-hooks.ts";
import { createFakeIo } from "../../support/fake-io.ts";

function killing(value: string | undefined) {
  const io = createFakeIo({ environment: { FLAGSTONE_TEST_KILL: value } });
  return { io, phase: killPhase(io) };
}

describe("FLAGSTONE_TEST_KILL", () => {
  test("ends the process at the count-th phase of that name, and says at which", () => {
    const { io, phase } = killing("slab.sealed:2");
    for (const name of ["slab.sealed", "slab.written", "slab.sealed_more"]) phase?.(name);
    expect(io.exits).toEqual([]);
    phase?.("slab.sealed");
    expect(io.exits).toEqual([137]);
    expect(io.stderr()).toBe("test: killed at slab.sealed\n");
  });

  test("counts all phases below a name with .*", () => {
    const { io, phase } = killing("checkpoint.*:3");
    for (const name of ["checkpoint.captured", "checkpointed", "checkpoint.prepared"])
      phase?.(name);
    expect(io.exits).toEqual([]);
    phase?.("checkpoint.committed");
    expect(io.stderr()).toBe("test: killed at checkpoint.committed\n");
  });

  test.each(["1", "count"])("with signals on (%s), counts from the first signal on", (signals) => {
    const io = createFakeIo({
      environment: { FLAGSTONE_TEST_KILL: "slab.sealed:1", FLAGSTONE_TEST_SIGNALS: signals },
    });
    const phase = killPhase(io);
    phase?.("slab.sealed");
    expect(io.exits).toEqual([]);
    io.signals.emit("SIGUSR2");
    phase?.("slab.sealed");
    expect(io.exits).toEqual([137]);
  });

  test("is off by default", () => {
    expect(killing(undefined).phase).toBeUndefined();
    expect(killing("").phase).toBeUndefined();
  });

  test.each(["checkpoint", "checkpoint.*", ":1", "a:0", "a:x", "A:1", "*:1"])(
    "%s is refused",
    (value) => {
      expect(() => killing(value)).toThrow("FLAGSTONE_TEST_KILL expects phase:count");
    },
  );
});

describe("FLAGSTONE_TEST_SIGNALS", () => {
  function world(value: string | undefined) {
    const calls: string[] = [];
    const signals = new EventEmitter();
    const store = {
      rotate: async () => void calls.push("rotate"),
      checkpoint: async () => void calls.push("checkpoint"),
    };
    const io = { environment: { FLAGSTONE_TEST_SIGNALS: value }, signals };
    const events: string[] = [];
    const logger = { ...silentLogger, info: (event: string) => events.push(event) };
    watchTestSignals(io, store, { ...logger, error: logger.info });
    return { calls, signals, store, events };
  }

  test("SIGUSR2 ends the generation, then takes a checkpoint, one after the other", async () => {
    const { calls, signals, events } = world("1");
    signals.emit("SIGUSR2");
    signals.emit("SIGUSR2");
    await settle();
    expect(calls).toEqual(["rotate", "checkpoint", "rotate", "checkpoint"]);
    expect(events).toEqual(["node.test_rotated", "node.test_rotated"]);
  });

  test("one that fails is told and the next is taken", async () => {
    const { signals, store, events } = world("1");
    const { rotate } = store;
    store.rotate = () => Promise.reject(new Error("closed"));
    signals.emit("SIGUSR2");
    await settle();
    store.rotate = rotate;
    signals.emit("SIGUSR2");
    await settle();
    expect(events).toEqual(["node.test_rotate_failed", "node.test_rotated"]);
  });

  test("a signal that only begins a count leaves the store alone", async () => {
    const { calls, signals } = world("count");
    signals.emit("SIGUSR2");
    await settle();
    expect(calls).toEqual([]);
  });

  test("is off by default: the signal has its usual meaning", () => {
    expect(world(undefined).signals.eventNames()).toEqual([]);
  });
});
