// Topic aliases, both ways.

import { describe, expect, test } from "vitest";
import { sharedBroker } from "../support/launched-broker.ts";
import { publish, publish5, subscribe4, subscribe5, u16 } from "../support/mqtt-bytes.ts";
import type { ProtocolLevel, RawClient } from "../support/raw-client.ts";

const broker = sharedBroker();
const protocolError = 0x82;

async function connected(clientId: string, level: ProtocolLevel = 4): Promise<RawClient> {
  return (await broker().connect(clientId, { level })).client;
}

async function subscribed(filter: string, qos: 0 | 1 | 2, level: 4 | 5 = 4): Promise<RawClient> {
  const client = await connected("subscriber", level);
  client.send(level === 5 ? subscribe5(1, [[filter, qos]]) : subscribe4(1, [[filter, qos]]));
  await client.expect("suback");
  return client;
}

/** A durable one, for what passes through the store. */
async function durable(filter: string, qos: 0 | 1 | 2, level: 4 | 5 = 4): Promise<RawClient> {
  const { client } = await broker().connect(`durable ${filter}`, { level, clean: false });
  client.send(level === 5 ? subscribe5(1, [[filter, qos]]) : subscribe4(1, [[filter, qos]]));
  await client.expect("suback");
  return client;
}

describe("topic aliases", () => {
  const alias = (n: number): string => `23 ${u16(n).toString("hex")}`;

  test("[3.3.2-12] every alias from 1 to the announced maximum; they may be mapped anew", async () => {
    const subscriber = await subscribed("alias/#", 0);
    const client = await connected("p", 5);
    for (let n = 1; n <= 16; n++) {
      client.send(publish5(`alias/${n}`, "x", { properties: alias(n) }));
      client.send(publish5("", "y", { properties: alias(n) }));
      await subscriber.expectBytes(publish(`alias/${n}`, "x"));
      await subscriber.expectBytes(publish(`alias/${n}`, "y"));
    }
    client.send(publish5("alias/again", "x", { properties: alias(1) }));
    client.send(publish5("", "y", { properties: alias(1) }));
    await subscriber.expectBytes(publish("alias/again", "x"));
    await subscriber.expectBytes(publish("alias/again", "y"));
  });

  test.each([0, 17, 65535])("[3.3.2-8] alias %d ends the connection with 0x94", async (n) => {
    const client = await connected("p", 5);
    client.send(publish5("a", "x", { properties: alias(n) }));
    await client.expectRefused(0x94);
  });

  test("an unknown alias with an empty topic is a protocol error", async () => {
    const client = await connected("p", 5);
    client.send(publish5("", "x", { properties: alias(3) }));
    await client.expectRefused(protocolError);
  });

  test("[3.3.2-7] aliases end with their connection; a stored copy has its whole topic", async () => {
    const subscriber = await durable("alias7", 1);
    const { client } = await broker().resume("aliaser");
    client.send(publish5("alias7", "x", { qos: 1, id: 1, properties: alias(1) }));
    client.send(publish5("", "y", { qos: 1, id: 2, properties: alias(1) }));
    await subscriber.expectBytes(publish("alias7", "x", { qos: 1, id: 1 }));
    await subscriber.expectBytes(publish("alias7", "y", { qos: 1, id: 2 }));
    await client.close();
    const { client: again } = await broker().resume("aliaser");
    again.send(publish5("", "z", { qos: 1, id: 3, properties: alias(1) }));
    await again.expectRefused(protocolError);
  });

  test("[3.1.2-26] [3.1.2-27] [3.3.2-11] none to a client that allows none", async () => {
    const subscriber = await subscribed("out-alias", 0, 5);
    const client = await connected("p");
    for (let n = 0; n < 3; n++) {
      client.send(publish("out-alias", "x"));
      await subscriber.expectBytes(publish5("out-alias", "x"));
    }
  });

  test("[3.1.2-26] never above the client's maximum, used from the first PUBLISH", async () => {
    const { client: subscriber } = await broker().connect("aliases out", {
      connect: { properties: { topicAliasMaximum: 2 } },
    });
    subscriber.send(subscribe5(1, [["oa/#", 0]]));
    await subscriber.expect("suback");
    const client = await connected("p");
    const topics = new Map<number, string>();
    for (let n = 0; n < 12; n++) {
      const topic = `oa/${n % 3}`;
      client.send(publish(topic, `${n}`));
      const got = await subscriber.expect("publish");
      const used = got.properties?.topicAlias;
      if (used !== undefined) {
        expect(used).toBeGreaterThanOrEqual(1);
        expect(used).toBeLessThanOrEqual(2);
        if (got.topic !== "") topics.set(used, got.topic.toString());
      }
      expect(got.topic === "" ? topics.get(used as number) : got.topic).toBe(topic);
    }
    expect(topics.size).toBeGreaterThan(0);
  });
});
