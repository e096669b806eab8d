// Virtual time: events in the order of their time, then of their creation. A binary heap; nothing
// depends on the order of an unordered collection.

export type SimEvent = { readonly at: number; readonly order: number; readonly run: () => void };

export class EventQueue {
  readonly #heap: SimEvent[] = [];
  #created = 0;
  /** Virtual milliseconds. */
  now = 0;

  get size(): number {
    return this.#heap.length;
  }

  after(delay: number, run: () => void): void {
    const event = { at: this.now + delay, order: this.#created++, run };
    const heap = this.#heap;
    heap.push(event);
    let at = heap.length - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!before(event, heap[parent] as SimEvent)) break;
      heap[at] = heap[parent] as SimEvent;
      at = parent;
    }
    heap[at] = event;
  }

  /** Runs the next event; false if there is none. */
  step(): boolean {
    const first = this.#heap[0];
    if (first === undefined) return false;
    const last = this.#heap.pop() as SimEvent;
    if (last !== first) this.#sink(last);
    this.now = first.at;
    first.run();
    return true;
  }

  #sink(event: SimEvent): void {
    const heap = this.#heap;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      const right = heap[child + 1];
      if (right !== undefined && before(right, heap[child] as SimEvent)) child++;
      if (!before(heap[child] as SimEvent, event)) break;
      heap[at] = heap[child] as SimEvent;
      at = child;
    }
    heap[at] = event;
  }
}

function before(left: SimEvent, right: SimEvent): boolean {
  return left.at === right.at ? left.order < right.order : left.at < right.at;
}
