import { describe, expect, test } from "vitest";
import {
  canonicalFrame,
  createFrame,
  describeFrame,
  encodePacket,
  forwardableFrame,
  forwardPublish,
  framePayload,
  frameProperties,
  type InboundPublish,
  type PublishPacket,
  PublishReader,
  rebuildPublish,
} from "../../../src/mqtt/index.ts";
import { client4, client5, decodeOne, hex, server4, server5 } from "./support.ts";

function readPublish(bytes: Buffer, version: 4 | 5, topic?: string): InboundPublish {
  const reader = new PublishReader(version === 5 ? client5 : client4);
  let bodyStart = 1;
  while (bytes[bodyStart]! >= 0x80) bodyStart++;
  // In the middle of other bytes, as in a read buffer.
  const memory = Buffer.concat([Buffer.from("before"), bytes, Buffer.from("behind")]);
  const publish = reader.read(memory, 6, 6 + bodyStart + 1, 6 + bytes.length);
  if (topic !== undefined) publish.topic = topic;
  return publish;
}

const base: PublishPacket = {
  type: "publish",
  topic: "plant/1/temp",
  payload: Buffer.from("21.5"),
  qos: 1,
  dup: true,
  retain: true,
  packetId: 0x0102,
  properties: {
    messageExpiryS: 60,
    userProperties: [
      ["a", "1"],
      ["a", "2"],
    ],
    topicAlias: 9,
    correlationData: Buffer.from([0, 255]),
  },
};

describe("a PUBLISH as received", () => {
  test("its parts are located in the frame", () => {
    const bytes = encodePacket(base, 5);
    const publish = readPublish(bytes, 5);
    expect(publish).toMatchObject({
      topic: "plant/1/temp",
      qos: 1,
      dup: true,
      retain: true,
      packetId: 0x0102,
      messageExpiryS: 60,
      topicAlias: 9,
      version: 5,
    });
    expect(publish.frame).toEqual(bytes);
    expect(publish.payload).toEqual(base.payload);
    expect(publish.decodeProperties()).toEqual(base.properties);
    expect(bytes.readUInt32BE(publish.expiryOffset)).toBe(60);
    expect(bytes.readUInt16BE(publish.idOffset)).toBe(0x0102);
  });

  test("a repeated topic is the same string, a changed one is not mistaken for it", () => {
    const reader = new PublishReader(client4);
    const topics = ["a/1", "a/1", "b/1", "a/2", "a/22", ""].map((topic) => {
      const bytes = Buffer.concat([
        hex("3000"),
        Buffer.from([0, topic.length]),
        Buffer.from(topic),
      ]);
      try {
        return reader.read(bytes, 0, 2, bytes.length).topic;
      } catch {
        return "refused";
      }
    });
    expect(topics).toEqual(["a/1", "a/1", "b/1", "a/2", "a/22", "refused"]);
  });
});

describe("the stored form", () => {
  test("DUP cleared, RETAIN kept, id a zeroed slot, topic in full, alias gone", () => {
    const { topicAlias: _, ...properties } = base.properties;
    for (const sent of [base, { ...base, topic: "" }, { ...base, properties }]) {
      const publish = readPublish(encodePacket(sent, 5), 5, "plant/1/temp");
      const stored = canonicalFrame(publish);
      const layout = describeFrame(stored.bytes, 5);
      expect(layout).toMatchObject({ topic: "plant/1/temp", qos: 1, retain: true });
      expect(stored.bytes[0]! & 8).toBe(0);
      expect(stored.bytes.readUInt16BE(layout.idOffset)).toBe(0);
      expect(frameProperties(stored)).toEqual(properties);
      expect(framePayload(stored)).toEqual(base.payload);
      expect(stored.expiryOffset).toBe(layout.expiryOffset);
      expect(stored.bytes.readUInt32BE(stored.expiryOffset)).toBe(60);
    }
  });

  test("an expiry behind the alias is still found", () => {
    // Alias first, then the expiry, in bytes: encoders of ours sort by identifier.
    const bytes = hex("3013 0000 0f 230001 02000000ff 2600016b000176 70");
    const publish = readPublish(bytes, 5, "long/topic/name");
    const stored = canonicalFrame(publish);
    expect(stored.bytes.readUInt32BE(stored.expiryOffset)).toBe(255);
    expect(describeFrame(stored.bytes, 5).expiryOffset).toBe(stored.expiryOffset);
  });

  test("it owns its memory", () => {
    const bytes = encodePacket({ ...base, properties: {} }, 5);
    const publish = readPublish(bytes, 5);
    const stored = canonicalFrame(publish);
    const copy = Buffer.from(stored.bytes);
    publish.frame.fill(0);
    expect(stored.bytes).toEqual(copy);
  });

  test("values that never were packets get the same form", () => {
    const stored = createFrame({
      topic: "$SYS/x",
      payload: Buffer.from("1"),
      qos: 1,
      retain: true,
      properties: { messageExpiryS: 5 },
    });
    expect(describeFrame(stored.bytes, 5)).toMatchObject({ topic: "$SYS/x", packetId: 0 });
    expect(stored.expiryOffset).toBeGreaterThan(0);
  });

  test("damaged bytes are an error, never a read past the end", () => {
    const stored = canonicalFrame(readPublish(encodePacket(base, 5), 5));
    for (let size = 0; size < stored.bytes.length; size++) {
      expect(() => describeFrame(stored.bytes.subarray(0, size), 5)).toThrow(
        expect.objectContaining({ code: "MQTT_PACKET_MALFORMED" }),
      );
    }
  });
});

