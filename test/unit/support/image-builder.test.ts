import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { SeededRandom } from "../../../src/base/index.ts";
import { createHistory } from "../../crash/history.ts";
import { type BytesKept, buildImage, type NamesModel } from "../../crash/image-builder.ts";
import {
  cutMomentNs,
  marksBefore,
  type Operation,
  parseRecord,
  settleCut,
} from "../../crash/record-reader.ts";

const root = "/data";
/** An operation without its stamp; the stamp becomes its index. */
type Said = Operation extends infer T ? (T extends Operation ? Omit<T, "stampNs"> : never) : never;
const record = (...said: Said[]): Operation[] =>
  said.map((operation, at) => ({ ...operation, stampNs: BigInt(at) }) as Operation);

const create = (path: string, handle: number): Said => ({
  kind: "open",
  path: `${root}/${path}`,
  handle: BigInt(handle),
  created: true,
  emptied: false,
  folder: false,
});
const openFolder = (path: string, handle: number): Said => ({
  kind: "open",
  path: path === "" ? root : `${root}/${path}`,
  handle: BigInt(handle),
  created: false,
  emptied: false,
  folder: true,
});
const write = (handle: number, offset: number, data: string): Said => ({
  kind: "write",
  handle: BigInt(handle),
  offset,
  data: Buffer.from(data),
});
const begin = (handle: number, token: number): Said => ({
  kind: "syncBegin",
  handle: BigInt(handle),
  token,
});
const end = (handle: number, token: number): Said => ({
  kind: "syncEnd",
  handle: BigInt(handle),
  token,
});
const sync = (handle: number, token: number): Said[] => [begin(handle, token), end(handle, token)];
const rename = (path: string, to: string): Said => ({
  kind: "rename",
  path: `${root}/${path}`,
  to: `${root}/${to}`,
});
const unlink = (path: string): Said => ({ kind: "unlink", path: `${root}/${path}` });

function imageOf(
  operations: Operation[],
  options: { cut?: number; bytes?: BytesKept; names?: NamesModel; seed?: number | string } = {},
): Record<string, string> {
  const image = buildImage(createHistory(operations, root), {
    cut: options.cut ?? operations.length - 1,
    bytes: options.bytes ?? "any",
    namesModel: () => options.names ?? "strict",
    lostSectors: "zeros",
    random: new SeededRandom(options.seed ?? 1),
  });
  return Object.fromEntries([...image].map(([path, content]) => [path, content.toString()]));
}

/** The distinct results of many seeds. */
function outcomes(operations: Operation[], options: Parameters<typeof imageOf>[1] = {}): string[] {
  const seen = new Set<string>();
  for (let seed = 0; seed < 300; seed++) {
    seen.add(JSON.stringify(imageOf(operations, { ...options, seed })));
  }
  return [...seen].sort();
}

describe("bytes", () => {
  const named = [create("a", 1), openFolder("", 2), ...sync(2, 1)];

  test("synced ones are there whatever is drawn", () => {
    const operations = record(...named, write(1, 0, "abc"), ...sync(1, 2), write(1, 3, "def"));
    for (const found of outcomes(operations)) expect(JSON.parse(found).a).toMatch(/^abc/);
  });

  test("unsynced ones may be missing, and may be there", () => {
    const operations = record(...named, write(1, 0, "abc"), ...sync(1, 2), write(1, 3, "def"));
    const found = outcomes(operations);
    expect(found).toContain('{"a":"abc"}');
    expect(found).toContain('{"a":"abcdef"}');
  });

  test("a sync that began before the write does not cover it", () => {
    const operations = record(...named, begin(1, 2), write(1, 0, "abc"), end(1, 2));
    expect(imageOf(operations, { bytes: "none" })).toEqual({ a: "" });
  });

  test("a sync that has not returned covers nothing", () => {
    const operations = record(...named, write(1, 0, "abc"), ...sync(1, 2));
    const beforeEnd = operations.length - 2;
    expect(imageOf(operations, { bytes: "none", cut: beforeEnd })).toEqual({ a: "" });
    expect(imageOf(operations, { bytes: "none" })).toEqual({ a: "abc" });
  });

  test("a write is torn between sectors, never inside one", () => {
    const big = "x".repeat(2048);
    const operations = record(
      ...named,
      write(1, 0, "y".repeat(2048)),
      ...sync(1, 2),
      write(1, 0, big),
    );
    const found = outcomes(operations, { bytes: "any" });
    expect(found.length).toBeGreaterThan(4);
    for (const text of found) {
      const content = JSON.parse(text).a as string;
      for (let at = 0; at < 2048; at += 512) {
        expect(new Set(content.slice(at, at + 512)).size).toBe(1);
      }
    }
  });

  test("a sector written twice holds the old, the middle or the new version", () => {
    const operations = record(
      ...named,
      write(1, 0, "a"),
      ...sync(1, 2),
      write(1, 0, "b"),
      write(1, 0, "c"),
    );
    expect(outcomes(operations)).toEqual(['{"a":"a"}', '{"a":"b"}', '{"a":"c"}']);
  });

  test("in order, a later write is never there without an earlier one", () => {
    const operations = record(
      ...named,
      create("b", 3),
      ...sync(2, 3),
      write(1, 0, "first"),
      write(3, 0, "second"),
    );
    for (const text of outcomes(operations, { bytes: "prefix" })) {
      const { a, b } = JSON.parse(text);
      if (b !== "") expect(a).toBe("first");
    }
  });

  test("a truncation that was not synced may not have happened", () => {
    const operations = record(...named, write(1, 0, "abcdef"), ...sync(1, 2), {
      kind: "truncate",
      handle: 1n,
      sizeBytes: 2,
    });
    expect(outcomes(operations).some((text) => JSON.parse(text).a === "ab")).toBe(true);
    expect(outcomes(operations).some((text) => JSON.parse(text).a.length === 6)).toBe(true);
  });

  test("where names are ordered, a file never has a hole that its process did not make", () => {
    const lines = Array.from({ length: 8 }, (_, n) => write(1, n * 700, String(n).repeat(700)));
    const operations = record(...named, ...lines);
    for (const text of outcomes(operations, { names: "ordered" })) {
      expect(JSON.parse(text).a ?? "").not.toContain("\0");
    }
    const holes = outcomes(operations, { names: "strict" }).filter((t) => t.includes("\\u0000"));
    expect(holes.length).toBeGreaterThan(0);
  });
});

