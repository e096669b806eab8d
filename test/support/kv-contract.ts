// What every key-value driver must do, whoever implements it. Each rule runs as one program on a
// driver and the path of a store that does not exist yet.

import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { isCodedError } from "../../src/base/index.ts";
import type { Kv, KvDriver, KvRange } from "../../src/kv/index.ts";

export type KvRig = {
  readonly driver: KvDriver;
  readonly path: string;
  /** Runs whatever drives the store until the promise settles. */
  run<T>(promise: Promise<T>): Promise<T>;
  close(): Promise<void>;
};

export function kvContract(name: string, openRig: () => Promise<KvRig>): void {
  const raw = (title: string, program: (driver: KvDriver, path: string) => Promise<void>): void => {
    test(title, async () => {
      const rig = await openRig();
      try {
        await rig.run(program(rig.driver, rig.path));
      } finally {
        await rig.close();
      }
    });
  };
  const rule = (title: string, program: (kv: Kv) => Promise<void>): void => {
    raw(title, async (driver, path) => {
      const kv = await driver.open(path);
      await program(kv);
      await kv.close();
    });
  };

  describe(`${name}: batches`, () => {
    rule("a batch is visible as a whole when write resolves", async (kv) => {
      await put(kv, { a: "1", b: "2" });
      expect(await text(kv, "a")).toBe("1");
      expect(await kv.getMany([key("b"), key("x"), key("a")])).toEqual([
        Buffer.from("2"),
        undefined,
        Buffer.from("1"),
      ]);
      expect(await kv.get(key("x"))).toBeUndefined();
    });

    rule("operations of one batch count in their order", async (kv) => {
      const batch = kv.batch().put(key("a"), key("1")).delete(key("a")).put(key("a"), key("2"));
      expect([batch.count, batch.sizeBytes]).toEqual([3, 5]);
      await batch.put(key("b"), key("3")).delete(key("b")).write();
      expect(await text(kv, "a")).toBe("2");
      expect(await text(kv, "b")).toBeUndefined();
    });

    rule("nothing happens before write, and an empty batch is no error", async (kv) => {
      kv.batch().put(key("a"), key("1"));
      expect(await text(kv, "a")).toBeUndefined();
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
      expect(await text(kv, "a")).toBe("1");
    });

    rule("batches are applied in the order of their write calls", async (kv) => {
      const writes = [];
      for (let round = 0; round < 50; round++) {
        writes.push(put(kv, { a: String(round) }, { sync: round % 7 === 0 }));
      }
      await Promise.all(writes);
      expect(await text(kv, "a")).toBe("49");
    });

    rule("empty keys and values, zero bytes and 0xff are bytes like others", async (kv) => {
      const odd = [[], [0], [0, 0], [0xff], [0xff, 0xff, 0x00]].map((bytes) => Buffer.from(bytes));
      const batch = kv.batch();
      for (const bytes of odd) batch.put(bytes, bytes);
      await batch.write();
      expect(await kv.getMany(odd)).toEqual(odd);
      expect((await all(kv, {})).map(([name]) => name)).toEqual(odd);
    });

    rule("a plain Uint8Array, also a part of a larger one, is taken", async (kv) => {
      const part = new Uint8Array([9, 97, 9]).subarray(1, 2);
      await kv.batch().put(part, part).write();
      expect(await text(kv, "a")).toBe("a");
    });

    rule("large values come back", async (kv) => {
      const value = Buffer.alloc(3_000_000, "v");
      await kv.batch().put(key("a"), value).write({ sync: true });
      expect((await kv.get(key("a")))?.equals(value)).toBe(true);
    });
  });

  describe(`${name}: cursors`, () => {
    rule("entries come in bytewise order, forwards and backwards", async (kv) => {
      await put(kv, { b: "", a: "", B: "", ab: "", é: "" });
      expect(await names(kv, {})).toEqual(["B", "a", "ab", "b", "é"]);
      expect(await names(kv, { reverse: true })).toEqual(["é", "b", "ab", "a", "B"]);
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
        expect((await names(kv, range)).join("")).toBe(expected);
        const reversed = (await names(kv, { ...range, reverse: true })).join("");
        expect(reversed).toBe([...expected].reverse().join(""));
      }
    });

    rule("a cursor shows the store as it was when it was made", async (kv) => {
      await put(kv, { a: "1", b: "1", c: "1" });
      const cursor = kv.cursor({});
      await put(kv, { a: "2", aa: "2" });
      await kv.batch().delete(key("c")).write();
      await kv.clear({ gte: key("b") });
      const seen = (await cursor.next(10)).map(([name, value]) => `${name}${value}`);
      expect(seen).toEqual(["a1", "b1", "c1"]);
      await cursor.close();
      expect(await names(kv, {})).toEqual(["a", "aa"]);
    });

    rule("next gives at most what was asked, then goes on; empty is the end", async (kv) => {
      await put(kv, { a: "", b: "", c: "" });
      const cursor = kv.cursor({});
      const parts = [];
      for (let turn = 0; turn < 4; turn++) parts.push((await cursor.next(2)).map(([n]) => `${n}`));
      expect(parts).toEqual([["a", "b"], ["c"], [], []]);
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
        expect(entries.length).toBeLessThanOrEqual(2);
        count += entries.length;
        trips++;
      }
      expect(count).toBe(8);
      expect(trips).toBeGreaterThanOrEqual(4);
      await cursor.close();
    });

    rule("small entries come many at a time", async (kv) => {
      const batch = kv.batch();
      for (let at = 0; at < 5000; at++) batch.put(key(String(at).padStart(6, "0")), key("value"));
      await batch.write();
      const cursor = kv.cursor({});
      expect((await cursor.next(4000)).length).toBe(4000);
      expect((await cursor.next(4000)).length).toBe(1000);
      await cursor.close();
    });

    rule("seek goes to the first key at or after, or at or before in reverse", async (kv) => {
      await put(kv, { b: "", d: "", f: "", h: "" });
      const forward = kv.cursor({ gte: key("c"), lt: key("h") });
      const sought = async (cursor: typeof forward, name: string): Promise<string> => {
        cursor.seek(key(name));
        return (await cursor.next(10)).map(([found]) => `${found}`).join("");
      };
      expect(await sought(forward, "d")).toBe("df");
      expect(await sought(forward, "e")).toBe("f");
      expect(await sought(forward, "a")).toBe("df");
      expect(await sought(forward, "h")).toBe("");
      expect(await sought(forward, "z")).toBe("");
      expect(await sought(forward, "c")).toBe("df");
      await forward.close();
      const backward = kv.cursor({ gte: key("c"), lt: key("h"), reverse: true });
      expect(await sought(backward, "f")).toBe("fd");
      expect(await sought(backward, "e")).toBe("d");
      expect(await sought(backward, "z")).toBe("fd");
      expect(await sought(backward, "h")).toBe("fd");
      expect(await sought(backward, "c")).toBe("");
      expect(await sought(backward, "a")).toBe("");
      await backward.close();
      const open = kv.cursor({ reverse: true });
      expect(await sought(open, "z")).toBe("hfdb");
      expect(await sought(open, "c")).toBe("b");
      await open.close();
    });

    rule("a seek outside the range of an empty store finds the end", async (kv) => {
      const seekAll = async (): Promise<void> => {
        for (const reverse of [false, true]) {
          const cursor = kv.cursor({ gte: key("b"), lt: key("d"), reverse });
          for (const name of ["", "a", "b", "c", "d", "e"]) {
            cursor.seek(key(name));
            expect(await cursor.next(5)).toEqual([]);
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
      expect(await names(kv, { reverse: true })).toEqual([]);
      expect(await names(kv, { lt: key("b"), reverse: true })).toEqual([]);
      await put(kv, { b: "" });
      expect(await names(kv, { lt: key("b"), reverse: true })).toEqual([]);
      expect(await names(kv, { lt: key("b"), gte: key("a"), reverse: true })).toEqual([]);
    });
  });

  describe(`${name}: the rest`, () => {
    rule("clear removes a range and nothing else", async (kv) => {
      const batch = kv.batch();
      for (let at = 0; at < 3000; at++) batch.put(key(String(at).padStart(5, "0")), key("value"));
      await batch.write();
      await kv.clear({ gte: key("00010"), lt: key("02990") });
      expect((await names(kv, {})).length).toBe(20);
      await kv.clear({});
      expect(await names(kv, {})).toEqual([]);
      await put(kv, { "": "" });
      await kv.clear({ lt: key("") });
      expect(await names(kv, {})).toEqual([""]);
      await kv.clear({ lt: key("a") });
      expect(await names(kv, {})).toEqual([]);
    });

    rule("approximateBytes is zero where nothing is and never negative", async (kv) => {
      expect(await kv.approximateBytes({ gte: key("a"), lt: key("b") })).toBe(0);
      await put(kv, { a: "1" });
      expect(await kv.approximateBytes({})).toBeGreaterThanOrEqual(0);
      expect(await kv.approximateBytes({ gte: key("b"), lt: key("a") })).toBe(0);
    });

    raw("what was written is there after close and open", async (driver, path) => {
      const first = await driver.open(path);
      await put(first, { a: "1", b: "2" });
      await put(first, { b: "3" });
      await first.close();
      const second = await driver.open(path);
      expect(await text(second, "a")).toBe("1");
      expect(await text(second, "b")).toBe("3");
      await second.close();
    });

    raw("close waits for the writes and syncs under way", async (driver, path) => {
      const kv = await driver.open(path);
      const write = put(kv, { a: "1" }, { sync: true });
      const sync = kv.sync();
      await kv.close();
      await Promise.all([write, sync]);
      const again = await driver.open(path);
      expect(await text(again, "a")).toBe("1");
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
        expect(await code(call())).toBe("KV_CLOSED");
      }
      await cursor.close();
      await cursor.close();
    });

    raw("a store that is open cannot be opened or destroyed", async (driver, path) => {
      const kv = await driver.open(path);
      expect(await code(driver.open(path))).toBe("KV_LOCKED");
      expect(await code(driver.destroy(path))).toBe("KV_LOCKED");
      await put(kv, { a: "1" });
      await kv.close();
      await (await driver.open(path)).close();
    });

    raw(
      "destroy removes everything, and is no error when nothing is there",
      async (driver, path) => {
        await driver.destroy(path);
        const kv = await driver.open(path);
        await put(kv, { a: "1" });
        await kv.sync();
        await kv.close();
        await driver.destroy(path);
        const again = await driver.open(path);
        expect(await text(again, "a")).toBeUndefined();
        await again.close();
      },
    );

    raw(
      "a store set aside is whole where it is now, and gone where it was",
      async (driver, path) => {
        const [from, to] = [`${path}/from`, `${path}/to`];
        const kv = await driver.open(from);
        await put(kv, { a: "1" });
        expect(await code(driver.setAside(from, to))).toBe("KV_LOCKED");
        await kv.close();
        await driver.setAside(from, to);
        await driver.setAside(from, `${path}/nothing`);
        const [moved, anew] = [await driver.open(to), await driver.open(from)];
        expect([await text(moved, "a"), await text(anew, "a")]).toEqual(["1", undefined]);
        await moved.close();
        await anew.close();
      },
    );

    raw("its size grows with what it holds, and is 0 when it is gone", async (driver, path) => {
      expect(await driver.sizeBytes(`${path}/nothing`)).toBe(0);
      const kv = await driver.open(path);
      const before = await driver.sizeBytes(path);
      await put(kv, { a: randomBytes(64 * 1024).toString("latin1") });
      expect(await driver.sizeBytes(path)).toBeGreaterThan(before + 64 * 1024);
      await kv.close();
      await driver.destroy(path);
      expect(await driver.sizeBytes(path)).toBe(0);
    });

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
          expect(await text(again, "a")).toBe("2");
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
      expect(await code(driver.open(path, { proof }))).toBe("KV_CORRUPT");
      await driver.salvage(path, `${path}-aside`);
      const mended = await driver.open(path);
      expect(await text(mended, "a")).toBeUndefined();
      await mended.close();
    });

    raw("a store that was condemned does not open until it is mended", async (driver, path) => {
      const kv = await driver.open(path);
      await put(kv, { a: "1", b: "2" });
      await kv.batch().delete(key("b")).write();
      expect(await code(driver.salvage(path, `${path}-aside`))).toBe("KV_LOCKED");
      await kv.close();
      await driver.condemn(path);
      expect(await code(driver.open(path))).toBe("KV_CORRUPT");
      await driver.salvage(path, `${path}-aside`);
      const mended = await driver.open(path);
      expect(await names(mended, {})).toEqual(["a"]);
      await mended.close();
      await driver.condemn(path);
      await driver.destroy(path);
      await (await driver.open(path)).close();
    });

    raw("two stores do not see each other", async (driver, path) => {
      const [one, other] = [await driver.open(`${path}/one`), await driver.open(`${path}/other`)];
      await Promise.all([put(one, { a: "1" }), put(other, { a: "2" })]);
      expect([await text(one, "a"), await text(other, "a")]).toEqual(["1", "2"]);
      await one.close();
      expect(await text(other, "a")).toBe("2");
      await other.close();
    });
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

async function code(promise: Promise<unknown>): Promise<string | undefined> {
  const error = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  return isCodedError(error) ? error.code : undefined;
}
