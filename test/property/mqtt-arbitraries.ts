// Random legal packets of both senders and versions. User property names are unique, because
// mqtt-packet cannot keep repeats; repeats and their order have unit tests.

import fc from "fast-check";
import type {
  ConnackPacket,
  MqttVersion,
  Packet,
  Properties,
  PublishAckType,
  PublishPacket,
  UserProperty,
  Will,
} from "../../src/mqtt/index.ts";

export type Sender = "client" | "server";
export type Sent = { packet: Packet; version: MqttVersion; sender: Sender };

const text = fc
  .string({ unit: "grapheme", maxLength: 12 })
  .filter((value) => !value.includes("\0") && !/\p{Surrogate}/u.test(value));
const filledText = text.filter((value) => value.length > 0);
const topicName = filledText.map((value) => value.replace(/[+#]/g, "x"));
const bytes = fc.uint8Array({ maxLength: 20 }).map((value) => Buffer.from(value));
const u16 = fc.integer({ min: 0, max: 0xffff });
const packetId = fc.integer({ min: 1, max: 0xffff });
const u32 = fc.integer({ min: 0, max: 0xffffffff });
const bit = fc.constantFrom(0, 1);
const qos = fc.constantFrom<0 | 1 | 2>(0, 1, 2);
const userProperties = fc.uniqueArray(
  fc.tuple(
    // A key such as "__proto__" has another meaning in mqtt-packet's objects.
    filledText.filter((name) => !(name in {})),
    text,
  ) as fc.Arbitrary<UserProperty>,
  { minLength: 1, maxLength: 4, selector: ([name]) => name },
);

/** Each given property, present or absent. */
function some(
  model: { [K in keyof Properties]?: fc.Arbitrary<unknown> },
): fc.Arbitrary<Properties> {
  return fc.record(model, { requiredKeys: [] }) as fc.Arbitrary<Properties>;
}

const publishModel = {
  payloadFormat: bit,
  messageExpiryS: u32,
  contentType: text,
  responseTopic: topicName,
  correlationData: bytes,
  userProperties,
};
const reasonModel = { reasonString: text, userProperties };

const will: fc.Arbitrary<Will> = fc.record({
  topic: topicName,
  payload: bytes,
  qos,
  retain: fc.boolean(),
  properties: some({ ...publishModel, willDelayS: u32 }),
});

const authProperties = fc.record(
  { authenticationMethod: filledText, authenticationData: bytes, reasonString: text },
  { requiredKeys: ["authenticationMethod"] },
);

const connectProperties = some({
  sessionExpiryS: u32,
  receiveMaximum: packetId,
  maximumPacketSize: fc.integer({ min: 1, max: 0xffffffff }),
  topicAliasMaximum: u16,
  requestResponseInformation: fc.boolean(),
  requestProblemInformation: fc.boolean(),
  userProperties,
});

const connect5 = fc.record(
  {
    type: fc.constant("connect" as const),
    level: fc.constant(5 as const),
    bridge: fc.constant(false),
    clientId: text,
    cleanStart: fc.boolean(),
    keepAliveS: u16,
    will,
    userName: text,
    password: bytes.filter((value) => value.length > 0),
    properties: fc
      .tuple(connectProperties, fc.option(authProperties, { nil: {} }))
      .map(([plain, auth]): Properties => {
        const { reasonString: _, ...rest } = auth as Properties;
        return { ...plain, ...rest };
      }),
  },
  {
    requiredKeys: ["type", "level", "bridge", "clientId", "cleanStart", "keepAliveS", "properties"],
  },
) as unknown as fc.Arbitrary<Packet>;

const connect4 = fc
  .tuple(connect5, fc.constantFrom(3, 4), fc.boolean(), filledText)
  .map(([packet, level, bridge, clientId]) => {
    if (packet.type !== "connect") throw new Error("not a CONNECT");
    const { password, will: lastWill, ...rest } = packet;
    return {
      ...rest,
      level,
      bridge,
      clientId,
      properties: {},
      ...(lastWill !== undefined && { will: { ...lastWill, properties: {} } }),
      ...(packet.userName !== undefined && password !== undefined && { password }),
    } as Packet;
  });

const connackProperties = some({
  sessionExpiryS: u32,
  receiveMaximum: packetId,
  maximumQos: bit,
  retainAvailable: fc.boolean(),
  maximumPacketSize: fc.integer({ min: 1, max: 0xffffffff }),
  assignedClientId: text,
  topicAliasMaximum: u16,
  reasonString: text,
  userProperties,
  wildcardSubscriptionAvailable: fc.boolean(),
  subscriptionIdentifiersAvailable: fc.boolean(),
  sharedSubscriptionAvailable: fc.boolean(),
  serverKeepAliveS: u16,
  responseInformation: text,
  serverReference: text,
});

function connack(version: MqttVersion): fc.Arbitrary<ConnackPacket> {
  const refusal = version === 5 ? [0x80, 0x87, 0x9f] : [1, 5];
  return fc
    .tuple(fc.boolean(), fc.constantFrom(0, ...refusal), connackProperties)
    .map(([present, reasonCode, properties]) => ({
      type: "connack",
      sessionPresent: present && reasonCode === 0,
      reasonCode,
      properties: version === 5 ? properties : {},
    }));
}

export function publishPacket(sender: Sender): fc.Arbitrary<PublishPacket> {
  const identifiers = fc.array(fc.integer({ min: 1, max: 0xfffffff }), {
    minLength: 1,
    maxLength: 3,
  });
  const extra = sender === "server" ? { subscriptionIdentifiers: identifiers } : {};
  return fc
    .record({
      topic: topicName,
      payload: bytes,
      qos,
      dup: fc.boolean(),
      retain: fc.boolean(),
      packetId,
      properties: some({ ...publishModel, ...extra, topicAlias: packetId }),
    })
    .map((packet) => ({
      type: "publish",
      ...packet,
      dup: packet.dup && packet.qos > 0,
      packetId: packet.qos > 0 ? packet.packetId : 0,
    }));
}

const ackReasons: Record<PublishAckType, number[]> = {
  puback: [0, 0x10, 0x87, 0x97],
  pubrec: [0, 0x10, 0x87, 0x97],
  pubrel: [0, 0x92],
  pubcomp: [0, 0x92],
};

function publishAck(version: MqttVersion): fc.Arbitrary<Packet> {
  const types = fc.constantFrom<PublishAckType>("puback", "pubrec", "pubrel", "pubcomp");
  return types.chain((type) =>
    fc
      .record({
        packetId,
        reasonCode: fc.constantFrom(...ackReasons[type]),
        properties: some(reasonModel),
      })
      .map((packet) =>
        version === 5
          ? { type, ...packet }
          : { type, packetId: packet.packetId, reasonCode: 0, properties: {} },
      ),
  );
}

function subscribe(version: MqttVersion): fc.Arbitrary<Packet> {
  const plain = { qos, noLocal: fc.constant(false), retainAsPublished: fc.constant(false) };
  const options =
    version === 5
      ? fc.record({
          qos,
          noLocal: fc.boolean(),
          retainAsPublished: fc.boolean(),
          retainHandling: fc.constantFrom<0 | 1 | 2>(0, 1, 2),
        })
      : fc.record({ ...plain, retainHandling: fc.constant(0 as const) });
  const identifiers = fc.array(fc.integer({ min: 1, max: 0xfffffff }), {
    minLength: 1,
    maxLength: 1,
  });
  return fc.record({
    type: fc.constant("subscribe" as const),
    packetId,
    filters: fc.array(fc.record({ filter: filledText, options }), { minLength: 1, maxLength: 4 }),
    properties:
      version === 5
        ? some({ subscriptionIdentifiers: identifiers, userProperties })
        : fc.constant({}),
  });
}

function unsubscribe(version: MqttVersion): fc.Arbitrary<Packet> {
  return fc.record({
    type: fc.constant("unsubscribe" as const),
    packetId,
    filters: fc.array(filledText, { minLength: 1, maxLength: 4 }),
    properties: version === 5 ? some({ userProperties }) : fc.constant({}),
  });
}

function subscriptionAck(version: MqttVersion): fc.Arbitrary<Packet> {
  const codes = (list: number[]): fc.Arbitrary<number[]> =>
    fc.array(fc.constantFrom(...list), { minLength: 1, maxLength: 4 });
  const properties = version === 5 ? some(reasonModel) : fc.constant({});
  return fc.oneof(
    fc.record({
      type: fc.constant("suback" as const),
      packetId,
      reasonCodes: codes(version === 5 ? [0, 1, 2, 0x80, 0x87] : [0, 1, 2, 0x80]),
      properties,
    }),
    fc.record({
      type: fc.constant("unsuback" as const),
      packetId,
      reasonCodes: version === 5 ? codes([0, 0x11, 0x87]) : fc.constant([]),
      properties,
    }),
  );
}

function disconnect(sender: Sender): fc.Arbitrary<Packet> {
  const extra = sender === "client" ? { sessionExpiryS: u32 } : { serverReference: text };
  return fc.record({
    type: fc.constant("disconnect" as const),
    reasonCode: fc.constantFrom(0, sender === "client" ? 4 : 0x8e, 0x81),
    properties: some({ ...reasonModel, ...extra }),
  });
}

const auth: fc.Arbitrary<Packet> = fc.record({
  type: fc.constant("auth" as const),
  reasonCode: fc.constant(0x18),
  properties: authProperties,
});

function packetsOf(sender: Sender, version: MqttVersion): fc.Arbitrary<Packet> {
  const five = version === 5;
  const publish = publishPacket(sender).map((packet) =>
    five ? packet : { ...packet, properties: {} },
  );
  const both: Array<fc.Arbitrary<Packet>> = [publish, publishAck(version)];
  if (five) both.push(auth, disconnect(sender));
  const own: Array<fc.Arbitrary<Packet>> =
    sender === "client"
      ? [
          five ? connect5 : connect4,
          subscribe(version),
          unsubscribe(version),
          fc.constant({ type: "pingreq" } as const),
        ]
      : [connack(version), subscriptionAck(version), fc.constant({ type: "pingresp" } as const)];
  return fc.oneof(...both, ...own);
}

export const anyPacket: fc.Arbitrary<Sent> = fc
  .tuple(fc.constantFrom<Sender>("client", "server"), fc.constantFrom<MqttVersion>(4, 5))
  .chain(([sender, version]) =>
    packetsOf(sender, version).map((packet) => ({ packet, version, sender })),
  );
