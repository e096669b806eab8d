import fc from "fast-check";
import { expect, test } from "vitest";
import {
  decodeEntry,
  decodePacket,
  encodeEntry,
  encodePacket,
  type QueueEntry,
} from "../../../src/aedes/records.ts";

test("an entry is the bytes of docs/formats/aedes.md", () => {
  const entry: QueueEntry = {
    ...{ kind: "publish", messageId: 7, brokerId: "b", brokerCounter: 1, body: 1 },
  };
  const bytes = Buffer.from("01060701620101", "hex");
  expect(encodeEntry(entry)).toEqual(bytes);
  expect(decodeEntry("k", bytes)).toEqual(entry);
});

test("a packet is the bytes of docs/formats/aedes.md", () => {
  const packet = { topic: "t", payload: Buffer.from("p"), properties: { $a: Buffer.from([1]) } };
  const fields = '{"topic":"t","properties":{"$$a":{"$bytes":"AQ=="}}}';
  const bytes = Buffer.concat([
    Buffer.from([1, 1, fields.length]),
    Buffer.from(fields),
    Buffer.from("p"),
  ]);
  expect(encodePacket(packet)).toEqual(bytes);
  expect(decodePacket("k", bytes)).toEqual(packet);
});

test("any properties come back as they were", () => {
  const value = fc.letrec((tie) => ({
    node: fc.oneof(
      fc.string(),
      fc.integer(),
      fc.boolean(),
      fc.uint8Array({ maxLength: 9 }).map((bytes) => Buffer.from(bytes)),
      fc.array(tie("node"), { maxLength: 3 }),
      fc.dictionary(
        fc.oneof(
          fc.constant("$bytes"),
          fc.string().filter((key) => key !== "__proto__"),
        ),
        tie("node"),
        { maxKeys: 3, noNullPrototype: true },
      ),
    ),
  })).node;
  fc.assert(
    fc.property(value, (each) => {
      const packet = { topic: "t", properties: { each } };
      expect(decodePacket("k", encodePacket(packet))).toEqual(packet);
    }),
  );
});

test("a record cut short or of a later version is told by its key", () => {
  const bytes = encodeEntry({
    ...{ kind: "publish", messageId: 7, brokerId: "broker", brokerCounter: 300, body: 9 },
  });
  for (let end = 0; end < bytes.length; end++) {
    expect(() => decodeEntry("k", bytes.subarray(0, end))).toThrow("the stored record k");
  }
  const newer = Buffer.from(bytes);
  newer[0] = 2;
  expect(() => decodeEntry("k", newer)).toThrow("version 2");
});
