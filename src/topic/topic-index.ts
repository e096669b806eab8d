// The mirror of the filter trie: a map of concrete topics that is searched with a filter.
//
// Invariants: a node exists only while a topic ends in it or below it. `find` is lazy, so that a
// reader may take a page and come back: topics removed meanwhile are left out, topics set meanwhile
// may or may not come, and one that was removed and set again may come a second time.

import type { TopicFilter } from "./filter.ts";
import { splitTopic } from "./words.ts";

type Leaf<V> = { readonly topic: string; readonly value: V };

type Node<V> = {
  children: Map<string, Node<V>> | undefined;
  leaf: Leaf<V> | undefined;
};

export class TopicIndex<V> {
  readonly #root: Node<V> = { children: undefined, leaf: undefined };
  #size = 0;
  #nodeCount = 1;

  /** Topics held. */
  get size(): number {
    return this.#size;
  }

  /** Nodes held, the root included. */
  get nodeCount(): number {
    return this.#nodeCount;
  }

  /** Adds or replaces. REQUIRES: `topic` is a legal name. */
  set(topic: string, value: V): void {
    let node = this.#root;
    for (const word of splitTopic(topic)) {
      node.children ??= new Map();
      let next = node.children.get(word);
      if (next === undefined) {
        next = { children: undefined, leaf: undefined };
        node.children.set(word, next);
        this.#nodeCount++;
      }
      node = next;
    }
    if (node.leaf === undefined) this.#size++;
    node.leaf = { topic, value };
  }

  get(topic: string): V | undefined {
    return this.#leafOf(topic)?.value;
  }

  has(topic: string): boolean {
    return this.#leafOf(topic) !== undefined;
  }

  /** False when the topic was not there. */
  delete(topic: string): boolean {
    const words = splitTopic(topic);
    const path = [this.#root];
    for (const word of words) {
      const next = path.at(-1)?.children?.get(word);
      if (next === undefined) return false;
      path.push(next);
    }
    const end = path.at(-1) as Node<V>;
    if (end.leaf === undefined) return false;
    end.leaf = undefined;
    this.#size--;
    for (let level = words.length; level > 0; level--) {
      const node = path[level] as Node<V>;
      if (node.leaf !== undefined || node.children !== undefined) break;
      const parent = path[level - 1] as Node<V>;
      parent.children?.delete(words[level - 1] as string);
      if (parent.children?.size === 0) parent.children = undefined;
      this.#nodeCount--;
    }
    return true;
  }

  /** Topics that `filter` matches, with their values, in no promised order. */
  *find(filter: TopicFilter): Generator<readonly [topic: string, value: V]> {
    for (const leaf of search(this.#root, filter.words, 0)) yield [leaf.topic, leaf.value];
  }

  #leafOf(topic: string): Leaf<V> | undefined {
    let node: Node<V> | undefined = this.#root;
    for (const word of splitTopic(topic)) {
      node = node.children?.get(word);
      if (node === undefined) return undefined;
    }
    return node.leaf;
  }
}

function* search<V>(
  node: Node<V>,
  words: readonly string[],
  level: number,
): Generator<Leaf<V>, void, void> {
  const word = words[level];
  if (word === undefined) {
    if (node.leaf !== undefined) yield node.leaf;
  } else if (word === "#") {
    yield* everything(node, level === 0);
  } else if (word !== "+") {
    const next = node.children?.get(word);
    if (next !== undefined) yield* search(next, words, level + 1);
  } else if (node.children !== undefined) {
    for (const [name, next] of node.children) {
      if (level === 0 && name.startsWith("$")) continue;
      yield* search(next, words, level + 1);
    }
  }
}

function* everything<V>(node: Node<V>, atRoot: boolean): Generator<Leaf<V>, void, void> {
  if (node.leaf !== undefined) yield node.leaf;
  if (node.children === undefined) return;
  for (const [name, next] of node.children) {
    if (atRoot && name.startsWith("$")) continue;
    yield* everything(next, false);
  }
}
