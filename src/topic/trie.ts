// The trie of filters: which values (subscribers, waiting readers, routes) want a topic.
//
// Invariants: a node exists only while a filter ends in it or below it, so a trie that has been
// emptied is one node again; a value is held once per filter. The cost of a match depends on the
// filters that match prefixes of the topic, not on the number of filters.
// A value under several matching filters is visited once for each: merging is the caller's.

import type { TopicFilter } from "./filter.ts";
import { isDollarTopic, splitTopic } from "./words.ts";

type Node<V> = {
  children: Map<string, Node<V>> | undefined;
  plus: Node<V> | undefined;
  /** Values of filters that end here. */
  here: Held<V>;
  /** Values of filters that go on with "#" from here. */
  below: Held<V>;
};

/** Most filters have one value, of millions of filters: it stands there without a set around it. */
type Held<V> = V | Several<V> | undefined;

class Several<V> {
  readonly values: Set<V>;

  constructor(one: V, other: V) {
    this.values = new Set([one, other]);
  }
}

export type Visit<V> = (value: V) => void;

/** REQUIRES: no value is undefined. */
export class FilterTrie<V> {
  readonly #root: Node<V> = createNode();
  #nodeCount = 1;
  #filterCount = 0;
  #valueCount = 0;
  #revision = 0;

  /** Nodes held, the root included. */
  get nodeCount(): number {
    return this.#nodeCount;
  }

  /** Distinct filters. */
  get filterCount(): number {
    return this.#filterCount;
  }

  /** Pairs of filter and value. */
  get valueCount(): number {
    return this.#valueCount;
  }

  /** Changes with every add and remove that did something: what a cached match is valid for. */
  get revision(): number {
    return this.#revision;
  }

  /** False when the value was there already. */
  add(filter: TopicFilter, value: V): boolean {
    const node = this.#reach(filter);
    const wide = isWide(filter);
    const held = wide ? node.below : node.here;
    const after = withValue(held, value);
    if (after === undefined) return false;
    if (wide) node.below = after;
    else node.here = after;
    if (held === undefined) this.#filterCount++;
    this.#valueCount++;
    this.#revision++;
    return true;
  }

  /** False when the value was not there. */
  remove(filter: TopicFilter, value: V): boolean {
    const path = this.#pathOf(filter);
    const node = path?.at(-1);
    if (path === undefined || node === undefined) return false;
    const wide = isWide(filter);
    const held = wide ? node.below : node.here;
    if (!holds(held, value)) return false;
    const after = withoutValue(held, value);
    if (wide) node.below = after;
    else node.here = after;
    this.#valueCount--;
    this.#revision++;
    if (after === undefined) {
      this.#filterCount--;
      this.#prune(path, filter);
    }
    return true;
  }

  /** The values of exactly this filter. */
  valuesOf(filter: TopicFilter): readonly V[] {
    const node = this.#pathOf(filter)?.at(-1);
    const values: V[] = [];
    visitHeld(isWide(filter) ? node?.below : node?.here, (value) => values.push(value));
    return values;
  }

  match(topic: string, visit: Visit<V>): void {
    this.matchWords(splitTopic(topic), visit);
  }

  /** As `match`, for a caller that has split the topic already. */
  matchWords(words: readonly string[], visit: Visit<V>): void {
    const root = this.#root;
    if (!isDollarTopic(words[0] ?? "")) {
      walk(root, words, 0, visit);
      return;
    }
    // A leading wildcard never takes a `$` topic: only the exact child is followed at the root.
    const child = root.children?.get(words[0] as string);
    if (child !== undefined) walk(child, words, 1, visit);
  }

  /** Whether any filter matches; stops at the first. */
  some(topic: string): boolean {
    const words = splitTopic(topic);
    const root = this.#root;
    if (!isDollarTopic(topic)) return reaches(root, words, 0);
    const child = root.children?.get(words[0] as string);
    return child !== undefined && reaches(child, words, 1);
  }

  #reach(filter: TopicFilter): Node<V> {
    let node = this.#root;
    const end = pathLength(filter);
    for (let level = 0; level < end; level++) {
      const word = filter.words[level] as string;
      let next = childOf(node, word);
      if (next === undefined) {
        next = createNode();
        this.#nodeCount++;
        if (word === "+") {
          node.plus = next;
        } else {
          node.children ??= new Map();
          node.children.set(word, next);
        }
      }
      node = next;
    }
    return node;
  }

  #pathOf(filter: TopicFilter): Array<Node<V>> | undefined {
    const path = [this.#root];
    const end = pathLength(filter);
    for (let level = 0; level < end; level++) {
      const next = childOf(path[level] as Node<V>, filter.words[level] as string);
      if (next === undefined) return undefined;
      path.push(next);
    }
    return path;
  }

  #prune(path: ReadonlyArray<Node<V>>, filter: TopicFilter): void {
    for (let level = path.length - 1; level > 0; level--) {
      if (!isEmpty(path[level] as Node<V>)) return;
      const parent = path[level - 1] as Node<V>;
      const word = filter.words[level - 1] as string;
      if (word === "+") {
        parent.plus = undefined;
      } else {
        parent.children?.delete(word);
        if (parent.children?.size === 0) parent.children = undefined;
      }
      this.#nodeCount--;
    }
  }
}

function createNode<V>(): Node<V> {
  return { children: undefined, plus: undefined, here: undefined, below: undefined };
}

function isWide(filter: TopicFilter): boolean {
  return filter.words[filter.words.length - 1] === "#";
}

function pathLength(filter: TopicFilter): number {
  return isWide(filter) ? filter.words.length - 1 : filter.words.length;
}

function childOf<V>(node: Node<V>, word: string): Node<V> | undefined {
  return word === "+" ? node.plus : node.children?.get(word);
}

function isEmpty<V>(node: Node<V>): boolean {
  return (
    node.children === undefined &&
    node.plus === undefined &&
    node.here === undefined &&
    node.below === undefined
  );
}

function walk<V>(node: Node<V>, words: readonly string[], level: number, visit: Visit<V>): void {
  visitHeld(node.below, visit);
  if (level === words.length) {
    visitHeld(node.here, visit);
    return;
  }
  const exact = node.children?.get(words[level] as string);
  if (exact !== undefined) walk(exact, words, level + 1, visit);
  if (node.plus !== undefined) walk(node.plus, words, level + 1, visit);
}

function reaches<V>(node: Node<V>, words: readonly string[], level: number): boolean {
  if (node.below !== undefined) return true;
  if (level === words.length) return node.here !== undefined;
  const exact = node.children?.get(words[level] as string);
  if (exact !== undefined && reaches(exact, words, level + 1)) return true;
  return node.plus !== undefined && reaches(node.plus, words, level + 1);
}

function visitHeld<V>(held: Held<V>, visit: Visit<V>): void {
  if (held instanceof Several) for (const value of held.values) visit(value);
  else if (held !== undefined) visit(held);
}

function holds<V>(held: Held<V>, value: V): boolean {
  return held instanceof Several ? held.values.has(value) : held === value;
}

/** Undefined when it is held already. */
function withValue<V>(held: Held<V>, value: V): Held<V> {
  if (holds(held, value)) return undefined;
  if (held === undefined) return value;
  if (!(held instanceof Several)) return new Several(held, value);
  held.values.add(value);
  return held;
}

/** REQUIRES: it is held. */
function withoutValue<V>(held: Held<V>, value: V): Held<V> {
  if (!(held instanceof Several)) return undefined;
  held.values.delete(value);
  return held.values.size === 1 ? held.values.values().next().value : held;
}
