// What every key-value driver must do, whoever implements it (kv/kv.ts).

import { deepEqual, equal, ok } from "node:assert/strict";
import { SeededRandom } from "../base/index.ts";
import type { Kv, KvDriver, KvRange } from "../kv/index.ts";
import { type AddRule, type ContractRule, type Rig, refuses, rulesOf } from "./rule.ts";

/** A driver, and the path of a store that does not exist yet. */
export type KvRig = Rig & { readonly driver: KvDriver; readonly path: string };

type AddKvRule = (title: string, program: (kv: Kv) => Promise<void>) => void;
type AddDriverRule = (
  title: string,
  program: (driver: KvDriver, path: string) => Promise<void>,
) => void;

/** Rules for a driver of key-value stores. */
export function kvContract(openRig: () => Promise<KvRig>): ContractRule[] {
  return rulesOf(openRig, (add) => {
    const raw = onDriver(add);
    const rule: AddKvRule = (title, program) => {
      raw(title, async (driver, path) => {
        const kv = await driver.open(path);
        await program(kv);
        await kv.close();
      });
    };
    addBatchRules(rule);
    addCursorRules(rule);
    addRangeRules(rule);
    addLifeRules(raw);
    addDamageRules(raw);
  });
}

function onDriver(add: AddRule<KvRig>): AddDriverRule {
  return (title, program) => add(title, ({ driver, path }) => program(driver, path));
}

function addBatchRules(rule: AddKvRule): void {
  rule("a batch is visible as a whole when write resolves", async (kv) => {
    await put(kv, { a: "1", b: "2" });
    equal(await text(kv, "a"), "1");
    deepEqual(await kv.getMany([key("b"), key("x"), key("a")]), [
      Buffer.from("2"),
      undefined,
      Buffer.from("1"),
    ]);
    equal(await kv.get(key("x")), undefined);
  });

  rule("operations of one batch count in their order", async (kv) => {
    const batch = kv.batch().put(key("a"), key("1")).delete(key("a")).put(key("a"), key("2"));
    deepEqual([batch.count, batch.sizeBytes], [3, 5]);
    await batch.put(key("b"), key("3")).delete(key("b")).write();
    equal(await text(kv, "a"), "2");
    equal(await text(kv, "b"), undefined);
  });

  rule("nothing happens before write, and an empty batch is no error", async (kv) => {
    kv.batch().put(key("a"), key("1"));
    equal(await text(kv, "a"), undefined);
    await kv.batch().write();
    await kv.batch().write({ sync: true });
  });

  rule("bytes are copied when they are put and when they are got", async (kv) => {
    const [name, value] = [key("a"), key("1")];
    const batch = kv.batch().put(name, value);
    name.fill("x");
    value.fill("x");
    await batch.write();
    (await kv.get(key("a")))?.fill("y");
    equal(await text(kv, "a"), "1");
  });

  rule("batches are applied in the order of their write calls", async (kv) => {
    const writes = [];
    for (let round = 0; round < 50; round++) {
      writes.push(put(kv, { a: String(round) }, { sync: round % 7 === 0 }));
    }
    await Promise.all(writes);
    equal(await text(kv, "a"), "49");
  });

  rule("empty keys and values, zero bytes and 0xff are bytes like others", async (kv) => {
    const odd = [[], [0], [0, 0], [0xff], [0xff, 0xff, 0x00]].map((bytes) => Buffer.from(bytes));
    const batch = kv.batch();
    for (const bytes of odd) batch.put(bytes, bytes);
    await batch.write();
    deepEqual(await kv.getMany(odd), odd);
    deepEqual(
      (await all(kv, {})).map(([name]) => name),
      odd,
    );
  });

  rule("a plain Uint8Array, also a part of a larger one, is taken", async (kv) => {
    const part = new Uint8Array([9, 97, 9]).subarray(1, 2);
    await kv.batch().put(part, part).write();
    equal(await text(kv, "a"), "a");
  });

  rule("large values come back", async (kv) => {
    const value = Buffer.alloc(3_000_000, "v");
    await kv.batch().put(key("a"), value).write({ sync: true });
    equal((await kv.get(key("a")))?.equals(value), true);
  });
}

