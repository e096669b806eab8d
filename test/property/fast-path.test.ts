// The fast path gives what the path of each packet gives: one broker that takes runs, one that looks
// at every packet by itself, and the same random traffic for both.

import fc from "fast-check";
import { expect, test, vi } from "vitest";
import { PlainPackets } from "../../src/mqtt/core/plain-packets.ts";
import type { Packet, Properties, Qos } from "../../src/mqtt/index.ts";
import { amount } from "../support/amount.ts";
import { BrokerWorld } from "../support/broker-world.ts";
import { publishing, type RawMqtt, subscribing } from "../support/raw-mqtt.ts";

type Sent = {
  readonly topic: string;
  readonly qos: Qos;
  readonly retain: boolean;
  readonly dup: boolean;
  /** Of MQTT 5 publishers. */
  readonly properties: Properties;
  readonly sizeBytes: number;
};

/** One write of one publisher. */
type Step = { readonly from: number; readonly acks: boolean; readonly sent: readonly Sent[] };

const publishers = [{ level: 4 }, { level: 5 }, { level: 5 }] as const;

const plain = fc.record({
  topic: fc.constantFrom("a/1", "a/1", "a/1", "a/2", "own", "kept", "no/body/there"),
  qos: fc.constantFrom<Qos>(0, 1, 1, 1, 1, 2),
  retain: fc.constantFrom(false, false, false, false, false, true),
  dup: fc.constantFrom(false, false, false, false, false, true),
  properties: fc.constantFrom<Properties>(
    {},
    {},
    {},
    {},
    {},
    { messageExpiryS: 9 },
    { topicAlias: 1 },
  ),
  sizeBytes: fc.constantFrom(0, 3, 3, 3, 200),
});
/** Repeats, so that there are runs. */
const sent = fc
  .tuple(plain, fc.integer({ min: 1, max: 12 }))
  .map(([one, times]) => Array.from({ length: times }, () => one));
const step = fc.record({
  from: fc.nat(2),
  acks: fc.boolean(),
  sent: fc.array(sent, { minLength: 1, maxLength: 5 }).map((parts) => parts.flat()),
});

/** QoS 0 passes a full window, and whether an ack has made room just before is a matter of turns. */
type HeardByOne = { unacked: string[]; acked: string[]; others: string[] };
type Heard = Record<string, HeardByOne>;

/** Clients that ack at once, or keep what they owe until they are told to. */
function answering(clients: ReadonlyArray<RawMqtt | undefined>): (acks: boolean) => void {
  const owed: Array<() => void> = [];
  for (const client of clients) {
    if (client === undefined) continue;
    client.onPacket = (packet) => {
      if (client.autoAck || packet.type !== "publish" || packet.qos === 0) return;
      const { qos, packetId } = packet;
      owed.push(() => void client.ack(qos === 1 ? "puback" : "pubrec", packetId));
    };
  }
  return (acks) => {
    for (const client of clients) if (client !== undefined) client.autoAck = acks;
    if (acks) for (const ack of owed.splice(0)) ack();
  };
}

