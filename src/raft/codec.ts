// Bytes of messages, entries, snapshot metadata and hard states (docs/formats/raft.md).
//
// Each record is {version u8, body, CRC-32 of both}. Version and CRC are checked before anything is
// parsed, and a body must be used up to its last byte. What does not fit is refused with a code,
// never asserted: it came from a socket or a file.
// Data of entries read back are views of the input, which passes to whoever keeps them.

import { ByteReader, ByteWriter, crc32, isCodedError } from "../base/index.ts";
import { createConfiguration } from "./core/membership.ts";
import type {
  Configuration,
  Entry,
  HardState,
  MembershipChange,
  Message,
  MessageType,
  SnapshotMeta,
} from "./core/types.ts";
import { raftErrors } from "./errors.ts";

/** A change of any layout is a new version, and a new reader beside the old one. */
export const raftCodecVersion = 1;

/** Entries of one append; far above what a leader sends. */
const entriesMax = 65_536;
/** Members of a configuration; far above `membersMax`. */
const membersMax = 4_096;
/** Bytes of a read's context. */
const contextBytesMax = 1_024;
const crcBytes = 4;

const typeCodes: readonly MessageType[] = [
  "vote",
  "vote-resp",
  "pre-vote",
  "pre-vote-resp",
  "append",
  "append-resp",
  "heartbeat",
  "heartbeat-resp",
  "snapshot",
  "timeout-now",
  "read-index",
  "read-index-resp",
];

const opCodes: readonly MembershipChange["op"][] = ["add", "remove", "learner", "promote"];

/** Kinds as they stand in the log, u8. */
export const entryKinds = { empty: 0, command: 1, membership: 2 } as const;

/** What of an entry is not its position: how it lies in the shared log. */
export type EntryPayload = {
  readonly kind: number;
  readonly version: number;
  readonly payload: Uint8Array;
};

export function encodeMessage(message: Message): Buffer {
  const writer = new ByteWriter().u8(raftCodecVersion);
  writer.u8(typeCodes.indexOf(message.type));
  writer.varint(message.from).varint(message.to).varint(message.term);
  writeFields(writer, message);
  return seal(writer);
}

/** REQUIRES: nothing. Throws RAFT_MESSAGE_CORRUPT or RAFT_VERSION_UNKNOWN. */
export function decodeMessage(bytes: Uint8Array): Message {
  return parse(bytes, "message", readMessage);
}

export function encodeEntry(entry: Entry): Buffer {
  const { kind, version, payload } = encodeEntryPayload(entry);
  const writer = new ByteWriter(payload.length + 40).u8(raftCodecVersion);
  writer.varint(entry.index).varint(entry.term).u8(kind).u16(version).bytes(payload);
  return seal(writer);
}

/** Throws RAFT_ENTRY_CORRUPT or RAFT_VERSION_UNKNOWN. */
export function decodeEntry(bytes: Uint8Array): Entry {
  return parse(bytes, "entry", (reader) => {
    const [index, term] = [reader.varint(), reader.varint()];
    return readEntryBody(reader, index, term);
  });
}

/** For a log that keeps position and checksum itself. */
export function encodeEntryPayload(entry: Entry): EntryPayload {
  switch (entry.kind) {
    case "empty":
      return { kind: entryKinds.empty, version: 0, payload: new Uint8Array(0) };
    case "command":
      return { kind: entryKinds.command, version: entry.version, payload: entry.data };
    case "membership": {
      const writer = new ByteWriter().u8(opCodes.indexOf(entry.change.op));
      writer.varint(entry.change.node);
      writeConfiguration(writer, entry.configuration);
      return { kind: entryKinds.membership, version: 1, payload: writer.finish() };
    }
  }
}

