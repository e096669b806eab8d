// What the broker's own topics hold. Names and units under `$SYS` are those of mosquitto(8); what has
// no figure here that costs nothing (retained messages, stored bytes) is left out.

import type { BrokerCounters } from "./counters.ts";

export type SysFacts = {
  readonly version: string;
  readonly uptimeS: number;
  readonly counters: BrokerCounters;
  readonly connected: number;
  /** Sessions on disk, connected or not. */
  readonly durableSessions: number;
  readonly durableConnected: number;
  /** Most clients that were connected at once. */
  readonly connectedMax: number;
  readonly liveFilters: number;
  readonly memoryBytes: number;
};

/** Counters that the averages are made of. */
export function loadTopics({ counters }: SysFacts): ReadonlyMap<string, number> {
  const received = publishesReceived(counters);
  const sent = deliveries(counters);
  return new Map([
    ["publish/received", received],
    ["publish/sent", sent],
    ["publish/dropped", dropped(counters)],
    ["bytes/received", counters.bytesReceived],
    ["bytes/sent", counters.bytesSent],
    ["sockets", counters.connectionsAccepted],
    ["connections", counters.clientsConnected],
  ]);
}

export function* sysValues(facts: SysFacts): Iterable<readonly [topic: string, value: string]> {
  const { counters, connected, durableSessions, durableConnected } = facts;
  const away = Math.max(0, durableSessions - durableConnected);
  const values: Readonly<Record<string, number | string>> = {
    version: `flagstone ${facts.version}`,
    uptime: `${Math.floor(facts.uptimeS)} seconds`,
    "clients/total": connected + away,
    "clients/connected": connected,
    "clients/active": connected,
    "clients/disconnected": away,
    "clients/inactive": away,
    "clients/maximum": Math.max(facts.connectedMax, connected + away),
    "publish/messages/received": publishesReceived(counters),
    "publish/messages/sent": deliveries(counters),
    "publish/messages/dropped": dropped(counters),
    "messages/received": publishesReceived(counters),
    "messages/sent": deliveries(counters),
    "messages/stored": counters.publishesStored,
    "bytes/received": counters.bytesReceived,
    "bytes/sent": counters.bytesSent,
    "subscriptions/count": facts.liveFilters,
    "heap/current": facts.memoryBytes,
  };
  for (const [name, value] of Object.entries(values)) yield [`$SYS/broker/${name}`, String(value)];
  for (const [name, value] of Object.entries(counters)) {
    yield [`$flagstone/counters/broker/${name}`, String(value)];
  }
}

function publishesReceived(counters: BrokerCounters): number {
  return counters.publishesQos0 + counters.publishesQos1 + counters.publishesQos2;
}

function deliveries(counters: BrokerCounters): number {
  return counters.deliveriesQos0 + counters.deliveriesQos1 + counters.deliveriesQos2;
}

function dropped(counters: BrokerCounters): number {
  return counters.deliveriesFull + counters.qos0Shed + counters.publishesDenied;
}