function addCursorRules(rule: AddKvRule): void {
  rule("entries come in bytewise order, forwards and backwards", async (kv) => {
    await put(kv, { b: "", a: "", B: "", ab: "", é: "" });
    deepEqual(await names(kv, {}), ["B", "a", "ab", "b", "é"]);
    deepEqual(await names(kv, { reverse: true }), ["é", "b", "ab", "a", "B"]);
  });

  const ranges: Array<[KvRange, string]> = [
    [{ gte: key("b"), lt: key("d") }, "bc"],
    [{ gt: key("b"), lte: key("d") }, "cd"],
    [{ gt: key("a5"), lt: key("c5") }, "bc"],
    [{ gte: key("c") }, "cde"],
    [{ lt: key("c") }, "ab"],
    [{ lte: key("c") }, "abc"],
    [{ gte: key("d"), lt: key("b") }, ""],
    [{ gt: key("b"), lt: key("b") }, ""],
    [{ gte: key("b"), lte: key("b") }, "b"],
    [{ gte: key("f") }, ""],
    [{ lt: key("a") }, ""],
  ];
  rule("a range gives what lies within its bounds, either way", async (kv) => {
    await put(kv, { a: "", b: "", c: "", d: "", e: "" });
    for (const [range, expected] of ranges) {
      equal((await names(kv, range)).join(""), expected);
      const reversed = (await names(kv, { ...range, reverse: true })).join("");
      equal(reversed, [...expected].reverse().join(""));
    }
  });

  rule("a cursor shows the store as it was when it was made", async (kv) => {
    await put(kv, { a: "1", b: "1", c: "1" });
    const cursor = kv.cursor({});
    await put(kv, { a: "2", aa: "2" });
    await kv.batch().delete(key("c")).write();
    await kv.clear({ gte: key("b") });
    const seen = (await cursor.next(10)).map(([name, value]) => `${name}${value}`);
    deepEqual(seen, ["a1", "b1", "c1"]);
    await cursor.close();
    deepEqual(await names(kv, {}), ["a", "aa"]);
  });

  rule("next gives at most what was asked, then goes on; empty is the end", async (kv) => {
    await put(kv, { a: "", b: "", c: "" });
    const cursor = kv.cursor({});
    const parts = [];
    for (let turn = 0; turn < 4; turn++) parts.push((await cursor.next(2)).map(([n]) => `${n}`));
    deepEqual(parts, [["a", "b"], ["c"], [], []]);
    await cursor.close();
  });

  rule("next stops near 1 MiB and gives at least one entry", async (kv) => {
    const batch = kv.batch();
    for (let at = 0; at < 8; at++) batch.put(key(`k${at}`), Buffer.alloc(700_000, 1));
    await batch.write();
    const cursor = kv.cursor({});
    let [count, trips] = [0, 0];
    for (;;) {
      const entries = await cursor.next(1000);
      if (entries.length === 0) break;
      ok(entries.length <= 2);
      count += entries.length;
      trips++;
    }
    equal(count, 8);
    ok(trips >= 4);
    await cursor.close();
  });

  rule("small entries come many at a time", async (kv) => {
    const batch = kv.batch();
    for (let at = 0; at < 5000; at++) batch.put(key(String(at).padStart(6, "0")), key("value"));
    await batch.write();
    const cursor = kv.cursor({});
    equal((await cursor.next(4000)).length, 4000);
    equal((await cursor.next(4000)).length, 1000);
    await cursor.close();
  });

  rule("seek goes to the first key at or after, or at or before in reverse", async (kv) => {
    await put(kv, { b: "", d: "", f: "", h: "" });
    const forward = kv.cursor({ gte: key("c"), lt: key("h") });
    const sought = async (cursor: typeof forward, name: string): Promise<string> => {
      cursor.seek(key(name));
      return (await cursor.next(10)).map(([found]) => `${found}`).join("");
    };
    equal(await sought(forward, "d"), "df");
    equal(await sought(forward, "e"), "f");
    equal(await sought(forward, "a"), "df");
    equal(await sought(forward, "h"), "");
    equal(await sought(forward, "z"), "");
    equal(await sought(forward, "c"), "df");
    await forward.close();
    const backward = kv.cursor({ gte: key("c"), lt: key("h"), reverse: true });
    equal(await sought(backward, "f"), "fd");
    equal(await sought(backward, "e"), "d");
    equal(await sought(backward, "z"), "fd");
    equal(await sought(backward, "h"), "fd");
    equal(await sought(backward, "c"), "");
    equal(await sought(backward, "a"), "");
    await backward.close();
    const open = kv.cursor({ reverse: true });
    equal(await sought(open, "z"), "hfdb");
    equal(await sought(open, "c"), "b");
    await open.close();
  });

  rule("a seek outside the range of an empty store finds the end", async (kv) => {
    const seekAll = async (): Promise<void> => {
      for (const reverse of [false, true]) {
        const cursor = kv.cursor({ gte: key("b"), lt: key("d"), reverse });
        for (const name of ["", "a", "b", "c", "d", "e"]) {
          cursor.seek(key(name));
          deepEqual(await cursor.next(5), []);
        }
        await cursor.close();
      }
    };
    await seekAll();
    await put(kv, { a: "", c: "", e: "" });
    await kv.clear({});
    await seekAll();
  });

  rule("a reverse cursor of an empty store or range is at its end", async (kv) => {
    deepEqual(await names(kv, { reverse: true }), []);
    deepEqual(await names(kv, { lt: key("b"), reverse: true }), []);
    await put(kv, { b: "" });
    deepEqual(await names(kv, { lt: key("b"), reverse: true }), []);
    deepEqual(await names(kv, { lt: key("b"), gte: key("a"), reverse: true }), []);
  });
}

