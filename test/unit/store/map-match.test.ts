import { describe, expect, test } from "vitest";
import {
  escapeLevel,
  mapKeyBytesMax,
  mapKeyError,
  unescapeLevel,
} from "../../../src/store/map/keys.ts";
import { MapSlab } from "../../../src/store/map/map-slab.ts";
import { matches, parseTopicFilter, splitTopic } from "../../../src/topic/index.ts";
import { amount } from "../../support/amount.ts";
import { KvBench } from "../../support/store-parts.ts";

const value = Buffer.from("v");

async function slabWith(keys: Iterable<string>): Promise<{ bench: KvBench; slab: MapSlab }> {
  const bench = new KvBench();
  const slab = new MapSlab(await bench.openKv());
  let timeUs = 0;
  for (const key of keys) slab.set(key, { timeUs: ++timeUs, value });
  await bench.run(slab.sync());
  return { bench, slab };
}

describe("keys", () => {
  test("foreign text becomes one level and comes back", () => {
    for (const text of ["", "a/b", "100%", "+", "#", "a\0b", "%2f", "ü/ß", "日本/語"]) {
      const level = escapeLevel(text);
      expect(level).not.toMatch(/[/+#\0]/);
      expect(unescapeLevel(level)).toBe(text);
    }
  });

  test("a key of 64 KiB and a prefix is taken, a longer one or one with U+0000 is not", () => {
    expect(mapKeyError("x".repeat(mapKeyBytesMax))).toBeUndefined();
    expect(mapKeyError("ü".repeat(mapKeyBytesMax / 2))).toBeUndefined();
    expect(mapKeyError("x".repeat(mapKeyBytesMax + 1))?.code).toBe("STORE_KEY_INVALID");
    expect(mapKeyError("ü".repeat(mapKeyBytesMax / 2 + 1))?.code).toBe("STORE_KEY_INVALID");
    expect(mapKeyError("a\0b")?.code).toBe("STORE_KEY_INVALID");
  });

  test("keys come level by level: a branch lies together whatever its siblings are called", async () => {
    const keys = ["a", "a/b", "a/b/c", "a b", "a-", "a!/x", "a0"];
    const { bench, slab } = await slabWith(keys);
    const listed = await bench.run(slab.list("", { countMax: 100 }));
    expect(listed.map(({ key }) => key)).toEqual([
      ...["a", "a/b", "a/b/c", "a b", "a!/x", "a-", "a0"],
    ]);
  });
});

test("a key that was deleted is in memory only once it is looked for", async () => {
  const { bench, slab } = await slabWith(["ended", "lasts"]);
  slab.set("ended", { timeUs: 3, value: undefined });
  expect(slab.peek("ended")?.timeUs).toBe(3);
  await bench.run(slab.sync());
  expect([slab.peek("ended"), slab.peek("lasts")?.timeUs]).toEqual([undefined, 2]);
  expect((await bench.run(slab.load("ended"))).value).toBeUndefined();
  expect(slab.peek("ended")).toBeDefined();
});

describe("match", () => {
  const words = ["", "a", "b", "c d", "$s", "+x", "a%", "é"];
  const topics = words.flatMap((first) => [
    first,
    ...words.flatMap((second) => [`${first}/${second}`, `${first}/${second}/x`]),
  ]);
  const filters = [
    ...["#", "+", "+/+", "a/#", "a/+", "+/x", "+/+/x", "a/b/x", "a", "b/+/x", "c d/#", "$s/#"],
    ...["$s/+", "+/$s", "/+", "//x", "+/#", "a/b/#", "a/b/x/#", "é/é", "nobody/#"],
  ];

  test("a filter finds what it matches, in key order, page by page", async () => {
    const { bench, slab } = await slabWith(topics.map((topic) => `retained/${topic}`));
    for (const filter of filters) {
      const parsed = parseTopicFilter(filter);
      const expected = topics.filter((topic) => matches(parsed, splitTopic(topic))).sort();
      const found: string[] = [];
      let afterKey: string | undefined;
      do {
        const options = { countMax: 3, ...(afterKey === undefined ? {} : { afterKey }) };
        const page = await bench.run(slab.match("retained", filter, options));
        for (const { key } of page.entries) found.push(key.slice("retained/".length));
        afterKey = page.nextAfterKey;
      } while (afterKey !== undefined);
      expect([...found].sort(), filter).toEqual(expected);
      expect(new Set(found).size, filter).toBe(found.length);
    }
  });

  test("what lies beside the prefix is not looked at", async () => {
    const { bench, slab } = await slabWith(["a/x", "ab/x", "a", "b/x"]);
    const found = await bench.run(slab.match("a", "#", { countMax: 10 }));
    expect(found.entries.map(({ key }) => key)).toEqual(["a/x"]);
  });

  const elsewhere = amount(50_000, 200_000, 1_000_000);

  test(`a/+/b reads three times what it returns at most, with ${elsewhere} keys elsewhere`, async () => {
    function* keys(): Generator<string> {
      for (let n = 0; n < 1_000; n++) yield `r/a/${n}/b`;
      for (let n = 0; n < elsewhere; n++) {
        const root = ["a0", "b", "aa", "Z"][n % 4];
        yield `r/${root}/${n}/b`;
      }
      for (let n = 0; n < 1_000; n++) yield `r/a/${n}/b/deeper`;
    }
    const { bench, slab } = await slabWith(keys());
    const { entries, keysRead } = await bench.run(slab.match("r", "a/+/b", { countMax: 5_000 }));
    expect(entries).toHaveLength(1_000);
    expect(keysRead).toBeLessThanOrEqual(3_000);
  }, 60_000);

  test("keys read stay within three times the keys returned, over 100,000 topics", async () => {
    function* keys(): Generator<string> {
      for (let host = 0; host < 1_000; host++) {
        for (let metric = 0; metric < 100; metric++) yield `r/h${host}/m${metric}/value`;
      }
    }
    const { bench, slab } = await slabWith(keys());
    for (const filter of ["+/m5/value", "+/m5/#", "h77/+/value", "h77/#", "#", "+/m99/+"]) {
      const all = { countMax: 200_000 };
      const { entries, keysRead } = await bench.run(slab.match("r", filter, all));
      expect(entries.length, filter).toBeGreaterThan(0);
      const share = filter === "+/m5/value" ? 2 : 3;
      expect(keysRead, filter).toBeLessThanOrEqual(share * entries.length + share);
    }
  });
});
