// Codec of what an Aedes persistence keeps in `state` (docs/formats/aedes.md): packets, and entries of
// queues. Every record begins with its version.
//
// A packet's fields are JSON, its payload follows raw. Bytes among the properties (correlation data)
// are marked; keys that look like the mark are escaped, so that no property is taken for it.

import { ByteReader, ByteWriter, isCodedError } from "../base/index.ts";
import { aedesErrors } from "./errors.ts";
import type { AedesPacket } from "./types.ts";

const version = 1;

const payloadKind = { none: 0, bytes: 1, text: 2 } as const;

/** All fields that JSON can say, and the payload. */
export function encodePacket(packet: AedesPacket): Buffer {
  const { payload, ...fields } = packet;
  const writer = new ByteWriter(64 + (payload?.length ?? 0));
  writer.u8(version);
  if (payload === undefined) writer.u8(payloadKind.none);
  else writer.u8(typeof payload === "string" ? payloadKind.text : payloadKind.bytes);
  writer.string(JSON.stringify(packValue(fields)));
  if (typeof payload === "string") writer.raw(Buffer.from(payload));
  else if (payload !== undefined) writer.raw(payload);
  return writer.finish();
}

/** The payload is a copy. @throws AEDES_RECORD_CORRUPT, AEDES_RECORD_NEWER. */
export function decodePacket(key: string, bytes: Buffer): AedesPacket {
  return readRecord(key, bytes, (reader) => {
    const kind = reader.u8();
    const fields = unpackValue(JSON.parse(reader.string())) as AedesPacket;
    const rest = reader.raw(reader.remaining);
    if (kind === payloadKind.none) return fields;
    return { ...fields, payload: kind === payloadKind.text ? rest.toString() : Buffer.from(rest) };
  });
}

/** One packet in the queue of a client, or one that came at QoS 2; its body is kept apart. */
export type QueueEntry = {
  /** `release`: its PUBREL took the place of the publish, which has no body any more. */
  readonly kind: "publish" | "release";
  readonly messageId: number | undefined;
  readonly brokerId: string | undefined;
  readonly brokerCounter: number;
  /** Number of the body; 0 for a release. */
  readonly body: number;
};

const entryFlags = { release: 1, broker: 2, messageId: 4 } as const;

export function encodeEntry(entry: QueueEntry): Buffer {
  const { kind, messageId, brokerId, brokerCounter, body } = entry;
  const flags =
    (kind === "release" ? entryFlags.release : 0) |
    (brokerId === undefined ? 0 : entryFlags.broker) |
    (messageId === undefined ? 0 : entryFlags.messageId);
  const writer = new ByteWriter(64).u8(version).u8(flags);
  if (messageId !== undefined) writer.varint(messageId);
  if (brokerId !== undefined) writer.string(brokerId);
  return writer.varint(brokerCounter).varint(body).finish();
}

/** @throws AEDES_RECORD_CORRUPT, AEDES_RECORD_NEWER. */
export function decodeEntry(key: string, bytes: Buffer): QueueEntry {
  return readRecord(key, bytes, (reader) => {
    const flags = reader.u8();
    const messageId = flags & entryFlags.messageId ? reader.varint() : undefined;
    const brokerId = flags & entryFlags.broker ? reader.string() : undefined;
    const kind = flags & entryFlags.release ? "release" : "publish";
    return { kind, messageId, brokerId, brokerCounter: reader.varint(), body: reader.varint() };
  });
}

/** A plain value: a subscription. */
export function encodeValue(value: object): Buffer {
  return new ByteWriter(64)
    .u8(version)
    .raw(Buffer.from(JSON.stringify(value)))
    .finish();
}

/** @throws AEDES_RECORD_CORRUPT, AEDES_RECORD_NEWER. */
export function decodeValue<T>(key: string, bytes: Buffer): T {
  return readRecord(key, bytes, (reader) => {
    return JSON.parse(reader.raw(reader.remaining).toString()) as T;
  });
}

/** A number: a count of users, a place in a queue, a reservation. */
export function encodeNumber(value: number): Buffer {
  return new ByteWriter(10).u8(version).varint(value).finish();
}

export function decodeNumber(key: string, bytes: Buffer): number {
  return readRecord(key, bytes, (reader) => reader.varint());
}

function readRecord<T>(key: string, bytes: Buffer, read: (reader: ByteReader) => T): T {
  try {
    const reader = new ByteReader(bytes);
    const found = reader.u8();
    if (found > version) throw aedesErrors.recordNewer({ key, version: found });
    return read(reader);
  } catch (error) {
    if (isCodedError(error) && error.code.startsWith("AEDES_")) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    throw aedesErrors.recordCorrupt({ key, reason }, error);
  }
}

const bytesMark = "$bytes";

function packValue(value: unknown): unknown {
  if (value instanceof Uint8Array) return { [bytesMark]: Buffer.from(value).toString("base64") };
  if (Array.isArray(value)) return value.map(packValue);
  if (typeof value !== "object" || value === null) return value;
  const packed: Array<[string, unknown]> = Object.entries(value).map(([key, field]) => [
    key.startsWith("$") ? `$${key}` : key,
    packValue(field),
  ]);
  return Object.fromEntries(packed);
}

function unpackValue(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(unpackValue);
  if (typeof value !== "object" || value === null) return value;
  const { [bytesMark]: bytes } = value as Record<string, unknown>;
  if (typeof bytes === "string") return Buffer.from(bytes, "base64");
  return Object.fromEntries(
    Object.entries(value).map(([key, field]) => [
      key.startsWith("$") ? key.slice(1) : key,
      unpackValue(field),
    ]),
  );
}
