// What the program that a node runs in can do with it, without a network: publish, subscribe, read
// the past, keep values of its own in transactions.
//
// It is trusted: rules of access do not hold for it, but topics of the broker itself stay closed.

import type { Clock } from "../../base/index.ts";
import type { Broker } from "../../broker/index.ts";
import { escapeLevel, type MapTransaction, type Store } from "../../store/index.ts";
import { parseTopicFilter, parseTopicName } from "../../topic/index.ts";
import { nodeErrors } from "../errors.ts";
import { amountRule, checkArgument, checkOptions, rules } from "./arguments.ts";
import { Calls } from "./calls.ts";
import { type HistoryOptions, historyRules, readHistory } from "./history.ts";
import {
  checkPublishOptions,
  frameOf,
  type InsideMessage,
  messageOf,
  type PublishOptions,
  payloadRule,
} from "./message.ts";
import {
  type InsideSubscription,
  insidePrefix,
  openSubscription,
  type SubscribeOptions,
  subscribeRules,
} from "./subscription.ts";

/** Each call throws NODE_ARGUMENT_INVALID for a slip of the hand, NODE_CLOSED and NODE_CRASHED. */
export interface Inside {
  /**
   * Resolves when the message is durable, as far as anybody durable wants it, and was handed to who
   * is connected. Calls of one turn keep their order.
   * @throws TOPIC_NAME_INVALID, STORE_* where it cannot be stored now.
   */
  publish(topic: string, payload: string | Uint8Array, options?: PublishOptions): Promise<void>;
  /**
   * Messages of these filters, as a loop: `for await (const message of await node.subscribe("a/#"))`.
   * @throws TOPIC_FILTER_INVALID, NODE_SUBSCRIBE_REFUSED.
   */
  subscribe(
    filters: string | readonly string[],
    options?: SubscribeOptions,
  ): Promise<InsideSubscription>;
  /**
   * Stored messages that match, oldest first. Only what somebody durable wanted was stored.
   * @throws TOPIC_FILTER_INVALID.
   */
  history(filter: string, options?: HistoryOptions): AsyncGenerator<InsideMessage, void, void>;
  /** The retained message of a topic. */
  retained(topic: string): Promise<InsideMessage | undefined>;
  /**
   * Reads and writes of values of the program, all or nothing, durable when it resolves. Keys of one
   * `owner` are together in a shard and apart from those of others; `body` runs again on a conflict.
   * After NODE_CRASHED it may have happened or not.
   * @throws STORE_TX_CONFLICT, STORE_PRECONDITION_FAILED.
   */
  transact<T>(owner: string, body: (tx: MapTransaction) => Promise<T>): Promise<T>;
}

export type InsideParts = {
  readonly store: Store;
  readonly clock: Clock;
  readonly broker: Pick<Broker, "sessions" | "publish">;
};

export class InsideFace implements Inside {
  readonly #parts: InsideParts;
  readonly #subscriptions = new Set<InsideSubscription>();
  readonly #calls = new Calls();
  /** Readers of the past: a store that closes leaves them alone. */
  readonly #histories = new Calls();
  #subscriptionCount = 0;
  /** Why nothing is taken any more. */
  #gone: Error | undefined;

  constructor(parts: InsideParts) {
    this.#parts = parts;
  }

  async publish(
    topic: string,
    payload: string | Uint8Array,
    options: PublishOptions = {},
  ): Promise<void> {
    this.#checkOpen();
    checkArgument("the topic of publish", topic, rules.text);
    checkArgument("the payload of publish", payload, payloadRule);
    checkPublishOptions(options);
    parseTopicName(topic);
    await this.#calls.track(this.#parts.broker.publish(frameOf(topic, payload, options)));
  }

  async subscribe(
    filters: string | readonly string[],
    options: SubscribeOptions = {},
  ): Promise<InsideSubscription> {
    this.#checkOpen();
    const wanted = typeof filters === "string" ? [filters] : filters;
    checkArgument("the filters of subscribe", wanted, filtersRule);
    checkOptions<SubscribeOptions>("subscribe", options, subscribeRules);
    for (const filter of wanted) parseTopicFilter(filter);
    const { name } = options;
    const id = name === undefined ? `${++this.#subscriptionCount}` : `by name/${name}`;
    const { sessions } = this.#parts.broker;
    const onClose = (closed: InsideSubscription): boolean => this.#subscriptions.delete(closed);
    const request = { clientId: insidePrefix + id, filters: wanted, options, onClose };
    const subscription = await this.#calls.track(openSubscription(sessions, request));
    if (this.#gone !== undefined) {
      await subscription.close();
      throw this.#gone;
    }
    this.#subscriptions.add(subscription);
    return subscription;
  }

