// Reads what the preload shim (shim/record.c) wrote: every change of the files below one folder, in
// the order in which the kernel saw them. An entry, all numbers little-endian and without padding:
//
//   size u32 | kind u8 | flags u8 | path length u16 | second path length u16 | 0 u16
//   handle u64 | stamp ns u64 | number u64 | data length u64 | path | second path | data
//
// A record that ends inside an entry (its process was killed) ends before it. A record with a change
// that cannot be rebuilt is refused: an image made from it would prove nothing.

import { readFileSync } from "node:fs";

type At = { readonly stampNs: bigint };

export type Operation = At &
  (
    | {
        readonly kind: "open";
        readonly path: string;
        readonly handle: bigint;
        readonly created: boolean;
        readonly emptied: boolean;
        readonly folder: boolean;
      }
    | {
        readonly kind: "write";
        readonly handle: bigint;
        readonly offset: number;
        readonly data: Buffer;
      }
    | { readonly kind: "truncate"; readonly handle: bigint; readonly sizeBytes: number }
    | { readonly kind: "truncatePath"; readonly path: string; readonly sizeBytes: number }
    /** Grows the file to at least this size with zeros. */
    | { readonly kind: "allocate"; readonly handle: bigint; readonly sizeBytes: number }
    | { readonly kind: "syncBegin"; readonly handle: bigint; readonly token: number }
    | { readonly kind: "syncEnd"; readonly handle: bigint; readonly token: number }
    | { readonly kind: "rename"; readonly path: string; readonly to: string }
    | { readonly kind: "link"; readonly path: string; readonly to: string }
    | { readonly kind: "unlink"; readonly path: string }
    | { readonly kind: "mkdir"; readonly path: string }
    | { readonly kind: "rmdir"; readonly path: string }
    | { readonly kind: "mark"; readonly text: string }
  );

const headSize = 44;

export function readRecord(path: string): Operation[] {
  return parseRecord(readFileSync(path));
}

export function parseRecord(bytes: Buffer): Operation[] {
  const operations: Operation[] = [];
  let offset = 0;
  while (offset + headSize <= bytes.length) {
    const size = bytes.readUInt32LE(offset);
    if (size < headSize)
      throw new Error(`record damaged at offset ${offset}: entry of ${size} bytes`);
    if (offset + size > bytes.length) break;
    operations.push(parseEntry(bytes.subarray(offset, offset + size)));
    offset += size;
  }
  return operations;
}

function parseEntry(entry: Buffer): Operation {
  const kind = entry.readUInt8(4);
  const flags = entry.readUInt8(5);
  const pathEnd = headSize + entry.readUInt16LE(6);
  const toEnd = pathEnd + entry.readUInt16LE(8);
  const path = entry.toString("utf8", headSize, pathEnd);
  const to = entry.toString("utf8", pathEnd, toEnd);
  const handle = entry.readBigUInt64LE(12);
  const stampNs = entry.readBigUInt64LE(20);
  const number = Number(entry.readBigUInt64LE(28));
  const data = entry.subarray(toEnd);
  switch (kind) {
    case 1:
      return {
        kind: "open",
        stampNs,
        path,
        handle,
        created: (flags & 1) !== 0,
        emptied: (flags & 2) !== 0,
        folder: (flags & 4) !== 0,
      };
    case 2:
      return { kind: "write", stampNs, handle, offset: number, data };
    case 3:
      return { kind: "truncate", stampNs, handle, sizeBytes: number };
    case 4:
      return { kind: "truncatePath", stampNs, path, sizeBytes: number };
    case 5:
      return { kind: "allocate", stampNs, handle, sizeBytes: number };
    case 6:
      return { kind: "syncBegin", stampNs, handle, token: number };
    case 7:
      return { kind: "syncEnd", stampNs, handle, token: number };
    case 8:
      return { kind: "rename", stampNs, path, to };
    case 9:
      return { kind: "unlink", stampNs, path };
    case 10:
      return { kind: "mkdir", stampNs, path };
    case 11:
      return { kind: "rmdir", stampNs, path };
    case 12:
      return { kind: "link", stampNs, path, to };
    case 13:
      return { kind: "mark", stampNs, text: data.toString("utf8") };
    default:
      throw new Error(`record holds a change that cannot be rebuilt: ${path || `kind ${kind}`}`);
  }
}

/** Whether an image before and an image after this operation can differ. */
export function changesDisk(operation: Operation): boolean {
  if (operation.kind === "open") return operation.created || operation.emptied;
  return operation.kind !== "mark" && operation.kind !== "syncBegin";
}

/**
 * The last operation that leaves the same disk as `cut`: whoever knew something before the next
 * change (a mark, an ack that a client received) knew it before this power cut.
 */
export function settleCut(operations: readonly Operation[], cut: number): number {
  let at = cut;
  for (;;) {
    const next = operations[at + 1];
    if (next === undefined || changesDisk(next)) return at;
    at++;
  }
}

/** Marks that were written before a power cut behind operation `cut`. */
export function marksBefore(operations: readonly Operation[], cut: number): string[] {
  const marks: string[] = [];
  for (const operation of operations.slice(0, settleCut(operations, cut) + 1)) {
    if (operation.kind === "mark") marks.push(operation.text);
  }
  return marks;
}

/** What another process saw before this moment, it saw before the power cut behind `cut`. */
export function cutMomentNs(operations: readonly Operation[], cut: number): bigint {
  const next = operations[settleCut(operations, cut) + 1];
  return next === undefined ? 2n ** 63n : next.stampNs;
}
