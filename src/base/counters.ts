// Plain counters, declared beside the code that raises them, with a help text each. They are
// numbers on an object: raising one costs an addition. The metrics page reads them, and their help
// texts by `helpOf`; nothing here knows it.

export type CounterHelp = Readonly<Record<string, string>>;

export type Counters<T extends CounterHelp> = { -readonly [K in keyof T]: number };

const helps = new WeakMap<object, CounterHelp>();

/** A record of zeros with one entry per name in `help`. */
export function createCounters<const T extends CounterHelp>(help: T): Counters<T> {
  const counters: Record<string, number> = {};
  for (const name of Object.keys(help)) counters[name] = 0;
  helps.set(counters, help);
  return counters as Counters<T>;
}

/** The help texts of counters made by `createCounters`; none of others. */
export function helpOf(counters: object): CounterHelp {
  return helps.get(counters) ?? {};
}

/** How often a measured time fell below each bound; plain numbers as well. */
export type Histogram = {
  /** Upper bounds in milliseconds, ascending; times above the last are in `count` only. */
  readonly boundsMs: readonly number[];
  readonly counts: number[];
  sumMs: number;
  count: number;
};

export function createHistogram(boundsMs: readonly number[]): Histogram {
  return { boundsMs, counts: boundsMs.map(() => 0), sumMs: 0, count: 0 };
}

export function observe(histogram: Histogram, tookMs: number): void {
  histogram.count++;
  histogram.sumMs += tookMs;
  const index = histogram.boundsMs.findIndex((boundMs) => tookMs <= boundMs);
  if (index >= 0) histogram.counts[index] = (histogram.counts[index] ?? 0) + 1;
}
