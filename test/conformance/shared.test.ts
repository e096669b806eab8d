// Shared subscriptions (4.8.2).

import { describe, expect, test, vi } from "vitest";
import { LaunchedBroker, sharedBroker } from "../support/launched-broker.ts";
import {
  field,
  packet,
  puback,
  pubcomp,
  publish,
  publish5,
  pubrec,
  pubrel,
  subscribe4,
  subscribe5,
  unsubscribe5,
} from "../support/mqtt-bytes.ts";
import type { RawClient } from "../support/raw-client.ts";

const broker = sharedBroker();
const malformed = 0x81;
const protocolError = 0x82;
const noLocal = 0x04;

let count = 0;

/** A topic of its own for each test. */
function newTopic(): string {
  count++;
  return `shared/${count}`;
}

async function member(
  clientId: string,
  topic: string,
  options: { qos?: 0 | 1 | 2; durable?: boolean; group?: string; subscriptionId?: string } = {},
): Promise<RawClient> {
  const { qos = 1, durable = false, group = "g", subscriptionId = "" } = options;
  const { client } = await broker().connect(clientId, durable ? { expiryS: 600 } : {});
  client.send(subscribe5(1, [[`$share/${group}/${topic}`, qos]], subscriptionId));
  await client.expectBytes(`90 04 0001 00 0${qos}`);
  return client;
}

async function publishAll(topic: string, payloads: readonly string[], qos: 0 | 1 | 2 = 1) {
  const { client } = await broker().connect(`p ${topic}`, { level: 4 });
  for (const [index, payload] of payloads.entries()) {
    const id = index + 1;
    client.send(publish(topic, payload, { qos, id: qos === 0 ? 0 : id }));
    if (qos === 1) await client.expectBytes(puback(id));
    if (qos === 2) {
      await client.expectBytes(pubrec(id));
      client.send(pubrel(id));
      await client.expectBytes(pubcomp(id));
    }
  }
  await client.close();
}

async function take(client: RawClient, ack = true): Promise<string> {
  const { payload, messageId, qos } = await client.expect("publish");
  if (qos === 1 && ack) client.send(puback(messageId!));
  return payload.toString();
}

describe("the filter", () => {
  test("CONNACK says that there are shared subscriptions by saying nothing", async () => {
    const { connack } = await broker().connect("offer");
    expect(connack.properties?.sharedSubscriptionAvailable ?? true).toBe(true);
  });

  test("[4.8.2-1] [4.8.2-2] has a group name without wildcards and a filter: else malformed", async () => {
    const broken = ["$share/g", "$share/g/", "$share//t", "$share/", "$share/g+/t", "$share/#/t"];
    for (const filter of broken) {
      const { client } = await broker().connect("broken");
      client.send(subscribe5(1, [[filter, 0]]));
      await client.expectRefused(malformed);
    }
  });

  test("[3.8.3-4] No Local on it is a protocol error", async () => {
    const { client } = await broker().connect("no local");
    client.send(packet("82", "0001 00", field("$share/g/t"), `0${noLocal}`));
    await client.expectRefused(protocolError);
  });

  test("3.1.1 clients may use it too", async () => {
    const topic = newTopic();
    const { client } = await broker().connect("old", { level: 4 });
    client.send(subscribe4(1, [[`$share/g/${topic}`, 1]]));
    await client.expectBytes("90 03 0001 01");
    await publishAll(topic, ["m"]);
    expect(await take(client)).toBe("m");
  });

  test("UNSUBSCRIBE names it whole: 0x00, then 0x11", async () => {
    const topic = newTopic();
    const client = await member("leaver", topic);
    client.send(unsubscribe5(2, [topic]));
    await client.expectBytes("b0 04 0002 00 11");
    client.send(unsubscribe5(3, [`$share/g/${topic}`]));
    await client.expectBytes("b0 04 0003 00 00");
    await publishAll(topic, ["m"]);
    await client.expectNothing();
  });
});

