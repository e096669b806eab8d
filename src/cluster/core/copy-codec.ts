// What two replicas of a shard say to each other while one copies what it lacks
// (docs/formats/raft.md). One question is under way at a time; its answer has its number.

import { ByteReader, ByteWriter, isCodedError } from "../../base/index.ts";
import type { SlabStoreName } from "../../store/index.ts";

export type CopyQuestion =
  /** Rows of the shard store from the one at `from` on; all of one asking have its token. */
  | { readonly kind: "facts"; readonly token: number; readonly from: number }
  | {
      readonly kind: "slab";
      readonly number: number;
      readonly pack: number;
      readonly store: SlabStoreName;
      readonly after: Uint8Array | undefined;
    }
  | { readonly kind: "map"; readonly after: Uint8Array | undefined }
  | { readonly kind: "hash"; readonly number: number };

export type CopyRow = readonly [key: Buffer, value: Buffer];

export type CopyAnswer =
  | { readonly kind: "rows"; readonly rows: readonly CopyRow[]; readonly isEnd: boolean }
  | { readonly kind: "hash"; readonly hash: string }
  /** It takes longer: ask again. */
  | { readonly kind: "busy" }
  | { readonly kind: "gone" };

export type CopyMessage =
  | { readonly kind: "question"; readonly id: number; readonly question: CopyQuestion }
  | { readonly kind: "answer"; readonly id: number; readonly answer: CopyAnswer };

/** Above the kinds of forward-codec.ts. */
const kinds = { question: 16, answer: 17 } as const;
const questions = { facts: 1, slab: 2, map: 3, hash: 4 } as const;
const answers = { rows: 1, hash: 2, busy: 3, gone: 4 } as const;
const stores: readonly SlabStoreName[] = ["blocks", "index"];
/** Far above what a page holds. */
const rowsMax = 1_000_000;

/** Whether the bytes are of this codec: others are told through the same channel. */
export function isCopyMessage(bytes: Uint8Array): boolean {
  return bytes[0] === kinds.question || bytes[0] === kinds.answer;
}

export function encodeCopyMessage(message: CopyMessage): Buffer {
  const writer = new ByteWriter(256).u8(kinds[message.kind]).varint(message.id);
  if (message.kind === "question") writeQuestion(writer, message.question);
  else writeAnswer(writer, message.answer);
  return writer.finish();
}

/** Undefined when the bytes are none. */
export function decodeCopyMessage(bytes: Uint8Array): CopyMessage | undefined {
  try {
    const reader = new ByteReader(bytes);
    const kind = reader.u8();
    const id = reader.varint();
    const message = kind === kinds.question ? readQuestion(reader) : readAnswer(reader);
    if (message === undefined || reader.remaining > 0 || !isCopyMessage(bytes)) return undefined;
    return { id, ...message };
  } catch (error) {
    if (isCodedError(error) && error.kind === "corrupt") return undefined;
    throw error;
  }
}

function writeQuestion(writer: ByteWriter, question: CopyQuestion): void {
  writer.u8(questions[question.kind]);
  switch (question.kind) {
    case "facts":
      writer.varint(question.token).varint(question.from);
      return;
    case "slab":
      writer.u32(question.number).varint(question.pack).u8(stores.indexOf(question.store));
      return writeAfter(writer, question.after);
    case "map":
      return writeAfter(writer, question.after);
    case "hash":
      writer.u32(question.number);
  }
}

function writeAfter(writer: ByteWriter, after: Uint8Array | undefined): void {
  writer.u8(after === undefined ? 0 : 1);
  if (after !== undefined) writer.bytes(after);
}

function readAfter(reader: ByteReader): Buffer | undefined {
  return reader.u8() === 0 ? undefined : Buffer.from(reader.bytes());
}

type Read<Kind extends CopyMessage["kind"]> = Omit<Extract<CopyMessage, { kind: Kind }>, "id">;

function readQuestion(reader: ByteReader): Read<"question"> | undefined {
  const question = ((): CopyQuestion | undefined => {
    switch (reader.u8()) {
      case questions.facts:
        return { kind: "facts", token: reader.varint(), from: reader.varint() };
      case questions.slab: {
        const [number, pack] = [reader.u32(), reader.varint()];
        const store = stores[reader.u8()];
        const after = readAfter(reader);
        return store === undefined ? undefined : { kind: "slab", number, pack, store, after };
      }
      case questions.map:
        return { kind: "map", after: readAfter(reader) };
      case questions.hash:
        return { kind: "hash", number: reader.u32() };
      default:
        return undefined;
    }
  })();
  return question === undefined ? undefined : { kind: "question", question };
}

function writeAnswer(writer: ByteWriter, answer: CopyAnswer): void {
  writer.u8(answers[answer.kind]);
  if (answer.kind === "hash") writer.string(answer.hash);
  if (answer.kind !== "rows") return;
  writer.u8(answer.isEnd ? 1 : 0).varint(answer.rows.length);
  for (const [key, value] of answer.rows) writer.bytes(key).bytes(value);
}

function readAnswer(reader: ByteReader): Read<"answer"> | undefined {
  const answer = ((): CopyAnswer | undefined => {
    switch (reader.u8()) {
      case answers.rows: {
        const isEnd = reader.u8() === 1;
        const count = reader.varint();
        if (count > rowsMax) return undefined;
        const rows: CopyRow[] = [];
        for (let left = count; left > 0; left--) {
          rows.push([Buffer.from(reader.bytes()), Buffer.from(reader.bytes())]);
        }
        return { kind: "rows", rows, isEnd };
      }
      case answers.hash:
        return { kind: "hash", hash: reader.string() };
      case answers.busy:
        return { kind: "busy" };
      case answers.gone:
        return { kind: "gone" };
      default:
        return undefined;
    }
  })();
  return answer === undefined ? undefined : { kind: "answer", answer };
}
