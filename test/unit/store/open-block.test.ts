import { describe, expect, test } from "vitest";
import { type Place, WordTable } from "../../../src/store/core/place.ts";
import { decodeBlock, encodeBlock } from "../../../src/store/layout/block.ts";
import {
  decodeBlockKey,
  decodeBlockRow,
  encodeBlockKey,
  encodeBlockRow,
  encodeBlockRowKey,
  writeBlock,
} from "../../../src/store/layout/index-row.ts";
import { OpenBlock } from "../../../src/store/layout/open-block.ts";
import { summarize } from "../../../src/store/layout/summary.ts";
import { matchTopics } from "../../../src/store/layout/ttv-view.ts";
import { sourceOf } from "../../../src/store/types.ts";
import { blockOf, hostStructure, makeTtv, ttvsOf, varyingOf } from "./blocks.ts";

const add = (block: OpenBlock, fields: Parameters<typeof makeTtv>[0]): void => {
  const ttv = makeTtv(fields);
  block.append(ttv, varyingOf(hostStructure, ttv.topic));
};

describe("open block", () => {
  test("what was appended is readable at once and as the block that is written", () => {
    const ttvs = Array.from({ length: 100 }, (_, index) =>
      makeTtv({
        ...{ topic: `m/h${index % 7}/cpu/${index % 3}`, timeUs: index + 1 },
        ...{ publisher: `p${index % 5}`, frame: Buffer.alloc(index, index) },
      }),
    );
    const block = blockOf(ttvs);
    expect(ttvsOf(block)).toEqual(ttvs);
    block.seal();
    expect(ttvsOf(block)).toEqual(ttvs);
    expect(ttvsOf(decodeBlock(writeBlock(1, block).value, 2))).toEqual(ttvs);
  });

  test("a view taken before the block grew keeps its bytes", () => {
    const block = new OpenBlock();
    add(block, { timeUs: 1, frame: Buffer.from("first") });
    const early = block.frame(0);
    for (let timeUs = 2; timeUs < 60; timeUs++) add(block, { timeUs, frame: Buffer.alloc(900, 1) });
    expect(early.toString()).toBe("first");
    expect(block.frame(0).toString()).toBe("first");
  });

  test("the frame is copied: its owner may use the memory again", () => {
    const block = new OpenBlock();
    const frame = Buffer.from("mine");
    add(block, { timeUs: 1, frame });
    frame.fill(0);
    expect(block.frame(0).toString()).toBe("mine");
  });

  test("256 TTVs fill a block", () => {
    const block = new OpenBlock();
    for (let timeUs = 1; timeUs <= 256; timeUs++) {
      expect(block.fits(1)).toBe(true);
      add(block, { timeUs, frame: Buffer.alloc(1) });
    }
    expect(block.isFull).toBe(true);
    expect(block.fits(0)).toBe(false);
  });

  test("64 KiB of frames fill a block, and one larger frame fills a block alone", () => {
    const block = new OpenBlock();
    add(block, { timeUs: 1, frame: Buffer.alloc(60_000) });
    expect(block.fits(5_536)).toBe(true);
    expect(block.fits(5_537)).toBe(false);
    add(block, { timeUs: 2, frame: Buffer.alloc(5_536) });
    expect(block.isFull).toBe(true);
    const large = new OpenBlock();
    expect(large.fits(8_000_000)).toBe(true);
    add(large, { timeUs: 1, frame: Buffer.alloc(8_000_000) });
    expect(large.isFull).toBe(true);
  });

  test("times must grow, and a sealed block takes nothing", () => {
    const block = new OpenBlock();
    expect(() => block.seal()).toThrow("empty");
    add(block, { timeUs: 5 });
    expect(() => add(block, { timeUs: 5 })).toThrow("grow strictly");
    block.seal();
    expect(block.isSealed).toBe(true);
    expect(() => add(block, { timeUs: 6 })).toThrow("sealed");
    expect(block.fits(1)).toBe(false);
  });

  test("the memory it holds is counted, frames, tables and dictionaries", () => {
    const block = new OpenBlock();
    const before = block.memoryBytes;
    add(block, { timeUs: 1, publisher: "p".repeat(500), frame: Buffer.alloc(50_000) });
    expect(block.memoryBytes - before).toBeGreaterThan(46_000);
    const one = block.memoryBytes;
    add(block, { timeUs: 2, publisher: "p".repeat(500), frame: Buffer.alloc(0) });
    expect(block.memoryBytes).toBe(one);
  });
});

