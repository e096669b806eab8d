import { describe, expect, test } from "vitest";
import { crc32, isCodedError } from "../../../src/base/index.ts";
import { decodeBlock, encodeBlock } from "../../../src/store/layout/block.ts";
import type { BlockView } from "../../../src/store/layout/block-view.ts";
import { indexAfter, matchTopics, nextMatch, topicAt } from "../../../src/store/layout/ttv-view.ts";
import {
  areFlags,
  formOf,
  isRetain,
  packFlags,
  qosOf,
  type Ttv,
} from "../../../src/store/types.ts";
import { blockOf, hostStructure, makeTtv, ttvsOf } from "./blocks.ts";

const sample = (): Ttv[] => [
  makeTtv({ topic: "m/h1/cpu/0", timeUs: 1_000_000, publisher: "p1", flags: packFlags(0, 0) }),
  makeTtv({ topic: "m/ä/cpu/", timeUs: 1_000_001, publisher: "", flags: packFlags(4, 2, 1) }),
  makeTtv({ topic: "m/h1/cpu/0", timeUs: 5_000_000, frame: Buffer.alloc(0) }),
  makeTtv({
    timeUs: 5_000_300,
    expiryUs: 9_000_000,
    frame: Buffer.from("seconds:1234."),
    expiryOffset: 8,
  }),
  makeTtv({ topic: "m/h2/cpu/0", timeUs: 7_000_000, publisher: "p2", expiryUs: 1 }),
];

const resealed = (block: Buffer): Buffer => {
  block.writeUInt32BE(crc32(block.subarray(0, -4)), block.length - 4);
  return block;
};

const failure = (bytes: Uint8Array): string => {
  try {
    readAll(decodeBlock(bytes, 2));
    return "none";
  } catch (error) {
    return isCodedError(error) ? error.code : String(error);
  }
};

const readAll = (view: BlockView): number => {
  let sum = 0;
  for (const ttv of ttvsOf(view)) {
    const patched = ttv.expiryOffset === 0 ? 0 : ttv.expiryOffset + 4;
    if (patched > ttv.frame.length) throw new Error("the seconds lie outside the frame");
    sum += ttv.frame.length + ttv.topic.length + ttv.timeUs;
  }
  return sum;
};

describe("block", () => {
  test("every field of every TTV comes back", () => {
    const ttvs = sample();
    const view = decodeBlock(encodeBlock(blockOf(ttvs)), 2);
    expect(ttvsOf(view)).toEqual(ttvs);
    expect([view.topicCount, view.publisherCount]).toEqual([3, 3]);
  });

  test("a block without expiry has no expiry table", () => {
    const ttvs = sample().map((ttv) => ({ ...ttv, expiryUs: 0, expiryOffset: 0 }));
    const bytes = encodeBlock(blockOf(ttvs));
    expect(bytes[1]).toBe(0);
    expect(ttvsOf(decodeBlock(bytes, 2))).toEqual(ttvs);
  });

  test("streams without varying levels and the catch-all are blocks like others", () => {
    for (const [structure, topics] of [
      [
        ["a", "b"],
        ["a/b", "a/b"],
      ],
      [["#"], ["a/b", "c", "", "/x/y/z"]],
    ] as const) {
      const ttvs = topics.map((topic, index) => makeTtv({ topic, timeUs: index + 1 }));
      const view = decodeBlock(encodeBlock(blockOf(ttvs, structure)));
      expect(ttvsOf(view, structure)).toEqual(ttvs);
    }
  });

  test("frames lie back to back, so that a run is one view", () => {
    const ttvs = sample();
    const view = decodeBlock(encodeBlock(blockOf(ttvs)), 2);
    const run = view.frames().subarray(view.frameStart(1), view.frameStart(4));
    expect(run).toEqual(Buffer.concat(ttvs.slice(1, 4).map((ttv) => ttv.frame)));
    expect(view.frame(0).buffer).toBe(view.frames().buffer);
  });

  test("large times, frames and counts survive", () => {
    const timeUs = Number.MAX_SAFE_INTEGER - 400;
    const ttvs = Array.from({ length: 300 }, (_, index) =>
      makeTtv({ topic: `m/h${index}/cpu/0`, timeUs: timeUs + index, publisher: `p${index}` }),
    );
    ttvs.push(makeTtv({ timeUs: timeUs + 399, frame: Buffer.alloc(70_000, 7) }));
    const settings = { ttvsMax: 1000, bytesMax: 1_000_000 };
    const view = decodeBlock(encodeBlock(blockOf(ttvs, hostStructure, settings)), 2);
    expect(ttvsOf(view)).toEqual(ttvs);
  });

  test("a damaged byte or a cut anywhere is found by the checksum", () => {
    const good = encodeBlock(blockOf(sample()));
    for (let at = 0; at < good.length; at++) {
      for (const flip of [0x01, 0x80, 0xff]) {
        const bad = Buffer.from(good);
        bad[at] = (bad[at] as number) ^ flip;
        expect(failure(bad)).toBe("STORE_BLOCK_CORRUPT");
      }
      expect(failure(good.subarray(0, at))).toBe("STORE_BLOCK_CORRUPT");
    }
    expect(failure(Buffer.concat([good, Buffer.alloc(1)]))).toBe("STORE_BLOCK_CORRUPT");
  });

  test("with a right checksum no byte makes a reader leave the block", () => {
    const good = encodeBlock(blockOf(sample()));
    const codes = new Set<string>();
    for (let at = 0; at < good.length - 4; at++) {
      for (let value = 0; value < 256; value++) {
        const bad = Buffer.from(good);
        bad[at] = value;
        codes.add(failure(resealed(bad)));
      }
    }
    expect([...codes].sort()).toEqual(["STORE_BLOCK_CORRUPT", "STORE_VERSION_UNKNOWN", "none"]);
  });

  test("bytes behind the last frame are damage", () => {
    const good = encodeBlock(blockOf(sample()));
    const longer = Buffer.concat([good.subarray(0, -4), Buffer.alloc(5)]);
    expect(failure(resealed(longer))).toBe("STORE_BLOCK_CORRUPT");
  });

  test("a newer version is told apart from damage", () => {
    const bytes = encodeBlock(blockOf(sample()));
    bytes[0] = 2;
    expect(failure(bytes)).toBe("STORE_BLOCK_CORRUPT");
    expect(failure(resealed(bytes))).toBe("STORE_VERSION_UNKNOWN");
  });

  test("a topic with other than the stream's number of varying levels is damage", () => {
    const bytes = encodeBlock(blockOf(sample()));
    expect(() => decodeBlock(bytes, 3)).toThrow("2 levels vary, not 3");
  });

  test("the worked example of docs/formats/block.md is what is written", () => {
    const ttvs = [
      makeTtv({ topic: "m/h1/cpu/0", timeUs: 1_767_225_600_000_000, frame: Buffer.from("a") }),
      makeTtv({
        ...{ topic: "m/h2/cpu/0", timeUs: 1_767_225_600_000_300, publisher: "p2" },
        ...{ expiryUs: 1_767_225_660_000_000, expiryOffset: 1, frame: Buffer.from("b\0\0\0<") },
      }),
    ];
    const bytes = encodeBlock(blockOf(ttvs));
    expect(bytes.toString("hex")).toBe(
      [
        "01010002" + "0006474846204000" + "0000004000000006",
        "03" + "026831" + "0130" + "026832",
        "02" + "020001" + "020201",
        "02" + "027031" + "027032",
        "ac02" + "0d0d" + "0001" + "0001" + "0105",
        "0000" + "808ecfcd84e9910301",
        "61" + "620000003c",
        "f8401655",
      ].join(""),
    );
  });
});

