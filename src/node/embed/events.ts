// What a broker tells the program of its clients: events over the hooks that decide nothing. A hook
// exists only while somebody listens, so that nothing is copied for nobody.

import type { Cancel } from "../../base/index.ts";
import type { HookClient, HookPublish, HookSubscription, Hooks } from "../../broker/index.ts";
import { checkArgument, rules } from "./arguments.ts";

export type BrokerEvents = {
  connected: readonly [client: HookClient];
  published: readonly [client: HookClient, publish: HookPublish];
  subscribed: readonly [client: HookClient, subscriptions: readonly HookSubscription[]];
  closed: readonly [client: HookClient, cause: string];
};

export type BrokerEventName = keyof BrokerEvents;

export type BrokerListener<E extends BrokerEventName> = (...facts: BrokerEvents[E]) => unknown;

type AnyListener = (...facts: unknown[]) => unknown;

const names: readonly unknown[] = ["connected", "published", "subscribed", "closed"];

const eventRule = {
  expected: `one of ${names.join(", ")}`,
  holds: (value: unknown) => names.includes(value),
};

export class EventHub {
  /** To be put behind the hooks that decide. */
  readonly hooks: Hooks = {};
  readonly #listeners = new Map<BrokerEventName, Set<AnyListener>>();

  /** @throws NODE_ARGUMENT_INVALID. */
  on<E extends BrokerEventName>(event: E, listener: BrokerListener<E>): Cancel {
    checkArgument("the event of broker.on", event, eventRule);
    checkArgument("the listener of broker.on", listener, rules.call);
    const listeners = this.#listeners.get(event) ?? new Set();
    this.#listeners.set(event, listeners);
    // Its own function each time: who listens twice hears twice, and ends one of the two.
    const own: AnyListener = (...facts) => listener(...(facts as unknown as BrokerEvents[E]));
    listeners.add(own);
    const hooks = this.hooks as Record<string, unknown>;
    hooks[event] = (...facts: unknown[]) => tellAll(listeners, facts);
    return () => {
      listeners.delete(own);
      if (listeners.size === 0) delete hooks[event];
    };
  }
}

/** In their order; one that fails keeps no other from hearing. @throws the first error, after all. */
async function tellAll(listeners: ReadonlySet<AnyListener>, facts: unknown[]): Promise<void> {
  const failures: unknown[] = [];
  for (const listener of [...listeners]) {
    try {
      await listener(...facts);
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
}
