// Packets of ours in the shape of mqtt-packet and back, for differential tests. User properties
// come back sorted by name, since mqtt-packet keeps them in an object.

import type mqttPacket from "mqtt-packet";
import type { MqttVersion, Packet, Properties, UserProperty } from "../../src/mqtt/index.ts";

type Loose = Record<string, unknown>;

const theirNames: Partial<Record<keyof Properties, string>> = {
  payloadFormat: "payloadFormatIndicator",
  messageExpiryS: "messageExpiryInterval",
  subscriptionIdentifiers: "subscriptionIdentifier",
  sessionExpiryS: "sessionExpiryInterval",
  assignedClientId: "assignedClientIdentifier",
  serverKeepAliveS: "serverKeepAlive",
  willDelayS: "willDelayInterval",
  maximumQos: "maximumQoS",
};
const ourNames = new Map(Object.entries(theirNames).map(([ours, theirs]) => [theirs, ours]));

function propertiesToTheirs(properties: Properties): Loose | undefined {
  const result: Loose = {};
  for (const [name, value] of Object.entries(properties)) {
    const theirs = theirNames[name as keyof Properties] ?? name;
    if (name === "userProperties") {
      result[theirs] = Object.fromEntries(value as UserProperty[]);
    } else if (name === "payloadFormat") {
      result[theirs] = value === 1;
    } else {
      result[theirs] = value;
    }
  }
  return Object.keys(result).length === 0 ? undefined : result;
}

function propertiesFromTheirs(theirs: unknown): Loose {
  const result: Loose = {};
  for (const [name, value] of Object.entries((theirs ?? {}) as Loose)) {
    const ours = ourNames.get(name) ?? name;
    if (ours === "userProperties") {
      result[ours] = Object.entries(value as Record<string, string>).sort();
    } else if (ours === "subscriptionIdentifiers") {
      result[ours] = Array.isArray(value) ? value : [value];
    } else if (ours === "payloadFormat") {
      result[ours] = value ? 1 : 0;
    } else {
      result[ours] = value;
    }
  }
  return result;
}

/** For `mqttPacket.generate`. */
export function toTheirs(packet: Packet, version: MqttVersion): mqttPacket.Packet {
  const properties = "properties" in packet ? propertiesToTheirs(packet.properties) : undefined;
  const base: Loose = { cmd: packet.type, ...(properties !== undefined && { properties }) };
  return { ...base, ...fieldsToTheirs(packet, version) } as unknown as mqttPacket.Packet;
}

function fieldsToTheirs(packet: Packet, version: MqttVersion): Loose {
  switch (packet.type) {
    case "connect": {
      const { will } = packet;
      return {
        protocolId: packet.level === 3 ? "MQIsdp" : "MQTT",
        protocolVersion: packet.level,
        bridgeMode: packet.bridge,
        clean: packet.cleanStart,
        clientId: packet.clientId,
        keepalive: packet.keepAliveS,
        ...(packet.userName !== undefined && { username: packet.userName }),
        ...(packet.password !== undefined && { password: packet.password }),
        ...(will !== undefined && {
          will: { ...will, properties: propertiesToTheirs(will.properties) },
        }),
      };
    }
    case "connack":
      return version === 5
        ? { sessionPresent: packet.sessionPresent, reasonCode: packet.reasonCode }
        : { sessionPresent: packet.sessionPresent, returnCode: packet.reasonCode };
    case "publish": {
      const { topic, payload, qos, dup, retain, packetId } = packet;
      return { topic, payload, qos, dup, retain, ...(qos > 0 && { messageId: packetId }) };
    }
    case "subscribe":
      return {
        messageId: packet.packetId,
        subscriptions: packet.filters.map(({ filter, options }) => ({
          topic: filter,
          qos: options.qos,
          nl: options.noLocal,
          rap: options.retainAsPublished,
          rh: options.retainHandling,
        })),
      };
    case "unsubscribe":
      return { messageId: packet.packetId, unsubscriptions: packet.filters };
    case "suback":
    case "unsuback":
      return { messageId: packet.packetId, granted: packet.reasonCodes };
    case "pingreq":
    case "pingresp":
      return {};
    case "disconnect":
    case "auth":
      return { reasonCode: packet.reasonCode };
    default:
      return { messageId: packet.packetId, reasonCode: packet.reasonCode };
  }
}

/** A packet parsed by mqtt-packet, in our shape and as JSON. */
export function fromTheirs(theirs: mqttPacket.Packet, version: MqttVersion): unknown {
  const loose = theirs as unknown as Loose;
  const type = theirs.cmd;
  const properties = propertiesFromTheirs(loose.properties);
  const rest = fieldsFromTheirs(loose, type, version);
  const bare = type === "pingreq" || type === "pingresp";
  return JSON.parse(JSON.stringify(bare ? { type } : { type, ...rest, properties }));
}

function fieldsFromTheirs(theirs: Loose, type: string, version: MqttVersion): Loose {
  switch (type) {
    case "connect": {
      const will = theirs.will as Loose | undefined;
      return {
        level: theirs.protocolVersion,
        bridge: theirs.bridgeMode ?? false,
        clientId: theirs.clientId,
        cleanStart: theirs.clean,
        keepAliveS: theirs.keepalive,
        userName: theirs.username,
        password: theirs.password,
        will: will && { ...will, properties: propertiesFromTheirs(will.properties) },
      };
    }
    case "connack":
      return {
        sessionPresent: theirs.sessionPresent,
        reasonCode: version === 5 ? theirs.reasonCode : theirs.returnCode,
      };
    case "publish": {
      const { topic, payload, qos, dup, retain, messageId } = theirs;
      return { topic, payload, qos, dup, retain, packetId: messageId ?? 0 };
    }
    case "subscribe":
      return {
        packetId: theirs.messageId,
        filters: (theirs.subscriptions as Loose[]).map((item) => ({
          filter: item.topic,
          options: {
            qos: item.qos,
            noLocal: item.nl ?? false,
            retainAsPublished: item.rap ?? false,
            retainHandling: item.rh ?? 0,
          },
        })),
      };
    case "unsubscribe":
      return { packetId: theirs.messageId, filters: theirs.unsubscriptions };
    case "suback":
    case "unsuback":
      return { packetId: theirs.messageId, reasonCodes: theirs.granted ?? [] };
    case "disconnect":
    case "auth":
      return { reasonCode: theirs.reasonCode };
    default:
      return { packetId: theirs.messageId, reasonCode: theirs.reasonCode ?? 0 };
  }
}
