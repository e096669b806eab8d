// What is merged by time, earliest first: a heap. Times lie in a table of their own, since one that is
// kept in an object that may not be there becomes an object itself each time it is looked up.

const capacityInitial = 4;

export class Merge<T> {
  readonly #items: T[] = [];
  /** Infinite where there is no item: children are looked up without a look at the size. */
  #times = tableFor(capacityInitial);

  get first(): T | undefined {
    return this.#items[0];
  }

  /** Infinite where there is none. */
  get firstUs(): number {
    return this.#times[0] as number;
  }

  /** The earliest time of all but the first; infinite where there is none. */
  get secondUs(): number {
    return Math.min(this.#times[1] as number, this.#times[2] as number);
  }

  push(item: T, timeUs: number): void {
    const items = this.#items;
    let at = items.length;
    items.push(item);
    this.#reserve(items.length);
    const times = this.#times;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if ((times[parent] as number) <= timeUs) break;
      items[at] = items[parent] as T;
      times[at] = times[parent] as number;
      at = parent;
    }
    items[at] = item;
    times[at] = timeUs;
  }

  /** The first one is at `timeUs` now. REQUIRES: there is one, and it was not later. */
  moveFirst(timeUs: number): void {
    this.#sink(this.#items[0] as T, timeUs);
  }

  removeFirst(): void {
    const last = this.#items.pop();
    const at = this.#items.length;
    const lastUs = this.#times[at] as number;
    this.#times[at] = Number.POSITIVE_INFINITY;
    if (last !== undefined && at > 0) this.#sink(last, lastUs);
  }

  clear(): void {
    this.#items.length = 0;
    this.#times.fill(Number.POSITIVE_INFINITY);
  }

  /** Puts an item in the place of the first one, and down to where it belongs. */
  #sink(item: T, timeUs: number): void {
    const items = this.#items;
    const times = this.#times;
    const size = items.length;
    let at = 0;
    for (let child = 1; child < size; child = 2 * at + 1) {
      if ((times[child + 1] as number) < (times[child] as number)) child++;
      if ((times[child] as number) >= timeUs) break;
      items[at] = items[child] as T;
      times[at] = times[child] as number;
      at = child;
    }
    items[at] = item;
    times[at] = timeUs;
  }

  #reserve(count: number): void {
    if (count + 2 <= this.#times.length) return;
    const larger = tableFor(2 * count);
    larger.set(this.#times);
    this.#times = larger;
  }
}

/** With two behind the last: `secondUs`, and the other child, may be asked for. */
function tableFor(count: number): Float64Array {
  return new Float64Array(count + 2).fill(Number.POSITIVE_INFINITY);
}
