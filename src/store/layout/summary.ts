// The summary of a block: a small Bloom filter over the varying words of its topics, kept in the
// slab's index, so that a selective reader passes over blocks unread. It may say "perhaps" for a
// block without a match, never "no" for one with.
//
// Two kinds of keys go in: (level, word) for filters with wildcards, and whole topics for filters
// that name one, since a block may hold host 7 and core 3 without holding core 3 of host 7.
// Stored bytes: the hashes (base/hash.ts) and the probe sequence here are part of the format.

import { hash32 } from "../../base/index.ts";
import type { Place } from "../core/place.ts";
import type { Residual } from "../core/structure.ts";
import { type TtvBatch, varyingWords } from "./ttv-view.ts";

/** Eight bits a key and four probes: one of 40 blocks without a match is read in vain. */
const bitsPerKey = 8;
const probes = 4;
const granuleBytes = 8;
/** Larger blocks of more distinct topics get a weaker filter, not a larger row. */
export const summaryBytesMax = 512;
/** Seed of whole-topic keys; no topic has as many levels. */
const topicSeed = 0x7fff_ffff;

const noSummary = Buffer.alloc(0);

/** Empty where nothing varies: then every block of the stream matches alike. */
export function summarize(batch: TtvBatch): Buffer {
  const keys = keysOf(batch);
  const count = keys.length;
  if (count === 0) return noSummary;
  const wantedBytes = Math.ceil((count * bitsPerKey) / 8 / granuleBytes) * granuleBytes;
  const summary = Buffer.alloc(Math.min(wantedBytes, summaryBytesMax));
  for (let at = 0; at < count; at++) addKey(summary, keys[at] as number);
  return summary;
}

/** False only when no topic of the block matches the residual. */
export function mayMatch(summary: Uint8Array, residual: Residual): boolean {
  if (residual === "all" || summary.length === 0) return true;
  let literals = 0;
  for (let level = 0; level < residual.length; level++) {
    const word = residual[level] as string;
    if (word === "+" || word === "#") continue;
    literals++;
    if (!hasKey(summary, hash32(word, level))) return false;
  }
  const namesOne = literals === residual.length && literals > 1;
  return !namesOne || hasKey(summary, topicKey(residual));
}

/** Each key once, in no order. */
function keysOf(batch: TtvBatch): Uint32Array {
  const { topicCount, places } = batch;
  const keys = new KeySet(topicCount + varyingWords(batch));
  for (let topic = 0; topic < topicCount; topic++) {
    const place = places?.[topic];
    const ofTopic = place === undefined ? keysFor(batch.varying(topic)) : keysAt(place);
    for (const key of ofTopic) keys.add(key);
  }
  return keys.found();
}

function keysAt(place: Place): readonly number[] {
  place.keys ??= keysFor(place.varying);
  return place.keys;
}

/** As integers of 32 bits with sign, which are no objects. */
function keysFor(words: readonly string[]): readonly number[] {
  const keys = words.map((word, level) => hash32(word, level) | 0);
  if (words.length > 1) keys.push(topicKey(words) | 0);
  return keys;
}

// A table with open addressing: a Set of numbers makes an object for each that is larger than 31 bits.
class KeySet {
  readonly #found: Uint32Array;
  /** Places in `#found`, from 1. */
  readonly #slots: Uint32Array;
  #count = 0;

  constructor(keysMax: number) {
    this.#found = new Uint32Array(keysMax);
    this.#slots = new Uint32Array(2 ** Math.ceil(Math.log2(2 * keysMax + 1)));
  }

  add(signed: number): void {
    const found = this.#found;
    const slots = this.#slots;
    const mask = slots.length - 1;
    const key = signed >>> 0;
    let slot = key & mask;
    for (let at = slots[slot] as number; at !== 0; at = slots[slot] as number) {
      if (found[at - 1] === key) return;
      slot = (slot + 1) & mask;
    }
    found[this.#count++] = key;
    slots[slot] = this.#count;
  }

  found(): Uint32Array {
    return this.#found.subarray(0, this.#count);
  }
}

function topicKey(words: readonly string[]): number {
  let key = topicSeed;
  for (const word of words) key = hash32(word, key);
  return key;
}

// Double hashing (Kirsch and Mitzenmacher): the second hash is the first one mixed again, odd.
function addKey(summary: Buffer, key: number): void {
  const bits = summary.length * 8;
  const step = stepOf(key);
  let at = key;
  for (let probe = 0; probe < probes; probe++) {
    const bit = at % bits;
    summary[bit >>> 3] = (summary[bit >>> 3] as number) | (1 << (bit & 7));
    at = (at + step) >>> 0;
  }
}

function hasKey(summary: Uint8Array, key: number): boolean {
  const bits = summary.length * 8;
  const step = stepOf(key);
  let at = key;
  for (let probe = 0; probe < probes; probe++) {
    const bit = at % bits;
    if (((summary[bit >>> 3] as number) & (1 << (bit & 7))) === 0) return false;
    at = (at + step) >>> 0;
  }
  return true;
}

function stepOf(key: number): number {
  const mixed = Math.imul(key ^ (key >>> 15), 0x2c1b3c6d) >>> 0;
  return (mixed ^ (mixed >>> 13)) | 1;
}
