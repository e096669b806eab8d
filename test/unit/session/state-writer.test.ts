// Writes of session state: shared, split, in order, one at a time.

import { describe, expect, test } from "vitest";
import { SimClock } from "../../../src/base/index.ts";
import { createSessionCounters } from "../../../src/session/settings.ts";
import { type StateOperation, StateWriter } from "../../../src/session/state-writer.ts";
import type { MapGuard, MapWrite } from "../../../src/store/index.ts";
import { amount } from "../../support/amount.ts";
import { FakeStore, storeError } from "../../support/fake-store.ts";
import { ModelClient } from "../../support/session-model.ts";
import { World } from "../../support/session-world.ts";

function setUp() {
  const clock = new SimClock();
  const store = new FakeStore(clock, { stateShards: 1 });
  const shard = store.stateShards[0]!;
  const writer = new StateWriter(shard, clock, createSessionCounters());
  return { clock, store, shard, writer };
}

function put(key: string, value = "v"): MapWrite {
  return { key, value: Buffer.from(value) };
}

function operation(
  writes: readonly MapWrite[],
  guards: readonly MapGuard[] = [],
  done: StateOperation["done"] = () => undefined,
): StateOperation {
  return { build: () => ({ writes, guards }), done };
}

describe("the state writer", () => {
  test("puts what is submitted in a turn, and while a write is under way, in one write each", async () => {
    const { clock, store, writer, shard } = setUp();
    for (const key of ["a", "b", "c"]) writer.submit(operation([put(key)]));
    await clock.advance(0.5);
    for (const key of ["d", "e"]) writer.submit(operation([put(key)]));
    await clock.complete(writer.idle());
    expect(store.writeCount).toBe(2);
    expect(shard.keys()).toEqual(["a", "b", "c", "d", "e"]);
  });

  test("builds an operation only when it is written: the latest value goes", async () => {
    const { clock, writer, shard } = setUp();
    let value = "old";
    writer.submit(operation([put("first")]));
    await clock.advance(0.1);
    writer.submit({
      build: () => ({ writes: [put("k", value)], guards: [] }),
      done: () => undefined,
    });
    value = "new";
    await clock.complete(writer.idle());
    expect((await clock.complete(shard.get("k")))?.value.toString()).toBe("new");
  });

  test("a guard that fails costs only its own operation", async () => {
    const { clock, writer, shard } = setUp();
    const outcomes: string[] = [];
    const note =
      (name: string): StateOperation["done"] =>
      (error) =>
        outcomes.push(`${name} ${error?.code ?? "ok"}`);
    writer.submit(operation([put("a")], [], note("a")));
    writer.submit(operation([put("b")], [{ key: "gone", timeUs: 5 }], note("b")));
    writer.submit(operation([put("c")], [], note("c")));
    await clock.complete(writer.idle());
    expect(outcomes).toEqual(["a ok", "b STORE_GUARD_FAILED", "c ok"]);
    expect(shard.keys()).toEqual(["a", "c"]);
  });

  test("one larger than a write is split in order; a failure ends it there", async () => {
    const { clock, store, writer, shard } = setUp();
    const many = Array.from({ length: 2500 }, (_, n) => put(`k/${String(n).padStart(4, "0")}`));
    let outcome: string | undefined;
    writer.submit(
      operation(many, [], (error) => {
        outcome = error?.code ?? "ok";
      }),
    );
    await clock.runUntil(() => shard.keys().length === 1000);
    store.failWrites = storeError("STORE_RETRY", "retry");
    await clock.complete(writer.idle());
    expect(outcome).toBe("STORE_RETRY");
    expect(shard.keys()).toHaveLength(2000);
  });

  test("a big value goes alone, small ones share, nothing above 1 MiB is shared", async () => {
    const { clock, store, writer, shard } = setUp();
    writer.submit(operation([put("small")]));
    writer.submit(operation([put("big", "x".repeat(3 * 1024 * 1024))]));
    writer.submit(operation([put("after")]));
    await clock.complete(writer.idle());
    expect(shard.keys()).toEqual(["after", "big", "small"]);
    expect(store.writeCount).toBe(3);
  });

  test("an operation without writes is done at once and writes nothing", async () => {
    const { clock, store, writer } = setUp();
    const times: number[] = [];
    writer.submit({ build: () => undefined, done: (_error, timeUs) => times.push(timeUs) });
    await clock.complete(writer.idle());
    await clock.advance(1);
    expect([times, store.writeCount]).toEqual([[0], 0]);
  });
});

test("a checkpoint that is cut in parts by a crash repeats and loses nothing", async () => {
  for (const cutMs of [0.5, 1.5, 2.5, 3.5, 4.5, 6, 8].filter((_, at) => at % amount(3, 1) === 0)) {
    const world = await World.start({ settings: { inflightMax: 3000 } });
    const model = new ModelClient(world, "s");
    await model.connect({});
    await model.client.subscribe("#", { qos: 2 });
    const sent = Array.from({ length: 2500 }, (_, n) =>
      world.publishLater("p", "t", `p-${n}`, { qos: 2 }),
    );
    await world.clock.complete(Promise.all(sent));
    await world.advance(cutMs);
    model.answerAll();
    model.crashed = true;
    await world.crash();
    await model.connect({});
    for (let n = 0; n < 10; n++) {
      await world.advance(100);
      model.answerAll();
    }
    for (let n = 0; n < 2500; n++) model.check(`p-${n}`, true);
    expect(model.faults).toEqual([]);
    await world.advance(1000);
    const keys = world.store.stateShards.flatMap((shard) => shard.keys());
    expect(keys.filter((key) => key.includes("/out/"))).toEqual([]);
  }
}, 60_000);
