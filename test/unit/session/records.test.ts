// The codec of session records: round trips, damage, and the worked examples of the format page.

import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import * as records from "../../../src/session/core/records.ts";
import { subscription, will } from "../../support/session-world.ts";

const message = {
  topic: "t",
  timeUs: 0,
  publisher: "p",
  form: "v5",
  qos: 1,
  retain: true,
  expiryUs: 0,
  expiryOffset: 0,
  frame: Buffer.from("hi"),
} as const;

const examples: Record<
  string,
  { bytes: Buffer; back: (bytes: Buffer) => unknown; value: unknown }
> = {
  claim: example(records.encodeClaim, records.decodeClaim, {
    clientId: "s",
    user: "ann",
    protocol: 5,
    expiryS: 3600,
    incarnation: 1000,
    bootUs: 2000,
    removing: false,
    owner: undefined,
  }),
  "claim at a node": example(records.encodeClaim, records.decodeClaim, {
    clientId: "s",
    user: undefined,
    protocol: 5,
    expiryS: 3600,
    incarnation: 1000,
    bootUs: 2000,
    removing: false,
    owner: { node: 3, start: "ab" },
  }),
  closed: example(records.encodeClosed, records.decodeClosed, {
    closedUs: 1000,
    expiryS: 60,
    dueUs: 60_001_000,
  }),
  "group claim": example(records.encodeGroup, records.decodeGroup, "$share/g/t"),
  assigned: example(records.encodeAssigned, records.decodeAssigned, {
    ref: { shard: 3, generation: 1, stream: 2, timeUs: 1000 },
    qos: 2,
    clientId: "s",
    sent: true,
  }),
  cursor: example(records.encodeCursor, records.decodeCursor, {
    positions: new Map([
      [3, 1000],
      [4, 2000],
    ]),
    dropped: 5,
  }),
  ids: example(records.encodeIds, records.decodeIds, {
    exact: false,
    next: 12,
    reservedEnd: 4012,
    sentUntil: new Map([[3, 3000]]),
    doubtUntil: new Map(),
  }),
  subscription: example(records.encodeSubscription, records.decodeSubscription, {
    subscription: subscription("a/+", { qos: 2, noLocal: true, retainHandling: 1, identifier: 7 }),
    start: new Map([[3, 1000]]),
  }),
  "in-flight": example(records.encodeInFlight, records.decodeInFlight, {
    packetId: 12,
    qos: 2,
    retain: false,
    sent: true,
    released: true,
    sizeBytes: 100,
    identifiers: [7],
    source: { kind: "log", ref: { shard: 3, generation: 1, stream: 2, timeUs: 1000 } },
  }),
  "in-flight retained": example(records.encodeInFlight, records.decodeInFlight, {
    packetId: 13,
    qos: 1,
    retain: true,
    sent: true,
    released: false,
    sizeBytes: 2,
    identifiers: [],
    source: { kind: "retained", message },
  }),
  message: example(records.encodeMessage, records.decodeMessage, message),
  job: example(records.encodeJob, records.decodeJob, {
    filter: "#",
    after: "0:a",
    doubtTopic: "b",
    start: new Map([[1, 500]]),
  }),
  live: example(records.encodeLive, records.decodeLive, {
    clientId: "s",
    user: "ann",
    bootUs: 2000,
    owner: undefined,
  }),
  "live at a node": example(records.encodeLive, records.decodeLive, {
    clientId: "s",
    user: "ann",
    bootUs: 2000,
    owner: { node: 3, start: "ab" },
  }),
  due: example(records.encodeDue, records.decodeDue, {
    clientId: "s",
    user: "ann",
    incarnation: 1000,
    cursor: new Map([[3, 1000]]),
    inFlight: 2,
    dropped: 5,
  }),
  will: example(
    records.encodeWill,
    records.decodeWill,
    will("w", "bye", { delayS: 5, messageExpiryS: 60, expiryOffset: 9 }),
  ),
  fire: example(records.encodeFire, records.decodeFire, {
    clientId: "s",
    user: undefined,
    will: will("w", "bye"),
    writerEpoch: 0,
  }),
};

function example<T>(encode: (value: T) => Buffer, decode: (bytes: Buffer) => unknown, value: T) {
  return { bytes: Buffer.from(encode(value)), back: decode, value };
}

describe("records", () => {
  for (const [name, { bytes, back, value }] of Object.entries(examples)) {
    test(`${name}: what is written is read`, () => {
      expect(back(bytes)).toEqual(value);
    });

    test(`${name}: cut anywhere, or longer, it is refused with a code`, () => {
      for (let size = 0; size < bytes.length; size++) {
        expect(() => back(bytes.subarray(0, size))).toThrow(
          expect.objectContaining({ code: "SESSION_RECORD_CORRUPT" }),
        );
      }
      expect(() => back(Buffer.concat([bytes, Buffer.from([0])]))).toThrow(/1 bytes too many/);
    });

    test(`${name}: a newer version is refused, not guessed at`, () => {
      const newer = Buffer.from(bytes);
      newer[0] = 0x7f;
      expect(() => back(newer)).toThrow(
        expect.objectContaining({ code: "SESSION_RECORD_VERSION" }),
      );
    });

    test(`${name}: any damage is a coded error or another value, never a crash`, () => {
      for (let at = 0; at < bytes.length; at++) {
        for (const damage of [0x01, 0x80, 0xff]) {
          const damaged = Buffer.from(bytes);
          damaged[at] = (damaged[at] as number) ^ damage;
          try {
            back(damaged);
          } catch (error) {
            expect((error as { code: string }).code).toMatch(/^SESSION_RECORD_/);
          }
        }
      }
    });
  }

  test("live and due of version 1 are read, as anonymous ones", () => {
    const live = Buffer.from("010173d00f", "hex");
    expect(records.decodeLive(live)).toEqual({ clientId: "s", user: undefined, bootUs: 2000 });
    const due = Buffer.from("010173e8070103e8070205", "hex");
    expect(records.decodeDue(due)).toMatchObject({ clientId: "s", user: undefined, dropped: 5 });
  });

  test("the worked examples of docs/formats/session.md are what is written", () => {
    const page = readFileSync(new URL("../../../docs/formats/session.md", import.meta.url), "utf8");
    const found = new Map<string, string>();
    for (const line of page.split("\n")) {
      const match = /^([a-z -]+): ([0-9a-f ]+)$/.exec(line);
      if (match !== null) found.set(match[1]!.trim(), match[2]!.replaceAll(" ", ""));
    }
    for (const [name, { bytes }] of Object.entries(examples)) {
      expect([name, found.get(name)]).toEqual([name, bytes.toString("hex")]);
    }
    expect(found.size).toBe(Object.keys(examples).length);
  });

  test("any subscription comes back", () => {
    const positions = fc
      .uniqueArray(fc.nat(), { maxLength: 5 })
      .map((shards) => new Map(shards.map((shard, n) => [shard, n * 1_767_225_600_000_000])));
    const any = fc.record({
      subscription: fc.record({
        filter: fc.string({ unit: "grapheme", minLength: 1 }),
        qos: fc.constantFrom(0 as const, 1 as const, 2 as const),
        noLocal: fc.boolean(),
        retainAsPublished: fc.boolean(),
        retainHandling: fc.constantFrom(0 as const, 1 as const, 2 as const),
        identifier: fc.nat(268_435_455),
      }),
      start: positions.filter((map) => [...map.values()].every(Number.isSafeInteger)),
    });
    fc.assert(
      fc.property(any, (record) => {
        expect(records.decodeSubscription(records.encodeSubscription(record))).toEqual(record);
      }),
    );
  });
});
