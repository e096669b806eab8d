// A table of illegal packets: each is refused with its reason, in every version it can be sent in.

import { describe, expect, test } from "vitest";
import {
  type ConnectPacket,
  type DecodeContext,
  encodePacket,
  type UserProperty,
} from "../../../src/mqtt/index.ts";
import { badConnects, badPackets, frame, type Row } from "../../support/bad-packets.ts";
import { client4, client5, publishVerdictOf, server4, server5, verdictOf } from "./support.ts";

const malformed = 0x81;
const protocol = 0x82;

const fromServer5: Row[] = [
  ["CONNACK flags 2", "20 02 00 00", malformed],
  ["CONNACK refused with session present", "20 01 87 00", protocol],
  ["CONNACK unknown reason", "20 00 01 00", protocol],
  ["CONNACK without properties", "20 00 00", malformed],
  ["CONNACK maximum QoS 2", "20 00 00 02 2402", protocol],
  ["CONNACK request problem information", "20 00 00 02 1700", malformed],
  ["SUBACK without reasons", "90 0001 00", protocol],
  ["SUBACK reason 3", "90 0001 00 03", protocol],
  ["UNSUBACK reason 1", "b0 0001 00 01", protocol],
  ["UNSUBACK without reasons", "b0 0001 00", protocol],
  ["PINGREQ from a server", "c0 ", protocol],
  ["SUBSCRIBE from a server", "82 0001 00 000161 00", protocol],
  ["DISCONNECT with session expiry", "e0 00 05 1100000001", protocol],
  ["DISCONNECT with will", "e0 04", protocol],
  ["AUTH re-authenticate", "f0 19 04 15 0001 6d", protocol],
  ["PUBLISH identifier 0", "30 000161 02 0b00", protocol],
];
const fromServer4: Row[] = [
  ["CONNACK return code 6", "20 00 06", protocol],
  ["CONNACK cut", "20 00", malformed],
  ["DISCONNECT", "e0 ", protocol],
  ["SUBACK reason 0x87", "90 0001 87", protocol],
];

function rows(title: string, table: readonly Row[], context: DecodeContext): void {
  describe(title, () => {
    for (const [name, text, reasonCode] of table) {
      test(name, () => expect(verdictOf(frame(text), context)).toBe(reasonCode));
      if (text.startsWith("3") && context.sender === "client") {
        test(`${name} (hot way)`, () =>
          expect(publishVerdictOf(frame(text), context)).toBe(reasonCode));
      }
    }
  });
}

describe("illegal packets are refused with their reason", () => {
  rows("CONNECT", badConnects, client5);
  for (const { title, level, rows: table } of badPackets) {
    rows(`${title}, level ${level}`, table, level === 5 ? client5 : client4);
  }
  rows("what a server must not send, 5", fromServer5, server5);
  rows("what a server must not send, 3.1.1", fromServer4, server4);
});

const plainConnect: ConnectPacket = {
  type: "connect",
  level: 5,
  bridge: false,
  clientId: "c",
  cleanStart: true,
  keepAliveS: 0,
  properties: {},
};

describe("limits beyond the standard", () => {
  const pair = "26 0001 61 0001 62".replaceAll(" ", "");
  test("the count of user properties is bounded, in both ways of reading", () => {
    for (const [count, reasonCode] of [
      [2, undefined],
      [3, 0x97],
    ] as const) {
      const context = { ...client5, userPropertiesMax: 2 };
      const size = (count * 7).toString(16).padStart(2, "0");
      const bytes = frame(`30 000161 ${size} ${pair.repeat(count)}`);
      const verdict = verdictOf(bytes, context);
      expect(typeof verdict === "number" ? verdict : undefined).toBe(reasonCode);
      expect(publishVerdictOf(bytes, context)).toBe(reasonCode);
    }
  });

  test("control characters can be refused: 0x90 in a topic, 0x81 elsewhere", () => {
    const context = { ...client5, refuseControlCharacters: true };
    for (const text of ["30 0001 0a 00", "30 0001 7f 00", "30 0002 c285 00"]) {
      expect(verdictOf(frame(text), context)).toBe(0x90);
      expect(publishVerdictOf(frame(text), context)).toBe(0x90);
    }
    const contentType = frame("30 0001 61 04 03 0001 0d");
    expect(verdictOf(contentType, context)).toBe(0x81);
    expect(publishVerdictOf(contentType, context)).toBe(0x81);
  });

  test("5,000 user properties take a time that grows with their bytes", () => {
    const context = { ...client5, userPropertiesMax: 5000 };
    const userProperties = Array.from({ length: 5000 }, (_, n): UserProperty => ["k", `${n}`]);
    const packet = { ...plainConnect, properties: { userProperties } };
    const whole = encodePacket(packet, 5);
    expect(verdictOf(whole, context)).toEqual([packet]);
    expect(verdictOf(whole, client5)).toBe(0x97);
  });
});
