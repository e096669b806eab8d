import { describe, expect, test } from "vitest";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { StoreMachine } from "../../support/store-machine.ts";

const machine = (seed = 1) => new StoreMachine({ seed });

describe("append and read", () => {
  test("an acked TTV reaches a reader at the tail in commit order", async () => {
    const m = machine();
    const { store } = await m.boot();
    store.interest.add("a/#", store.tail());
    const reader = new Reader(store, ["a/#"], store.tail());
    for (let n = 0; n < 20; n++) {
      await m.clock.complete(append(store, appendRequest(`a/${n % 3}`, `v${n}`)));
    }
    expect(reader.values).toEqual(Array.from({ length: 20 }, (_, n) => `v${n}`));
    expect(store.counters.realtimeTtvs).toBe(20);
    expect(store.counters.catchUpTtvs).toBe(0);
  });

  test("a reader from position 0 gets everything after kill, power loss and clean stop", async () => {
    for (const ending of ["kill", "crash", "stop"] as const) {
      const m = machine();
      let process = await m.boot();
      process.store.interest.add("#", new Map());
      const acked: string[] = [];
      for (let round = 0; round < 3; round++) {
        for (let n = 0; n < 50; n++) {
          const value = `${round}-${n}`;
          await m.clock.complete(append(process.store, appendRequest(`t/${n % 7}/x`, value)));
          acked.push(value);
        }
        if (round === 1) await m.clock.complete(process.store.checkpoint());
        if (ending === "stop") await m.stop(process);
        else if (ending === "kill") m.kill();
        else m.crash();
        process = await m.clock.complete(m.open());
        process.store.interest.add("#", new Map());
        await m.clock.complete(process.store.start());
      }
      const reader = new Reader(process.store, ["#"], new Map());
      await m.clock.advance(1_000);
      expect(reader.values).toEqual(acked);
      expect(reader.subscriber.atTail).toBe(true);
    }
  });

  test("times of two shards compare, whatever the wall clock said when each was opened", async () => {
    const m = machine(2);
    const { store } = await m.boot();
    m.clock.stepWall(-900_000);
    const spec = { name: "late", topics: ["late/#"] };
    await m.clock.complete(store.operator.createDatabase(spec));
    let lastUs = 0;
    for (let n = 0; n < 24; n++) {
      const request = appendRequest(n % 2 === 0 ? "t" : "late/t", "x", { publisher: `p${n % 12}` });
      const outcome = await m.clock.complete(append(store, request));
      const timeUs = outcome.kind === "stored" ? outcome.timeUs : 0;
      expect(timeUs).toBeGreaterThan(lastUs);
      lastUs = timeUs;
    }
  });

  test("a small window pauses a reader and loses nothing", async () => {
    const m = machine(3);
    const { store } = await m.boot();
    store.interest.add("+/x", new Map());
    const reader = new Reader(store, ["+/x"], new Map(), { room: 5 });
    const all: string[] = [];
    for (let n = 0; n < 700; n++) {
      all.push(`v${n}`);
      await m.clock.complete(append(store, appendRequest(`${n % 4}/x`, `v${n}`)));
      if (n === 300) await m.clock.complete(store.checkpoint());
    }
    expect(reader.values).toHaveLength(5);
    while (reader.values.length < 700) {
      reader.room = 7;
      reader.subscriber.wake();
      await m.clock.advance(10);
    }
    expect(reader.values).toEqual(all);
  });
});

describe("generations", () => {
  test("readers cross generations; a dropped one is reported", async () => {
    const m = machine(5);
    const process = await m.boot();
    const { store } = process;
    for (let g = 0; g < 3; g++) {
      for (let n = 0; n < 10; n++) {
        await m.clock.complete(append(store, appendRequest("a/b", `${g}-${n}`)));
      }
      if (g < 2) await m.clock.complete(store.rotate());
    }
    const reader = new Reader(store, ["#"], new Map());
    await m.clock.advance(100);
    expect(reader.values).toHaveLength(30);
    const endOfFirst = reader.received[9]!.timeUs;
    await m.clock.complete(store.dropUntil(endOfFirst + 100_000));
    const late = new Reader(store, ["#"], new Map());
    await m.clock.advance(100);
    expect(late.missedReports.length).toBeGreaterThan(0);
    expect(late.missedReports[0]!.estimated).toBe(false);
    expect(late.values.length).toBeLessThan(30);
    expect(late.values.at(-1)).toBe("2-9");
  });
});

describe("QoS 2 evidence", () => {
  const claim = { incarnation: 7, ownerEpoch: 9 };

  test("a repeat is answered and not stored again, also after power loss", async () => {
    const m = machine(8);
    let { store } = await m.boot();
    await m.clock.complete(store.evidence.open("p", claim));
    const request = appendRequest("a", "once", { qos: 2, evidence: { ...claim, packetId: 5 } });
    const both = Promise.all([append(store, request), append(store, request)]);
    const kinds = (await m.clock.complete(both)).map((outcome) => outcome.kind);
    expect(kinds).toEqual(["stored", "repeat"]);
    m.crash();
    ({ store } = await m.boot());
    await m.clock.complete(store.evidence.open("p", claim));
    expect(store.evidence.list("p", claim)).toEqual([5]);
    const again = await m.clock.complete(append(store, request));
    expect(again.kind).toBe("repeat");
    const reader = new Reader(store, ["a"], new Map());
    await m.clock.advance(100);
    expect(reader.values).toEqual(["once"]);
  });

  test("a released id is new again; an older owner is refused", async () => {
    const m = machine(9);
    const { store } = await m.boot();
    await m.clock.complete(store.evidence.open("p", claim));
    const request = appendRequest("a", "x", { qos: 2, evidence: { ...claim, packetId: 5 } });
    await m.clock.complete(append(store, request));
    const release = new Promise<boolean>((resolve) => {
      store.evidence.release("p", claim, 5, (_, known) => resolve(known));
    });
    expect(await m.clock.complete(release)).toBe(true);
    expect((await m.clock.complete(append(store, request))).kind).toBe("stored");
    const newer = { ...claim, ownerEpoch: 10 };
    await m.clock.complete(store.evidence.open("p", newer));
    await expect(m.clock.complete(append(store, request))).rejects.toMatchObject({
      code: "STORE_OWNER_FENCED",
    });
    await m.clock.complete(store.evidence.end("p", claim.incarnation));
    await m.clock.complete(store.evidence.open("p", claim));
    expect(store.evidence.list("p", claim)).toEqual([]);
  });
});

describe("writers", () => {
  test("a repeat gets the original time, a gap and an older epoch are refused", async () => {
    const m = machine(10);
    const { store } = await m.boot();
    const epoch = await m.clock.complete(store.openWriter("w", "p"));
    const stamp = (sequence: number) => ({ writer: { name: "w", epoch, sequence } });
    const first = await m.clock.complete(append(store, appendRequest("a", "1", stamp(1))));
    const repeat = await m.clock.complete(append(store, appendRequest("a", "1", stamp(1))));
    expect(repeat).toEqual(first);
    await expect(
      m.clock.complete(append(store, appendRequest("a", "3", stamp(3)))),
    ).rejects.toMatchObject({ code: "STORE_WRITER_GAP" });
    await m.clock.complete(store.openWriter("w", "p"));
    await expect(
      m.clock.complete(append(store, appendRequest("a", "2", stamp(2)))),
    ).rejects.toMatchObject({ code: "STORE_WRITER_FENCED" });
  });
});
