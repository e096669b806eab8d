// Bounds the background work of a group: re-packing, verifying, removing. Those beyond the slots
// wait, in order; the queue is bounded by what asks, which are single tasks of an operator.

export class WorkSlots {
  readonly #slotsMax: number;
  readonly #waiting: Array<() => void> = [];
  #used = 0;

  constructor(slotsMax: number) {
    this.#slotsMax = slotsMax;
  }

  get slotsMax(): number {
    return this.#slotsMax;
  }

  get used(): number {
    return this.#used;
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#used >= this.#slotsMax) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    this.#used++;
    try {
      return await work();
    } finally {
      this.#used--;
      this.#waiting.shift()?.();
    }
  }
}
