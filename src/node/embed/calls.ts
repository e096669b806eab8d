// Calls of the program that are under way. What serves them may be gone before it answers: then they
// are answered in its place, so that no call is waited for in vain.
//
// Bounded by the program, which holds a promise for each.

export class Calls {
  readonly #rejects = new Set<(error: Error) => void>();

  get size(): number {
    return this.#rejects.size;
  }

  /** As `call`, unless `abandon` comes first. */
  track<T>(call: Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.#rejects.add(reject);
      call.then(resolve, reject).finally(() => this.#rejects.delete(reject));
    });
  }

  /** All that are under way reject with it. */
  abandon(error: Error): void {
    for (const reject of this.#rejects) reject(error);
    this.#rejects.clear();
  }
}
