import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { ByteReader, ByteWriter } from "../../../src/base/index.ts";
import type { LtsRecord } from "../../../src/store/core/lts-trie.ts";
import { flagsOf } from "../../../src/store/deliverable.ts";
import { type EvidenceItem, EvidenceTable, writeEvidence } from "../../../src/store/evidence.ts";
import { encodeHold } from "../../../src/store/holds.ts";
import { encodeBlockKey } from "../../../src/store/layout/index-row.ts";
import { decodeWindowPart } from "../../../src/store/layout/window.ts";
import { logItemKind, readAppend, writeAppend } from "../../../src/store/log-items.ts";
import { encodeMapKey } from "../../../src/store/map/keys.ts";
import { decodeMapValue, encodeMapValue } from "../../../src/store/map/value.ts";
import { decodeCheckpoint, encodeCheckpoint } from "../../../src/store/shard-store.ts";
import { encodeDropped } from "../../../src/store/slab/generation-rows.ts";
import {
  blockRowKey,
  parseTopicRow,
  parseWindowKey,
  topicRow,
  windowRows,
} from "../../../src/store/slab/rows.ts";
import { WriterTable } from "../../../src/store/writers.ts";
import { append, appendRequest } from "../../support/store-calls.ts";
import { StoreMachine } from "../../support/store-machine.ts";
import { KvBench } from "../../support/store-parts.ts";

const newYearUs = 1_767_225_600_000_000;

