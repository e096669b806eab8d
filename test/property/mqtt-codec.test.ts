// The codec against random packets: against itself, and against mqtt-packet where that is right
// (it loses the order of user properties, and keeps one name once: names are unique here, and
// compared as sets).

import fc from "fast-check";
import mqttPacket from "mqtt-packet";
import { describe, expect, test } from "vitest";
import { CodedError } from "../../src/base/index.ts";
import {
  canonicalFrame,
  decodePacket,
  describeFrame,
  encodePacket,
  type ForwardOptions,
  forwardPublish,
  forwardSize,
  frameProperties,
  type MqttVersion,
  type Packet,
  type Properties,
  PublishReader,
  rebuildPublish,
} from "../../src/mqtt/index.ts";
import { client4, client5, collect, decodeOne, server4, server5 } from "../unit/mqtt/support.ts";
import { anyPacket, publishPacket } from "./mqtt-arbitraries.ts";
import { fromTheirs, toTheirs } from "./mqtt-packet-bridge.ts";

const contexts = {
  client: { 4: client4, 5: client5 },
  server: { 4: server4, 5: server5 },
} as const;
const versions = fc.constantFrom<MqttVersion>(4, 5);

describe("packets", () => {
  test("decoding gives back what was encoded", () => {
    fc.assert(
      fc.property(anyPacket, ({ packet, version, sender }) => {
        const bytes = encodePacket(packet, version);
        expect(decodeOne(bytes, contexts[sender][version])).toEqual(packet);
      }),
      { numRuns: 400 },
    );
  });

  test("mqtt-packet reads what we write as the same packet", () => {
    fc.assert(
      fc.property(anyPacket, ({ packet, version }) => {
        const parser = mqttPacket.parser({ protocolVersion: version });
        const seen: mqttPacket.Packet[] = [];
        parser.on("packet", (parsed: mqttPacket.Packet) => seen.push(parsed));
        parser.on("error", (error: Error) => {
          throw error;
        });
        parser.parse(encodePacket(packet, version));
        expect(seen).toHaveLength(1);
        expect(fromTheirs(seen[0]!, version)).toEqual(sorted(packet));
      }),
      { numRuns: 400 },
    );
  });

  test("we read what mqtt-packet writes as the same packet", () => {
    fc.assert(
      fc.property(anyPacket, ({ packet, version, sender }) => {
        fc.pre(theyCanWrite(packet));
        const bytes = mqttPacket.generate(toTheirs(packet, version), { protocolVersion: version });
        const decoded = decodeOne(bytes, contexts[sender][version]);
        expect(sorted(decoded)).toEqual(sorted(packet));
      }),
      { numRuns: 400 },
    );
  });

  test("cut anywhere, a packet is a coded error with a reason, read within its bytes", () => {
    fc.assert(
      fc.property(anyPacket, ({ packet, version, sender }) => {
        const bytes = encodePacket(packet, version);
        const headerBytes = bytes.findIndex((byte, at) => at > 0 && byte < 0x80) + 1;
        const context = contexts[sender][version];
        // What follows in memory would complete the packet: reading it would show as success.
        for (let end = headerBytes; end < bytes.length; end++) {
          let verdict: Packet | CodedError;
          try {
            verdict = decodePacket(bytes, 0, headerBytes, end, context);
          } catch (error) {
            verdict = error as CodedError;
          }
          if (verdict instanceof CodedError) {
            expect(verdict.details.reasonCode).toBeTypeOf("number");
          } else {
            // Legal shorter packets: fewer payload bytes, filters, or optional parts.
            expect(encodePacket(verdict, version).length).toBeLessThan(bytes.length);
          }
        }
      }),
      { numRuns: 200 },
    );
  });

  test("random bytes are packets or coded errors", () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ minLength: 1, maxLength: 40 }),
        versions,
        fc.constantFrom<"client" | "server">("client", "server"),
        (body, version, sender) => {
          const bytes = Buffer.from(body);
          try {
            decodePacket(bytes, 0, 1, bytes.length, contexts[sender][version]);
          } catch (error) {
            expect(error).toBeInstanceOf(CodedError);
          }
        },
      ),
      { numRuns: 2000 },
    );
  });

  test("any chunking gives the same frames", () => {
    fc.assert(
      fc.property(
        fc.array(anyPacket, { minLength: 1, maxLength: 6 }),
        fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 20 }),
        (packets, sizes) => {
          const parts = packets.map(({ packet, version }) => encodePacket(packet, version));
          const stream = Buffer.concat(parts);
          const frames: Buffer[] = [];
          const framer = collect(
            1 << 24,
            (bytes, start, _, end) => frames.push(Buffer.from(bytes.subarray(start, end))),
            [],
          );
          for (let at = 0, turn = 0; at < stream.length; turn++) {
            const size = sizes[turn % sizes.length]!;
            const chunk = Buffer.from(stream.subarray(at, at + size));
            framer.push(chunk);
            chunk.fill(0xaa);
            at += size;
          }
          expect(frames).toEqual(parts);
        },
      ),
      { numRuns: 300 },
    );
  });
});

