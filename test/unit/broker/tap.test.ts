import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { expect, test } from "vitest";
import { messageChannelName, Tap, type TapEvent } from "../../../src/broker/tap.ts";
import { BrokerWorld } from "../../support/broker-world.ts";

/** Everything a client may do, with a secret wherever one can be. */
async function conversation(world: BrokerWorld): Promise<void> {
  const s = await world.connect("s", {
    ...{ userName: "alice", password: Buffer.from("hidden-password") },
    properties: { sessionExpiryS: 60, userProperties: [["k", "hidden-property"]] },
    will: {
      ...{ topic: "gone/s", payload: Buffer.from("hidden-will"), qos: 1, retain: false },
      properties: {},
    },
  });
  s.subscribe("a/+", { qos: 1 });
  await world.advance(200);
  s.publish("a/1", "hidden-payload", { qos: 1, id: 7 });
  await world.advance(200);
  s.ack("puback", 1);
  s.publish("b", "", { qos: 0 });
  await world.advance(200);
  s.drop();
  await world.advance(200);
}

test("who watches is told all that a client does, in order, without payloads and secrets", async () => {
  const world = await BrokerWorld.start();
  const seen: TapEvent[] = [];
  world.broker.tap.listen((event) => seen.push(event));
  await conversation(world);
  const lines = seen
    .filter(({ clientId }) => clientId === "s")
    .map(({ event, topic }) => (topic === undefined ? event : `${event} ${topic}`));
  expect(lines).toEqual([
    ...["connect", "connected", "subscribe", "suback", "publish a/1", "answer", "deliver a/1"],
    ...["ack", "publish b", "ended"],
  ]);
  const of = (name: string) => seen.find(({ event }) => event === name)?.facts;
  expect(of("connect")).toMatchObject({ protocol: 5, expiryS: 60, willTopic: "gone/s" });
  expect(of("subscribe")).toMatchObject({ filters: ["1 a/+"] });
  expect(of("suback")).toMatchObject({ reasons: ["granted_qos_1"] });
  expect(of("publish")).toMatchObject({ qos: 1, packetId: 7, retain: false });
  expect(of("answer")).toEqual({ reason: "success" });
  expect(of("deliver")).toMatchObject({ result: "sent", qos: 1, packetId: 1 });
  expect(of("ack")).toEqual({ packet: "PUBACK", packetId: 1, reason: "success" });
  expect(of("ended")).toMatchObject({ cause: "transport", publishWill: true });
  expect(JSON.stringify(seen)).not.toContain("hidden");
});

test("who stops watching is told no more, and then nothing is made for nobody", async () => {
  const world = await BrokerWorld.start();
  const seen: TapEvent[] = [];
  const end = world.broker.tap.listen((event) => seen.push(event));
  end();
  expect(world.broker.tap.watchesMessages).toBe(false);
  await conversation(world);
  expect(seen).toEqual([]);
});

test("a program that subscribes to the diagnostics channel gets what passes", () => {
  const tap = new Tap();
  const seen: unknown[] = [];
  const listener = (message: unknown): void => {
    seen.push(message);
  };
  const event: TapEvent = { event: "publish", clientId: "c", topic: "t", facts: { qos: 0 } };
  subscribe(messageChannelName, listener);
  try {
    expect([tap.watchesMessages, tap.watchesConnections]).toEqual([true, false]);
    tap.ofMessage(event);
  } finally {
    unsubscribe(messageChannelName, listener);
  }
  expect(tap.watchesMessages).toBe(false);
  expect(seen).toEqual([event]);
});
