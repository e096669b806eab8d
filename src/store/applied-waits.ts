// Who waits until a commit time is applied, of whatever process that leads the shard.

type Wait = { readonly timeUs: number; readonly then: () => void };

export class AppliedWaits {
  #waits: Wait[] = [];

  add(timeUs: number, then: () => void): void {
    this.#waits.push({ timeUs, then });
  }

  /** Those that wait for nothing later than `untilUs`, in the order in which they came. */
  due(untilUs: number): ReadonlyArray<() => void> {
    if (this.#waits.length === 0) return [];
    const due = this.#waits.filter(({ timeUs }) => timeUs <= untilUs);
    if (due.length > 0) this.#waits = this.#waits.filter(({ timeUs }) => timeUs > untilUs);
    return due.map(({ then }) => then);
  }
}
