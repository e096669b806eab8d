// What channels of two nodes say to each other (docs/formats/raft.md, "The channel between nodes").

import { ByteReader, ByteWriter, isCodedError } from "../../base/index.ts";

/** One direction between two nodes, as the one that sends on it names it. */
export type Link = {
  /** Of the sender's life. */
  readonly start: string;
  /** Grows with each link of that life. */
  readonly link: number;
};

export type ChannelNote =
  | {
      readonly kind: "beat";
      /** On which the beat itself is. */
      readonly own: Link;
      /** Parts sent on it so far. */
      readonly parts: number;
      /** What the sender hears of the receiver, and how many bytes of it came. */
      readonly heard: (Link & { readonly bytes: number }) | undefined;
    }
  | {
      readonly kind: "part";
      readonly link: number;
      readonly part: number;
      /** The end of a letter. */
      readonly isLast: boolean;
      readonly bytes: Uint8Array;
    };

/** What one node says to another, whole. `told` wants no answer. */
export type Letter =
  | { readonly what: "told"; readonly kind: string; readonly bytes: Uint8Array }
  | {
      readonly what: "asked";
      readonly id: number;
      readonly kind: string;
      readonly bytes: Uint8Array;
    }
  | { readonly what: "answered"; readonly id: number; readonly bytes: Uint8Array }
  /** `bytes`: why, in UTF-8. */
  | { readonly what: "failed"; readonly id: number; readonly bytes: Uint8Array };

/** Notes of the roster have numbers below these. */
const [beatNote, partNote] = [16, 17];
const letterKinds = ["told", "asked", "answered", "failed"] as const;

export function isChannelNote(bytes: Uint8Array): boolean {
  return bytes[0] === beatNote || bytes[0] === partNote;
}

export function encodeChannelNote(note: ChannelNote): Buffer {
  if (note.kind === "part") {
    const writer = new ByteWriter(note.bytes.length + 24).u8(partNote);
    writer
      .varint(note.link)
      .varint(note.part)
      .u8(note.isLast ? 1 : 0);
    return writer.raw(note.bytes).finish();
  }
  const { own, parts, heard } = note;
  const writer = new ByteWriter().u8(beatNote).string(own.start).varint(own.link).varint(parts);
  if (heard === undefined) return writer.u8(0).finish();
  return writer.u8(1).string(heard.start).varint(heard.link).varint(heard.bytes).finish();
}

/** Undefined for what cannot be. Bytes are views. */
export function decodeChannelNote(bytes: Uint8Array): ChannelNote | undefined {
  return read(bytes, (reader): ChannelNote => {
    if (reader.u8() === partNote) {
      const [link, part, isLast] = [reader.varint(), reader.varint(), reader.u8() === 1];
      return { kind: "part", link, part, isLast, bytes: reader.raw(reader.remaining) };
    }
    const own = { start: reader.string(), link: reader.varint() };
    const parts = reader.varint();
    if (reader.u8() === 0) return { kind: "beat", own, parts, heard: undefined };
    const heard = { start: reader.string(), link: reader.varint(), bytes: reader.varint() };
    return { kind: "beat", own, parts, heard };
  });
}

export function encodeLetter(letter: Letter): Buffer {
  const writer = new ByteWriter(letter.bytes.length + 64).u8(letterKinds.indexOf(letter.what));
  if (letter.what !== "told") writer.varint(letter.id);
  if ("kind" in letter) writer.string(letter.kind);
  return writer.raw(letter.bytes).finish();
}

/** Undefined for what cannot be. Bytes are views. */
export function decodeLetter(bytes: Uint8Array): Letter | undefined {
  return read(bytes, (reader): Letter | undefined => {
    const what = letterKinds[reader.u8()];
    if (what === undefined) return undefined;
    const id = what === "told" ? 0 : reader.varint();
    const kind = what === "told" || what === "asked" ? reader.string() : "";
    const rest = reader.raw(reader.remaining);
    if (what === "told") return { what, kind, bytes: rest };
    if (what === "asked") return { what, id, kind, bytes: rest };
    return { what, id, bytes: rest };
  });
}

function read<T>(bytes: Uint8Array, parse: (reader: ByteReader) => T): T | undefined {
  try {
    const reader = new ByteReader(bytes);
    const value = parse(reader);
    return reader.remaining === 0 ? value : undefined;
  } catch (error) {
    if (isCodedError(error) && error.kind === "corrupt") return undefined;
    throw error;
  }
}
