// Long work over things in memory, cut into turns of the event loop by the rows that were looked at:
// what others wait for goes on between two slices.

export class Slices {
  readonly #rowsMax: number;
  readonly #pause: () => Promise<void>;
  #rows = 0;

  /** `pause` ends a turn and comes back in a later one. */
  constructor(rowsMax: number, pause: () => Promise<void>) {
    this.#rowsMax = rowsMax;
    this.#pause = pause;
  }

  /** Rows that were looked at; a pause to wait for when the slice is over, nothing before. */
  looked(rows: number): Promise<void> | undefined {
    this.#rows += rows;
    if (this.#rows < this.#rowsMax) return undefined;
    this.#rows = 0;
    return this.#pause();
  }
}