describe("names", () => {
  test("strict: a synced file is lost with its name until the folder is synced", () => {
    const operations = record(create("a", 1), write(1, 0, "abc"), ...sync(1, 1));
    expect(outcomes(operations, { names: "strict" })).toEqual(['{"a":"abc"}', "{}"]);
  });

  test("ordered: a sync of the file keeps its creation and what came before", () => {
    const operations = record(create("b", 2), create("a", 1), write(1, 0, "abc"), ...sync(1, 1));
    expect(outcomes(operations, { names: "ordered" })).toEqual(['{"b":"","a":"abc"}']);
  });

  test("ordered: a later change is never there without an earlier one", () => {
    const operations = record(
      create("new", 1),
      write(1, 0, "x"),
      ...sync(1, 1),
      create("old", 2),
      ...sync(2, 2),
      rename("new", "current"),
      unlink("old"),
    );
    expect(outcomes(operations, { names: "ordered" })).toEqual([
      '{"current":"x"}',
      '{"new":"x","old":""}',
      '{"old":"","current":"x"}',
    ]);
  });

  test("strict: of unsynced changes any subset may have happened", () => {
    const operations = record(
      create("new", 1),
      create("old", 2),
      openFolder("", 3),
      ...sync(3, 1),
      rename("new", "current"),
      unlink("old"),
    );
    expect(outcomes(operations, { names: "strict" })).toEqual([
      '{"current":""}',
      '{"new":"","old":""}',
      '{"new":""}',
      '{"old":"","current":""}',
    ]);
  });

  test("a rename is atomic: the file is never without a name", () => {
    const operations = record(create("a", 1), openFolder("", 2), ...sync(2, 1), rename("a", "b"));
    for (const names of ["strict", "ordered"] as const) {
      expect(outcomes(operations, { names })).toEqual(['{"a":""}', '{"b":""}']);
    }
  });

  test("a folder that was not synced into its parent is lost with all it holds", () => {
    const operations = record(
      { kind: "mkdir", path: `${root}/shard` },
      create("shard/a", 1),
      openFolder("shard", 2),
      ...sync(1, 1),
      ...sync(2, 2),
    );
    expect(outcomes(operations, { names: "strict" })).toContain("{}");
    const whole = [...operations, ...record(openFolder("", 3), ...sync(3, 3))];
    expect(outcomes(whole, { names: "strict" })).toEqual(['{"shard":"folder","shard/a":""}']);
  });

  test("a path that is used again names another file", () => {
    const operations = record(
      create("a", 1),
      write(1, 0, "old"),
      unlink("a"),
      create("a", 2),
      write(2, 0, "new"),
    );
    expect(imageOf(operations, { bytes: "all" })).toEqual({ a: "new" });
    const found = outcomes(operations);
    expect(found).toContain("{}");
    expect(found.some((text) => text === '{"a":"old"}')).toBe(true);
  });
});

describe("the moment of a cut", () => {
  const operations = record(
    create("a", 1),
    { kind: "mark", text: "one" },
    begin(1, 1),
    end(1, 1),
    { kind: "mark", text: "two" },
    write(1, 0, "x"),
    { kind: "mark", text: "three" },
  );

  test("takes in all that was known before the disk changed again", () => {
    expect(settleCut(operations, 0)).toBe(2);
    expect(marksBefore(operations, 0)).toEqual(["one"]);
    expect(marksBefore(operations, 3)).toEqual(["one", "two"]);
    expect(cutMomentNs(operations, 3)).toBe(5n);
  });

  test("behind the last operation is later than anything", () => {
    expect(marksBefore(operations, 5)).toEqual(["one", "two", "three"]);
    expect(cutMomentNs(operations, 5)).toBe(2n ** 63n);
  });
});

describe("a record", () => {
  test("that ends inside an entry ends before it", () => {
    const entry = Buffer.alloc(47);
    entry.writeUInt32LE(47, 0);
    entry.writeUInt8(13, 4);
    entry.write("abc", 44);
    const cut = Buffer.concat([entry, entry.subarray(0, 45)]);
    expect(parseRecord(cut).map((operation) => operation.kind)).toEqual(["mark"]);
  });

  test("with a change that cannot be rebuilt is refused, and says which", () => {
    const entry = Buffer.alloc(48);
    entry.writeUInt32LE(48, 0);
    entry.writeUInt8(14, 4);
    entry.writeUInt16LE(4, 6);
    entry.write("mmap", 44);
    expect(() => parseRecord(entry)).toThrow("cannot be rebuilt: mmap");
  });
});

test("the same seed makes the same image", () => {
  fc.assert(
    fc.property(fc.integer(), (seed) => {
      const operations = record(
        create("a", 1),
        ...Array.from({ length: 10 }, (_, n) => write(1, n * 300, String(n).repeat(300))),
      );
      expect(imageOf(operations, { seed })).toEqual(imageOf(operations, { seed }));
    }),
    { numRuns: 20 },
  );
});
