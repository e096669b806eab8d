// Brokers' live routes on channels of a simulated network: what each client gets is written down.

import { silentLogger } from "../../src/base/index.ts";
import { type BrokerCounters, createBrokerCounters } from "../../src/broker/counters.ts";
import { LimitedLog } from "../../src/broker/limited-log.ts";
import { LiveTrie } from "../../src/broker/live-subscriptions.ts";
import { LiveRoutes } from "../../src/broker/peers/live-routes.ts";
import type { OutboxSettings } from "../../src/broker/peers/outbox.ts";
import type { ChannelSettings } from "../../src/cluster/index.ts";
import type { LiveTarget, Subscription } from "../../src/session/index.ts";
import type { Ttv } from "../../src/store/index.ts";
import { ChannelWorld } from "./channel-world.ts";

export class RoutesClient implements LiveTarget {
  readonly clientId: string;
  readonly takes: LiveTarget["takes"];
  /** Values, in the order in which they came. */
  readonly got: string[] = [];

  constructor(clientId: string, takes: LiveTarget["takes"]) {
    this.clientId = clientId;
    this.takes = takes;
  }

  deliver(message: Ttv, _subscriptions: readonly Subscription[], stored: boolean): void {
    if (stored && this.takes === "unstored") return;
    this.got.push(message.frame.toString());
  }
}

export type RoutesNode = {
  readonly trie: LiveTrie;
  readonly routes: LiveRoutes;
  readonly counters: BrokerCounters;
  /** How often publishers were told that there is room again. */
  roomCount: number;
  client(clientId: string, takes?: LiveTarget["takes"]): RoutesClient;
  publish(topic: string, value: string, more?: { qos?: 0 | 1 | 2; stored?: boolean }): void;
};

export class RoutesWorld extends ChannelWorld {
  readonly brokers = new Map<number, RoutesNode>();

  broker(
    node: number,
    settings: Partial<OutboxSettings> & { channel?: Partial<ChannelSettings> } = {},
  ): RoutesNode {
    const { channel, ...outbox } = settings;
    const words = this.add(node, channel);
    const { clock } = this;
    const trie = new LiveTrie(1_000);
    const counters = createBrokerCounters();
    const routes = new LiveRoutes(words, {
      ...{ trie, clock, counters, settings: outbox },
      log: new LimitedLog(silentLogger, clock, 10),
      isClosed: (topic) => topic.startsWith("$SYS"),
      onRoom: () => {
        made.roomCount++;
      },
    });
    const made: RoutesNode = {
      ...{ trie, routes, counters, roomCount: 0 },
      client: (clientId, takes = "all") => new RoutesClient(clientId, takes),
      publish: (topic, value, { qos = 1, stored = false } = {}) => {
        const message: Ttv = {
          ...{ topic, timeUs: 5, publisher: `p${node}`, form: "raw", qos, retain: true },
          ...{ expiryUs: 6, expiryOffset: 7, frame: Buffer.from(value) },
        };
        for (const { target, subscriptions } of trie.match(topic)) {
          target.deliver(message, subscriptions, stored);
        }
        routes.flush();
      },
    };
    this.brokers.set(node, made);
    return made;
  }
}

export function wanted(filter: string): Subscription {
  const plain = { noLocal: false, retainAsPublished: false, retainHandling: 0 } as const;
  return { filter, qos: 1, identifier: 0, ...plain };
}