  async *history(
    filter: string,
    options: HistoryOptions = {},
  ): AsyncGenerator<InsideMessage, void, void> {
    this.#checkOpen();
    checkArgument("the filter of history", filter, rules.text);
    checkOptions<HistoryOptions>("history", options, historyRules);
    parseTopicFilter(filter);
    yield* readHistory({ ...this.#parts, calls: this.#histories }, filter, options);
  }

  async retained(topic: string): Promise<InsideMessage | undefined> {
    this.#checkOpen();
    checkArgument("the topic of retained", topic, rules.text);
    const found = await this.#calls.track(this.#parts.broker.sessions.retained.get(topic));
    return found === undefined ? undefined : messageOf(found);
  }

  async transact<T>(owner: string, body: (tx: MapTransaction) => Promise<T>): Promise<T> {
    this.#checkOpen();
    checkArgument("the owner of transact", owner, rules.text);
    checkArgument("the body of transact", body, rules.call);
    const prefix = `app/${escapeLevel(owner)}/`;
    const shard = this.#parts.store.state(prefix);
    const { value } = await this.#calls.track(shard.transact((tx) => body(under(prefix, tx))));
    return value;
  }

  /** Ends the subscriptions; names keep their places. What is under way may end. */
  async close(): Promise<void> {
    this.#gone ??= nodeErrors.closed();
    this.#histories.abandon(nodeErrors.closed());
    await Promise.allSettled([...this.#subscriptions].map((each) => each.close()));
  }

  /** The node has died: calls and loops end with its error, and nothing is written. */
  abandon(error: Error): void {
    this.#gone ??= error;
    this.#calls.abandon(error);
    this.#histories.abandon(error);
    for (const subscription of this.#subscriptions) subscription.abandon(error);
  }

  #checkOpen(): void {
    if (this.#gone !== undefined) throw this.#gone;
  }
}

const filtersRule = {
  expected: "a filter, or a list of at least one",
  holds: (value: unknown) =>
    Array.isArray(value) && value.length > 0 && value.every((filter) => rules.text.holds(filter)),
};

const keyBytesMax = 1024;

const keyRule = {
  expected: `a text of 1 to ${keyBytesMax} bytes of UTF-8 without U+0000`,
  holds: (key: unknown) =>
    typeof key === "string" && key !== "" && isKey(key) && Buffer.byteLength(key) <= keyBytesMax,
};

/** Beginnings of keys: that of all is empty. */
const prefixRule = {
  expected: keyRule.expected.replace("1 to", "up to"),
  holds: (start: unknown) => start === "" || keyRule.holds(start),
};

const valueRule = {
  expected: "bytes",
  holds: (value: unknown) => value instanceof Uint8Array,
};

function isKey(text: string): boolean {
  return !text.includes("\0") && !/\p{Surrogate}/u.test(text);
}

/** The program's keys, as it calls them. */
function under(prefix: string, tx: MapTransaction): MapTransaction {
  const own = <E extends { readonly key: string }>(entry: E): E => ({
    ...entry,
    key: entry.key.slice(prefix.length),
  });
  const full = (call: string, key: string): string => {
    checkArgument(`the key of tx.${call}`, key, keyRule);
    return prefix + key;
  };
  return {
    get: async (key) => {
      const entry = await tx.get(full("get", key));
      return entry === undefined ? undefined : own(entry);
    },
    list: async (start, countMax) => {
      checkArgument("the prefix of tx.list", start, prefixRule);
      checkArgument("the count of tx.list", countMax, amountRule);
      return (await tx.list(prefix + start, countMax)).map(own);
    },
    put: (key, value) => {
      checkArgument("the value of tx.put", value, valueRule);
      // A copy: the program may use its memory again before the transaction is written.
      tx.put(full("put", key), Buffer.from(value));
    },
    delete: (key) => tx.delete(full("delete", key)),
    assertPresent: (key) => tx.assertPresent(full("assertPresent", key)),
    assertAbsent: (key) => tx.assertAbsent(full("assertAbsent", key)),
  };
}