/** Throws RAFT_ENTRY_CORRUPT or RAFT_VERSION_UNKNOWN. */
export function decodeEntryPayload(index: number, term: number, record: EntryPayload): Entry {
  const { kind, version, payload } = record;
  if (kind === entryKinds.command) return { kind: "command", index, term, version, data: payload };
  if (kind === entryKinds.empty) {
    if (payload.length > 0) throw raftErrors.entryCorrupt({ reason: "an empty entry has data" });
    return { kind: "empty", index, term };
  }
  if (kind !== entryKinds.membership) {
    throw raftErrors.entryCorrupt({ reason: `unknown kind ${kind}` });
  }
  if (version !== 1)
    throw raftErrors.versionUnknown({ what: "membership entry", version, known: 1 });
  return guarded("entry", () => {
    const reader = new ByteReader(payload);
    const op = opCodes[reader.u8()];
    if (op === undefined) throw raftErrors.entryCorrupt({ reason: "unknown change" });
    const change = { op, node: reader.varint() };
    const configuration = readConfiguration(reader);
    if (reader.remaining > 0) throw raftErrors.entryCorrupt({ reason: "bytes left over" });
    return { kind: "membership", index, term, change, configuration };
  });
}

export function encodeSnapshotMeta(snapshot: SnapshotMeta): Buffer {
  const writer = new ByteWriter().u8(raftCodecVersion);
  writeSnapshot(writer, snapshot);
  return seal(writer);
}

export function decodeSnapshotMeta(bytes: Uint8Array): SnapshotMeta {
  return parse(bytes, "entry", readSnapshot);
}

export function encodeHardState(hardState: HardState): Buffer {
  const writer = new ByteWriter().u8(raftCodecVersion);
  return seal(writer.varint(hardState.term).varint(hardState.vote).varint(hardState.commit));
}

export function decodeHardState(bytes: Uint8Array): HardState {
  return parse(bytes, "entry", (reader) => {
    const [term, vote, commit] = [reader.varint(), reader.varint(), reader.varint()];
    return { term, vote, commit };
  });
}

type What = "message" | "entry";

function seal(writer: ByteWriter): Buffer {
  return writer.u32(crc32(writer.finish())).finish();
}

function parse<T>(bytes: Uint8Array, what: What, read: (reader: ByteReader) => T): T {
  if (bytes.length < 1 + crcBytes) throw corrupt(what, "too short");
  const version = bytes[0] as number;
  if (version !== raftCodecVersion) {
    throw raftErrors.versionUnknown({ what, version, known: raftCodecVersion });
  }
  const body = bytes.subarray(0, bytes.length - crcBytes);
  const stored = new ByteReader(bytes, body.length).u32();
  if (crc32(body) !== stored) throw corrupt(what, "checksum does not fit");
  return guarded(what, () => {
    const reader = new ByteReader(body, 1);
    const value = read(reader);
    if (reader.remaining > 0) throw corrupt(what, "bytes left over");
    return value;
  });
}

function corrupt(what: What, reason: string, cause?: unknown): Error {
  const make = what === "message" ? raftErrors.messageCorrupt : raftErrors.entryCorrupt;
  return make({ reason }, cause);
}

function guarded<T>(what: What, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (isCodedError(error, "RAFT_VERSION_UNKNOWN")) throw error;
    const known = isCodedError(error) && error.code.startsWith("RAFT_");
    throw corrupt(what, known ? String(error.details.reason) : "ends early", error);
  }
}

function writeFields(writer: ByteWriter, message: Message): void {
  switch (message.type) {
    case "vote":
    case "pre-vote":
      writer.varint(message.lastIndex).varint(message.lastTerm).u8(Number(message.transfer));
      break;
    case "vote-resp":
    case "pre-vote-resp":
      writer.u8(Number(message.granted));
      break;
    case "append":
      writer.varint(message.prevIndex).varint(message.prevTerm).varint(message.commit);
      writer.varint(message.entries.length);
      for (const entry of message.entries) {
        const { kind, version, payload } = encodeEntryPayload(entry);
        writer.varint(entry.term).u8(kind).u16(version).bytes(payload);
      }
      break;
    case "append-resp":
      writer.u8(Number(message.rejected)).varint(message.index);
      writer.varint(message.hintIndex).varint(message.hintTerm).varint(message.commit);
      break;
    case "heartbeat":
      writer.varint(message.commit).varint(message.round);
      break;
    case "heartbeat-resp":
      writer.varint(message.round);
      break;
    case "snapshot":
      writeSnapshot(writer, message.snapshot);
      break;
    case "timeout-now":
      break;
    case "read-index":
      writer.string(message.context);
      break;
    case "read-index-resp":
      writer.string(message.context).varint(message.index);
      break;
  }
}

