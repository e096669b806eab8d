// Rows of the generation table in the shard store: one per generation, and the next number
// (docs/formats/generations.md). The caller puts its own prefix in front of the keys.

import { ByteReader, ByteWriter } from "../../base/index.ts";
import { checkRowVersion, readRow, rowCorrupt } from "../rows.ts";
import type { Generation, GenerationState, StreamCount } from "./generations.ts";

/** 1 had no pack. */
const rowVersion = 2;
const keyBytes = 4;
const states: readonly GenerationState[] = ["current", "sealing", "sealed", "dropping"];

/** `number u32`. */
export function encodeGenerationKey(number: number): Buffer {
  return new ByteWriter(keyBytes).u32(number).finish();
}

export function encodeGenerationRow(generation: Generation): Buffer {
  const writer = new ByteWriter().u8(rowVersion).u8(states.indexOf(generation.state));
  writer
    .string(generation.layout)
    .u64(generation.fromUs)
    .u64(generation.toUs ?? 0)
    .u64(generation.firstUs)
    .varint(generation.pack);
  writer.varint(generation.streams.size);
  for (const [stream, count] of generation.streams) {
    writer.u32(stream).varint(count.ttvs).varint(count.sizeBytes);
    writeStructure(writer, count);
  }
  return writer.finish();
}

/** Its root, 1 for the topics that start with `$`, and its levels. */
export function writeStructure(
  writer: ByteWriter,
  { structure, dollar }: Pick<StreamCount, "structure" | "dollar">,
): void {
  writer.u8(dollar ? 1 : 0).string(structure.join("/"));
}

export function readStructure(reader: ByteReader): Pick<StreamCount, "structure" | "dollar"> {
  const dollar = reader.u8() === 1;
  return { dollar, structure: reader.string().split("/") };
}

/** @throws STORE_ROW_CORRUPT, STORE_VERSION_UNKNOWN. */
export function decodeGenerationRow(key: Uint8Array, value: Uint8Array): Generation {
  return readRow("generation", () => {
    if (key.length !== keyBytes) throw rowCorrupt("generation", `key of ${key.length} bytes`);
    const number = new ByteReader(key).u32();
    const reader = new ByteReader(value);
    const version = reader.u8();
    checkRowVersion("generation", version, rowVersion);
    const stateNumber = reader.u8();
    const state = states[stateNumber];
    if (state === undefined) throw rowCorrupt("generation", `state ${stateNumber}`);
    const layout = reader.string();
    const fromUs = reader.u64();
    const toUs = reader.u64();
    const firstUs = reader.u64();
    const pack = version === 1 ? 0 : reader.varint();
    const streams = readStreams(reader);
    if (reader.remaining > 0) throw rowCorrupt("generation", "bytes after its end");
    const span = { fromUs, toUs: toUs === 0 ? undefined : toUs, firstUs };
    return { number, layout, pack, ...span, state, streams };
  });
}

function readStreams(reader: ByteReader): Map<number, StreamCount> {
  const streams = new Map<number, StreamCount>();
  const count = reader.varint();
  for (let index = 0; index < count; index++) {
    const stream = reader.u32();
    const amount = { ttvs: reader.varint(), sizeBytes: reader.varint() };
    streams.set(stream, { ...amount, ...readStructure(reader) });
  }
  return streams;
}
