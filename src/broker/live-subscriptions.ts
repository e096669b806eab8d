// The live trie: who is to get a message by direct fan-out, now. Sessions in memory are served this
// way alone; durable ones only with what is not stored.
//
// Invariants: a target appears once in a match, with all of its subscriptions that match; a match is
// remembered per topic and forgotten with the next change of any subscription, so that it never
// names a target that has left.

import type { LiveSubscriptions, LiveTarget, Subscription } from "../session/index.ts";
import {
  FilterTrie,
  parseTopicFilter,
  rememberedTopicMax,
  type TopicFilter,
  type TopicLimits,
} from "../topic/index.ts";

export type LiveMatch = {
  readonly target: LiveTarget;
  readonly subscriptions: readonly Subscription[];
};

type Entry = { readonly target: LiveTarget; readonly subscription: Subscription };
type Held = { readonly filter: TopicFilter; readonly entry: Entry };

/** Filters were checked at the door. */
const anyFilter: TopicLimits = { levelsMax: 65_535, controlCharacters: "allow" };

export class LiveTrie implements LiveSubscriptions {
  readonly #trie = new FilterTrie<Entry>();
  readonly #targets = new Map<LiveTarget, Map<string, Held>>();
  readonly #cacheMax: number;
  readonly #cache = new Map<string, readonly LiveMatch[]>();
  #cacheRevision = 0;

  constructor(topicCacheMax: number) {
    this.#cacheMax = topicCacheMax;
  }

  get filterCount(): number {
    return this.#trie.filterCount;
  }

  /** Topics whose matches are remembered. */
  get cachedCount(): number {
    return this.#cache.size;
  }

  get targetCount(): number {
    return this.#targets.size;
  }

  /** Whether the target had no subscription to this filter. */
  set(target: LiveTarget, subscription: Subscription): boolean {
    let held = this.#targets.get(target);
    if (held === undefined) {
      held = new Map();
      this.#targets.set(target, held);
    }
    const before = held.get(subscription.filter);
    if (before !== undefined) this.#trie.remove(before.filter, before.entry);
    const filter = before?.filter ?? parseTopicFilter(subscription.filter, anyFilter);
    const entry = { target, subscription };
    this.#trie.add(filter, entry);
    held.set(subscription.filter, { filter, entry });
    return before === undefined;
  }

  /** Whether there was one. */
  remove(target: LiveTarget, filter: string): boolean {
    const held = this.#targets.get(target);
    const found = held?.get(filter);
    if (held === undefined || found === undefined) return false;
    this.#trie.remove(found.filter, found.entry);
    held.delete(filter);
    if (held.size === 0) this.#targets.delete(target);
    return true;
  }

  /** Returns the filters that it had. */
  removeAll(target: LiveTarget): readonly string[] {
    const held = this.#targets.get(target);
    if (held === undefined) return [];
    for (const { filter, entry } of held.values()) this.#trie.remove(filter, entry);
    this.#targets.delete(target);
    return [...held.keys()];
  }

  /** The result may be kept: later changes of subscriptions do not show in it. */
  match(topic: string): readonly LiveMatch[] {
    if (this.#cacheRevision !== this.#trie.revision) {
      this.#cache.clear();
      this.#cacheRevision = this.#trie.revision;
    }
    const known = this.#cache.get(topic);
    if (known !== undefined) return known;
    const found = this.#search(topic);
    if (topic.length > rememberedTopicMax) return found;
    if (this.#cache.size >= this.#cacheMax) this.#cache.clear();
    this.#cache.set(topic, found);
    return found;
  }

  #search(topic: string): readonly LiveMatch[] {
    const found = new Map<LiveTarget, Subscription[]>();
    this.#trie.match(topic, ({ target, subscription }) => {
      const subscriptions = found.get(target);
      if (subscriptions === undefined) found.set(target, [subscription]);
      else subscriptions.push(subscription);
    });
    return [...found].map(([target, subscriptions]) => ({ target, subscriptions }));
  }
}
