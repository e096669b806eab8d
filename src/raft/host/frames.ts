// What travels between hosts: frames, and what is in each kind (docs/formats/raft.md).
//
//     frame := length u32 | magic u16 | version u8 | kind u8 | cluster 16 | site 16 | disk 16
//              | body | crc u32
//
// Keeps: length, version, cluster, sender and checksum are checked in this order before the body is
// parsed; what does not fit is answered with a reason to count, never thrown.

import { ByteReader, ByteWriter, crc32, isCodedError } from "../../base/index.ts";
import { type Identity, readUuid, type Uuid, uuidBytes } from "./identity.ts";

export const frameVersion = 1;
const magic = 0xf752;
const headBytes = 4 + 2 + 1 + 1 + 3 * uuidBytes;
const crcBytes = 4;
/** What a frame costs beside its body. */
export const frameOverheadBytes = headBytes + crcBytes;

export const frameKinds = {
  hello: 0,
  messages: 1,
  offer: 2,
  want: 3,
  chunk: 4,
  notice: 5,
  form: 6,
  note: 7,
} as const;
export type FrameKind = keyof typeof frameKinds;
const kindNames = Object.keys(frameKinds) as FrameKind[];

export type FrameRefusal =
  | "length"
  | "magic"
  | "version"
  | "cluster"
  | "sender"
  | "crc"
  | "kind"
  | "body";

export type Frame = {
  readonly kind: FrameKind;
  readonly siteId: Uuid;
  readonly diskId: Uuid;
  readonly body: Buffer;
};

export type FrameCheck = {
  readonly clusterId: Uuid;
  readonly frameBytesMax: number;
  /** Whether frames of this kind are taken from this disk. */
  readonly knows: (siteId: Uuid, diskId: Uuid, kind: FrameKind) => boolean;
};

export function encodeFrame(identity: Identity, kind: FrameKind, body: Uint8Array): Buffer {
  const bytes = Buffer.allocUnsafe(frameOverheadBytes + body.length);
  bytes.writeUInt32BE(bytes.length - 4, 0);
  bytes.writeUInt16BE(magic, 4);
  bytes[6] = frameVersion;
  bytes[7] = frameKinds[kind];
  const ids = identity.clusterId + identity.siteId + identity.diskId;
  bytes.write(ids, 8, "hex");
  bytes.set(body, headBytes);
  bytes.writeUInt32BE(crc32(bytes.subarray(4, bytes.length - crcBytes)), bytes.length - crcBytes);
  return bytes;
}

/** Checks a whole frame, length prefix included. The body is a view. */
export function openFrame(bytes: Buffer, check: FrameCheck): Frame | FrameRefusal {
  if (bytes.length < frameOverheadBytes || bytes.length > check.frameBytesMax) return "length";
  if (bytes.readUInt32BE(0) !== bytes.length - 4) return "length";
  if (bytes.readUInt16BE(4) !== magic) return "magic";
  if (bytes[6] !== frameVersion) return "version";
  const reader = new ByteReader(bytes, 8);
  if (readUuid(reader) !== check.clusterId) return "cluster";
  const kind = kindNames[bytes[7] as number];
  if (kind === undefined) return "kind";
  const [siteId, diskId] = [readUuid(reader), readUuid(reader)];
  if (!check.knows(siteId, diskId, kind)) return "sender";
  const end = bytes.length - crcBytes;
  if (crc32(bytes.subarray(4, end)) !== bytes.readUInt32BE(end)) return "crc";
  return { kind, siteId, diskId, body: bytes.subarray(headBytes, end) };
}

/** Which group a part of a frame is for, and which life of the sender's log speaks. */
export type GroupAddress = {
  readonly group: number;
  readonly epoch: number;
  readonly incarnation: number;
};

/** One Raft message, encoded by codec.ts. */
export type Letter = GroupAddress & { readonly message: Uint8Array };

const letterOverheadBytes = 24;

export function letterBytes(letter: Letter): number {
  return letter.message.length + letterOverheadBytes;
}

export function encodeLetters(letters: readonly Letter[]): Buffer {
  let sizeBytes = 8;
  for (const letter of letters) sizeBytes += letterBytes(letter);
  const writer = new ByteWriter(sizeBytes).varint(letters.length);
  for (const letter of letters) writeAddress(writer, letter).bytes(letter.message);
  return writer.finish();
}

/** Letters of one frame; far above what groups and windows make. */
const lettersMax = 1_000_000;