async function play(steps: readonly Step[]): Promise<Heard> {
  const world = await BrokerWorld.start({
    sessions: { memoryQueueMax: 30 },
    settings: { storeQos0: false },
  });
  const properties: Properties = { receiveMaximum: 5 };
  const clients: Record<string, RawMqtt> = {
    v4: await world.connect("v4", { level: 4, cleanStart: true }),
    v5: await world.connect("v5", { properties }),
    named: await world.connect("named"),
    shared: await world.connect("shared"),
    durable: await world.connect("durable", { properties: { sessionExpiryS: 100 } }),
    small: await world.connect("small", { properties: { maximumPacketSize: 100 } }),
  };
  clients.v4?.subscribe("a/+");
  clients.v5?.say(subscribing(["a/1", "+/+", "+"], { qos: 2 }, 1));
  clients.named?.say(subscribing(["a/#"], {}, 1, { subscriptionIdentifiers: [7] }));
  clients.shared?.subscribe("$share/g/a/1");
  clients.durable?.subscribe("kept");
  clients.small?.subscribe("+/+", { qos: 0, retainAsPublished: true });
  for (const [index, fields] of publishers.entries()) {
    const name = `p${index}`;
    const client = await world.connect(name, { ...fields, cleanStart: true });
    client.autoAck = true;
    client.subscribe("own", { noLocal: fields.level === 5 && index === 2 });
    clients[name] = client;
  }
  await world.advance();
  let packetId = 1;
  const answer = answering(["v4", "v5", "named", "shared", "durable"].map((name) => clients[name]));
  for (const [number, { from, acks, sent }] of steps.entries()) {
    const publisher = clients[`p${from}`] as RawMqtt;
    answer(acks);
    const packets = sent.map((one, index) => {
      const { topic, qos, retain, sizeBytes } = one;
      const properties = publishers[from]?.level === 5 ? one.properties : {};
      return publishing(topic, `${number}.${index}${"x".repeat(sizeBytes)}`, {
        ...{ qos, retain, dup: one.dup && qos > 0 },
        ...{ id: qos === 0 ? 0 : packetId++, properties },
      });
    });
    publisher.say(...packets);
    await world.advance(200);
  }
  const heard: Heard = {};
  for (const [name, client] of Object.entries(clients)) {
    const told = client.take();
    const packets = client.packets.slice(-told.length);
    const lines = told.map((line, index) => `${line} ${propertiesOf(packets[index])}`);
    const isPublish = (line: string): boolean => line.startsWith("publish ");
    const isAcked = (line: string): boolean => / q[12] /.test(line);
    const publishes = lines.filter(isPublish);
    heard[name] = {
      unacked: publishes.filter((line) => !isAcked(line)),
      acked: publishes.filter(isAcked),
      others: [...lines.filter((line) => !isPublish(line)), `closed ${client.isClosed}`],
    };
  }
  await world.clock.complete(world.broker.close());
  return heard;
}

function propertiesOf(packet: Packet | undefined): string {
  return packet !== undefined && "properties" in packet ? JSON.stringify(packet.properties) : "";
}

const wasCutOff = ({ others }: HeardByOne): boolean => others.includes("disconnect 0x97 {}");

/**
 * Where the queue of a client is full it is cut off, and how much it got before depends on how much
 * came at once: of such a client only what it heard both times is compared.
 */
function withoutEnds(one: Heard, other: Heard): Heard {
  return Object.fromEntries(
    Object.entries(one).map(([name, heard]) => {
      const compared = other[name] as HeardByOne;
      if (!wasCutOff(heard) && !wasCutOff(compared)) return [name, heard];
      const isEnd = (line: string): boolean => /^(disconnect 0x97|closed) /.test(line);
      const shared = (key: keyof HeardByOne): string[] => {
        const lines = heard[key].filter((line) => !isEnd(line));
        return lines.slice(0, compared[key].filter((line) => !isEnd(line)).length);
      };
      const [unacked, acked, others] = [shared("unacked"), shared("acked"), shared("others")];
      return [name, { unacked, acked, others }];
    }),
  );
}

test("random traffic is answered and delivered alike, in runs and one by one", {
  timeout: 60_000,
}, async () => {
  let runs = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 8 }), async (steps) => {
      const counting = vi.spyOn(PlainPackets.prototype, "take");
      const fast = await play(steps);
      runs += counting.mock.results.filter(({ value }) => value > 0).length;
      counting.mockImplementation((_bytes, offset) => offset);
      const slow = await play(steps);
      counting.mockRestore();
      expect(withoutEnds(fast, slow)).toEqual(withoutEnds(slow, fast));
    }),
    // Making the traffic smaller takes longer than there is: the seed is what counts.
    { numRuns: Number(process.env.FLAGSTONE_FAST_PATH_RUNS ?? amount(6, 12)), endOnFailure: true },
  );
  expect(runs).toBeGreaterThan(0);
});
