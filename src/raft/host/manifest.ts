// What a snapshot is: position, configuration, version of the machine, and the size and checksum of
// each chunk. Position and configuration are in one record with the chunks, so that neither is ever
// stored or sent without the other.

import { ByteReader, ByteWriter, crc32, isCodedError } from "../../base/index.ts";
import { decodeSnapshotMeta, encodeSnapshotMeta } from "../codec.ts";
import type { SnapshotMeta } from "../core/types.ts";
import { raftErrors } from "../errors.ts";

export type SnapshotHead = {
  readonly group: number;
  readonly epoch: number;
  readonly meta: SnapshotMeta;
  readonly machineVersion: number;
};

export type SnapshotChunk = { readonly sizeBytes: number; readonly crc: number };

export type SnapshotManifest = SnapshotHead & { readonly chunks: readonly SnapshotChunk[] };

export const manifestVersion = 1;
/** A snapshot of 256 GiB in the default chunks. */
const chunksMax = 1_000_000;
/** No frame could carry a larger one. */
const chunkBytesMax = 64 * 1024 * 1024;
const magic = Buffer.from("FLAGRSNP", "latin1");
const crcBytes = 4;

export function encodeManifest(manifest: SnapshotManifest): Buffer {
  const writer = new ByteWriter().raw(magic).u16(manifestVersion);
  writer.varint(manifest.group).varint(manifest.epoch).varint(manifest.machineVersion);
  writer.bytes(encodeSnapshotMeta(manifest.meta)).varint(manifest.chunks.length);
  for (const { sizeBytes, crc } of manifest.chunks) writer.varint(sizeBytes).u32(crc);
  return writer.u32(crc32(writer.finish())).finish();
}

/** @returns undefined when the bytes are damaged. @throws RAFT_DIR_NEWER. */
export function decodeManifest(bytes: Buffer, path = "a frame"): SnapshotManifest | undefined {
  if (bytes.length < magic.length + 2 + crcBytes) return undefined;
  const body = bytes.subarray(0, bytes.length - crcBytes);
  if (crc32(body) !== bytes.readUInt32BE(body.length)) return undefined;
  if (!body.subarray(0, magic.length).equals(magic)) return undefined;
  const reader = new ByteReader(body, magic.length);
  const version = reader.u16();
  if (version > manifestVersion) {
    throw raftErrors.dirNewer({ path, version, known: manifestVersion });
  }
  try {
    return readFields(reader);
  } catch (error) {
    if (isCodedError(error) && error.kind === "corrupt") return undefined;
    throw error;
  }
}

function readFields(reader: ByteReader): SnapshotManifest | undefined {
  const [group, epoch, machineVersion] = [reader.varint(), reader.varint(), reader.varint()];
  const meta = decodeSnapshotMeta(reader.bytes());
  const count = reader.varint();
  if (count > chunksMax) return undefined;
  const chunks = Array.from({ length: count }, () => {
    return { sizeBytes: reader.varint(), crc: reader.u32() };
  });
  if (chunks.some(({ sizeBytes }) => sizeBytes > chunkBytesMax)) return undefined;
  return reader.remaining === 0 ? { group, epoch, machineVersion, meta, chunks } : undefined;
}

/** Cuts pieces of any size into chunks; the last may be smaller. */
export async function* cutChunks(
  pieces: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
  chunkBytes: number,
): AsyncGenerator<Buffer, void, void> {
  let held: Uint8Array[] = [];
  let heldBytes = 0;
  for await (const piece of pieces) {
    let rest = piece;
    while (heldBytes + rest.length >= chunkBytes) {
      const need = chunkBytes - heldBytes;
      yield Buffer.concat([...held, rest.subarray(0, need)]);
      rest = rest.subarray(need);
      held = [];
      heldBytes = 0;
    }
    if (rest.length === 0) continue;
    held.push(Uint8Array.from(rest));
    heldBytes += rest.length;
  }
  if (heldBytes > 0) yield Buffer.concat(held);
}
