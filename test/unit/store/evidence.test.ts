import { describe, expect, test } from "vitest";
import type { CodedError } from "../../../src/base/index.ts";
import { storeErrors } from "../../../src/store/errors.ts";
import { type EvidenceItem, EvidenceTable } from "../../../src/store/evidence.ts";
import { KvBench } from "../../support/store-parts.ts";

const claim = { incarnation: 3, ownerEpoch: 4 };
const item = (packetId: number): EvidenceItem => ({ publisher: "p", ...claim, packetId });
const never = (): void => {
  throw new Error("nobody waits here");
};

async function bench() {
  const kv = new KvBench(1);
  const store = await kv.openShardStore();
  const table = new EvidenceTable(store);
  const open = (ownerEpoch = 4): Promise<void> => kv.run(table.open("p", { ...claim, ownerEpoch }));
  return { kv, store, table, open };
}

describe("taking", () => {
  test("an id is new once; its repeats wait until the first is durable", async () => {
    const { table, open } = await bench();
    await open();
    expect(table.decide(item(1), never)).toBe("new");
    const told: Array<CodedError | undefined> = [];
    expect(table.decide(item(1), (error) => told.push(error))).toBe("repeat_pending");
    table.applyTaken(item(1));
    expect(told).toEqual([undefined]);
    expect(table.decide(item(1), never)).toBe("repeat_applied");
    expect(table.list("p", claim)).toEqual([1]);
  });

  test("whoever repeated an id hears that its entry will never be durable", async () => {
    const { table, open } = await bench();
    await open();
    table.decide(item(1), never);
    const told: Array<CodedError | undefined> = [];
    table.decide(item(1), (error) => told.push(error));
    table.refuseTaken(item(1), storeErrors.closed());
    expect(told.map((error) => error?.code)).toEqual(["STORE_CLOSED"]);
  });

  test("two connections that open at once share what is decided", async () => {
    const { kv, table } = await bench();
    const first = table.open("p", claim);
    const second = table.open("p", { ...claim, ownerEpoch: 5 });
    await kv.run(first);
    expect(table.decide(item(1), never)).toBe("new");
    await kv.run(second);
    const newer = { ...item(1), ownerEpoch: 5 };
    expect(table.decide(newer, () => undefined)).toBe("repeat_pending");
    expect(() => table.decide(item(2), never)).toThrow("replaced");
  });

  test("an older incarnation or owner is refused, a newer incarnation begins empty", async () => {
    const { kv, table, open } = await bench();
    await open();
    table.decide(item(1), never);
    table.applyTaken(item(1));
    await expect(kv.run(table.open("p", { incarnation: 2, ownerEpoch: 9 }))).rejects.toMatchObject({
      code: "STORE_OWNER_FENCED",
    });
    const next = { incarnation: 8, ownerEpoch: 8 };
    await kv.run(table.open("p", next));
    expect(table.list("p", next)).toEqual([]);
    expect(() => table.decide(item(2), never)).toThrow("replaced");
  });
});

describe("releasing", () => {
  test("a released id is new again, also before the release is durable", async () => {
    const { table, open } = await bench();
    await open();
    table.decide(item(1), never);
    table.applyTaken(item(1));
    expect(table.decideRelease(item(1), never)).toBe("new");
    expect(table.decide(item(1), never)).toBe("new");
    table.applyReleased(item(1));
    table.applyTaken(item(1));
    expect(table.list("p", claim)).toEqual([1]);
  });

  test("a repeated release waits for the one on its way", async () => {
    const { table, open } = await bench();
    await open();
    table.decide(item(1), never);
    table.applyTaken(item(1));
    table.decideRelease(item(1), never);
    const told: unknown[] = [];
    expect(table.decideRelease(item(1), (error) => told.push(error))).toBe("pending");
    expect(told).toEqual([]);
    table.applyReleased(item(1));
    expect(told).toEqual([undefined]);
    expect(table.decideRelease(item(1), never)).toBe("unknown");
  });

  test("a release before the taking is durable leaves nobody waiting", async () => {
    const { table, open } = await bench();
    await open();
    table.decide(item(1), never);
    const told: unknown[] = [];
    table.decide(item(1), (error) => told.push(error));
    table.decideRelease(item(1), never);
    table.applyTaken(item(1));
    table.applyReleased(item(1));
    expect(told).toEqual([undefined]);
    expect(table.list("p", claim)).toEqual([]);
  });

  test("a release on its way outlives its connection: the next one finds the id free", async () => {
    const { kv, store, table, open } = await bench();
    await open();
    table.decide(item(1), never);
    table.applyTaken(item(1));
    await kv.save(store, table);
    table.decideRelease(item(1), never);
    table.close("p", claim);
    await open();
    expect(table.list("p", claim)).toEqual([]);
    expect(table.decide(item(1), never)).toBe("new");
  });
});

