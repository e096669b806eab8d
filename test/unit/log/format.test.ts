import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import {
  decodeBlock,
  decodeFlushHeader,
  decodeSegmentHeader,
  encodeSegmentHeader,
  peekFlush,
  seedOf,
} from "../../../src/log/format.ts";
import { emptyFlushBytes, FlushEncoder, RecordGroup } from "../../../src/log/writer.ts";
import { makeRecord } from "../../support/log-harness.ts";

const page = readFileSync(new URL("../../../docs/formats/log.md", import.meta.url), "utf8");

/** Bytes of the page's example: hex up to the bar of each line of the named block. */
function exampleHex(name: string): string {
  const block = page.split(`<!-- ${name} -->`)[1]?.split("```")[1];
  if (block === undefined) throw new Error(`no example ${name}`);
  const lines = block.split("\n").slice(1);
  return lines.map((line) => (line.split("|")[0] as string).replace(/\s/g, "")).join("");
}

const id = Buffer.from("0123456789abcdef", "hex");

function exampleFlush(): Buffer {
  const group = new RecordGroup({ bytesMax: 1024, recordsMax: 16 });
  group.tryAdd(makeRecord(3, 41, "on", { epoch: 2, kind: 1 }));
  group.tryAdd(makeRecord(3, 42, "off", { epoch: 2, kind: 1 }));
  return new FlushEncoder(1024).encode(group, 7, 6, seedOf(id));
}

describe("docs/formats/log.md", () => {
  test("shows the segment header that the code writes", () => {
    const header = { id, order: 2, firstFlush: 7, sizeBytes: 67_108_864 };
    const bytes = encodeSegmentHeader(header);
    const shown = Buffer.concat([bytes.subarray(0, 42), bytes.subarray(508)]);
    expect(exampleHex("header")).toBe(shown.toString("hex"));
    expect(bytes.subarray(42, 508).every((byte) => byte === 0)).toBe(true);
    expect(decodeSegmentHeader(bytes)).toEqual({ kind: "valid", header });
  });

  test("shows the flush that the code writes", () => {
    expect(exampleHex("flush")).toBe(exampleFlush().toString("hex"));
  });
});

describe("a flush", () => {
  test("is decoded to what was encoded", () => {
    const bytes = exampleFlush();
    const claim = peekFlush(bytes)!;
    const header = decodeFlushHeader(bytes, claim, seedOf(id))!;
    expect(header).toMatchObject({ number: 7, syncedThrough: 6, sizeBytes: bytes.length });
    expect(header.spans).toEqual([{ shard: 3, firstIndex: 41, lastIndex: 42, lastTerm: 1 }]);
    const records = decodeBlock(bytes.subarray(header.headerBytes))!;
    expect(records.map(({ index }) => index)).toEqual([41, 42]);
  });

  test("is refused under another seed", () => {
    const bytes = exampleFlush();
    expect(decodeFlushHeader(bytes, peekFlush(bytes)!, seedOf(Buffer.alloc(8)))).toBeUndefined();
  });

  test("without records has only the fixed header", () => {
    const group = new RecordGroup({ bytesMax: 1024, recordsMax: 16 });
    const bytes = new FlushEncoder(1024).encode(group, 1, 0, 0);
    expect(bytes.length).toBe(emptyFlushBytes);
    expect(decodeFlushHeader(bytes, peekFlush(bytes)!, 0)).toMatchObject({ spans: [], blocks: [] });
  });

  test("cut at any byte or with any bit turned has no readable header or a bad block", () => {
    const bytes = Buffer.from(exampleFlush());
    for (let at = 0; at < bytes.length; at++) {
      const claim = peekFlush(bytes.subarray(0, at));
      const header = claim && decodeFlushHeader(bytes.subarray(0, at), claim, seedOf(id));
      if (at < 72) expect(header).toBeUndefined();
      for (let bit = 0; bit < 8 && at < 72; bit++) {
        const changed = Buffer.from(bytes);
        changed[at] = changed[at]! ^ (1 << bit);
        const other = peekFlush(changed);
        expect(other && decodeFlushHeader(changed, other, seedOf(id))).toBeUndefined();
      }
    }
  });

  test("block with a wild record length is malformed, never read past its end", () => {
    const bytes = Buffer.from(exampleFlush().subarray(72));
    bytes.writeUInt32BE(0xffffffff, 0);
    expect(decodeBlock(bytes)).toBeUndefined();
    expect(decodeBlock(bytes.subarray(0, 20))).toBeUndefined();
  });
});

describe("a group", () => {
  test("takes one record whatever its size, then keeps to its byte cap, header included", () => {
    const group = new RecordGroup({ bytesMax: 400, recordsMax: 100 });
    expect(group.tryAdd(makeRecord(1, 1, Buffer.alloc(1000)))).toBe(true);
    expect(group.tryAdd(makeRecord(1, 2, Buffer.alloc(1)))).toBe(false);
    group.clear();
    let count = 0;
    while (group.tryAdd(makeRecord(count % 5, Math.floor(count / 5) + 1, ""))) count++;
    group.seal();
    expect(group.sizeBytes).toBeLessThanOrEqual(400);
    expect(count).toBeGreaterThan(3);
  });

  test("takes only the next index of a shard", () => {
    const group = new RecordGroup({ bytesMax: 4000, recordsMax: 100 });
    expect(group.tryAdd(makeRecord(1, 5))).toBe(true);
    expect(group.tryAdd(makeRecord(2, 9))).toBe(true);
    expect(group.tryAdd(makeRecord(1, 5))).toBe(false);
    expect(group.tryAdd(makeRecord(1, 7))).toBe(false);
    expect(group.tryAdd(makeRecord(1, 6))).toBe(true);
  });
});