describe("forwarding", () => {
  const options = { version: 5, qos: 1, dup: false, retain: false, packetId: 7 } as const;
  const stored5 = canonicalFrame(readPublish(encodePacket(base, 5), 5));
  const stored4 = canonicalFrame(readPublish(encodePacket(base, 4), 4));
  const { topicAlias: _, ...kept } = base.properties;

  test("properties reach an MQTT 5 receiver unaltered, with what is left of the expiry", () => {
    const packet = decodeOne(
      forwardPublish(stored5, { ...options, remainingExpiryS: 12 }),
      server5,
    );
    expect(packet).toMatchObject({ packetId: 7, dup: false, retain: false, topic: base.topic });
    expect(packet).toHaveProperty("properties", { ...kept, messageExpiryS: 12 });
  });

  test("identifiers and alias are added; with a known alias the topic is left out", () => {
    const bytes = forwardPublish(stored5, {
      ...options,
      subscriptionIds: [1, 300],
      topicAlias: { alias: 3, sendTopic: false },
    });
    expect(decodeOne(bytes, server5)).toMatchObject({
      topic: "",
      properties: { ...kept, topicAlias: 3, subscriptionIdentifiers: [1, 300] },
      payload: base.payload,
    });
  });

  test("MQTT 5 to 3.1.1 drops the properties, 3.1.1 to 5 adds an empty set", () => {
    expect(decodeOne(forwardPublish(stored5, { ...options, version: 4 }), server4)).toEqual({
      ...base,
      dup: false,
      retain: false,
      packetId: 7,
      properties: {},
    });
    expect(decodeOne(forwardPublish(stored4, options), server5)).toMatchObject({
      topic: base.topic,
      payload: base.payload,
      properties: {},
    });
  });

  test("an expiry set by the broker is added where the frame has none", () => {
    const bytes = forwardPublish(stored4, { ...options, remainingExpiryS: 3 });
    expect(decodeOne(bytes, server5)).toHaveProperty("properties", { messageExpiryS: 3 });
  });

  test("QoS 0 has no packet id and no DUP", () => {
    const bytes = forwardPublish(stored4, {
      ...options,
      version: 4,
      qos: 0,
      dup: true,
      packetId: 0,
    });
    expect(decodeOne(bytes, server4)).toMatchObject({ qos: 0, dup: false, packetId: 0 });
  });

  test("a redelivery carries DUP, and RETAIN as the receiver is to see it", () => {
    const bytes = forwardPublish(stored4, { ...options, version: 4, dup: true, retain: true });
    expect(decodeOne(bytes, server4)).toMatchObject({ dup: true, retain: true, qos: 1 });
  });

  test("patching does not touch the stored frame, and is what rebuilding gives", () => {
    const copy = Buffer.from(stored5.bytes);
    const patched = forwardPublish(stored5, { ...options, remainingExpiryS: 1, qos: 2 });
    expect(patched).toEqual(rebuildPublish(stored5, { ...options, remainingExpiryS: 1, qos: 2 }));
    expect(stored5.bytes).toEqual(copy);
  });

  test("a received frame without alias can be forwarded at once", () => {
    const publish = readPublish(encodePacket({ ...base, properties: {} }, 5), 5);
    const bytes = forwardPublish(forwardableFrame(publish), options);
    expect(decodeOne(bytes, server5)).toMatchObject({ dup: false, packetId: 7, retain: false });
  });
});
