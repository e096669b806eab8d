// Averages over 1, 5 and 15 minutes of what happens in a minute, as `$SYS/broker/load/...` tells them:
// each new figure counts the more the longer its interval is against the average's.

const spansMin = [1, 5, 15] as const;

export class LoadAverages {
  readonly #totals = new Map<string, number>();
  readonly #averages = new Map<string, number[]>();

  /** `totals`: counters that only grow, by name. `minutes` have gone by since the last note. */
  note(totals: ReadonlyMap<string, number>, minutes: number): void {
    for (const [name, total] of totals) {
      const perMinute = (total - (this.#totals.get(name) ?? 0)) / minutes;
      this.#totals.set(name, total);
      const averages = this.#averages.get(name) ?? spansMin.map(() => 0);
      const next = averages.map((average, at) => {
        const decay = Math.exp(-minutes / (spansMin[at] as number));
        return perMinute + decay * (average - perMinute);
      });
      this.#averages.set(name, next);
    }
  }

  *values(): Iterable<readonly [topic: string, value: string]> {
    for (const [name, averages] of this.#averages) {
      for (const [at, average] of averages.entries()) {
        yield [`$SYS/broker/load/${name}/${spansMin[at]}min`, average.toFixed(2)];
      }
    }
  }
}
