// What a ready node offers its HTTP interface: the faces of broker, sessions and store, in the shape
// that the admin room asks for.

import {
  type AccessControl,
  adminErrors,
  type ClientInfo,
  type ClientsPort,
  type OutgoingMessage,
  type RunningParts,
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
import type { NodeParts, SecurityFace, StoreMember } from "../assemble.ts";

type Secured = Pick<SecurityFace, "users" | "rules" | "replaceRules">;
type RunningOf = Pick<NodeParts, "broker" | "store" | "member"> & {
  readonly security?: Secured;
  readonly clock: Clock;
};

export function runningPartsOf(parts: RunningOf): RunningParts {
  const { broker, store, security, member, clock } = parts;
  if (broker === undefined || security === undefined) {
    if (member === undefined) throw new Error("a node by itself has a broker");
    return storeNodeOf({ store, member, clock });
  }
  return {
    access: accessControl(security, clock),
    clients: clientsPort(broker),
    sessions: broker.sessions.inspector,
    sharedGroups: broker.sessions.sharedGroups,
    retained: broker.sessions.retained,
    store,
    operator: store.operator,
    tap: broker.tap,
    ...(member === undefined ? {} : clusterOf(member)),
    publish: (message) => broker.publish(ownMessage(message)),
  };
}

type MemberOf = Pick<NodeParts, "store"> & {
  readonly member: StoreMember;
  readonly clock: Clock;
};

function clusterOf({ port }: StoreMember): Pick<RunningParts, "cluster" | "areDatabasesFixed"> {
  return { cluster: port, areDatabasesFixed: true };
}

function storeNodeOf({ store, member, clock }: MemberOf): RunningParts {
  const unserved = (what: string): never => {
    throw adminErrors.unserved({ what });
  };
  return {
    get access() {
      return unserved("users and rules");
    },
    get clients() {
      return unserved("clients");
    },
    get sessions() {
      return unserved("sessions");
    },
    get sharedGroups() {
      return unserved("shared subscriptions");
    },
    get retained() {
      return unserved("retained messages");
    },
    get tap() {
      return unserved("traces");
    },
    store,
    operator: store.operator,
    ...clusterOf(member),
    publish: async (message) => {
      if (message.retain) unserved("retained messages");
      const { topic, qos, frame, expiryOffset, messageExpiryS: expiryS } = ownMessage(message);
      const expiryUs = expiryS === undefined ? 0 : clock.wallUs() + expiryS * 1_000_000;
      await member.append({
        ...{ topic, publisher: "", form: "v5", qos, retain: false, expiryUs, expiryOffset, frame },
        ...{ keep: true, evidence: undefined },
      });
    },
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

function accessControl(security: Secured, clock: Clock): AccessControl {
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