function addRangeRules(rule: AddKvRule): void {
  rule("clear removes a range and nothing else", async (kv) => {
    const batch = kv.batch();
    for (let at = 0; at < 3000; at++) batch.put(key(String(at).padStart(5, "0")), key("value"));
    await batch.write();
    await kv.clear({ gte: key("00010"), lt: key("02990") });
    equal((await names(kv, {})).length, 20);
    await kv.clear({});
    deepEqual(await names(kv, {}), []);
    await put(kv, { "": "" });
    await kv.clear({ lt: key("") });
    deepEqual(await names(kv, {}), [""]);
    await kv.clear({ lt: key("a") });
    deepEqual(await names(kv, {}), []);
  });

  rule("compact changes nothing that can be read", async (kv) => {
    const batch = kv.batch();
    for (let at = 0; at < 1000; at++) batch.put(key(String(at).padStart(5, "0")), key("value"));
    await batch.write();
    await put(kv, { "00007": "new" });
    await kv.clear({ gte: key("00010"), lt: key("00990") });
    const before = await all(kv, {});
    await kv.compact();
    deepEqual(await all(kv, {}), before);
    equal(await text(kv, "00007"), "new");
    equal(await text(kv, "00500"), undefined);
  });

  rule("approximateBytes is zero where nothing is and never negative", async (kv) => {
    equal(await kv.approximateBytes({ gte: key("a"), lt: key("b") }), 0);
    await put(kv, { a: "1" });
    ok((await kv.approximateBytes({})) >= 0);
    equal(await kv.approximateBytes({ gte: key("b"), lt: key("a") }), 0);
  });
}

function addLifeRules(raw: AddDriverRule): void {
  raw("what was written is there after close and open", async (driver, path) => {
    const first = await driver.open(path);
    await put(first, { a: "1", b: "2" });
    await put(first, { b: "3" });
    await first.close();
    const second = await driver.open(path);
    equal(await text(second, "a"), "1");
    equal(await text(second, "b"), "3");
    await second.close();
  });

  raw("close waits for the writes and syncs under way", async (driver, path) => {
    const kv = await driver.open(path);
    const write = put(kv, { a: "1" }, { sync: true });
    const sync = kv.sync();
    await kv.close();
    await Promise.all([write, sync]);
    const again = await driver.open(path);
    equal(await text(again, "a"), "1");
    await again.close();
  });

  raw("a closed store refuses every call with KV_CLOSED", async (driver, path) => {
    const kv = await driver.open(path);
    const batch = kv.batch().put(key("a"), key("1"));
    const cursor = kv.cursor({});
    await kv.close();
    await kv.close();
    for (const call of [
      () => kv.get(key("a")),
      () => kv.getMany([key("a")]),
      () => kv.clear({}),
      () => kv.sync(),
      () => kv.approximateBytes({}),
      () => batch.write(),
      () => cursor.next(1),
      async () => kv.batch(),
      async () => kv.cursor({}),
      async () => cursor.seek(key("a")),
    ]) {
      await refuses("KV_CLOSED", call);
    }
    await cursor.close();
    await cursor.close();
  });

  raw("a store that is open cannot be opened or destroyed", async (driver, path) => {
    const kv = await driver.open(path);
    await refuses("KV_LOCKED", () => driver.open(path));
    await refuses("KV_LOCKED", () => driver.destroy(path));
    await put(kv, { a: "1" });
    await kv.close();
    await (await driver.open(path)).close();
  });

  raw("destroy removes everything, and is no error when nothing is there", async (driver, path) => {
    await driver.destroy(path);
    const kv = await driver.open(path);
    await put(kv, { a: "1" });
    await kv.sync();
    await kv.close();
    await driver.destroy(path);
    const again = await driver.open(path);
    equal(await text(again, "a"), undefined);
    await again.close();
  });

  raw("a store set aside is whole where it is now, and gone where it was", async (driver, path) => {
    const [from, to] = [`${path}/from`, `${path}/to`];
    const kv = await driver.open(from);
    await put(kv, { a: "1" });
    await refuses("KV_LOCKED", () => driver.setAside(from, to));
    await kv.close();
    await driver.setAside(from, to);
    await driver.setAside(from, `${path}/nothing`);
    const [moved, anew] = [await driver.open(to), await driver.open(from)];
    deepEqual([await text(moved, "a"), await text(anew, "a")], ["1", undefined]);
    await moved.close();
    await anew.close();
  });

  raw("its size grows with what it holds, and is 0 when it is gone", async (driver, path) => {
    equal(await driver.sizeBytes(`${path}/nothing`), 0);
    const kv = await driver.open(path);
    const before = await driver.sizeBytes(path);
    await put(kv, { a: new SeededRandom(1).bytes(64 * 1024).toString("latin1") });
    ok((await driver.sizeBytes(path)) > before + 64 * 1024);
    await kv.close();
    await driver.destroy(path);
    equal(await driver.sizeBytes(path), 0);
  });

  raw("two stores do not see each other", async (driver, path) => {
    const [one, other] = [await driver.open(`${path}/one`), await driver.open(`${path}/other`)];
    await Promise.all([put(one, { a: "1" }), put(other, { a: "2" })]);
    deepEqual([await text(one, "a"), await text(other, "a")], ["1", "2"]);
    await one.close();
    equal(await text(other, "a"), "2");
    await other.close();
  });
}

