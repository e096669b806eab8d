import { describe, expect, test } from "vitest";
import { excessBytes, nextQuotaState } from "../../../src/store/core/quota.ts";
import { nextSpaceState, watermarksDefault } from "../../../src/store/core/watermarks.ts";
import {
  type GroupSettings,
  groupSettingsDefault,
  type LocalStore,
} from "../../../src/store/index.ts";
import { amount } from "../../support/amount.ts";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { StoreMachine } from "../../support/store-machine.ts";

const quotaBytes = 32 * 2 ** 20;

describe("quota states", () => {
  const walk = (...used: number[]): string[] => {
    const states: string[] = [];
    for (const each of used)
      states.push(nextQuotaState((states.at(-1) ?? "open") as "open", each, 160));
    return states;
  };

  test("go up at three quarters and fifteen sixteenths", () => {
    expect(walk(0, 119, 120, 149, 150, 200)).toEqual([
      "open",
      "open",
      "near",
      "near",
      "full",
      "full",
    ]);
    expect(walk(200)).toEqual(["full"]);
  });

  test("come down later than they went up, so that a brim does not flap", () => {
    expect(walk(150, 149, 140, 139)).toEqual(["full", "full", "full", "near"]);
    expect(walk(120, 119, 100, 99)).toEqual(["near", "near", "near", "open"]);
    expect(walk(150, 99)).toEqual(["full", "open"]);
  });

  test("ask to free what lies above five eighths", () => {
    expect([excessBytes(160, 160), excessBytes(100, 160), excessBytes(0, 160)]).toEqual([60, 0, 0]);
  });
});

describe("watermarks of the volume", () => {
  const gib = 2 ** 30;
  const of = (freeGib: number, totalGib: number, before: "roomy" | "low" | "critical" = "roomy") =>
    nextSpaceState(
      before,
      { freeBytes: freeGib * gib, totalBytes: totalGib * gib },
      watermarksDefault,
    );

  test("count only when share and absolute room are both undercut", () => {
    expect(of(100, 1_000)).toBe("roomy");
    expect(of(3, 10)).toBe("roomy");
    expect(of(3, 100)).toBe("low");
    expect(of(0.4, 100)).toBe("critical");
  });

  test("are left when a little more is free", () => {
    expect(of(4.1, 100, "low")).toBe("low");
    expect(of(4.3, 100, "low")).toBe("roomy");
    expect(of(0.51, 100, "critical")).toBe("critical");
    expect(of(0.6, 100, "critical")).toBe("low");
  });
});

function machine(over: Partial<GroupSettings> = {}): StoreMachine {
  const group = { ...groupSettingsDefault, quotaBytes, ...over };
  return new StoreMachine({
    seed: 3,
    store: { shards: 2, groups: [group] },
    segmentBytes: 64 * 1024,
  });
}

/** Appends one after the other until the store refuses; returns how many were taken. */
async function fill(m: StoreMachine, store: LocalStore, countMax: number): Promise<number> {
  for (let n = 0; n < countMax; n++) {
    if (store.refusal !== undefined) return n;
    const topic = `a/${n % 3}`;
    void append(store, appendRequest(topic, "x".repeat(8_000), { publisher: `p${n % 8}` }));
    if (n % 8 === 7) await m.clock.advance(5);
  }
  return countMax;
}

/** Until no checkpoint makes room any more. */
async function fillUp(m: StoreMachine, store: LocalStore): Promise<number> {
  let taken = 0;
  for (let round = 0; round < 100; round++) {
    taken += await fill(m, store, 500);
    await m.clock.advance(3_000);
    if (store.refusal !== undefined) return taken;
  }
  throw new Error("the quota was never reached");
}

const usedOf = (store: LocalStore): number => store.operator.groups()[0]!.physicalBytes;

