// What brokers of a cluster tell each other: which filters their clients have, and messages
// (docs/formats/raft.md, "Between brokers").

import { ByteReader, ByteWriter } from "../../base/index.ts";
import type { Ttv, TtvForm } from "../../store/index.ts";

/**
 * What a node wants of a filter: nothing, what is not stored, everything; or, of a shared group under
 * its whole name, to deal some of it.
 */
export const wants = { nothing: 0, unstored: 1, all: 2, dealt: 3 } as const;
export type Want = (typeof wants)[keyof typeof wants];

export type Interest = {
  /** What was told before counts no more. */
  readonly isFirst: boolean;
  /** Nothing is missing behind it. */
  readonly isComplete: boolean;
  readonly filters: ReadonlyArray<readonly [filter: string, want: Want]>;
};

export function encodeInterest({ isFirst, isComplete, filters }: Interest): Buffer {
  const writer = new ByteWriter().u8((isFirst ? 1 : 0) | (isComplete ? 2 : 0));
  writer.varint(filters.length);
  for (const [filter, want] of filters) writer.u8(want).string(filter);
  return writer.finish();
}

/** @throws what a reader throws at bytes that cannot be. */
export function decodeInterest(bytes: Uint8Array): Interest {
  const reader = new ByteReader(bytes);
  const flags = reader.u8();
  const filters: Array<readonly [string, Want]> = [];
  for (let left = reader.varint(); left > 0; left--) {
    const want = Math.min(reader.u8(), wants.dealt) as Want;
    filters.push([reader.string(), want]);
  }
  return { isFirst: (flags & 1) !== 0, isComplete: (flags & 2) !== 0, filters };
}

const forms: readonly TtvForm[] = ["raw", "v4", "v5"];

/** Copies the message; `writeTo` goes behind it. */
export function writeMessage(writer: ByteWriter, message: Ttv): void {
  const { topic, timeUs, publisher, form, qos, retain, expiryUs, expiryOffset, frame } = message;
  writer.u8(forms.indexOf(form) | (qos << 2) | (retain ? 16 : 0));
  writer.string(topic).string(publisher).varint(timeUs).varint(expiryUs).varint(expiryOffset);
  writer.bytes(frame);
}

export type Addressees = {
  /** It comes to durable sessions by their cursors. */
  readonly isStored: boolean;
  /** For all that are subscribed; else for the groups alone. */
  readonly isForAll: boolean;
  readonly groups: readonly string[];
};

export function writeAddressees(writer: ByteWriter, to: Addressees): void {
  writer.u8((to.isStored ? 1 : 0) | (to.isForAll ? 2 : 0)).varint(to.groups.length);
  for (const group of to.groups) writer.string(group);
}

/** Frames are views. @throws as `decodeInterest`. */
export function readMessages(
  bytes: Uint8Array,
  visit: (message: Ttv, to: Addressees) => void,
): void {
  const reader = new ByteReader(bytes);
  while (reader.remaining > 0) {
    const flags = reader.u8();
    const [topic, publisher] = [reader.string(), reader.string()];
    const [timeUs, expiryUs, expiryOffset] = [reader.varint(), reader.varint(), reader.varint()];
    const frame = reader.bytes();
    const marks = reader.u8();
    const groups: string[] = [];
    for (let left = reader.varint(); left > 0; left--) groups.push(reader.string());
    const message: Ttv = {
      ...{ topic, timeUs, publisher, expiryUs, expiryOffset, frame },
      form: forms[flags & 3] ?? "raw",
      qos: Math.min((flags >> 2) & 3, 2) as 0 | 1 | 2,
      retain: (flags & 16) !== 0,
    };
    visit(message, { isStored: (marks & 1) !== 0, isForAll: (marks & 2) !== 0, groups });
  }
}
