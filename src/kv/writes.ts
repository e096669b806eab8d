// The order and the stickiness of a store's writes, the same for every driver: one write at a time,
// in the order of the calls, none after a failure and none after the close.

import { toError } from "../base/index.ts";
import { kvErrors } from "./kv.ts";

export class WriteQueue {
  readonly path: string;
  #tail: Promise<unknown> = Promise.resolve();
  readonly #underWay = new Set<Promise<void>>();
  #failure: Error | undefined;
  #isClosed = false;

  constructor(path: string) {
    this.path = path;
  }

  get failure(): Error | undefined {
    return this.#failure;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Ends the store for a failure in the background. */
  fail(error: Error): void {
    this.#failure ??= error;
  }

  /**
   * Runs `task` after all earlier ones, unless one of them failed. Its error is the store's end.
   */
  run<T>(task: () => Promise<T>): Promise<T> {
    const result = this.runBeside(task);
    this.#tail = Promise.allSettled([result]);
    return result;
  }

  /** Like `run`, but later writes do not wait for it: a sync of much data may take long. */
  runBeside<T>(task: () => Promise<T>): Promise<T> {
    if (this.#isClosed) return Promise.reject(kvErrors.closed({ path: this.path }));
    const result = this.#tail.then(() => this.#guard(task));
    const forget = (): void => {
      this.#underWay.delete(settled);
    };
    const settled = result.then(forget, forget); // its owner hears of an error through `result`
    this.#underWay.add(settled);
    return result;
  }

  /** Runs `first` like `run`, then `rest`, for which later writes do not wait. */
  runThen<T, U>(first: () => Promise<T>, rest: (value: T) => Promise<U>): Promise<U> {
    let pass = (): void => undefined;
    const passed = new Promise<void>((resolve) => {
      pass = resolve;
    });
    const result = this.runBeside(async () => {
      const value = await first();
      pass();
      return rest(value);
    });
    void result.then(pass, pass); // its owner hears of an error through `result`
    this.#tail = passed;
    return result;
  }

  /** Takes nothing more; resolves when what was taken is done. */
  async close(): Promise<void> {
    this.#isClosed = true;
    while (this.#underWay.size > 0) await Promise.all(this.#underWay);
  }

  async #guard<T>(task: () => Promise<T>): Promise<T> {
    if (this.#failure !== undefined) throw this.#failure;
    try {
      return await task();
    } catch (error) {
      this.fail(toError(error));
      throw error;
    }
  }
}
