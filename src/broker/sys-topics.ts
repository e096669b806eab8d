// The broker's own topics: `$SYS/broker/...` in Mosquitto's names, and every counter under
// `$flagstone/counters/...`. They are worked out for those who subscribed, every `sysIntervalMs` and at
// SUBSCRIBE, and given to them directly: nothing is stored, no durable session has a backlog of them.
//
// At SUBSCRIBE the values come like retained messages, with RETAIN set and as Retain Handling says.

import type { Cancel, Clock } from "../base/index.ts";
import type { LiveTarget, SubscribeResult } from "../session/index.ts";
import type { Ttv } from "../store/index.ts";
import type { LiveTrie } from "./live-subscriptions.ts";
import { LoadAverages } from "./load-averages.ts";
import type { SysFacts } from "./sys-values.ts";
import { loadTopics, sysValues } from "./sys-values.ts";

export type SysParts = {
  readonly live: LiveTrie;
  readonly clock: Clock;
  readonly intervalMs: number;
  readonly facts: () => SysFacts;
  /** Counts each message that is sent. */
  readonly sent: () => void;
};

const minuteMs = 60_000;

export class SysTopics {
  readonly #parts: SysParts;
  readonly #loads = new LoadAverages();
  #cancel: Cancel | undefined;

  constructor(parts: SysParts) {
    this.#parts = parts;
  }

  start(): void {
    const { clock, intervalMs } = this.#parts;
    if (intervalMs === 0) return;
    this.#cancel = clock.schedule(intervalMs, () => {
      this.#publish();
      this.start();
    });
  }

  stop(): void {
    this.#cancel?.();
  }

  /** The SUBACK of these is out: they get what holds now. */
  greet(clientId: string, results: readonly SubscribeResult[]): void {
    if (this.#parts.intervalMs === 0) return;
    const filters = new Set(
      results.filter(wantsValues).map(({ subscription }) => subscription.filter),
    );
    if (filters.size === 0) return;
    for (const [topic, value] of this.#values()) {
      for (const { target, subscriptions } of this.#parts.live.match(topic)) {
        if (target.clientId !== clientId) continue;
        const fresh = subscriptions
          .filter(({ filter }) => filters.has(filter))
          .map((subscription) => ({ ...subscription, retainAsPublished: true }));
        if (fresh.length > 0) this.#send(target, messageOf(topic, value, true), fresh);
      }
    }
  }

  #publish(): void {
    const { facts, intervalMs, live } = this.#parts;
    this.#loads.note(loadTopics(facts()), intervalMs / minuteMs);
    for (const [topic, value] of this.#values()) {
      const matches = live.match(topic);
      if (matches.length === 0) continue;
      const message = messageOf(topic, value, false);
      for (const { target, subscriptions } of matches) this.#send(target, message, subscriptions);
    }
  }

  *#values(): Iterable<readonly [topic: string, value: string]> {
    yield* sysValues(this.#parts.facts());
    yield* this.#loads.values();
  }

  #send(target: LiveTarget, message: Ttv, to: Parameters<LiveTarget["deliver"]>[1]): void {
    this.#parts.sent();
    target.deliver(message, to, false);
  }
}

function wantsValues({ subscription, isNew }: SubscribeResult): boolean {
  const { filter, retainHandling } = subscription;
  if (!filter.startsWith("$SYS") && !filter.startsWith("$flagstone")) return false;
  return retainHandling === 0 || (retainHandling === 1 && isNew);
}

function messageOf(topic: string, value: string, retain: boolean): Ttv {
  return {
    ...{ topic, timeUs: 0, publisher: "", form: "raw", qos: 0, retain },
    ...{ expiryUs: 0, expiryOffset: 0, frame: Buffer.from(value) },
  };
}