describe("PUBLISH frames", () => {
  const published = fc.tuple(publishPacket("client"), versions).map(([packet, version]) => ({
    packet: version === 5 ? packet : { ...packet, properties: {} },
    version,
  }));

  test("the hot way and the plain way read the same, also of garbled bytes", () => {
    const garble = fc.option(fc.tuple(fc.nat(), fc.integer({ min: 0, max: 255 })));
    fc.assert(
      fc.property(published, garble, ({ packet, version }, change) => {
        const bytes = encodePacket(packet, version);
        const bodyStart = bytes.findIndex((byte, at) => at > 0 && byte < 0x80) + 1;
        if (change !== null)
          bytes[bodyStart + (change[0] % (bytes.length - bodyStart))] = change[1];
        const context = contexts.client[version];
        const plain = attempt(() => decodePacket(bytes, 0, bodyStart, bytes.length, context));
        const hot = attempt(() => {
          const read = new PublishReader(context).read(bytes, 0, bodyStart, bytes.length);
          const { topic, qos, dup, retain, packetId, payload } = read;
          const properties = read.decodeProperties();
          return { type: "publish", topic, payload, qos, dup, retain, packetId, properties };
        });
        expect(hot).toEqual(plain);
      }),
      { numRuns: 600 },
    );
  });

  const forwarded = fc.record({
    version: versions,
    qos: fc.constantFrom<0 | 1 | 2>(0, 1, 2),
    dup: fc.boolean(),
    retain: fc.boolean(),
    packetId: fc.integer({ min: 1, max: 65535 }),
    subscriptionIds: fc.option(fc.array(fc.integer({ min: 1, max: 0xfffffff }), { maxLength: 3 }), {
      nil: undefined,
    }),
    remainingExpiryS: fc.option(fc.integer({ min: 0, max: 0xffffffff }), { nil: undefined }),
    topicAlias: fc.option(
      fc.record({ alias: fc.integer({ min: 1, max: 65535 }), sendTopic: fc.boolean() }),
      { nil: undefined },
    ),
  });

  test("a stored frame, forwarded, is the packet that was published, for this receiver", () => {
    fc.assert(
      fc.property(published, forwarded, ({ packet, version }, options: ForwardOptions) => {
        const bytes = encodePacket(packet, version);
        const bodyStart = bytes.findIndex((byte, at) => at > 0 && byte < 0x80) + 1;
        const publish = new PublishReader(contexts.client[version]).read(
          bytes,
          0,
          bodyStart,
          bytes.length,
        );
        if (publish.topic === "") publish.topic = "resolved/topic";
        const stored = canonicalFrame(publish);
        const layout = describeFrame(stored.bytes, version);
        expect(layout.expiryOffset).toBe(stored.expiryOffset);
        const { topicAlias: _, ...kept } = packet.properties;
        expect(frameProperties(stored)).toEqual(kept);

        const out = forwardPublish(stored, options);
        expect(out).toEqual(rebuildPublish(stored, options));
        expect(out.length).toBe(forwardSize(stored, options));
        const expected = expectedForward(publish.topic, packet, kept, options);
        expect(decodeOne(out, contexts.server[options.version])).toEqual(expected);
      }),
      { numRuns: 600 },
    );
  });
});

function expectedForward(
  topic: string,
  packet: { payload: Buffer },
  kept: Properties,
  options: ForwardOptions,
): Packet {
  const five = options.version === 5;
  const alias = five ? options.topicAlias : undefined;
  const ids = options.subscriptionIds ?? [];
  const properties = {
    ...kept,
    ...(options.remainingExpiryS !== undefined && { messageExpiryS: options.remainingExpiryS }),
    ...(alias !== undefined && { topicAlias: alias.alias }),
    ...(ids.length > 0 && { subscriptionIdentifiers: ids }),
  };
  return {
    type: "publish",
    topic: alias?.sendTopic === false ? "" : topic,
    payload: packet.payload,
    qos: options.qos,
    dup: options.dup && options.qos > 0,
    retain: options.retain,
    packetId: options.qos === 0 ? 0 : options.packetId,
    properties: five ? properties : {},
  };
}

/** mqtt-packet refuses two forms that MQTT 5 allows. */
function theyCanWrite(packet: Packet): boolean {
  if (packet.type !== "connect") return true;
  if (packet.clientId === "" && !packet.cleanStart) return false;
  return packet.password === undefined || packet.userName !== undefined;
}

function attempt(read: () => unknown): unknown {
  try {
    return read();
  } catch (error) {
    // Of two faults in one packet either may be named.
    if (error instanceof CodedError) return "refused";
    throw error;
  }
}

/** User properties as a sorted set, since mqtt-packet keeps them by name. */
function sorted(packet: Packet): Packet {
  return JSON.parse(JSON.stringify(packet), (key, value) =>
    key === "userProperties" ? [...value].sort() : value,
  );
}
