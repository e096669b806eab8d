// One case of the broker's fuzzing: hostile clients on a whole broker in simulated time, with sessions
// that last and end, beside two honest clients. They say packets of all types in all states, right
// and wrong, cut anywhere; they fall silent, vanish and take each other's sessions over.
//
// What must hold: nothing throws; what a client gets are packets it can read; the honest reader gets
// what the honest writer publishes, once and in order; when all have gone, nothing of them is left.

import { SeededRandom } from "../../src/base/index.ts";
import { BrokerWorld } from "./broker-world.ts";
import { PacketFuzz, type PacketKind } from "./fuzz-packets.ts";
import { publishing, type RawMqtt } from "./raw-mqtt.ts";

export type BrokerFuzzCounts = Record<string, number>;

const hostiles = 3;
const stepsMax = 40;
const expiryS = 30;

const kinds: readonly PacketKind[] = [
  ...(["publish", "publish", "publish", "publish", "pubrel", "puback", "pubrec"] as const),
  ...(["pubcomp", "subscribe", "subscribe", "subscribe", "unsubscribe", "pingreq"] as const),
];

type Hostile = { client: RawMqtt; version: 4 | 5 };

export async function runBrokerCase(seed: number, counts: BrokerFuzzCounts): Promise<void> {
  const random = new SeededRandom(seed);
  const fuzz = new PacketFuzz(random);
  fuzz.faultChance = random.pick([0, 0, 0.002, 0.02]);
  const mqtt = { receiveMaximum: 20, topicAliasMaximum: 3, maxPacketSize: 5000, keepAliveMaxS: 0 };
  const settings = { sessionExpiryMaxS: expiryS, publishWaitMs: 200 };
  const world = await BrokerWorld.start({ store: { commitMs: 1 }, mqtt, settings, seed });
  const reader = await world.connect("honest reader", { properties: { sessionExpiryS: 3600 } });
  reader.autoAck = true;
  reader.subscribe("honest/+", { qos: 1 });
  const writer = await world.connect("honest writer");
  await world.advance();
  let published = 0;
  const crowd: Hostile[] = [];
  for (let n = 0; n < hostiles; n++) crowd.push(await join(world, fuzz));
  const all = [...crowd];
  const steps = random.below(stepsMax);
  for (let step = 0; step < steps; step++) {
    const at = random.below(hostiles);
    const one = crowd[at] as Hostile;
    if (one.client.isClosed || random.chance(0.05)) {
      if (random.chance(0.5)) one.client.drop();
      crowd[at] = await join(world, fuzz);
      all.push(crowd[at]);
      count(counts, "joined");
    } else {
      say(fuzz, one, counts);
    }
    if (random.chance(0.1)) {
      published++;
      writer.say(publishing("honest/1", `${published}`, { qos: 1, id: published }));
    }
    if (random.chance(0.4)) await world.advance(random.pick([0.1, 1, 5, 2000]));
  }
  await world.advance(1000);
  check(reader, published, counts);
  for (const { client } of all) {
    for (const line of client.lines) count(counts, `got ${line.split(" ")[0]}`);
    client.drop();
  }
  reader.disconnect(0, { sessionExpiryS: 0 });
  writer.disconnect();
  await world.advance((expiryS + 60) * 1000);
  checkEmpty(world);
}

function count(counts: BrokerFuzzCounts, what: string): void {
  counts[what] = (counts[what] ?? 0) + 1;
}

async function join(world: BrokerWorld, fuzz: PacketFuzz): Promise<Hostile> {
  const { random } = fuzz;
  const client = await world.dial();
  const version = random.chance(0.7) ? 5 : 4;
  client.autoAck = random.chance(0.5);
  client.connect(random.pick(["one", "two", "three"]), {
    level: version,
    cleanStart: random.chance(0.4),
    keepAliveS: random.pick([0, 0, 1]),
    ...(random.chance(0.3) && {
      will: {
        topic: random.pick(["a", "a/b", "t/1"]),
        payload: Buffer.from("will"),
        qos: random.below(3) as 0 | 1 | 2,
        retain: random.chance(0.3),
        properties: version === 5 ? { willDelayS: random.pick([0, 1, 60]) } : {},
      },
    }),
    properties:
      version === 5
        ? {
            sessionExpiryS: random.pick([0, 5, 1000]),
            receiveMaximum: random.pick([1, 3, 1000]),
            topicAliasMaximum: random.pick([0, 2]),
            maximumPacketSize: random.pick([40, 300, 100_000]),
          }
        : {},
  });
  if (random.chance(0.8)) await world.advance(2);
  return { client, version };
}

function say(fuzz: PacketFuzz, { client, version }: Hostile, counts: BrokerFuzzCounts): void {
  const { random } = fuzz;
  const packets: Buffer[] = [];
  for (let n = 1 + random.below(4); n > 0; n--) {
    const kind = random.chance(0.99) ? random.pick(kinds) : fuzz.anyKind();
    count(counts, `said ${kind}`);
    packets.push(fuzz.packet(kind, version));
  }
  const whole = Buffer.concat(packets);
  const bytes = random.chance(fuzz.faultChance * 2) ? fuzz.damage(whole) : whole;
  const cut = random.below(bytes.length + 1);
  client.bytes(bytes.subarray(0, cut)).bytes(bytes.subarray(cut));
}

function check(reader: RawMqtt, published: number, counts: BrokerFuzzCounts): void {
  const got = reader.lines.filter((line) => line.startsWith("publish"));
  const wanted = Array.from(
    { length: published },
    (_, n) => `publish honest/1 ${n + 1} q1 #${n + 1}`,
  );
  if (got.join() !== wanted.join()) throw new Error(`the honest reader got ${got.join()}`);
  if (reader.isClosed) throw new Error("the honest reader was cut off");
  counts.honest = (counts.honest ?? 0) + published;
}

function checkEmpty(world: BrokerWorld): void {
  const { connections, liveFilters } = world.broker.counts();
  const { durable, connected } = world.broker.sessions.counts();
  const left = { connections, liveFilters, durable, connected };
  if (Object.values(left).some((each) => each !== 0)) {
    throw new Error(`left behind: ${JSON.stringify(left)}`);
  }
}
