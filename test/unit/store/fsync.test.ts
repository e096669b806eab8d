import { describe, expect, test } from "vitest";
import { groupSettingsDefault, type LocalStore } from "../../../src/store/index.ts";
import { amount } from "../../support/amount.ts";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { StoreMachine } from "../../support/store-machine.ts";

type Fsync = "always" | "interval";

const machine = (seed: number, fsync: Fsync) =>
  new StoreMachine({ seed, store: { shards: 1, groups: [{ ...groupSettingsDefault, fsync }] } });

async function stored(m: StoreMachine): Promise<{ store: LocalStore; values: string[] }> {
  const { store } = await m.boot();
  const reader = new Reader(store, ["#"], new Map());
  await m.clock.runUntil(() => reader.subscriber.atTail);
  await m.clock.advance(10);
  return { store, values: reader.values };
}

/** Appends without pause until `ms` have passed; acked values in order of their acks. */
async function traffic(m: StoreMachine, ms: number): Promise<{ acked: string[]; sent: number }> {
  const { store } = await m.boot();
  const acked: string[] = [];
  let sent = 0;
  const one = (): void => {
    const value = `v${sent++}`;
    append(store, appendRequest("t", value)).then(
      () => {
        acked.push(value);
        if (m.clock.elapsedMs() < endMs) one();
      },
      () => undefined,
    );
  };
  const endMs = m.clock.elapsedMs() + ms;
  for (let n = 0; n < 20; n++) one();
  await m.clock.advance(ms);
  return { acked: [...acked], sent };
}

describe("fsync: interval", () => {
  test("acks leave while the sync is under way; always waits for its end", async () => {
    for (const [fsync, early] of [
      ["interval", true],
      ["always", false],
    ] as const) {
      const m = machine(1, fsync);
      const { store } = await m.boot();
      m.disk.inject({ on: "fdatasync", delayMs: 1_000, times: Number.POSITIVE_INFINITY });
      let isAcked = false;
      void append(store, appendRequest("t", "v")).then(() => {
        isAcked = true;
      });
      await m.clock.advance(100);
      expect(isAcked, fsync).toBe(early);
      await m.clock.advance(3_000);
      expect(isAcked).toBe(true);
    }
  });

  test("an ack is given once, and readers get what is synced only", async () => {
    const m = machine(2, "interval");
    const { store } = await m.boot();
    const reader = new Reader(store, ["#"], new Map());
    await m.clock.advance(10);
    m.disk.inject({ on: "fdatasync", delayMs: 1_000, times: Number.POSITIVE_INFINITY });
    let acks = 0;
    store.append(appendRequest("t", "v"), () => acks++);
    await m.clock.advance(100);
    expect([acks, reader.values]).toEqual([1, []]);
    await m.clock.advance(3_000);
    expect([acks, reader.values]).toEqual([1, ["v"]]);
  });

  test("the end of the process loses nothing that was acked", async () => {
    for (let seed = 1; seed <= amount(5, 40); seed++) {
      const m = machine(seed, "interval");
      const { acked } = await traffic(m, 3 + (seed % 7) / 3);
      m.kill();
      const { values } = await stored(m);
      expect(values.slice(0, acked.length)).toEqual(acked);
    }
  });

  test("the end of the machine loses at most the flush that was being synced, from the end", async () => {
    let lost = 0;
    for (let seed = 1; seed <= amount(30, 150); seed++) {
      const m = machine(seed, "interval");
      const { acked } = await traffic(m, 3 + (seed % 11) / 3);
      m.crash();
      const { values } = await stored(m);
      // 20 wait at any time: no flush has more.
      const missing = acked.filter((value) => !values.includes(value));
      expect(missing.length).toBeLessThanOrEqual(20);
      expect(missing).toEqual(acked.slice(acked.length - missing.length));
      lost += missing.length;
    }
    // Otherwise the bound is not shown, only that the power was never cut at the wrong moment.
    expect(lost).toBeGreaterThan(0);
  });

  test("always loses nothing that was acked, whatever ends", async () => {
    for (let seed = 1; seed <= amount(8, 60); seed++) {
      const m = machine(seed, "always");
      const { acked } = await traffic(m, 3 + (seed % 11) / 3);
      m.crash();
      const { values } = await stored(m);
      expect(values.slice(0, acked.length)).toEqual(acked);
    }
  });

  test("an append that fails after its ack is not told twice", async () => {
    const m = machine(7, "interval");
    const { store } = await m.boot();
    m.disk.inject({ on: "fdatasync", fails: "EIO", times: Number.POSITIVE_INFINITY });
    const told: unknown[] = [];
    store.append(appendRequest("t", "v"), (error) => told.push(error));
    await m.clock.advance(100);
    expect(told).toEqual([undefined]);
    let later: unknown;
    store.append(appendRequest("t", "w"), (error) => {
      later = error;
    });
    await m.clock.advance(10);
    expect(later).toMatchObject({ code: "STORE_FAILED" });
  });

  test("groups differ: only appends of the one that says so are told early", async () => {
    const groups = [
      groupSettingsDefault,
      { ...groupSettingsDefault, name: "loose", databases: ["loose"], fsync: "interval" as const },
    ];
    const databases = [{ name: "loose", topics: ["loose/#"], shards: 1 }];
    const m = new StoreMachine({ seed: 8, store: { shards: 1, groups, databases } });
    const { store } = await m.boot();
    m.disk.inject({ on: "fdatasync", delayMs: 1_000, times: Number.POSITIVE_INFINITY });
    const acked: string[] = [];
    for (const topic of ["loose/a", "tight"]) {
      void append(store, appendRequest(topic, "v")).then(() => acked.push(topic));
    }
    await m.clock.advance(100);
    expect(acked).toEqual(["loose/a"]);
    const info = store.operator.groups();
    expect(info.map(({ name, fsync }) => `${name} ${fsync}`)).toEqual([
      "default always",
      "loose interval",
    ]);
  });
});
