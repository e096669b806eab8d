// Plain counters, declared beside the code that raises them, with a help text each. They are
// numbers on an object: raising one costs an addition. The metrics page reads them; nothing here
// knows it.

export type CounterHelp = Readonly<Record<string, string>>;

export type Counters<T extends CounterHelp> = { -readonly [K in keyof T]: number };

/** A record of zeros with one entry per name in `help`. */
export function createCounters<const T extends CounterHelp>(help: T): Counters<T> {
  const counters: Record<string, number> = {};
  for (const name of Object.keys(help)) counters[name] = 0;
  return counters as Counters<T>;
}