for (const durable of [false, true]) {
  describe(durable ? "with durable members" : "with members that keep nothing", () => {
    const name = durable ? "d" : "l";

    test("a message goes to one member of each group, with its identifier", async () => {
      const topic = newTopic();
      const a = await member(`${name}a ${topic}`, topic, { durable, subscriptionId: "0b 07" });
      const b = await member(`${name}b ${topic}`, topic, { durable, group: "other" });
      await publishAll(topic, ["m"]);
      expect((await a.expect("publish")).properties?.subscriptionIdentifier).toBe(7);
      expect((await b.expect("publish")).properties?.subscriptionIdentifier).toBeUndefined();
      await a.expectNothing();
      await b.expectNothing();
    });

    test("[4.8.2-3] each member gets it at its own granted QoS", async () => {
      const topic = newTopic();
      const clients = [];
      for (const qos of [0, 1, 2] as const) {
        clients.push(await member(`${name}${qos} ${topic}`, topic, { durable, qos }));
      }
      await publishAll(topic, ["1", "2", "3"], 2);
      const granted = [];
      for (const client of clients) granted.push((await client.expect("publish")).qos);
      expect(granted).toEqual([0, 1, 2]);
    });

    test("no retained message comes because of a shared subscription", async () => {
      const topic = newTopic();
      const { client: p } = await broker().connect(`p ${topic}`);
      p.send(publish5(topic, "kept", { qos: 1, id: 1, retain: true }));
      await p.expect("puback");
      const a = await member(`${name}r ${topic}`, topic, { durable });
      await a.expectNothing();
      await publishAll(topic, ["live"]);
      expect(await take(a)).toBe("live");
    });

    test("[4.8.2-4] [4.8.2-5] at QoS 2 a message is completed by the member that has it, or by nobody", async () => {
      const topic = newTopic();
      const a = await member(`${name}x ${topic}`, topic, { durable, qos: 2 });
      await publishAll(topic, ["m"], 2);
      const { messageId } = await a.expect("publish");
      const b = await member(`${name}y ${topic}`, topic, { durable, qos: 2 });
      a.drop();
      await b.expectSilence(300);
      if (!durable) return;
      const { client: again } = await broker().resume(`${name}x ${topic}`, { expiryS: 600 });
      const resent = await again.expect("publish");
      expect([resent.messageId, resent.dup]).toEqual([messageId, true]);
      again.send(pubrec(messageId!));
      await again.expectBytes(pubrel(messageId!));
      again.send(pubcomp(messageId!));
      await again.expectNothing();
      await b.expectNothing();
    });

    test("[4.8.2-6] what a member refuses by PUBACK or PUBREC is done with", async () => {
      const topic = newTopic();
      const a = await member(`${name}n ${topic}`, topic, { durable, qos: 2 });
      await publishAll(topic, ["1"], 1);
      const first = await a.expect("publish");
      a.send(packet("40", `000${first.messageId} 97`));
      await publishAll(topic, ["2"], 2);
      const second = await a.expect("publish");
      a.send(packet("50", `000${second.messageId} 97`));
      await a.expectNothing();
      const b = await member(`${name}o ${topic}`, topic, { durable, qos: 2 });
      a.drop();
      await b.expectSilence(300);
    });

    test("what a member that left had not acked at QoS 1 goes to another", async () => {
      const topic = newTopic();
      const a = await member(`${name}f ${topic}`, topic, { durable });
      await publishAll(topic, ["m"]);
      expect(await take(a, false)).toBe("m");
      const b = await member(`${name}s ${topic}`, topic, { durable });
      a.drop();
      expect(await take(b)).toBe("m");
    });
  });
}

test("[3.1.2-25] what is too large for one member goes to another", async () => {
  const topic = newTopic();
  const { client: small } = await broker().connect("small", {
    connect: { properties: { maximumPacketSize: 60 } },
  });
  small.send(subscribe5(1, [[`$share/g/${topic}`, 1]]));
  await small.expect("suback");
  const large = await member("large", topic);
  const payloads = ["1", "x".repeat(100), "y".repeat(100), "2"];
  await publishAll(topic, payloads);
  const got = [await take(large), await take(large)];
  expect(got).toEqual(payloads.slice(1, 3));
  expect([await take(small), await take(small)]).toEqual(["1", "2"]);
});

test("strategies: with hash_topic a topic stays with one member", async () => {
  await using own = await LaunchedBroker.open(["--set", "sessions.sharedStrategy=hash_topic"]);
  const clients: RawClient[] = [];
  for (const clientId of ["a", "b", "c"]) {
    const { client } = await own.connect(clientId);
    client.send(subscribe5(1, [["$share/g/h/#", 0]]));
    await client.expect("suback");
    clients.push(client);
  }
  const { client: p } = await own.connect("p");
  for (let n = 0; n < 60; n++) p.send(publish5(`h/${n % 6}`, `${n}`, {}));
  await p.expectNothing();
  const owners = new Map<string, Set<number>>();
  let total = 0;
  for (const [index, client] of clients.entries()) {
    client.handle(({ packet }) => {
      if (packet?.cmd !== "publish") return;
      total++;
      const known = owners.get(packet.topic) ?? new Set();
      owners.set(packet.topic, known.add(index));
    });
  }
  await vi.waitFor(() => expect(total).toBe(60));
  for (const members of owners.values()) expect(members.size).toBe(1);
});
