// What a ready node offers its HTTP interface: the faces of broker, sessions and store, in the shape
// that the admin room asks for.

import type {
  AccessControl,
  ClientInfo,
  ClientsPort,
  OutgoingMessage,
  RunningParts,
} from "../../admin/index.ts";
import { type Clock, systemRandom } from "../../base/index.ts";
import {
  type Broker,
  type ClientView,
  hashForScram,
  hashPassword,
  parseRuleFile,
} from "../../broker/index.ts";
import { createFrame, type Properties } from "../../mqtt/index.ts";
import type { NodeParts, SecurityFace } from "../assemble.ts";

type RunningOf = Pick<NodeParts, "broker" | "store"> & {
  readonly security: Pick<SecurityFace, "users" | "rules" | "replaceRules">;
  readonly clock: Clock;
};

export function runningPartsOf({ broker, store, security, clock }: RunningOf): RunningParts {
  return {
    access: accessControl(security, clock),
    clients: clientsPort(broker),
    sessions: broker.sessions.inspector,
    sharedGroups: broker.sessions.sharedGroups,
    retained: broker.sessions.retained,
    store,
    operator: store.operator,
    tap: broker.tap,
    publish: (message) => broker.publish(ownMessage(message)),
  };
}

const protocols: Readonly<Record<number, string>> = { 3: "3.1", 4: "3.1.1", 5: "5" };

function clientsPort(broker: Broker): ClientsPort {
  const { clients } = broker;
  return {
    list: async (query, slices) => {
      const page = await clients.list(query, slices);
      return { ...page, clients: page.clients.map(clientInfo) };
    },
    live: (query, slices) => clients.live(query, slices),
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
    ...(messageExpiryS === undefined ? {} : { messageExpiryS }),
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

function accessControl(security: RunningOf["security"], clock: Clock): AccessControl {
  const { users, rules } = security;
  return {
    users: () => users.list(),
    putUser: async (name, password, isScram) => {
      const bytes = Buffer.from(password);
      const hash = isScram
        ? await hashForScram(bytes, systemRandom)
        : await hashPassword(bytes, systemRandom);
      await users.put(name, hash, clock.wallUs());
    },
    removeUser: (name) => users.remove(name),
    rules: () => rules.text,
    replaceRules: (text) => security.replaceRules(text),
    checkRules: (text) => {
      parseRuleFile(text);
    },
  };
}
