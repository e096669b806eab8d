// What the slabs of a shard take on the volume. Those that are sealed and closed do not change, and
// are asked for once; the others each time.

type Size = { readonly sizeBytes: number; readonly isAtRest: boolean };

export class SlabSizes {
  readonly #ask: (generation: number) => Promise<number>;
  readonly #sizes = new Map<number, Size>();

  constructor(ask: (generation: number) => Promise<number>) {
    this.#ask = ask;
  }

  /** The sum over these generations; what is known of others is forgotten. */
  async measure(
    generations: ReadonlyArray<{ readonly number: number; readonly isAtRest: boolean }>,
  ): Promise<number> {
    let sum = 0;
    for (const { number, isAtRest } of generations) {
      const known = this.#sizes.get(number);
      const isKnown = isAtRest && known?.isAtRest === true;
      const sizeBytes = isKnown ? known.sizeBytes : await this.#ask(number);
      this.#sizes.set(number, { sizeBytes, isAtRest });
      sum += sizeBytes;
    }
    const numbers = new Set(generations.map(({ number }) => number));
    for (const number of this.#sizes.keys()) if (!numbers.has(number)) this.#sizes.delete(number);
    return sum;
  }

  /** It is another folder now, or written anew: asked for again. */
  doubt(generation: number): void {
    const known = this.#sizes.get(generation);
    if (known !== undefined) this.#sizes.set(generation, { ...known, isAtRest: false });
  }

  /** As last measured. */
  of(generation: number): number {
    return this.#sizes.get(generation)?.sizeBytes ?? 0;
  }
}