function addDamageRules(raw: AddDriverRule): void {
  raw(
    "a proof of a sync is held by the store it came from, also after later writes",
    async (driver, path) => {
      const kv = await driver.open(path);
      await put(kv, { a: "1" });
      const first = await kv.sync();
      await put(kv, { a: "2" });
      const second = await kv.sync();
      await kv.close();
      for (const proof of [second, first, second]) {
        const again = await driver.open(path, { proof });
        equal(await text(again, "a"), "2");
        await again.close();
      }
    },
  );

  raw("a store that is gone does not hold what was proved", async (driver, path) => {
    const kv = await driver.open(path);
    await put(kv, { a: "1" });
    const proof = await kv.sync();
    await kv.close();
    await driver.destroy(path);
    await refuses("KV_CORRUPT", () => driver.open(path, { proof }));
    await driver.salvage(path, `${path}-aside`);
    const mended = await driver.open(path);
    equal(await text(mended, "a"), undefined);
    await mended.close();
  });

  raw("a store that was condemned does not open until it is mended", async (driver, path) => {
    const kv = await driver.open(path);
    await put(kv, { a: "1", b: "2" });
    await kv.batch().delete(key("b")).write();
    await refuses("KV_LOCKED", () => driver.salvage(path, `${path}-aside`));
    await kv.close();
    await driver.condemn(path);
    await refuses("KV_CORRUPT", () => driver.open(path));
    await driver.salvage(path, `${path}-aside`);
    const mended = await driver.open(path);
    deepEqual(await names(mended, {}), ["a"]);
    await mended.close();
    await driver.condemn(path);
    await driver.destroy(path);
    await (await driver.open(path)).close();
  });
}

const key = (name: string): Buffer => Buffer.from(name);

async function put(
  kv: Kv,
  entries: Record<string, string>,
  options?: { sync: boolean },
): Promise<void> {
  const batch = kv.batch();
  for (const [name, value] of Object.entries(entries)) batch.put(key(name), key(value));
  await batch.write(options);
}

async function text(kv: Kv, name: string): Promise<string | undefined> {
  return (await kv.get(key(name)))?.toString();
}

async function all(kv: Kv, range: KvRange): Promise<Array<readonly [Buffer, Buffer]>> {
  const cursor = kv.cursor(range);
  const found = [];
  for (;;) {
    const entries = await cursor.next(7);
    if (entries.length === 0) break;
    found.push(...entries);
  }
  await cursor.close();
  return found;
}

async function names(kv: Kv, range: KvRange): Promise<string[]> {
  return (await all(kv, range)).map(([name]) => name.toString());
}
