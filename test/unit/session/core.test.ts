// The parts of the core one by one, where a conversation would hide the rule.

import { describe, expect, test } from "vitest";
import { chooseDelivery } from "../../../src/session/core/choose.ts";
import { deadlines, effectiveUs, willAtConnect } from "../../../src/session/core/deadline.ts";
import { entryOf, InFlightTable } from "../../../src/session/core/in-flight.ts";
import { PacketIds } from "../../../src/session/core/packet-ids.ts";
import { PlainInFlight } from "../../../src/session/core/plain-in-flight.ts";
import { expiryNever, type IdsRecord, neverUs } from "../../../src/session/core/records.ts";
import { Reservation } from "../../../src/session/core/reservation.ts";
import { Window } from "../../../src/session/core/window.ts";
import { dueOfKey, keyLevel, sendNumberOfKey, sessionKeys } from "../../../src/session/keys.ts";
import { Turnstile } from "../../../src/session/turnstile.ts";
import { subscription } from "../../support/session-world.ts";

describe("packet ids", () => {
  const free = (): boolean => false;

  test("start at 1, count up, roll on after 65,535", () => {
    const ids = new PacketIds();
    expect([ids.take(free), ids.take(free)]).toEqual([1, 2]);
    const late = new PacketIds(65_535);
    expect([late.take(free), late.take(free)]).toEqual([65_535, 1]);
  });

  test("skip what is in use; with all in use there is none", () => {
    const ids = new PacketIds();
    expect(ids.take((id) => id < 5)).toBe(5);
    expect(new PacketIds().take(() => true)).toBeUndefined();
  });

  test("end with the reservation, and go on when it is extended", () => {
    const ids = new PacketIds(10, 12);
    expect([ids.take(free), ids.take(free), ids.take(free)]).toEqual([10, 11, undefined]);
    ids.extend(13);
    expect([ids.take(free), ids.take(free)]).toEqual([12, undefined]);
  });

  test("a reservation that is all in use is passed, so that the next one can help", () => {
    const ids = new PacketIds(1, 4);
    expect(ids.take((id) => id < 10)).toBeUndefined();
    expect(ids.left).toBe(0);
    ids.extend(20);
    expect(ids.take((id) => id < 10)).toBe(10);
  });

  test("an id that was not sent is given back", () => {
    const ids = new PacketIds();
    const position = ids.next;
    ids.take(free);
    ids.rewind(position);
    expect(ids.take(free)).toBe(1);
  });
});

describe("the reservation", () => {
  const settings = { windowMax: 100, sentAheadUs: 2_000_000 };
  const at = { tail: new Map([[7, 1_000_000]]), wallUs: 900_000 };
  const never = (): boolean => false;

  test("nothing may be sent before the first renewal is durable", () => {
    const fresh = new Reservation(settings, undefined);
    expect(fresh.take(never)).toBeUndefined();
    expect(fresh.allows(7, 1)).toBe(false);
    expect(fresh.urgent).toBe(true);
    const record = fresh.renewal(at, new Map());
    expect(record).toMatchObject({ exact: false, next: 1, reservedEnd: 1601 });
    expect(fresh.take(never)).toBeUndefined();
    fresh.committed(record);
    expect(fresh.take(never)).toBe(1);
    expect(fresh.allows(7, 3_000_000)).toBe(true);
    expect(fresh.allows(7, 3_000_001)).toBe(false);
  });

  test("it covers the window and is renewed at half, of ids and of time", () => {
    const reservation = new Reservation(settings, undefined);
    reservation.committed(reservation.renewal(at, new Map()));
    for (let n = 0; n < 800; n++) reservation.take(never);
    expect(reservation.wanted).toBe(false);
    reservation.take(never);
    expect([reservation.wanted, reservation.urgent]).toEqual([true, false]);
    for (let n = 0; n < 600; n++) reservation.take(never);
    expect(reservation.urgent).toBe(true);
    reservation.committed(reservation.renewal(at, new Map()));
    expect(reservation.allows(7, 2_000_000)).toBe(true);
    expect(reservation.wanted).toBe(false);
    expect(reservation.allows(7, 2_000_001)).toBe(true);
    expect(reservation.wanted).toBe(true);
  });

  test("after an end without notice ids start behind it, and what may have been sent is in doubt", () => {
    const first = new Reservation(settings, undefined);
    const record = first.renewal(at, new Map());
    first.committed(record);
    first.take(never);
    const second = new Reservation(settings, record);
    expect(second.inDoubt(7, 3_000_000)).toBe(true);
    expect(second.inDoubt(7, 3_000_001)).toBe(false);
    const again = second.renewal(at, new Map([[7, 2_000_000]]));
    expect(again.next).toBe(1601);
    expect(again.doubtUntil.get(7)).toBe(3_000_000);
    // The cursor has passed it: settled.
    expect(second.renewal(at, new Map([[7, 3_000_000]])).doubtUntil.size).toBe(0);
  });

  test("after an orderly end ids go on exactly, old doubt stays", () => {
    const stored: IdsRecord = {
      exact: true,
      next: 42,
      reservedEnd: 42,
      sentUntil: new Map(),
      doubtUntil: new Map([[7, 5]]),
    };
    const reservation = new Reservation(settings, stored);
    reservation.committed(reservation.renewal(at, new Map()));
    expect(reservation.take(never)).toBe(42);
    expect(reservation.inDoubt(7, 5)).toBe(true);
    expect(reservation.inDoubt(7, 6)).toBe(false);
    expect(reservation.exact(new Map())).toMatchObject({ exact: true, next: 43 });
  });
});

