// Order among calls: one task at a time for each key, and tasks that prepare side by side and begin
// in call order. Different keys do not wait for each other.

export class KeyedLock {
  readonly #tails = new Map<string, Promise<unknown>>();

  /** Keys with a task under way. */
  get size(): number {
    return this.#tails.size;
  }

  run<T>(key: string, task: () => Promise<T>): Promise<T> {
    const before = this.#tails.get(key);
    const turn = before === undefined ? task() : before.then(task, task);
    this.#tails.set(key, turn);
    const leave = (): void => {
      if (this.#tails.get(key) === turn) this.#tails.delete(key);
    };
    turn.then(leave, leave);
    return turn;
  }
}

export type Turn = {
  /** Resolves when all earlier calls of the key have begun; undefined: they have. */
  readonly before: Promise<void> | undefined;
  /** This one has begun, or will not. Once or more often. */
  begun(): void;
};

export class Turns {
  readonly #tails = new Map<string, Promise<void>>();

  take(key: string): Turn {
    const before = this.#tails.get(key);
    let resolve: (before: Promise<void> | undefined) => void = () => undefined;
    const tail = new Promise<void>((done) => {
      resolve = done as typeof resolve;
    });
    this.#tails.set(key, tail);
    const leave = (): void => {
      if (this.#tails.get(key) === tail) this.#tails.delete(key);
    };
    // One that gives up early does not let the next ones pass those before it.
    const begun = (): void => {
      resolve(before);
      if (before === undefined) leave();
      else tail.then(leave);
    };
    return { before, begun };
  }
}
