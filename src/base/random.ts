// The randomness port. Production code draws from the system; simulations and tests from a seeded
// generator (xoshiro128**, Blackman and Vigna) that can be split per concern, so that shrinking one
// concern does not reshuffle the others.

import { randomBytes, randomInt } from "node:crypto";

export interface Random {
  /** A uniformly drawn integer, 0 <= n < limit <= 2^32. */
  below(limit: number): number;
  bytes(size: number): Buffer;
}

export const systemRandom: Random = {
  below: (limit) => (limit <= 1 ? 0 : randomInt(limit)),
  bytes: (size) => randomBytes(size),
};

export class SeededRandom implements Random {
  readonly #state: Uint32Array;

  constructor(seed: number | string) {
    this.#state = new Uint32Array(4);
    let mix = hashSeed(String(seed));
    for (let index = 0; index < 4; index++) {
      mix = (mix + 0x9e3779b9) >>> 0;
      let word = mix;
      word = Math.imul(word ^ (word >>> 16), 0x85ebca6b);
      word = Math.imul(word ^ (word >>> 13), 0xc2b2ae35);
      this.#state[index] = (word ^ (word >>> 16)) >>> 0;
    }
  }

  next32(): number {
    const s = this.#state;
    const [s0, s1, s2, s3] = [s[0] as number, s[1] as number, s[2] as number, s[3] as number];
    const scaled = Math.imul(s1, 5);
    const result = Math.imul((scaled << 7) | (scaled >>> 25), 9) >>> 0;
    const mixed2 = s2 ^ s0;
    const mixed3 = s3 ^ s1;
    s[1] = s1 ^ mixed2;
    s[0] = s0 ^ mixed3;
    s[2] = mixed2 ^ (s1 << 9);
    s[3] = (mixed3 << 11) | (mixed3 >>> 21);
    return result;
  }

  below(limit: number): number {
    return limit <= 1 ? 0 : Math.floor((this.next32() / 2 ** 32) * limit);
  }

  /** Inclusive at both ends. */
  between(low: number, high: number): number {
    return low + this.below(high - low + 1);
  }

  chance(probability: number): boolean {
    return this.next32() / 2 ** 32 < probability;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)] as T;
  }

  bytes(size: number): Buffer {
    const out = Buffer.allocUnsafe(size);
    for (let index = 0; index < size; index++) out[index] = this.next32() & 0xff;
    return out;
  }

  /** An independent generator for one concern: the same for the same state and concern. */
  split(concern: string): SeededRandom {
    return new SeededRandom(`${concern}/${this.#state.join(".")}`);
  }
}

function hashSeed(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  return hash >>> 0;
}
