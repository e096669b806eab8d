// Requests of one node to the leader of a shard, as bytes (docs/formats/raft.md).

import type { ByteReader, ByteWriter } from "../../base/index.ts";
import type {
  AppendRequest,
  EvidenceItem,
  MapWrite,
  ShardCall,
  ShardRequest,
  TtvForm,
  WriterStamp,
} from "../../store/index.ts";

/** Read where bytes are none of what may stand there. */
export class NoRequest extends Error {}

/** Parts of one request, such as keys; far above what a transaction may have. */
const partsMax = 65_536;
const forms: readonly TtvForm[] = ["raw", "v4", "v5"];
const requestKinds = [
  ...(["append", "claim", "release", "open_writer", "close_writer"] as const),
  ...(["hold", "release_hold", "write", "commit"] as const),
];
const callKinds = ["rotate", "drop", "end_evidence"] as const;
const append = { retain: 1, keep: 2, evidence: 4, writer: 8, routed: 16, all: 31 } as const;

export function writeRequest(to: ByteWriter, request: ShardRequest): void {
  to.u8(requestKinds.indexOf(request.kind));
  switch (request.kind) {
    case "append":
      return writeAppend(to, request.request);
    case "claim":
    case "release":
      return writeOwner(to.string(request.item.publisher), request.item);
    case "open_writer":
    case "close_writer":
    case "release_hold":
      return void to.string(request.name);
    case "hold":
      return void to.string(request.name).varint(request.afterUs);
    case "write":
      writeWrites(to, request.writes);
      to.varint(request.guards.length);
      // A version is never 0: a guard for an absent key.
      for (const { key, timeUs = 0 } of request.guards) to.string(key).varint(timeUs);
      return;
    case "commit": {
      const { readUs, reads, present, absent, writes } = request.commit;
      to.varint(readUs);
      for (const keys of [reads.keys, reads.prefixes, present, absent]) writeNames(to, keys);
      return writeWrites(to, writes);
    }
  }
}

/** @throws NoRequest, and what a reader throws. Frames and values are views. */
export function readRequest(from: ByteReader): ShardRequest {
  const kind = requestKinds[from.u8()];
  switch (kind) {
    case "append":
      return { kind, request: readAppend(from) };
    case "claim":
    case "release":
      return { kind, item: { publisher: readName(from), ...readOwner(from) } };
    case "open_writer":
    case "close_writer":
    case "release_hold":
      return { kind, name: from.string() };
    case "hold":
      return { kind, name: from.string(), afterUs: from.varint() };
    case "write": {
      const writes = readWrites(from);
      const guards = readList(from, () => {
        const [key, timeUs] = [from.string(), from.varint()];
        return { key, timeUs: timeUs === 0 ? undefined : timeUs };
      });
      return { kind, writes, guards };
    }
    case "commit": {
      const readUs = from.varint();
      const names = (): string[] => readList(from, () => from.string());
      const reads = { keys: names(), prefixes: names() };
      const [present, absent] = [names(), names()];
      const writes = readWrites(from);
      return { kind, commit: { attempt: 1, readUs, reads, present, absent, writes } };
    }
    default:
      throw new NoRequest();
  }
}

export function writeCall(to: ByteWriter, call: ShardCall): void {
  to.u8(callKinds.indexOf(call.kind));
  if (call.kind === "drop") to.varint(call.untilUs).u8(call.force ? 1 : 0);
  else if (call.kind === "end_evidence") to.string(call.publisher).varint(call.incarnation);
}

/** @throws as `readRequest`. */
export function readCall(from: ByteReader): ShardCall {
  const kind = callKinds[from.u8()];
  switch (kind) {
    case "rotate":
      return { kind };
    case "drop":
      return { kind, untilUs: from.varint(), force: readFlags(from, 1) === 1 };
    case "end_evidence":
      return { kind, publisher: readName(from), incarnation: from.varint() };
    default:
      throw new NoRequest();
  }
}

/** @throws NoRequest for a list that nobody sends. */
export function readList<T>(from: ByteReader, read: () => T): T[] {
  const count = from.varint();
  if (count > partsMax || count > from.remaining) throw new NoRequest();
  return Array.from({ length: count }, read);
}

/** @throws NoRequest for other bits than those of `all`. */
export function readFlags(from: ByteReader, all: number): number {
  const flags = from.u8();
  if ((flags & ~all) !== 0) throw new NoRequest();
  return flags;
}