test("the window admits by count and bytes, and always one", () => {
  const window = new Window(2, 100);
  expect(window.admits(1000)).toBe(true);
  window.take(1000);
  expect(window.admits(1)).toBe(false);
  window.release(1000);
  window.take(60);
  expect([window.admits(40), window.admits(41)]).toEqual([true, false]);
  window.take(40);
  expect([window.admits(0), window.free]).toEqual([false, 0]);
});

test("a finished message keeps its record until its shared group has forgotten it", () => {
  const table = new InFlightTable();
  const record = {
    packetId: 5,
    qos: 2,
    retain: false,
    sent: true,
    released: true,
    sizeBytes: 1,
    identifiers: [],
    source: { kind: "log", ref: { shard: 1, generation: 1, stream: 1, timeUs: 5 }, group: "g" },
  } as const;
  const entry = { ...entryOf(1, record, true), awaitsGroup: true };
  table.restore(entry);
  table.remove(entry);
  expect([table.has(5), table.hasChanges]).toEqual([false, false]);
  expect(table.forgotten(entry)).toBe(true);
  expect(table.collect().deletes).toEqual([1]);
});

describe("in-flight records", () => {
  const record = {
    packetId: 5,
    qos: 1,
    retain: false,
    sent: true,
    released: false,
    sizeBytes: 1,
    identifiers: [],
    source: { kind: "log", ref: { shard: 1, generation: 1, stream: 1, timeUs: 1 } },
  } as const;

  test("what was finished before its record was written is never written", () => {
    const table = new InFlightTable();
    const entry = { ...entryOf(1, record, true), stored: false };
    table.add(entry);
    table.remove(entry);
    expect(table.hasChanges).toBe(false);
  });

  test("what was finished after its record was written is deleted, again after a failure", () => {
    const table = new InFlightTable();
    const entry = { ...entryOf(1, record, true), stored: false };
    table.add(entry);
    const first = table.collect();
    table.remove(entry);
    table.failed(first);
    const second = table.collect();
    expect([second.puts.length, second.deletes]).toEqual([0, [1]]);
    table.failed(second);
    expect(table.collect().deletes).toEqual([1]);
  });

  test("of two records under one id the older one was finished", () => {
    const table = new InFlightTable();
    table.restore(entryOf(1, record, true));
    table.restore(entryOf(9, record, true));
    expect(table.get(5)?.sendNumber).toBe(9);
    expect(table.collect().deletes).toEqual([1]);
    expect(table.takeSendNumber()).toBe(10);
  });

  test("without an orderly end everything may have been sent", () => {
    const unsent = { ...record, sent: false };
    expect(entryOf(1, unsent, true).dup).toBe(false);
    expect(entryOf(1, unsent, false).dup).toBe(true);
    expect(entryOf(1, record, true).dup).toBe(true);
  });
});

describe("deadlines", () => {
  test("the will comes after its delay or with the end of the session, whichever is first", () => {
    expect(deadlines(0, 60, 5)).toEqual({ expireUs: 60e6, willUs: 5e6, nextUs: 5e6 });
    expect(deadlines(0, 2, 10)).toEqual({ expireUs: 2e6, willUs: 2e6, nextUs: 2e6 });
    expect(deadlines(7, 60, undefined)).toMatchObject({ willUs: undefined, nextUs: 60e6 + 7 });
    expect(deadlines(0, expiryNever, undefined).nextUs).toBe(neverUs);
    expect(deadlines(0, expiryNever, 1).nextUs).toBe(1e6);
  });

  test("one that passed before the start waits for the grace, a later one stands", () => {
    expect(effectiveUs(50, 100, 30)).toBe(130);
    expect(effectiveUs(100, 100, 30)).toBe(130);
    expect(effectiveUs(101, 100, 30)).toBe(101);
  });

  test("a new connection cancels a delayed will only if the session goes on", () => {
    const base = { takenOver: true, sessionContinues: true, delayS: 0 };
    expect(willAtConnect(base)).toBe("publish");
    expect(willAtConnect({ ...base, delayS: 5 })).toBe("cancel");
    expect(willAtConnect({ ...base, takenOver: false })).toBe("cancel");
    expect(willAtConnect({ ...base, delayS: 5, sessionContinues: false })).toBe("publish");
  });
});