describe("a group at its quota", () => {
  test("refuses what is new, takes progress, and says so", async () => {
    const m = machine();
    const { store } = await m.boot();
    expect(await fillUp(m, store)).toBeLessThan(4_200);
    expect(store.refusal?.code).toBe("STORE_QUOTA_EXCEEDED");
    expect(usedOf(store)).toBeLessThanOrEqual(quotaBytes);
    await expect(m.clock.complete(append(store, appendRequest("a", "x")))).rejects.toMatchObject({
      code: "STORE_QUOTA_EXCEEDED",
      kind: "limit",
    });
    const evidence = { incarnation: 1, ownerEpoch: 1, packetId: 1 };
    await m.clock.complete(store.evidence.open("p", evidence));
    const progress = append(store, appendRequest("a", "x", { keep: false, evidence, qos: 2 }));
    expect(await m.clock.complete(progress)).toMatchObject({ kind: "stored" });
    const write = new Promise<unknown>((resolve) => {
      store.state("c").write([{ key: "session/c/cursor", value: Buffer.from("1") }], [], resolve);
    });
    expect(await m.clock.complete(write)).toBeUndefined();
    expect(store.operator.alarms()).toMatchObject([{ name: "quota_full", severity: "critical" }]);
  });

  test("drops what is consumed, and takes more, without a restart", async () => {
    const m = machine();
    const { store } = await m.boot();
    await fillUp(m, store);
    let isWritable = false;
    store.onceWritable(() => {
      isWritable = true;
    });
    await m.clock.advance(5_000);
    expect(isWritable).toBe(false);
    store.useConsumed(async () => store.tail());
    await m.clock.runUntil(() => isWritable);
    await m.clock.advance(5_000);
    expect(store.refusal).toBeUndefined();
    expect(store.counters.generationsConsumed).toBeGreaterThan(0);
    expect(store.operator.alarms()).toEqual([]);
    expect(await fill(m, store, 50)).toBe(50);
  });

  test("keeps what somebody is owed, or holds", async () => {
    const m = machine();
    const { store } = await m.boot();
    await m.clock.complete(append(store, appendRequest("a/1", "first")));
    const [shard] = store.logShards;
    store.useConsumed(
      async () => new Map([...store.tail()].map(([each, us]) => [each, each === shard ? 0 : us])),
    );
    await m.clock.complete(
      store.operator.hold("audit", { afterUs: new Map([[shard!, Number.MAX_SAFE_INTEGER]]) }),
    );
    await fillUp(m, store);
    expect(store.refusal?.code).toBe("STORE_QUOTA_EXCEEDED");
    expect(store.counters.generationsConsumed).toBe(0);
  });

  test("lets any amount through while it is consumed, without one refusal", async () => {
    const m = machine();
    const { store } = await m.boot();
    store.useConsumed(async () => store.tail());
    const reader = new Reader(store, ["#"], new Map());
    const rounds = amount(10, 20);
    let sent = 0;
    for (let round = 0; round < rounds; round++) {
      sent += await fill(m, store, 300);
      await m.clock.advance(400);
      expect(usedOf(store)).toBeLessThanOrEqual(quotaBytes);
    }
    await m.clock.advance(1_000);
    expect(sent).toBe(rounds * 300);
    expect(reader.received).toHaveLength(sent);
    expect(reader.missedReports).toEqual([]);
  });

  test("with drop_oldest frees the oldest, and tells those who were owed it", async () => {
    const m = machine({ onFull: "drop_oldest" });
    const { store } = await m.boot();
    let sent = 0;
    for (let round = 0; round < 20; round++) {
      sent += await fill(m, store, 300);
      await m.clock.advance(400);
    }
    expect(sent).toBeGreaterThan(4_500);
    expect(store.counters.generationsSacrificed).toBeGreaterThan(0);
    await m.clock.advance(3_000);
    const reader = new Reader(store, ["#"], new Map());
    await m.clock.advance(3_000);
    const missed = reader.missedReports.reduce((sum, { count }) => sum + count, 0);
    expect(reader.received.length + missed).toBe(sent);
    expect(reader.missedReports.every(({ estimated }) => !estimated)).toBe(true);
  });
});
