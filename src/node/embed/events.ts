// What a broker tells the program of its clients: events over the hooks that decide nothing. A hook
// exists only while somebody listens, so that nothing is copied for nobody.

import type { Cancel } from "../../base/index.ts";
import type { HookClient, HookPublish, HookSubscription, Hooks } from "../../broker/index.ts";

export type BrokerEvents = {
  connected: readonly [client: HookClient];
  published: readonly [client: HookClient, publish: HookPublish];
  subscribed: readonly [client: HookClient, subscriptions: readonly HookSubscription[]];
  closed: readonly [client: HookClient, cause: string];
};

export type BrokerEventName = keyof BrokerEvents;

export type BrokerListener<E extends BrokerEventName> = (...facts: BrokerEvents[E]) => unknown;

type AnyListener = (...facts: unknown[]) => unknown;

export class EventHub {
  /** To be put behind the hooks that decide. */
  readonly hooks: Hooks = {};
  readonly #listeners = new Map<BrokerEventName, Set<AnyListener>>();

  on<E extends BrokerEventName>(event: E, listener: BrokerListener<E>): Cancel {
    const listeners = this.#listeners.get(event) ?? new Set();
    this.#listeners.set(event, listeners);
    const own: AnyListener = (...facts) => listener(...(facts as unknown as BrokerEvents[E]));
    listeners.add(own);
    const hooks = this.hooks as Record<string, unknown>;
    hooks[event] = async (...facts: unknown[]) => {
      for (const each of listeners) await each(...facts);
    };
    return () => {
      listeners.delete(own);
      if (listeners.size === 0) delete hooks[event];
    };
  }
}
