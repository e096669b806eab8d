// Subscriptions of clients that may be away: in memory for matching, in the store for good.
//
// Invariants: memory follows the store, in the order of writes; a subscription at QoS 0 is kept for
// its client but matches nothing, since nothing is queued for it.

import { isCodedError, type Logger } from "../base/index.ts";
import type { MapWrite } from "../store/index.ts";
import { FilterTrie, parseTopicFilter, type TopicFilter } from "../topic/index.ts";
import { decodeValue, encodeValue } from "./records.ts";
import type { AedesState } from "./state.ts";
import type { AedesMatch, AedesSubscription } from "./types.ts";

type Held = {
  readonly subscription: AedesSubscription;
  /** In the trie; undefined at QoS 0. */
  readonly match: { readonly filter: TopicFilter; readonly value: AedesMatch } | undefined;
};

/** One write of a client with very many subscriptions stays a small record. */
const writesMax = 500;

const anyFilter = { levelsMax: 65_535, controlCharacters: "allow" } as const;

export class SubscriptionTable {
  readonly #state: AedesState;
  readonly #logger: Logger;
  readonly #byClient = new Map<string, Map<string, Held>>();
  readonly #trie = new FilterTrie<AedesMatch>();

  constructor(state: AedesState, logger: Logger) {
    this.#state = state;
    this.#logger = logger;
  }

  /** A record that cannot be read is passed over and told. */
  async load(): Promise<void> {
    for await (const { key, value } of this.#state.entries(this.#state.keys.subscriptions)) {
      try {
        const { clientId, ...subscription } = decodeValue<AedesSubscription & Owner>(key, value);
        this.#set(clientId, subscription);
      } catch (error) {
        if (!isCodedError(error) || error.kind !== "corrupt") throw error;
        this.#logger.error("aedes.record_skipped", { key, error });
      }
    }
  }

  /** @throws TOPIC_FILTER_INVALID before anything is written. */
  async add(clientId: string, subscriptions: readonly AedesSubscription[]): Promise<void> {
    // Of several for one filter the last one counts.
    const wanted = new Map(subscriptions.map((each) => [each.topic, recordOf(each)]));
    for (const filter of wanted.keys()) parseTopicFilter(filter, anyFilter);
    const writes = [...wanted].map(([filter, record]) => ({
      key: this.#state.keys.subscription(clientId, filter),
      value: encodeValue({ clientId, ...record }),
    }));
    await this.#write(writes);
    for (const record of wanted.values()) this.#set(clientId, record);
  }

  async remove(clientId: string, filters: readonly string[]): Promise<void> {
    const known = this.#byClient.get(clientId);
    const gone = [...new Set(filters)].filter((filter) => known?.has(filter) === true);
    await this.#write(
      gone.map((filter) => ({
        key: this.#state.keys.subscription(clientId, filter),
        value: undefined,
      })),
    );
    for (const filter of gone) this.#delete(clientId, filter);
  }

  removeAll(clientId: string): Promise<void> {
    return this.remove(clientId, [...(this.#byClient.get(clientId)?.keys() ?? [])]);
  }

  ofClient(clientId: string): AedesSubscription[] {
    const held = this.#byClient.get(clientId)?.values() ?? [];
    return [...held].map(({ subscription }) => ({ ...subscription }));
  }

  matching(topic: string): AedesMatch[] {
    const found: AedesMatch[] = [];
    this.#trie.match(topic, (match) => found.push({ ...match }));
    return found;
  }

  /** Clients that subscribed exactly this filter. */
  clientsOf(filter: string): string[] {
    const clients: string[] = [];
    for (const [clientId, held] of this.#byClient) if (held.has(filter)) clients.push(clientId);
    return clients;
  }

  /** Subscriptions above QoS 0, and clients with any. */
  counts(): { readonly subsCount: number; readonly clientsCount: number } {
    return { subsCount: this.#trie.valueCount, clientsCount: this.#byClient.size };
  }

  async #write(writes: readonly MapWrite[]): Promise<void> {
    const parts: Array<Promise<void>> = [];
    for (let at = 0; at < writes.length; at += writesMax) {
      parts.push(this.#state.write(writes.slice(at, at + writesMax)));
    }
    await Promise.all(parts);
  }

  #set(clientId: string, subscription: AedesSubscription): void {
    const { topic, qos, rh, rap, nl } = subscription;
    let held = this.#byClient.get(clientId);
    if (held === undefined) {
      held = new Map();
      this.#byClient.set(clientId, held);
    }
    const before = held.get(topic)?.match;
    if (before !== undefined) this.#trie.remove(before.filter, before.value);
    const value = { clientId, topic, qos, rh, rap, nl };
    const match = qos > 0 ? { filter: parseTopicFilter(topic, anyFilter), value } : undefined;
    if (match !== undefined) this.#trie.add(match.filter, match.value);
    held.set(topic, { subscription, match });
  }

  #delete(clientId: string, filter: string): void {
    const held = this.#byClient.get(clientId);
    const match = held?.get(filter)?.match;
    if (match !== undefined) this.#trie.remove(match.filter, match.value);
    held?.delete(filter);
    if (held?.size === 0) this.#byClient.delete(clientId);
  }
}

type Owner = { readonly clientId: string };

function recordOf(subscription: AedesSubscription): AedesSubscription {
  const { topic, qos, rh, rap, nl, subscriptionIdentifier } = subscription;
  const identifier = subscriptionIdentifier === undefined ? {} : { subscriptionIdentifier };
  return { topic, qos, rh, rap, nl, ...identifier };
}