test("a choice: retain only as published, identifiers once each", () => {
  const message = {
    topic: "t",
    timeUs: 1,
    publisher: "p",
    form: "raw",
    qos: 2,
    retain: true,
    expiryUs: 0,
    expiryOffset: 0,
    frame: Buffer.alloc(0),
  } as const;
  const filters = [
    subscription("t", { qos: 0, identifier: 3 }),
    subscription("+", { qos: 1, identifier: 3 }),
    subscription("#", { qos: 2, noLocal: true, retainAsPublished: true, identifier: 4 }),
  ];
  expect(chooseDelivery(message, filters, "s")).toEqual({
    qos: 2,
    retain: true,
    identifiers: [3, 4],
    owed: true,
  });
  expect(chooseDelivery(message, filters, "p")).toEqual({
    qos: 1,
    retain: false,
    identifiers: [3],
    owed: true,
  });
  expect(chooseDelivery(message, [filters[2]!], "p")).toBeUndefined();
});

describe("keys", () => {
  test("different client ids never share a key", () => {
    const ids = ["a", "a/b", "a%2Fb", "%", "%25", "%~x", "é", "x".repeat(2000), "x".repeat(2001)];
    expect(new Set(ids.map(keyLevel)).size).toBe(ids.length);
    for (const id of ids) {
      expect(keyLevel(id)).not.toContain("/");
      expect(keyLevel(id).length).toBeLessThan(1100);
    }
  });

  test("times and send numbers come back from keys, and sort", () => {
    const keys = sessionKeys("a/b");
    expect(dueOfKey(keys.due(1_767_225_600_000_000))).toBe(1_767_225_600_000_000);
    expect(dueOfKey(keys.due(neverUs))).toBe(neverUs);
    expect(sendNumberOfKey(keys.out(4711))).toBe(4711);
    expect([keys.out(16), keys.out(9)].sort()).toEqual([keys.out(9), keys.out(16)]);
  });
});

test("the turnstile lets one task per key in at a time, in order, also after a failure", async () => {
  const turnstile = new Turnstile();
  const steps: string[] = [];
  const task =
    (name: string, fails = false) =>
    async () => {
      steps.push(`${name} in`);
      await Promise.resolve();
      steps.push(`${name} out`);
      if (fails) throw new Error(name);
    };
  const first = turnstile.run("k", task("a", true));
  const second = turnstile.run("k", task("b"));
  const other = turnstile.run("other", task("c"));
  await expect(first).rejects.toThrow("a");
  await Promise.all([second, other]);
  expect(steps.filter((step) => !step.startsWith("c"))).toEqual(["a in", "a out", "b in", "b out"]);
  await turnstile.idle();
});

describe("plain messages in flight", () => {
  test("ids that share a place make room for each other", () => {
    const table = new PlainInFlight();
    const ids = [1, 17, 33, 65_535, 32_767];
    for (const id of ids) table.add(id, id * 2);
    expect(table.size).toBe(5);
    expect(ids.map((id) => table.has(id))).toEqual([true, true, true, true, true]);
    expect(table.has(16)).toBe(false);
    expect(table.remove(17)).toBe(34);
    expect(table.remove(17)).toBeUndefined();
    expect(table.remove(65_535)).toBe(131_070);
    expect(table.size).toBe(3);
  });

  test("what is owed is taken out in the order it was sent, wherever it lay", () => {
    const table = new PlainInFlight();
    const origin = { shard: 1, generation: 2, stream: 3 };
    const ids = [65_530, 5, 21, 37, 1000];
    ids.forEach((packetId, index) => {
      table.addOwed(packetId, 10, index + 7, origin, index);
    });
    expect(table.remove(21)).toBe(10);
    expect(
      table.takeOwed().map(({ packetId, sendNumber, timeUs }) => [packetId, sendNumber, timeUs]),
    ).toEqual([
      [65_530, 7, 0],
      [5, 8, 1],
      [37, 10, 3],
      [1000, 11, 4],
    ]);
    expect([table.size, table.has(5)]).toEqual([0, false]);
  });

  test("all ids can be in flight", () => {
    const table = new PlainInFlight();
    for (let id = 1; id <= 65_535; id++) table.add(id, 1);
    let removed = 0;
    for (let id = 1; id <= 65_535; id++) removed += table.remove(id) ?? 0;
    expect([removed, table.size]).toEqual([65_535, 0]);
  });
});

test("a row of packet ids neither rolls over nor meets one in use", () => {
  const ids = new PacketIds(65_533);
  expect(ids.takeRow(4, () => false)).toBeUndefined();
  expect(ids.takeRow(3, () => false)).toBe(65_533);
  expect(ids.takeRow(2, (id) => id === 2)).toBeUndefined();
  expect(ids.next).toBe(65_536);
  expect(new PacketIds(1, 3).takeRow(3, () => false)).toBeUndefined();
});

test("of a run the window admits what it has room for, and always one", () => {
  const run = { count: 5, frameBytes: () => 40 };
  const window = new Window(3, 100);
  expect(window.admitsOf(run)).toBe(2);
  expect(new Window(3, 1000).admitsOf(run)).toBe(3);
  expect(new Window(3, 10).admitsOf(run)).toBe(1);
  window.take(90);
  expect(window.admitsOf(run)).toBe(0);
});
