// What a hook does not let pass goes nowhere, whatever it is and however the hook says so.

import type { MqttClient } from "mqtt";
import { expect, test } from "vitest";
import type { EmbeddedBroker, Hooks, InsideSubscription } from "../../../../src/node/index.ts";
import { beginConnect, connectTo, openBroker } from "../../../support/embedded.ts";

type Answer = () => unknown;

const never = new Promise<never>(() => undefined);
const later = <T>(value: T): Promise<T> => new Promise((resolve) => setImmediate(resolve, value));

const refusals: Array<[string, Answer]> = [
  ["says false", () => false],
  ["says false later", () => later(false)],
];

const failures: Array<[string, Answer]> = [
  [
    "throws",
    () => {
      throw new Error("oops");
    },
  ],
  ["rejects", () => Promise.reject(new Error("oops"))],
  ["answers nonsense", () => "no"],
  [
    "answers with a field that throws",
    () => ({
      get topic(): string {
        throw new Error("oops");
      },
    }),
  ],
  [
    "answers with a promise that throws",
    () => ({
      // biome-ignore lint/suspicious/noThenProperty: the attack
      get then(): never {
        throw new Error("oops");
      },
    }),
  ],
  [
    "hangs in a promise of a promise",
    // biome-ignore lint/suspicious/noThenProperty: the attack
    () => ({ then: (give: (value: Promise<never>) => void) => give(never) }),
  ],
  ["hangs", () => never],
];

const versions = [4, 5] as const;
const levels = [0, 1, 2] as const;
const contents = [
  ["x", false],
  ["x", true],
  ["", true],
] as const;

/** Topics and payloads that came, but for what was there before. */
class Heard {
  readonly all: string[] = [];

  add(topic: string, payload: Buffer): void {
    if (payload.toString() !== "before") this.all.push(`${topic} ${payload}`);
  }

  static of(client: MqttClient): Heard {
    const heard = new Heard();
    client.on("message", (topic, payload) => heard.add(topic, payload));
    return heard;
  }

  static in(messages: InsideSubscription): Heard {
    const heard = new Heard();
    const listen = async (): Promise<void> => {
      for await (const { topic, payload } of messages) heard.add(topic, payload);
    };
    listen().catch(() => undefined); // ends with its broker
    return heard;
  }
}

const away = { clientId: "away", clean: false, properties: { sessionExpiryInterval: 600 } };

async function subscriber(broker: EmbeddedBroker, filter: string): Promise<Heard> {
  const client = await connectTo(broker);
  const heard = Heard.of(client);
  await client.subscribeAsync(filter, { qos: 2 });
  return heard;
}

/** Everybody who could hear of a message, by what they are. */
async function audience(broker: EmbeddedBroker): Promise<Record<string, Heard>> {
  const left = await connectTo(broker, away);
  await left.subscribeAsync("#", { qos: 2 });
  await left.endAsync();
  return {
    client: await subscriber(broker, "#"),
    member: await subscriber(broker, "$share/group/#"),
    loop: Heard.in(await broker.subscribe("#", { qos: 2 })),
    named: Heard.in(await broker.subscribe("#", { qos: 2, name: "named" })),
  };
}

/** Every kind of PUBLISH to `topic`. Gives how often the client was cut off. */
async function publishAll(broker: EmbeddedBroker, topic: string): Promise<number> {
  let cuts = 0;
  for (const protocolVersion of versions) {
    const connect = async () => {
      const client = await connectTo(broker, { protocolVersion });
      const isCut = new Promise<true>((resolve) => client.once("close", () => resolve(true)));
      return { client, isCut };
    };
    let { client, isCut } = await connect();
    for (const qos of levels) {
      for (const [payload, retain] of contents) {
        const sent = client.publishAsync(topic, payload, { qos, retain }).then(
          () => false,
          () => false,
        );
        if (!(await Promise.race([sent, isCut]))) continue;
        cuts++;
        ({ client, isCut } = await connect());
      }
    }
    // The end of what was sent at QoS 0.
    await client.publishAsync("yes", `${protocolVersion}`, { qos: 1, retain: true });
  }
  return cuts;
}

async function loseAll(broker: EmbeddedBroker, topic: string): Promise<void> {
  for (const protocolVersion of versions) {
    for (const qos of levels) {
      for (const [payload, retain] of contents) {
        // MQTT.js sends no empty will.
        if (payload === "") continue;
        const will = { topic, payload: Buffer.from(payload), qos, retain };
        const client = await connectTo(broker, { protocolVersion, will });
        client.stream.destroy();
      }
    }
  }
}

for (const [isFailure, answers] of [
  [false, refusals],
  [true, failures],
] as const) {
  for (const [what, answer] of answers) {
    test(`what a hook that ${what} does not let pass reaches nobody and nothing`, async () => {
      let refusedCount = 0;
      const told: string[] = [];
      const decides: Hooks = {
        authorizePublish: (_client, { topic }) => {
          if (!topic.startsWith("no/")) return undefined;
          refusedCount++;
          return answer() as false;
        },
      };
      const hears: Hooks = {
        authorizePublish: (_client, { topic }) => void told.push(`asked ${topic}`),
        published: (_client, { topic }) => told.push(`published ${topic}`),
      };
      const settings = { mqtt: { hookTimeout: "20ms" } };
      const broker = await openBroker({ hooks: [decides, hears], settings });
      broker.on("published", (_client, { topic }) => told.push(`event ${topic}`));
      await broker.publish("no/a", "before", { retain: true });
      const everybody = await audience(broker);

      const cuts = await publishAll(broker, "no/a");
      await loseAll(broker, "no/will");
      const wills = versions.length * levels.length * 2;
      const publishes = versions.length * levels.length * contents.length;
      await expect.poll(() => refusedCount, { timeout: 20_000 }).toBe(publishes + wills);
      // Before MQTT 5 a failure cannot be told: acknowledged would be a lie.
      expect(cuts).toBe(isFailure ? 2 * contents.length : 0);
      await broker.publish("end", "");

      // Of three publishers: sorted.
      const all = ["end ", "yes 4", "yes 5"];
      const returned = Heard.of(beginConnect(broker, away));
      for (const [who, heard] of Object.entries({ ...everybody, returned })) {
        await expect
          .poll(() => heard.all.toSorted(), { timeout: 20_000, message: who })
          .toEqual(all);
      }
      const stored: string[] = [];
      for await (const { topic, payload } of broker.history("#"))
        stored.push(`${topic} ${payload}`);
      expect(stored.sort()).toEqual(all);
      expect((await broker.retained("no/a"))?.payload.toString()).toBe("before");
      expect(await broker.retained("no/will")).toBeUndefined();
      const once = ["asked yes", "published yes", "event yes"];
      expect(told).toEqual([...once, ...once]);
    });
  }
}
