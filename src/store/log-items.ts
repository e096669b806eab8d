// Items of a log shard's entries (docs/formats/entries.md).
//
// append: flags u8 | evidence? | writer? | learned? | stream, topic, publisher, TTV flags, expiry,
// expiry offset, frame? — the flags say which parts are there.

import type { ByteReader, ByteWriter } from "../base/index.ts";
import type { AppendRequest, WriterStamp } from "./api.ts";
import { readLtsRecords, writeLtsRecords } from "./core/lts-codec.ts";
import type { LtsRecord } from "./core/lts-trie.ts";
import { type EvidenceItem, readEvidence, writeEvidence } from "./evidence.ts";
import type { Ttv } from "./types.ts";
import { readStamp, writeStamp } from "./writers.ts";

export const logItemKind = {
  append: 1,
  release: 2,
  endEvidence: 3,
  openWriter: 4,
  rotate: 5,
  drop: 6,
  hold: 7,
  releaseHold: 8,
  closeWriter: 9,
  /** Of replicas alone, as the next. */
  stamped: 10,
  claim: 11,
} as const;

const hasEvidence = 1;
const hasWriter = 2;
const hasLearned = 4;
const hasBody = 8;
/** The body belongs to another database: its evidence says so. */
const isRouted = 16;

/** What `writeAppend` puts into an entry. */
export type AppendParts = {
  readonly request: AppendRequest;
  readonly flags: number;
  readonly stream: number;
  readonly learned: readonly LtsRecord[];
};

export type AppendItem = {
  readonly evidence: EvidenceItem | undefined;
  readonly writer: WriterStamp | undefined;
  readonly learned: readonly LtsRecord[];
  readonly stream: number;
  /** Undefined when only the evidence was kept. */
  readonly ttv: Ttv | undefined;
};

const nothingLearned: readonly LtsRecord[] = [];

/** Flags, numbers and lengths of an item, with room to spare. */
const itemOverheadBytes = 128;
const utf8BytesMax = 3;
/** A learned level is an edge of 10 bytes and its word. */
const levelBytes = 16;

/** At least what `writeAppend` writes for it; learned records are part of it. */
export function appendBytesMax({ frame, topic, publisher, writer }: AppendRequest): number {
  const names = (publisher.length * 2 + (writer?.name.length ?? 0)) * utf8BytesMax;
  return frame.length + names + topicBytesMax(topic) + itemOverheadBytes;
}

/** A topic, and what may be learned of it. */
export function topicBytesMax(topic: string): number {
  let levels = 1;
  for (let at = topic.indexOf("/"); at >= 0; at = topic.indexOf("/", at + 1)) levels++;
  return 2 * topic.length * utf8BytesMax + levels * levelBytes;
}

/** At least what an item of one name and some numbers takes. */
export function namesBytesMax(name: string): number {
  return name.length * utf8BytesMax + itemOverheadBytes;
}

export function learnedBytesMax(records: readonly LtsRecord[]): number {
  let sizeBytes = itemOverheadBytes;
  for (const record of records) {
    sizeBytes += levelBytes + (record.kind === "edge" ? record.word.length * utf8BytesMax : 0);
  }
  return sizeBytes;
}

export function writeAppend(writer: ByteWriter, cooked: AppendParts): void {
  const { request, learned } = cooked;
  const { evidence, publisher } = request;
  writer.u8(
    (evidence === undefined ? 0 : hasEvidence) |
      (request.writer === undefined ? 0 : hasWriter) |
      (learned.length === 0 ? 0 : hasLearned) |
      (request.keep ? hasBody : 0) |
      (evidence?.routed === true ? isRouted : 0),
  );
  if (evidence !== undefined) writeEvidence(writer, { publisher, ...evidence });
  if (request.writer !== undefined) writeStamp(writer, request.writer);
  if (learned.length > 0) writeLtsRecords(writer, learned);
  if (!request.keep) return;
  writer.varint(cooked.stream).string(request.topic).string(publisher).u8(cooked.flags);
  writer.varint(request.expiryUs).varint(request.expiryOffset).bytes(request.frame);
}

/** Of an append without evidence and writer: its topic, with what is learned of it, and its frame. */
export function runBodyFlags(learned: readonly LtsRecord[]): number {
  return learned.length === 0 ? hasBody : hasBody | hasLearned;
}

export function readAppend(reader: ByteReader, timeUs: number): AppendItem {
  const flags = reader.u8();
  const taken = (flags & hasEvidence) === 0 ? undefined : readEvidence(reader);
  const evidence =
    taken !== undefined && (flags & isRouted) !== 0 ? { ...taken, routed: true } : taken;
  const writer = (flags & hasWriter) === 0 ? undefined : readStamp(reader);
  const learned = (flags & hasLearned) === 0 ? nothingLearned : readLtsRecords(reader);
  if ((flags & hasBody) === 0) return { evidence, writer, learned, stream: 0, ttv: undefined };
  const stream = reader.varint();
  const topic = reader.string();
  const publisher = reader.string();
  const ttv: Ttv = {
    topic,
    timeUs,
    publisher,
    flags: reader.u8(),
    expiryUs: reader.varint(),
    expiryOffset: reader.varint(),
    frame: reader.bytes(),
  };
  return { evidence, writer, learned, stream, ttv };
}

/** Goes to the end of an item other than an append. False when its kind is not known. */
export function skipItem(kind: number, reader: ByteReader): boolean {
  switch (kind) {
    case logItemKind.release:
      readEvidence(reader);
      return true;
    case logItemKind.endEvidence:
      reader.string();
      reader.u64();
      for (let left = reader.varint(); left > 0; left--) reader.u16();
      return true;
    case logItemKind.openWriter:
    case logItemKind.releaseHold:
      reader.string();
      return true;
    case logItemKind.rotate:
      reader.u32();
      readLtsRecords(reader);
      return true;
    case logItemKind.drop:
      for (let left = reader.varint(); left > 0; left--) reader.u32();
      return true;
    case logItemKind.hold:
      reader.string();
      reader.u64();
      return true;
    default:
      return false;
  }
}
