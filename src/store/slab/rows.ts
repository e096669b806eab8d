// Rows of a log slab's `index` store (docs/formats/slab.md): a prefix byte, then what
// `layout/index-row.ts`, `layout/window.ts` and `core/lts-codec.ts` say. Topic rows carry the commit
// time of the entry that taught them, so that a slab can be cut back to its checkpoint.

import { ByteReader, u64Key } from "../../base/index.ts";
import { decodeLtsRow, encodeLtsRow } from "../core/lts-codec.ts";
import type { LtsRecord } from "../core/lts-trie.ts";
import { type BlockRow, decodeBlockRow, encodeBlockRowKey } from "../layout/index-row.ts";
import { decodeWindowKey, encodeWindow, encodeWindowKey, type Window } from "../layout/window.ts";
import { readRow } from "../rows.ts";

export const slabPrefix = { block: 0x01, window: 0x02, topic: 0x03 } as const;

const highest = Number.MAX_SAFE_INTEGER;

export function blockRowKey(stream: number, lastTimeUs: number): Buffer {
  return prefixed(slabPrefix.block, encodeBlockRowKey(stream, lastTimeUs));
}

/** Rows of a stream whose last time is above `afterUs`. */
export function blockRowRange(stream: number, afterUs: number): { gt: Buffer; lte: Buffer } {
  return { gt: blockRowKey(stream, afterUs), lte: blockRowKey(stream, highest) };
}

export function parseBlockRow(key: Buffer, value: Buffer): BlockRow {
  return decodeBlockRow(key.subarray(1), value);
}

/** Parts of windows that reach above `afterUs`. */
export function windowRange(afterUs: number): { gt: Buffer; lt: Buffer } {
  return {
    gt: prefixed(slabPrefix.window, encodeWindowKey(afterUs, 0xffff)),
    lt: Buffer.from([slabPrefix.window + 1]),
  };
}

export function windowRows(window: Window): Array<[key: Buffer, value: Buffer]> {
  return encodeWindow(window).map(([key, value]) => [prefixed(slabPrefix.window, key), value]);
}

export function parseWindowKey(key: Buffer): { untilUs: number; part: number } {
  return decodeWindowKey(key.subarray(1));
}

export function topicRow(record: LtsRecord, timeUs: number): { key: Buffer; value: Buffer } {
  const row = encodeLtsRow(record);
  return {
    key: prefixed(slabPrefix.topic, row.key),
    value: Buffer.concat([u64Key(timeUs), row.value]),
  };
}

export function parseTopicRow(key: Buffer, value: Buffer): { record: LtsRecord; timeUs: number } {
  return readRow("topic", () => {
    const timeUs = new ByteReader(value).u64();
    return { record: decodeLtsRow(key.subarray(1), value.subarray(8)), timeUs };
  });
}

function prefixed(prefix: number, key: Buffer): Buffer {
  return Buffer.concat([Buffer.from([prefix]), key]);
}
