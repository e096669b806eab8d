// Topics by their bytes: what publishers repeat is validated and made a string once. The string is the
// same object each time, so that maps by topic have its hash.
//
// Bounded by a number of topics and by their length; when it is full all are forgotten, which costs
// each its next look-up. An entry that somebody still holds stays valid: it only is not found again.

import { rememberedTopicMax } from "../../topic/index.ts";

/** A valid topic name. */
export class KnownTopic {
  readonly text: string;
  /** Its UTF-8, in memory of its own. */
  readonly bytes: Buffer;
  readonly hash: number;

  constructor(text: string, bytes: Buffer, hash: number) {
    this.text = text;
    this.bytes = bytes;
    this.hash = hash;
  }

  /** Whether these bytes are the topic. */
  equals(bytes: Uint8Array, start: number, end: number): boolean {
    const own = this.bytes;
    const length = end - start;
    if (own.length !== length) return false;
    // From the end: topics of one publisher differ there.
    for (let index = length - 1; index >= 0; index--) {
      if (own[index] !== bytes[start + index]) return false;
    }
    return true;
  }
}

/** FNV-1a. */
const hashBasis = 0x811c9dc5;
const hashPrime = 0x01000193;
const slotsMin = 64;

export class TopicTable {
  readonly #countMax: number;
  #slots: Array<KnownTopic | undefined> = new Array(slotsMin);
  #count = 0;

  /** Forgets all when more than `countMax` topics are known. Default 16,384: some megabytes. */
  constructor(countMax = 16_384) {
    this.#countMax = countMax;
  }

  get size(): number {
    return this.#count;
  }

  find(bytes: Uint8Array, start: number, end: number): KnownTopic | undefined {
    const slots = this.#slots;
    const mask = slots.length - 1;
    let at = hashOf(bytes, start, end) & mask;
    for (let entry = slots[at]; entry !== undefined; entry = slots[at]) {
      if (entry.equals(bytes, start, end)) return entry;
      at = (at + 1) & mask;
    }
    return undefined;
  }

  /** REQUIRES: `text` is what the bytes say and a valid name, and is not here yet. */
  add(text: string, bytes: Uint8Array, start: number, end: number): KnownTopic {
    const own = Buffer.from(bytes.subarray(start, end));
    const entry = new KnownTopic(text, own, hashOf(bytes, start, end));
    if (text.length > rememberedTopicMax) return entry;
    if (this.#count >= this.#countMax) this.#clear();
    this.#count++;
    if (2 * this.#count > this.#slots.length) this.#grow();
    place(this.#slots, entry);
    return entry;
  }

  #clear(): void {
    this.#slots = new Array(slotsMin);
    this.#count = 0;
  }

  #grow(): void {
    const grown: Array<KnownTopic | undefined> = new Array(2 * this.#slots.length);
    for (const entry of this.#slots) if (entry !== undefined) place(grown, entry);
    this.#slots = grown;
  }
}

function place(slots: Array<KnownTopic | undefined>, entry: KnownTopic): void {
  const mask = slots.length - 1;
  let at = entry.hash & mask;
  while (slots[at] !== undefined) at = (at + 1) & mask;
  slots[at] = entry;
}

function hashOf(bytes: Uint8Array, start: number, end: number): number {
  let hash = hashBasis;
  for (let at = start; at < end; at++) hash = Math.imul(hash ^ (bytes[at] as number), hashPrime);
  return hash;
}
