// Which database a topic belongs to. Databases name topic filters; of all that match a topic the
// most specific one wins: compared level by level, a word is before "+", "+" before "#". Of two
// equal ones the older database keeps the topic. What nobody names belongs to `messages`.

import { FilterTrie, parseTopicFilter, type TopicFilter } from "../topic/index.ts";

type Route = { readonly filter: TopicFilter; readonly database: string; readonly age: number };

/** Topics whose route is remembered; all are forgotten when one more comes. */
const knownTopicsMax = 10_000;
export const defaultDatabase = "messages";

export class Routes {
  readonly #trie = new FilterTrie<Route>();
  readonly #routes = new Map<string, Route[]>();
  readonly #known = new Map<string, string>();
  #ages = 0;

  /** The filters of a database, in place of those it had. REQUIRES: they parse. */
  set(database: string, filters: readonly string[]): void {
    const age = this.#routes.get(database)?.[0]?.age ?? this.#ages++;
    this.remove(database);
    const routes = filters.map((text): Route => {
      return { filter: parseTopicFilter(text), database, age };
    });
    for (const route of routes) this.#trie.add(route.filter, route);
    if (routes.length > 0) this.#routes.set(database, routes);
  }

  remove(database: string): void {
    for (const route of this.#routes.get(database) ?? []) this.#trie.remove(route.filter, route);
    this.#routes.delete(database);
    this.#known.clear();
  }

  /** None of these topics is routed away from `messages`. */
  keepsAll(topics: readonly string[]): boolean {
    if (this.#routes.size === 0) return true;
    return topics.every((topic) => this.databaseOf(topic) === defaultDatabase);
  }

  databaseOf(topic: string): string {
    if (this.#routes.size === 0) return defaultDatabase;
    const known = this.#known.get(topic);
    if (known !== undefined) return known;
    let best: Route | undefined;
    this.#trie.match(topic, (route) => {
      if (best === undefined || isBefore(route, best)) best = route;
    });
    const database = best?.database ?? defaultDatabase;
    if (this.#known.size >= knownTopicsMax) this.#known.clear();
    this.#known.set(topic, database);
    return database;
  }
}

function isBefore(one: Route, other: Route): boolean {
  const [a, b] = [one.filter.words, other.filter.words];
  for (let level = 0; level < Math.max(a.length, b.length); level++) {
    const difference = rank(a[level]) - rank(b[level]);
    if (difference !== 0) return difference < 0;
  }
  return one.age < other.age;
}

/** The end of a filter is before "#", which may match the parent too. */
function rank(word: string | undefined): number {
  if (word === "#") return 3;
  if (word === "+") return 2;
  return word === undefined ? 1 : 0;
}
