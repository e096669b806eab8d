// Rows of the shard store about generations (docs/formats/shard-store.md): the table, the next
// number, and what was dropped or set aside, kept to tell readers who come too late.

import { ByteReader, ByteWriter } from "../../base/index.ts";
import type { KvBatch, KvEntry } from "../../kv/index.ts";
import {
  decodeGenerationRow,
  encodeGenerationKey,
  encodeGenerationRow,
  readStructure,
  writeStructure,
} from "../core/generation-codec.ts";
import { type Generation, GenerationTable } from "../core/generations.ts";
import type { MissingReason, MissingSpan, MissingStream } from "../core/missing.ts";
import { checkRowVersion, readRow, rowCorrupt } from "../rows.ts";
import { rowPrefix, type ShardStore } from "../shard-store.ts";
import type { SlabProofs } from "./slab-parts.ts";

const droppedVersion = 1;
const reasons: readonly MissingReason[] = ["expired", "damaged"];
export const nextNumberKey = Buffer.from([rowPrefix.nextGeneration]);

export async function readGenerations(store: ShardStore): Promise<GenerationTable> {
  const rows: Generation[] = [];
  await store.scan(Buffer.from([rowPrefix.generation]), (key, value) => {
    rows.push(decodeGenerationRow(key.subarray(1), value));
  });
  const next = await store.get(nextNumberKey);
  if (next === undefined) return new GenerationTable();
  return GenerationTable.from(rows, new ByteReader(next).u32());
}

/** Those among rows of a shard store. */
export function generationRows(rows: readonly KvEntry[]): Generation[] {
  return rows
    .filter(([key]) => key[0] === rowPrefix.generation)
    .map(([key, value]) => decodeGenerationRow(key.subarray(1), value));
}

/** By number of the generation, ascending. */
export async function readDropped(store: ShardStore): Promise<Map<number, MissingSpan>> {
  const dropped = new Map<number, MissingSpan>();
  await store.scan(Buffer.from([rowPrefix.dropped]), (key, value) => {
    dropped.set(new ByteReader(key, 1).u32(), decodeDropped(value));
  });
  return dropped;
}

/** What is written of the table: these generations, as they are now. */
export function tableRows(
  table: GenerationTable,
  changed: readonly Generation[],
): Array<[key: Buffer, value: Buffer]> {
  const rows: Array<[Buffer, Buffer]> = [];
  for (const generation of changed) {
    rows.push([generationKey(generation.number), encodeGenerationRow(generation)]);
  }
  rows.push([nextNumberKey, new ByteWriter(4).u32(table.nextNumber).finish()]);
  return rows;
}

export function deleteGeneration(batch: KvBatch, number: number): void {
  batch.delete(generationKey(number));
  batch.delete(proofKey(number));
}

/** Row of what the stores of a slab have proved to hold. */
export function proofKey(number: number): Buffer {
  return prefixed(rowPrefix.proof, number);
}

export function encodeProofs({ blocks, index }: SlabProofs): Buffer {
  return new ByteWriter(64).bytes(blocks).bytes(index).finish();
}

export async function readProofs(store: ShardStore): Promise<Map<number, SlabProofs>> {
  const proofs = new Map<number, SlabProofs>();
  await store.scan(Buffer.from([rowPrefix.proof]), (key, value) => {
    const reader = new ByteReader(value);
    const number = new ByteReader(key, 1).u32();
    proofs.set(number, { blocks: reader.bytes(), index: reader.bytes() });
  });
  return proofs;
}

export function droppedKey(number: number): Buffer {
  return prefixed(rowPrefix.dropped, number);
}

export function encodeDropped(span: MissingSpan): Buffer {
  const writer = new ByteWriter(32).u8(droppedVersion).u8(reasons.indexOf(span.reason));
  writer.u64(span.afterUs).u64(span.untilUs).varint(span.countMax);
  const streams = span.streams ?? [];
  writer.varint(streams.length);
  for (const stream of streams) {
    writer.varint(stream.ttvs);
    writeStructure(writer, stream);
  }
  return writer.finish();
}

function decodeDropped(value: Buffer): MissingSpan {
  return readRow("dropped generation", () => {
    const reader = new ByteReader(value);
    checkRowVersion("dropped generation", reader.u8(), droppedVersion);
    const reason = reasons[reader.u8()];
    if (reason === undefined) throw rowCorrupt("dropped generation", "unknown reason");
    const span = {
      afterUs: reader.u64(),
      untilUs: reader.u64(),
      countMax: reader.varint(),
      reason,
    };
    const streams: MissingStream[] = [];
    for (let left = reader.varint(); left > 0; left--) {
      const ttvs = reader.varint();
      streams.push({ ttvs, ...readStructure(reader) });
    }
    return streams.length === 0 && span.countMax > 0 ? span : { ...span, streams };
  });
}

export function generationKey(number: number): Buffer {
  return prefixed(rowPrefix.generation, number);
}

function prefixed(prefix: number, number: number): Buffer {
  return Buffer.concat([Buffer.from([prefix]), encodeGenerationKey(number)]);
}