describe("rows", () => {
  test("what a checkpoint saved is there for the next process, what was released is not", async () => {
    const { kv, store, table, open } = await bench();
    await open();
    for (const id of [1, 2, 300]) table.decide(item(id), never);
    for (const id of [1, 2, 300]) table.applyTaken(item(id));
    await kv.save(store, table, 1);
    table.decideRelease(item(2), never);
    table.applyReleased(item(2));
    await kv.save(store, table, 2);
    const next = new EvidenceTable(store);
    await kv.run(next.open("p", claim));
    expect(next.list("p", claim)).toEqual([1, 300]);
  });

  test("a checkpoint that failed is made up for by the next one, newer changes win", async () => {
    const { kv, store, table, open } = await bench();
    await open();
    table.decide(item(1), never);
    table.applyTaken(item(1));
    table.capture();
    table.decideRelease(item(1), never);
    table.applyReleased(item(1));
    table.decide(item(2), never);
    table.applyTaken(item(2));
    table.finish(false);
    await kv.save(store, table);
    const next = new EvidenceTable(store);
    await kv.run(next.open("p", claim));
    expect(next.list("p", claim)).toEqual([2]);
  });

  test("an opening that a checkpoint overtakes sees what it wrote", async () => {
    const kv = new KvBench(1);
    const store = await kv.openShardStore();
    const table = new EvidenceTable(store);
    // Replayed: nobody has it open.
    for (let id = 1; id <= 1500; id++) table.applyTaken(item(id));
    kv.driver.inject({ on: "read", delayMs: 50, times: Number.POSITIVE_INFINITY });
    const opening = table.open("p", claim);
    await kv.clock.advance(1);
    await kv.save(store, table);
    await kv.run(opening);
    expect(table.list("p", claim)).toHaveLength(1500);
  });

  test("an end takes with it what is on its way, and refuses what comes after", async () => {
    const { kv, table, open } = await bench();
    await open();
    table.decide(item(1), never);
    table.applyTaken(item(1));
    table.decide(item(2), never);
    const ids = await kv.run(table.decideEnd("p", claim.incarnation));
    expect(ids).toEqual([1, 2]);
    expect(() => table.decide(item(3), never)).toThrow("replaced");
    table.applyTaken(item(2));
    table.applyEnded("p", claim.incarnation, ids);
    await open();
    expect(table.list("p", claim)).toEqual([]);
  });
});

describe("a process that is deposed", () => {
  test("forgets what it decided, and whoever had a publisher open has to open it again", async () => {
    const { table, open } = await bench();
    await open();
    table.decide(item(1), never);
    table.applyTaken(item(1));
    table.decide(item(2), never);
    table.decideRelease(item(1), never);
    const told: Array<string | undefined> = [];
    table.decide(item(2), (error) => told.push(error?.code));
    table.decideRelease(item(1), (error) => told.push(error?.code));
    table.depose(storeErrors.notLeader({ shard: 1, leader: "node 2" }));
    expect(told).toEqual(["STORE_NOT_LEADER", "STORE_NOT_LEADER"]);
    expect(() => table.decide(item(3), never)).toThrow("replaced");
    // Another leader took 3; of what was proposed here only the release was committed.
    table.applyTaken(item(3));
    table.applyReleased(item(1));
    await open();
    expect(table.list("p", claim)).toEqual([3]);
    expect(table.decide(item(3), never)).toBe("repeat_applied");
    expect(table.decide(item(2), never)).toBe("new");
  });
});

describe("an owner that claimed in the log", () => {
  const byOwner = (ownerEpoch: number): EvidenceItem => ({ ...item(0), ownerEpoch });

  test("refuses older ones at whoever leads next, from the log or from a checkpoint", async () => {
    const { kv, store, table, open } = await bench();
    await open(6);
    table.decideClaim(byOwner(6));
    table.applyClaimed(byOwner(6));
    table.applyTaken({ ...item(1), ownerEpoch: 6 });
    const next = async (led: EvidenceTable): Promise<void> => {
      led.depose(storeErrors.closed());
      await expect(kv.run(led.open("p", claim))).rejects.toThrow("replaced");
      await kv.run(led.open("p", { ...claim, ownerEpoch: 6 }));
      expect(led.isClaimed("p")).toBe(true);
      expect(led.list("p", claim6)).toEqual([1]);
    };
    const claim6 = { ...claim, ownerEpoch: 6 };
    await next(table);
    await kv.save(store, table);
    await next(table);
    await next(new EvidenceTable(store));
  });

  test("stays known while its claim is on its way, whoever closes the publisher", async () => {
    const { kv, table, open } = await bench();
    await open(6);
    table.decideClaim(byOwner(6));
    table.close("p", { ...claim, ownerEpoch: 6 });
    await expect(kv.run(table.open("p", claim))).rejects.toThrow("replaced");
    table.applyClaimed(byOwner(6));
    expect(table.isOpen("p")).toBe(false);
    await expect(kv.run(table.open("p", claim))).rejects.toThrow("replaced");
  });

  test("ends with its incarnation, and leaves no row", async () => {
    const { kv, store, table, open } = await bench();
    await open();
    table.decideClaim(byOwner(4));
    table.applyClaimed(byOwner(4));
    await kv.save(store, table);
    expect([...(await kv.run(table.taken("p", claim.incarnation)))]).toEqual([]);
    const ids = await kv.run(table.decideEnd("p", claim.incarnation));
    table.applyEnded("p", claim.incarnation, ids);
    await kv.save(store, table, 2);
    await open();
    expect(table.isClaimed("p")).toBe(false);
    expect((await kv.run(store.listRows())).length).toBe(1);
  });
});