/** What a request takes of a batch, about. */
export function requestBytes(request: ShardRequest): number {
  let sizeBytes = 64;
  const add = (...texts: readonly string[]): void => {
    for (const text of texts) sizeBytes += 3 * text.length + 8;
  };
  if (request.kind === "append") {
    const { topic, publisher, frame, writer } = request.request;
    add(topic, publisher, writer?.name ?? "");
    return sizeBytes + frame.length;
  }
  if (request.kind === "claim" || request.kind === "release") add(request.item.publisher);
  else if ("name" in request) add(request.name);
  if (request.kind === "commit") {
    const { reads, present, absent } = request.commit;
    add(...reads.keys, ...reads.prefixes, ...present, ...absent);
  }
  if (request.kind === "write") add(...request.guards.map(({ key }) => key));
  for (const { key, value } of writesOf(request)) {
    add(key);
    sizeBytes += value?.length ?? 0;
  }
  return sizeBytes;
}

/** The same with bytes of its own. */
export function ownedRequest(request: ShardRequest): ShardRequest {
  const owned = (writes: readonly MapWrite[]): MapWrite[] =>
    writes.map(({ key, value }) => ({ key, value: value && Buffer.from(value) }));
  if (request.kind === "append") {
    const frame = Buffer.from(request.request.frame);
    return { ...request, request: { ...request.request, frame } };
  }
  if (request.kind === "write") return { ...request, writes: owned(request.writes) };
  if (request.kind !== "commit") return request;
  return { ...request, commit: { ...request.commit, writes: owned(request.commit.writes) } };
}

function writesOf(request: ShardRequest): readonly MapWrite[] {
  if (request.kind === "write") return request.writes;
  return request.kind === "commit" ? request.commit.writes : [];
}

function writeAppend(to: ByteWriter, request: AppendRequest): void {
  const { topic, publisher, form, qos, evidence, writer, frame } = request;
  to.u8(
    (request.retain ? append.retain : 0) |
      (request.keep ? append.keep : 0) |
      (evidence === undefined ? 0 : append.evidence) |
      (writer === undefined ? 0 : append.writer) |
      (evidence?.routed === true ? append.routed : 0),
  );
  to.string(topic).string(publisher).u8(forms.indexOf(form)).u8(qos);
  to.varint(request.expiryUs).varint(request.expiryOffset);
  if (evidence !== undefined) writeOwner(to, evidence);
  if (writer !== undefined) to.string(writer.name).varint(writer.epoch).varint(writer.sequence);
  to.bytes(frame);
}

function readAppend(from: ByteReader): AppendRequest {
  const flags = readFlags(from, append.all);
  const [topic, publisher] = [from.string(), readName(from)];
  const form = forms[from.u8()];
  const qos = from.u8();
  if (form === undefined || qos > 2) throw new NoRequest();
  const [expiryUs, expiryOffset] = [from.varint(), from.varint()];
  const has = (flag: number): boolean => (flags & flag) !== 0;
  // One kind of repeat is enough.
  if (has(append.evidence) && has(append.writer)) throw new NoRequest();
  const owner = has(append.evidence) ? readOwner(from) : undefined;
  const evidence = owner && (has(append.routed) ? { ...owner, routed: true } : owner);
  const writer = has(append.writer) ? readStamp(from) : undefined;
  return {
    ...{ topic, publisher, form, qos: qos as 0 | 1 | 2, expiryUs, expiryOffset, evidence },
    ...{ retain: has(append.retain), keep: has(append.keep), frame: from.bytes() },
    ...(writer && { writer }),
  };
}

type Owner = Omit<EvidenceItem, "publisher">;

function writeOwner(to: ByteWriter, { incarnation, ownerEpoch, packetId }: Owner): void {
  to.varint(incarnation).varint(ownerEpoch).u16(packetId);
}

function readOwner(from: ByteReader): Owner {
  return { incarnation: from.varint(), ownerEpoch: from.varint(), packetId: from.u16() };
}

function readStamp(from: ByteReader): WriterStamp {
  return { name: from.string(), epoch: from.varint(), sequence: from.varint() };
}

/** U+0000 ends the names of publishers in rows. */
function readName(from: ByteReader): string {
  const name = from.string();
  if (name.includes("\0")) throw new NoRequest();
  return name;
}

function writeNames(to: ByteWriter, names: readonly string[]): void {
  to.varint(names.length);
  for (const name of names) to.string(name);
}

function writeWrites(to: ByteWriter, writes: readonly MapWrite[]): void {
  to.varint(writes.length);
  for (const { key, value } of writes) {
    to.string(key).u8(value === undefined ? 0 : 1);
    if (value !== undefined) to.bytes(value);
  }
}

function readWrites(from: ByteReader): MapWrite[] {
  return readList(from, () => {
    const key = from.string();
    return { key, value: readFlags(from, 1) === 0 ? undefined : from.bytes() };
  });
}