describe("index row", () => {
  const block = blockOf([makeTtv({ timeUs: 100 }), makeTtv({ topic: "m/h2/cpu/0", timeUs: 300 })]);
  const { row, value } = writeBlock(9, block);

  test("the row says what the block holds and survives its bytes", () => {
    expect(row).toMatchObject({
      ...{ stream: 9, firstTimeUs: 100, lastTimeUs: 300, count: 2, sizeBytes: value.length },
    });
    const key = encodeBlockRowKey(row.stream, row.lastTimeUs);
    expect(decodeBlockRow(key, encodeBlockRow(row))).toEqual(row);
    expect(decodeBlockKey(encodeBlockKey(300, 9))).toEqual({ lastTimeUs: 300, stream: 9 });
  });

  test("block keys sort by time, row keys by stream and then time", () => {
    const sorted = (keys: Buffer[]): string[] =>
      keys.sort(Buffer.compare).map((k) => k.toString("hex"));
    const blockKeys = [encodeBlockKey(2 ** 33, 1), encodeBlockKey(5, 9), encodeBlockKey(5, 2)];
    expect(sorted(blockKeys)).toEqual([
      "000000000000000500000002",
      "000000000000000500000009",
      "000000020000000000000001",
    ]);
    const rowKeys = [
      encodeBlockRowKey(2, 1),
      encodeBlockRowKey(1, 2 ** 33),
      encodeBlockRowKey(1, 7),
    ];
    expect(sorted(rowKeys)).toEqual([
      "000000010000000000000007",
      "000000010000000200000000",
      "000000020000000000000001",
    ]);
  });

  test("a damaged row is refused", () => {
    const key = encodeBlockRowKey(9, 300);
    const bytes = encodeBlockRow(row);
    const refused = (k: Uint8Array, v: Uint8Array, code = "STORE_ROW_CORRUPT"): void => {
      expect(() => decodeBlockRow(k, v)).toThrow(expect.objectContaining({ code }));
    };
    for (let size = 0; size < 11; size++) refused(key, bytes.subarray(0, size));
    refused(key.subarray(1), bytes);
    refused(encodeBlockRowKey(9, 99), bytes);
    refused(key, Buffer.concat([Buffer.from([0]), bytes.subarray(1)]));
    refused(key, Buffer.concat([Buffer.from([2]), bytes.subarray(1)]), "STORE_VERSION_UNKNOWN");
    expect(() => decodeBlockKey(key.subarray(1))).toThrow("key of 11 bytes");
  });
});

describe("topics whose place is known", () => {
  const topics = Array.from({ length: 40 }, (_, n) => [`h${n % 7}`, `c${n % 20}`]);

  function blockBy(placeOf: (varying: readonly string[]) => Place): OpenBlock {
    const block = new OpenBlock();
    for (const [n, varying] of topics.entries()) {
      const topic = varying.join("/");
      block.appendAt(sourceOf(makeTtv({ timeUs: 100 + n, topic })), placeOf(varying));
    }
    return block;
  }

  /** One place for each topic, as the learned structure keeps them. */
  function kept(tableOf: (varying: readonly string[]) => WordTable) {
    const places = new Map<string, Place>();
    return (varying: readonly string[]): Place => {
      const topic = varying.join("/");
      const place = places.get(topic) ?? tableOf(varying).place(1, varying, true);
      places.set(topic, place);
      return place;
    };
  }

  function byTexts(): OpenBlock {
    const block = new OpenBlock();
    for (const [n, varying] of topics.entries()) {
      block.append(makeTtv({ timeUs: 100 + n, topic: varying.join("/") }), varying);
    }
    return block;
  }

  test("make the same bytes as their texts do, in any number of blocks", () => {
    const table = new WordTable(1_000);
    const placeOf = kept(() => table);
    for (let round = 0; round < 2; round++) {
      const block = blockBy(placeOf);
      expect(block.places?.length).toBe(topics.length);
      expect(encodeBlock(block)).toEqual(encodeBlock(byTexts()));
      expect(summarize(block)).toEqual(summarize(byTexts()));
    }
  });

  test("keep one id for a text, also where words of two tables meet, or are kept in none", () => {
    const tables = [new WordTable(1_000), new WordTable(1_000)];
    const mixed = kept(([, core]) => tables[Number(core?.slice(1)) % 2]!);
    const loose = (varying: readonly string[]) => tables[0]!.place(1, varying, false);
    for (const placeOf of [mixed, loose]) {
      const block = blockBy(placeOf);
      expect(encodeBlock(block)).toEqual(encodeBlock(byTexts()));
      const matches = matchTopics(decodeBlock(encodeBlock(block)), ["h3", "+"]);
      expect([...(matches as Uint8Array)].filter((hit) => hit === 1)).toHaveLength(
        topics.filter(([host]) => host === "h3").length,
      );
    }
  });

  test("a table that is full begins again with a number of its own", () => {
    const table = new WordTable(4);
    const before = table.place(1, ["a", "b"], true);
    expect(table.place(1, ["a", "c"], true).table).toBe(before.table);
    const after = table.place(1, ["d", "a"], true);
    expect(after.table).not.toBe(before.table);
    expect(after.words?.[1]).not.toBe(before.words?.[0]);
  });
});