/** The hex of a page's code blocks behind "## Example", comments left out. */
function examples(page: string): string[] {
  const text = readFileSync(new URL(`../../../docs/formats/${page}`, import.meta.url), "utf8");
  const blocks = text.slice(text.indexOf("## Example")).matchAll(/```\n([^`]*)```/g);
  return [...blocks].map(([, block]) =>
    block!
      .split("\n")
      .map((line) => line.split(";")[0]!.replaceAll(" ", ""))
      .join(""),
  );
}

const learned: LtsRecord[] = [
  { kind: "edge", node: 4, parent: 0, word: "metrics" },
  { kind: "stream", stream: 1, node: 4 },
];
const evidence = { incarnation: 5, ownerEpoch: 6, packetId: 7 };

describe("docs/formats/entries.md", () => {
  const request = appendRequest("metrics", "a", { publisher: "p1", form: "v5", qos: 2, evidence });

  test("an append with its release is written as the example says, and read back", () => {
    const writer = new ByteWriter().u64(newYearUs).u8(logItemKind.append).varint(0);
    writeAppend(writer, { request, flags: flagsOf(request), stream: 1, learned });
    writer.u8(logItemKind.release).varint(300);
    writeEvidence(writer, { publisher: "p1", ...evidence });
    const bytes = Buffer.from(writer.finish());
    expect(bytes.toString("hex")).toBe(examples("entries.md")[0]);
    const item = readAppend(new ByteReader(bytes, 10), newYearUs);
    expect(item.evidence).toEqual({ publisher: "p1", ...evidence });
    expect(item.learned).toEqual(learned);
    expect(item.ttv).toMatchObject({ topic: "metrics", publisher: "p1", timeUs: newYearUs });
  });

  test("a store writes such entries into its log", async () => {
    const m = new StoreMachine({ seed: 1, store: { shards: 1 } });
    const { store } = await m.boot();
    await m.clock.complete(store.evidence.open("p1", evidence));
    await m.clock.complete(append(store, request));
    const write = new Promise<void>((resolve) => {
      const writes = [
        { key: "a/b", value: Buffer.from("x") },
        { key: "c", value: undefined },
      ];
      store.state("owner").write(writes, [], () => resolve());
    });
    await m.clock.complete(write);
    let log = "";
    for (const { name } of await m.clock.complete(m.disk.list("data/log"))) {
      log += m.disk.peek(`data/log/${name}`).toString("hex");
    }
    const [message, map] = examples("entries.md");
    // The times differ, all else is the same: up to the release, which is not in this log.
    expect(log).toContain(message!.slice(16, message!.lastIndexOf("02ac02")));
    expect(log).toContain(map!.slice(16));
  });
});

describe("docs/formats/shard-store.md", () => {
  const [checkpointHex, droppedHex, writerHex, holdHex, evidenceHex] = examples("shard-store.md");
  const record = {
    ...{ index: 258, timeUs: newYearUs, epoch: 2 },
    recoveries: [{ epoch: 2, fromUs: newYearUs - 16_384, toUs: newYearUs - 15_360, countMax: 3 }],
  };

  test("a checkpoint is written as the example says; any damage of it is seen", () => {
    const bytes = encodeCheckpoint(record);
    expect(bytes.toString("hex")).toBe(checkpointHex);
    expect(decodeCheckpoint(bytes, "store")).toEqual(record);
    for (let at = 0; at < bytes.length; at++) {
      const bad = Buffer.from(bytes);
      bad[at]! ^= 0x10;
      expect(() => decodeCheckpoint(bad, "store")).toThrow("damaged");
      expect(() => decodeCheckpoint(bytes.subarray(0, at), "store")).toThrow("damaged");
    }
  });

  test("a dropped generation, a writer and evidence are written as the examples say", async () => {
    const streams = [{ structure: ["a", "+"], dollar: false, ttvs: 5 }];
    const span = { afterUs: 999, untilUs: 1_999, countMax: 5, reason: "expired", streams } as const;
    expect(encodeHold({ name: "h", afterUs: 1_000, lostTtvs: 3 }).toString("hex")).toBe(holdHex);
    expect(encodeDropped(span).toString("hex")).toBe(droppedHex);
    const kv = new KvBench(1);
    const store = await kv.openShardStore();
    const writers = new WriterTable();
    writers.applyOpen("w", 1_000);
    writers.applyResult({ name: "w", epoch: 1_000, sequence: 1 }, 1_001);
    await kv.save(store, writers);
    expect((await kv.run(store.get(Buffer.from("ww"))))?.toString("hex")).toBe(writerHex);
    const table = new EvidenceTable(store);
    const item: EvidenceItem = { publisher: "p1", ...evidence };
    table.applyTaken(item);
    await kv.save(store, table);
    const row = await kv.run(store.get(Buffer.from(evidenceHex!, "hex")));
    expect(row?.toString("hex")).toBe("01");
  });
});

test("docs/formats/slab.md: keys and topic rows are written as the example says", () => {
  const rows = learned.map((record) => topicRow(record, newYearUs));
  const parts = rows.flatMap(({ key, value }) => [key, value]);
  parts.push(blockRowKey(1, newYearUs), encodeBlockKey(newYearUs, 1));
  expect(Buffer.concat(parts).toString("hex")).toBe(examples("slab.md")[0]);
  for (const [at, { key, value }] of rows.entries()) {
    expect(parseTopicRow(key, value)).toEqual({ record: learned[at], timeUs: newYearUs });
  }
});

test("docs/formats/slab.md: a window is written and read as the example says", () => {
  const row = {
    stream: 1,
    firstTimeUs: newYearUs,
    lastTimeUs: newYearUs,
    count: 1,
    sizeBytes: 100,
  };
  const window = { untilUs: newYearUs, rows: [{ ...row, summary: new Uint8Array(0) }] };
  const [[key, value] = []] = windowRows(window);
  expect(Buffer.concat([key!, value!]).toString("hex")).toBe(examples("slab.md")[1]);
  expect(parseWindowKey(key!)).toEqual({ untilUs: newYearUs, part: 0 });
  expect(decodeWindowPart(newYearUs, value!)).toEqual(window.rows);
});

test("docs/formats/map.md: a key and its value are written as the example says", () => {
  const value = encodeMapValue(newYearUs, Buffer.from("x"));
  const hex = encodeMapKey("session/c1").toString("hex") + value.toString("hex");
  expect(hex).toBe(examples("map.md")[0]);
  expect(decodeMapValue(value)).toEqual({ timeUs: newYearUs, value: Buffer.from("x") });
  value[0] = 2;
  expect(() => decodeMapValue(value)).toThrow("newer version");
});
