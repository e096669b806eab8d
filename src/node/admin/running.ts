// What a ready node offers its HTTP interface: the faces of broker, sessions and store, in the shape
// that the admin room asks for. Functions that this node's store lacks are refused by name.

import {
  adminErrors,
  type ClientInfo,
  type ClientsPort,
  type OutgoingMessage,
  type RunningParts,
} from "../../admin/index.ts";
import type { Broker, ClientView } from "../../broker/index.ts";
import { createFrame, type Properties } from "../../mqtt/index.ts";
import type { NodeParts } from "../assemble.ts";

export function runningPartsOf({ broker, store }: NodeParts): RunningParts {
  return {
    clients: clientsPort(broker),
    sessions: orRefused(broker.sessions.inspector, "view of sessions"),
    retained: broker.sessions.retained,
    store,
    operator: orRefused(store.operator, "such function of the store"),
    publish: (message) => broker.publish(ownMessage(message)),
  };
}

/** The functions of `found`, and for those it lacks an error that says so. */
function orRefused<T extends object>(found: object | undefined, what: string): T {
  return new Proxy((found ?? {}) as T, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name);
      if (typeof value === "function") return value.bind(target);
      if (name === "alarms") return () => [];
      if (value !== undefined || typeof name === "symbol" || name === "then") return value;
      return () => {
        throw adminErrors.unavailable({ what });
      };
    },
  });
}

const protocols: Readonly<Record<number, string>> = { 3: "3.1", 4: "3.1.1", 5: "5" };

function clientsPort(broker: Broker): ClientsPort {
  const { clients } = broker;
  return {
    list: (query) => {
      const page = clients.list(query);
      return { ...page, clients: page.clients.map(clientInfo) };
    },
    get: (clientId) => {
      const found = clients.get(clientId);
      return found === undefined ? undefined : clientInfo(found);
    },
    kick: (clientId) => clients.kick(clientId),
  };
}

function clientInfo({ user, protocol, ...view }: ClientView): ClientInfo {
  return {
    ...view,
    ...(user === undefined ? {} : { user }),
    protocol: protocols[protocol] ?? String(protocol),
  };
}

function ownMessage(message: OutgoingMessage): Parameters<Broker["publish"]>[0] {
  const { topic, payload, qos, retain, messageExpiryS } = message;
  const { contentType, responseTopic, userProperties } = message;
  const properties: Properties = {
    ...(messageExpiryS === undefined ? {} : { messageExpiryInterval: messageExpiryS }),
    ...(contentType === undefined ? {} : { contentType }),
    ...(responseTopic === undefined ? {} : { responseTopic }),
    ...(userProperties.length === 0
      ? {}
      : { userProperties: userProperties.map(([name, value]) => [name, value] as const) }),
  };
  const frame = createFrame({ topic, payload: Buffer.from(payload), qos, retain, properties });
  return {
    ...{ topic, qos, retain, delayS: 0, version: 5, messageExpiryS },
    frame: frame.bytes,
    expiryOffset: frame.expiryOffset,
  };
}