function readMessage(reader: ByteReader): Message {
  const type = typeCodes[reader.u8()];
  if (type === undefined) throw corrupt("message", "unknown type");
  const [from, to, term] = [reader.varint(), reader.varint(), reader.varint()];
  if (from === 0 || to === 0) throw corrupt("message", "sender or receiver 0");
  const envelope = { from, to, term };
  switch (type) {
    case "vote":
    case "pre-vote": {
      const [lastIndex, lastTerm] = [reader.varint(), reader.varint()];
      return { type, ...envelope, lastIndex, lastTerm, transfer: readFlag(reader) };
    }
    case "vote-resp":
    case "pre-vote-resp":
      return { type, ...envelope, granted: readFlag(reader) };
    case "append": {
      const [prevIndex, prevTerm, commit] = [reader.varint(), reader.varint(), reader.varint()];
      const entries = readEntries(reader, { prevIndex, prevTerm, term });
      return { type, ...envelope, prevIndex, prevTerm, commit, entries };
    }
    case "append-resp": {
      const [rejected, index] = [readFlag(reader), reader.varint()];
      const [hintIndex, hintTerm, commit] = [reader.varint(), reader.varint(), reader.varint()];
      return { type, ...envelope, rejected, index, hintIndex, hintTerm, commit };
    }
    case "heartbeat": {
      const [commit, round] = [reader.varint(), reader.varint()];
      return { type, ...envelope, commit, round };
    }
    case "heartbeat-resp":
      return { type, ...envelope, round: reader.varint() };
    case "snapshot":
      return { type, ...envelope, snapshot: readSnapshot(reader) };
    case "timeout-now":
      return { type, ...envelope };
    case "read-index":
      return { type, ...envelope, context: readContext(reader) };
    case "read-index-resp": {
      const context = readContext(reader);
      return { type, ...envelope, context, index: reader.varint() };
    }
  }
}

type Frame = { readonly prevIndex: number; readonly prevTerm: number; readonly term: number };

// Terms of a log never fall, nor pass that of the leader that sends it: the core relies on it.
function readEntries(reader: ByteReader, frame: Frame): Entry[] {
  const count = reader.varint();
  if (count > entriesMax) throw corrupt("message", `${count} entries`);
  const entries: Entry[] = [];
  let before = frame.prevTerm;
  for (let place = 1; place <= count; place++) {
    const term = reader.varint();
    if (term < before || term > frame.term) throw corrupt("message", `entry of term ${term}`);
    before = term;
    entries.push(readEntryBody(reader, frame.prevIndex + place, term));
  }
  return entries;
}

function readEntryBody(reader: ByteReader, index: number, term: number): Entry {
  const [kind, version, payload] = [reader.u8(), reader.u16(), reader.bytes()];
  return decodeEntryPayload(index, term, { kind, version, payload });
}

function writeSnapshot(writer: ByteWriter, snapshot: SnapshotMeta): void {
  writer.varint(snapshot.index).varint(snapshot.term).varint(snapshot.configurationIndex);
  writeConfiguration(writer, snapshot.configuration);
}

function readSnapshot(reader: ByteReader): SnapshotMeta {
  const [index, term, configurationIndex] = [reader.varint(), reader.varint(), reader.varint()];
  return { index, term, configuration: readConfiguration(reader), configurationIndex };
}

function writeConfiguration(writer: ByteWriter, configuration: Configuration): void {
  for (const ids of [configuration.voters, configuration.learners]) {
    writer.varint(ids.length);
    for (const id of ids) writer.varint(id);
  }
}

function readConfiguration(reader: ByteReader): Configuration {
  return createConfiguration(readIds(reader), readIds(reader));
}

function readIds(reader: ByteReader): number[] {
  const count = reader.varint();
  if (count > membersMax) throw corrupt("entry", `${count} members`);
  return Array.from({ length: count }, () => {
    const id = reader.varint();
    if (id === 0) throw corrupt("entry", "member 0");
    return id;
  });
}

function readFlag(reader: ByteReader): boolean {
  const value = reader.u8();
  if (value > 1) throw corrupt("message", `flag ${value}`);
  return value === 1;
}

function readContext(reader: ByteReader): string {
  const bytes = reader.bytes();
  if (bytes.length > contextBytesMax) throw corrupt("message", `context of ${bytes.length} bytes`);
  return bytes.toString("utf8");
}
