// A backlog read in runs gives what the same backlog gives message by message: sessions of all kinds
// that were away come back, take it in pieces, go without a word and come back again.

import fc from "fast-check";
import { expect, test, vi } from "vitest";
import { parseRuleFile } from "../../src/broker/acl/rule-file.ts";
import { RuleAccess } from "../../src/broker/index.ts";
import type { Packet, Properties, Qos } from "../../src/mqtt/index.ts";
import { ShardCursor } from "../../src/store/pools/cursor.ts";
import { amount } from "../support/amount.ts";
import { BrokerWorld } from "../support/broker-world.ts";
import { publishing, type RawMqtt, subscribing } from "../support/raw-mqtt.ts";

type Sent = {
  readonly from: 0 | 1;
  readonly topic: string;
  readonly qos: Qos;
  readonly retain: boolean;
  readonly properties: Properties;
  readonly sizeBytes: number;
};

/** Cut off, with DISCONNECT, taken over in the middle of what is sent, or with the whole node. */
type End = "cut" | "bye" | "taken" | "crash";

type Play = {
  readonly sent: readonly Sent[];
  /** By turn: whether acks are given, and how it ends for the sessions. */
  readonly turns: ReadonlyArray<{ readonly acks: boolean; readonly end: End }>;
};

const levels = [4, 5] as const;
const one = fc.record({
  from: fc.constantFrom<0 | 1>(0, 0, 0, 1),
  topic: fc.constantFrom("a/1", "a/1", "a/2", "a/3/x"),
  qos: fc.constantFrom<Qos>(0, 1, 1, 1, 1, 1, 2),
  retain: fc.constantFrom(false, false, false, false, false, true),
  properties: fc.constantFrom<Properties>(
    {},
    {},
    {},
    { messageExpiryS: 900 },
    {
      userProperties: [
        ["b", "1"],
        ["a", "2"],
        ["b", "1"],
      ],
    },
  ),
  sizeBytes: fc.constantFrom(0, 3, 3, 3, 130),
});
const plays: fc.Arbitrary<Play> = fc.record({
  sent: fc
    .array(fc.tuple(one, fc.integer({ min: 1, max: 20 })), { minLength: 1, maxLength: 6 })
    .map((parts) => parts.flatMap(([each, times]) => Array.from({ length: times }, () => each))),
  turns: fc.array(
    fc.record({ acks: fc.boolean(), end: fc.constantFrom<End>("cut", "bye", "taken", "crash") }),
    { maxLength: 4 },
  ),
});

/** One of the sessions may not read a topic within its filter. */
const rules = "everyone\ntopic readwrite #\nclient barred\ntopic deny a/2\n";
const kept = { sessionExpiryS: 1000 };
const sessions: Record<string, { level: 4 | 5; properties: Properties }> = {
  v4: { level: 4, properties: {} },
  v5: { level: 5, properties: { ...kept, receiveMaximum: 7 } },
  named: { level: 5, properties: kept },
  small: { level: 5, properties: { ...kept, maximumPacketSize: 100 } },
  aliased: { level: 5, properties: { ...kept, topicAliasMaximum: 2 } },
  several: { level: 5, properties: { ...kept, receiveMaximum: 3 } },
  kept: { level: 5, properties: kept },
  mixed: { level: 5, properties: kept },
  barred: { level: 4, properties: {} },
  own: { level: 5, properties: kept },
};
const subscriptions: Record<string, Packet[]> = {
  v4: [subscribing(["a/#"], { qos: 1 })],
  v5: [subscribing(["a/1", "+/2"], { qos: 2 })],
  named: [subscribing(["a/1"], { qos: 1 }, 1, { subscriptionIdentifiers: [7] })],
  small: [subscribing(["a/+"], { qos: 1 })],
  aliased: [subscribing(["a/#"], { qos: 1 })],
  several: [subscribing(["a/1", "a/#"], { qos: 1 })],
  kept: [subscribing(["a/#"], { qos: 1, retainAsPublished: true })],
  mixed: [subscribing(["a/#"], { qos: 0 }), subscribing(["+/1"], { qos: 1 })],
  // It publishes the first messages.
  own: [subscribing(["a/#"], { qos: 1, noLocal: true })],
  barred: [subscribing(["a/#"], { qos: 1 })],
};

async function play({ sent, turns }: Play): Promise<Record<string, string[]>> {
  const access = new RuleAccess({ hasLoginRights: false });
  access.setRules("rule_file", parseRuleFile(rules));
  // Messages of several shards have no order among each other that could be compared.
  const world = await BrokerWorld.start({ settings: { storeQos0: true }, access, shards: 1 });
  const heard: Record<string, string[]> = {};
  const connect = async (name: string): Promise<RawMqtt> => {
    const { level, properties } = sessions[name] as { level: 4 | 5; properties: Properties };
    return world.connect(name, { level, properties, cleanStart: false });
  };
  for (const [name, packet] of Object.entries(subscriptions)) {
    heard[name] = [];
    const client = await connect(name);
    client.say(...packet);
    await world.advance();
    client.drop();
  }
  const own = await connect("own");
  for (const id of [1, 2, 3]) own.say(publishing("a/1", `own ${id}`, { id }));
  await world.advance();
  own.disconnect();
  const publishers = await Promise.all(
    levels.map((level) => world.connect(`p${level}`, { level })),
  );
  for (const [index, { from, topic, qos, retain, properties, sizeBytes }] of sent.entries()) {
    const id = qos === 0 ? 0 : index + 1;
    const text = `${index}${"x".repeat(sizeBytes)}`;
    const fields = { qos, retain, id, properties: levels[from] === 5 ? properties : {} };
    (publishers[from] as RawMqtt).autoAck = true;
    (publishers[from] as RawMqtt).say(publishing(topic, text, fields));
  }
  await world.advance(2000);
  for (const publisher of publishers) publisher.disconnect();
  await world.advance();
  for (const { acks, end } of [...turns, { acks: true, end: "bye" }]) {
    const clients: Array<[string, RawMqtt]> = [];
    const enter = async (): Promise<void> => {
      for (const name of Object.keys(sessions)) {
        const client = await connect(name);
        client.autoAck = acks;
        clients.push([name, client]);
      }
      await world.advance(1500);
    };
    await enter();
    if (end === "taken") await enter();
    for (const [name, client] of clients) {
      heard[name]?.push(...client.packets.map(allOf), `closed ${client.isClosed}`);
      if (end === "cut") client.drop();
      else if (end !== "crash" && !client.isClosed) client.disconnect();
    }
    if (end === "crash") await world.crash();
    await world.advance(1500);
  }
  await world.clock.complete(world.broker.close());
  return heard;
}

/** Every field, properties in their order. */
function allOf(packet: Packet): string {
  return JSON.stringify(packet, (_, value) => (Buffer.isBuffer(value) ? value.toString() : value));
}

test("a backlog comes alike in runs and message by message", { timeout: 120_000 }, async () => {
  let runs = 0;
  await fc.assert(
    fc.asyncProperty(plays, async (each) => {
      const looking = vi.spyOn(ShardCursor.prototype, "peekRun");
      const fast = await play(each);
      runs += looking.mock.results.filter(({ value }) => value !== undefined).length;
      looking.mockImplementation(() => undefined);
      const slow = await play(each);
      looking.mockRestore();
      expect(fast).toEqual(slow);
    }),
    { numRuns: Number(process.env.FLAGSTONE_FAST_PATH_RUNS ?? amount(3, 8)), endOnFailure: true },
  );
  expect(runs).toBeGreaterThan(0);
});