describe("batch", () => {
  const ttvs = ["h1", "h2", "h1", "h3", "h2"].map((host, index) =>
    makeTtv({ topic: `m/${host}/cpu/${index % 2}`, timeUs: 10 * (index + 1) }),
  );
  const view = decodeBlock(encodeBlock(blockOf(ttvs)), 2);

  test("reading goes on at the first time above a position", () => {
    expect([0, 9, 10, 11, 49, 50, 99].map((timeUs) => indexAfter(view, timeUs))).toEqual([
      0, 0, 1, 1, 4, 5, 5,
    ]);
  });

  test("a residual is matched per distinct topic and found per TTV", () => {
    const found = (residual: readonly string[]): number[] => {
      const match = matchTopics(view, residual);
      const indexes: number[] = [];
      let index = nextMatch(view, match, 0);
      for (; index < view.count; index = nextMatch(view, match, index + 1)) indexes.push(index);
      return indexes;
    };
    expect(found(["h1", "+"])).toEqual([0, 2]);
    expect(found(["h2", "0"])).toEqual([4]);
    expect(found(["h9", "+"])).toEqual([]);
    expect(found(["+", "+"])).toEqual([0, 1, 2, 3, 4]);
    expect(matchTopics(view, "all")).toBe("all");
    expect(matchTopics(view, ["+", "+"])).toBe("all");
    expect(matchTopics(view, ["h9", "+"])).toBe("none");
    expect(nextMatch(view, "all", 9)).toBe(5);
  });

  test("a topic is the structure filled with its varying words", () => {
    expect(topicAt(view, hostStructure, 3)).toBe("m/h3/cpu/1");
  });
});

describe("flags", () => {
  test("form, QoS and RETAIN are packed in a byte and found again", () => {
    for (const form of [0, 4, 5] as const) {
      for (const qos of [0, 1, 2] as const) {
        for (const retain of [0, 1] as const) {
          const flags = packFlags(form, qos, retain);
          expect([formOf(flags), qosOf(flags), isRetain(flags)]).toEqual([form, qos, retain === 1]);
          expect(areFlags(flags)).toBe(true);
        }
      }
    }
    for (const flags of [1, 3, 7, 0b0001_1000, 0b0100_0000, 255]) {
      expect(areFlags(flags)).toBe(false);
    }
  });
});
