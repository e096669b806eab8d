// Bytes of learned topic records: as rows of a slab's index, and as a list in a log entry
// (docs/formats/topics.md). Each row and each list says its version.
//
// Row keys sort so that a scan yields an order in which the records can be applied: edges by node
// (a parent is always older than its child), then streams. The caller puts its own prefix in front.

import { ByteReader, ByteWriter } from "../../base/index.ts";
import { checkRowVersion, readRow, rowCorrupt } from "../rows.ts";
import type { LtsRecord } from "./lts-trie.ts";

const version = 1;
const edgeKind = 1;
const streamKind = 2;
const keyBytes = 5;
const numberMax = 0xffff_ffff;

export type LtsRow = { readonly key: Buffer; readonly value: Buffer };

export function encodeLtsRow(record: LtsRecord): LtsRow {
  const edge = record.kind === "edge";
  const key = Buffer.allocUnsafe(keyBytes);
  key[0] = edge ? edgeKind : streamKind;
  key.writeUInt32BE(edge ? record.node : record.stream, 1);
  const value = new ByteWriter(32).u8(version);
  if (edge) value.u32(record.parent).string(record.word);
  else value.u32(record.node);
  return { key, value: value.finish() };
}

/** @throws STORE_ROW_CORRUPT, STORE_VERSION_UNKNOWN. */
export function decodeLtsRow(key: Uint8Array, value: Uint8Array): LtsRecord {
  return readRow("topic", () => {
    if (key.length !== keyBytes) throw corrupt(`key of ${key.length} bytes`);
    const keyReader = new ByteReader(key);
    const kind = keyReader.u8();
    const number = keyReader.u32();
    const reader = new ByteReader(value);
    checkRowVersion("topic", reader.u8(), version);
    const record = readBody(kind, number, reader);
    if (reader.remaining > 0) throw corrupt(`${reader.remaining} bytes too many`);
    return record;
  });
}

export function writeLtsRecords(writer: ByteWriter, records: readonly LtsRecord[]): void {
  writer.u8(version).varint(records.length);
  for (const record of records) {
    if (record.kind === "edge") {
      writer.u8(edgeKind).u32(record.node).u32(record.parent).string(record.word);
    } else {
      writer.u8(streamKind).u32(record.stream).u32(record.node);
    }
  }
}

/** @throws STORE_ROW_CORRUPT, STORE_VERSION_UNKNOWN. */
export function readLtsRecords(reader: ByteReader): LtsRecord[] {
  return readRow("topic", () => {
    checkRowVersion("topic", reader.u8(), version);
    const count = reader.varint();
    const records: LtsRecord[] = [];
    for (let index = 0; index < count; index++) {
      const kind = reader.u8();
      records.push(readBody(kind, reader.u32(), reader));
    }
    return records;
  });
}

function readBody(kind: number, number: number, reader: ByteReader): LtsRecord {
  if (kind === edgeKind) {
    return { kind: "edge", node: number, parent: reader.u32(), word: reader.string() };
  }
  if (kind !== streamKind) throw corrupt(`kind ${kind}`);
  if (number === 0 || number === numberMax) throw corrupt(`stream ${number}`);
  return { kind: "stream", stream: number, node: reader.u32() };
}

function corrupt(reason: string): Error {
  return rowCorrupt("topic", reason);
}