export function decodeLetters(body: Buffer): Letter[] | undefined {
  return read(body, (reader) => {
    const count = reader.varint();
    if (count > lettersMax) return undefined;
    const letters: Letter[] = [];
    for (let left = count; left > 0; left--) {
      letters.push({ ...readAddress(reader), message: reader.bytes() });
    }
    return letters;
  });
}

/** A leader has a snapshot for a peer. */
export type Offer = GroupAddress & {
  /** The snapshot message of the core. */
  readonly message: Uint8Array;
  readonly manifest: Uint8Array;
};

export function encodeOffer(offer: Offer): Buffer {
  const writer = writeAddress(new ByteWriter(), offer);
  return writer.bytes(offer.message).bytes(offer.manifest).finish();
}

export function decodeOffer(body: Buffer): Offer | undefined {
  return read(body, (reader) => ({
    ...readAddress(reader),
    message: reader.bytes(),
    manifest: reader.bytes(),
  }));
}

/**
 * What a receiver asks for: chunks from `next` on and below `until`. `next` at the number of chunks
 * says that all are there; `until` 0 that it takes none now.
 */
export type Want = GroupAddress & {
  readonly node: number;
  readonly index: number;
  readonly term: number;
  readonly next: number;
  readonly until: number;
};

export function encodeWant(want: Want): Buffer {
  const writer = writeAddress(new ByteWriter(), want).varint(want.node);
  writer.varint(want.index).varint(want.term);
  return writer.varint(want.next).varint(want.until).finish();
}

export function decodeWant(body: Buffer): Want | undefined {
  return read(body, (reader) => ({
    ...readAddress(reader),
    node: reader.varint(),
    index: reader.varint(),
    term: reader.varint(),
    next: reader.varint(),
    until: reader.varint(),
  }));
}

export type Chunk = GroupAddress & {
  readonly index: number;
  readonly term: number;
  readonly number: number;
  readonly data: Uint8Array;
};

export function encodeChunk(chunk: Chunk): Buffer {
  const writer = writeAddress(new ByteWriter(chunk.data.length + 64), chunk);
  writer.varint(chunk.index).varint(chunk.term).varint(chunk.number);
  return writer.bytes(chunk.data).finish();
}

export function decodeChunk(body: Buffer): Chunk | undefined {
  return read(body, (reader) => ({
    ...readAddress(reader),
    index: reader.varint(),
    term: reader.varint(),
    number: reader.varint(),
    data: reader.bytes(),
  }));
}

/** `removed`: the leader's configuration has no such node. `epoch`: the group went on without you. */
export type Notice = GroupAddress & {
  readonly node: number;
  readonly what: "removed" | "epoch";
};

export function encodeNotice(notice: Notice): Buffer {
  const writer = writeAddress(new ByteWriter(), notice).varint(notice.node);
  return writer.u8(notice.what === "removed" ? 0 : 1).finish();
}

export function decodeNotice(body: Buffer): Notice | undefined {
  return read(body, (reader) => ({
    ...readAddress(reader),
    node: reader.varint(),
    what: reader.u8() === 0 ? ("removed" as const) : ("epoch" as const),
  }));
}

/** From machine to machine of a group: what it means is theirs. May be lost, repeated, overtaken. */
export type Note = GroupAddress & { readonly node: number; readonly data: Buffer };

export function encodeNote(note: GroupAddress & { node: number; data: Uint8Array }): Buffer {
  const writer = writeAddress(new ByteWriter(note.data.length + 32), note);
  return writer.varint(note.node).bytes(note.data).finish();
}

export function decodeNote(body: Buffer): Note | undefined {
  return read(body, (reader) => ({
    ...readAddress(reader),
    node: reader.varint(),
    data: reader.bytes(),
  }));
}

function writeAddress(writer: ByteWriter, address: GroupAddress): ByteWriter {
  return writer.varint(address.group).varint(address.epoch).varint(address.incarnation);
}

function readAddress(reader: ByteReader): GroupAddress {
  const [group, epoch, incarnation] = [reader.varint(), reader.varint(), reader.varint()];
  return { group, epoch, incarnation };
}

function read<T>(body: Buffer, parse: (reader: ByteReader) => T | undefined): T | undefined {
  try {
    const reader = new ByteReader(body);
    const value = parse(reader);
    return reader.remaining === 0 ? value : undefined;
  } catch (error) {
    if (isCodedError(error) && error.kind === "corrupt") return undefined;
    throw error;
  }
}
