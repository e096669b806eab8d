// A decoded block: tables made once by `decodeBlock`, strings made when they are asked for.
//
// Everything here was checked by block.ts; the view adds no checks and owns no rules of the format.
// Residuals are compared as bytes and word ids, so that a selective reader makes no string at all.

import { formatTopic, type ResidualPattern, type Structure } from "../core/structure.ts";
import type { TtvBatch } from "./ttv-view.ts";

/** Strings of a dictionary, as their UTF-8 in the block. */
export type Texts = {
  readonly bytes: Buffer;
  /** Where each begins and ends. */
  readonly bounds: Uint32Array;
};

export type BlockParts = {
  readonly count: number;
  readonly frames: Buffer;
  readonly words: Texts;
  readonly publishers: Texts;
  /** Of each topic, from its place in topicStarts on: how many words vary in it, and their ids. */
  readonly topicWords: Uint32Array;
  readonly topicStarts: Uint32Array;
  readonly times: Float64Array;
  readonly flags: Uint8Array;
  readonly topicIds: Uint16Array;
  readonly publisherIds: Uint16Array;
  readonly frameStarts: Uint32Array;
  readonly expiries: Float64Array | undefined;
  readonly expiryOffsets: Uint32Array | undefined;
};

/** Tables of a TTV: times and expiries 8 bytes, the others less; dictionaries are about as much. */
const tableBytesPerTtv = 64;
const viewBytes = 1024;

/** Ids in a pattern that is being matched. */
const anyWord = -1;
const anyRest = -2;
const unknownWord = -3;

export class BlockView implements TtvBatch {
  readonly count: number;
  readonly #parts: BlockParts;
  // Made when the first text is asked for: a reader that counts asks for none.
  #varying: Array<readonly string[] | undefined> | undefined;
  #topics: Array<string | undefined> | undefined;
  #words: Array<string | undefined> | undefined;
  #publishers: Array<string | undefined> | undefined;

  constructor(parts: BlockParts) {
    this.count = parts.count;
    this.#parts = parts;
  }

  get topicCount(): number {
    return this.#parts.topicStarts.length;
  }

  get publisherCount(): number {
    return this.#parts.publishers.bounds.length / 2;
  }

  /** Memory held, for the budget of a cache: the block's bytes and the tables made from them. */
  get memoryBytes(): number {
    return this.#parts.words.bytes.length + tableBytesPerTtv * this.count + viewBytes;
  }

  timeUs(index: number): number {
    return this.#parts.times[index] as number;
  }

  flags(index: number): number {
    return this.#parts.flags[index] as number;
  }

  topicId(index: number): number {
    return this.#parts.topicIds[index] as number;
  }

  publisherId(index: number): number {
    return this.#parts.publisherIds[index] as number;
  }

  expiryUs(index: number): number {
    return this.#parts.expiries?.[index] ?? 0;
  }

  expiryOffset(index: number): number {
    return this.#parts.expiryOffsets?.[index] ?? 0;
  }

  frameStart(index: number): number {
    return this.#parts.frameStarts[index] as number;
  }

  frames(): Buffer {
    return this.#parts.frames;
  }

  frame(index: number): Buffer {
    return this.#parts.frames.subarray(this.frameStart(index), this.frameStart(index + 1));
  }

  varying(topicId: number): readonly string[] {
    this.#varying ??= new Array(this.topicCount);
    this.#words ??= new Array(this.#parts.words.bounds.length / 2);
    const known = this.#varying[topicId];
    if (known !== undefined) return known;
    const { topicStarts, topicWords } = this.#parts;
    const words: string[] = [];
    const start = topicStarts[topicId] as number;
    const end = start + (topicWords[start] as number);
    for (let at = start + 1; at <= end; at++) {
      words.push(textOf(this.#words, this.#parts.words, topicWords[at] as number));
    }
    this.#varying[topicId] = words;
    return words;
  }

  /** REQUIRES: the structure is that of the block's stream. */
  topic(topicId: number, structure: Structure): string {
    this.#topics ??= new Array(this.topicCount);
    let topic = this.#topics[topicId];
    if (topic === undefined) {
      topic = formatTopic(structure, this.varying(topicId));
      this.#topics[topicId] = topic;
    }
    return topic;
  }

  publisher(publisherId: number): string {
    this.#publishers ??= new Array(this.publisherCount);
    return textOf(this.#publishers, this.#parts.publishers, publisherId);
  }

  matchVarying(pattern: ResidualPattern): Uint8Array {
    const match = new Uint8Array(this.topicCount);
    const ids = pattern.map((word) => patternId(this.#parts.words, word));
    if (ids.includes(unknownWord)) return match;
    for (let topic = 0; topic < match.length; topic++) {
      if (this.#topicMatches(topic, ids)) match[topic] = 1;
    }
    return match;
  }

  #topicMatches(topicId: number, ids: readonly number[]): boolean {
    const { topicStarts, topicWords } = this.#parts;
    const start = topicStarts[topicId] as number;
    const end = start + 1 + (topicWords[start] as number);
    let at = start + 1;
    for (const id of ids) {
      if (id === anyRest) return true;
      if (at === end || (id !== anyWord && id !== topicWords[at])) return false;
      at++;
    }
    return at === end;
  }
}

function textOf(texts: Array<string | undefined>, from: Texts, id: number): string {
  let text = texts[id];
  if (text === undefined) {
    text = from.bytes.toString("utf8", from.bounds[2 * id], from.bounds[2 * id + 1]);
    texts[id] = text;
  }
  return text;
}

function patternId(texts: Texts, word: string): number {
  if (word === "+") return anyWord;
  if (word === "#") return anyRest;
  const wanted = Buffer.from(word);
  const { bytes, bounds } = texts;
  for (let at = 0; at < bounds.length; at += 2) {
    const start = bounds[at] as number;
    const size = (bounds[at + 1] as number) - start;
    if (size === wanted.length && sameBytes(bytes, start, wanted)) return at / 2;
  }
  return unknownWord;
}

function sameBytes(bytes: Buffer, start: number, wanted: Buffer): boolean {
  // Words differ at their ends more often than at their beginnings.
  for (let index = wanted.length - 1; index >= 0; index--) {
    if (bytes[start + index] !== wanted[index]) return false;
  }
  return true;
}
