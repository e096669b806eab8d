// Who waits for a checkpoint of all that is so far: one that was captured before does not do.

export class CheckpointWaits {
  #calls: Array<() => void> = [];
  #isClosed = false;

  /** Resolves with the next checkpoint that begins and is committed, or when there will be none. */
  next(): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    return new Promise((resolve) => this.#calls.push(resolve));
  }

  /** No checkpoint under way will do for somebody. */
  get isAny(): boolean {
    return this.#calls.length > 0;
  }

  /** A checkpoint begins; call back with how it ended. */
  capture(): (committed: boolean) => void {
    const calls = this.#calls;
    this.#calls = [];
    return (committed) => {
      if (committed || this.#isClosed) for (const call of calls) call();
      else this.#calls.push(...calls);
    };
  }

  close(): void {
    this.#isClosed = true;
    this.capture()(true);
  }
}
