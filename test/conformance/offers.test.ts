// A broker that is set to offer less than all of MQTT, and what it tells those who ask or must go.

import { describe, expect, test } from "vitest";
import { LaunchedBroker, sharedBroker } from "../support/launched-broker.ts";
import {
  connect,
  field,
  publish,
  publish5,
  subscribe4,
  subscribe5,
} from "../support/mqtt-bytes.ts";
import type { ProtocolLevel, RawClient } from "../support/raw-client.ts";

const broker = sharedBroker([
  ...["--set", "mqtt.maximumQos=1"],
  ...["--set", "mqtt.retainAvailable=false"],
  ...["--set", "mqtt.responseInformation=answers/here"],
  ...["--set", "mqtt.denySubscribeCode=unspecified"],
  ...["--set", "mqtt.clientIdBytesMax=30"],
]);

/** The reason of a refusal, which has no Session Present and ends the connection. */
async function refusalOf(sent: Uint8Array, level: ProtocolLevel = 5): Promise<number | undefined> {
  const client = await broker().raw(level);
  client.send(sent);
  const frames = await client.expectClosed();
  expect(frames.length).toBeLessThanOrEqual(1);
  const [connack] = frames;
  if (connack === undefined) return undefined;
  expect(connack.bytes[0]).toBe(0x20);
  expect(connack.bytes[2]).toBe(0);
  return connack.bytes[3];
}

async function subscribed(topic: string): Promise<RawClient> {
  const { client } = await broker().connect("watch", { level: 4 });
  client.send(subscribe4(1, [[topic, 2]]));
  await client.expectBytes("90 03 0001 01");
  return client;
}

const willOf = (level: 4 | 5, flags: number): Buffer =>
  connect({
    level,
    clientId: "will",
    flags: 0x06 | flags,
    rest: [level === 5 ? "00" : "", field("offers/will"), field("gone")],
  });

describe("without QoS 2", () => {
  test("[3.2.2-9] Maximum QoS is announced; a PUBLISH above it ends the connection", async () => {
    const { client, connack } = await broker().connect("maximum");
    expect(connack.properties?.maximumQoS).toBe(1);
    client.send(publish5("offers/a", "x", { qos: 1, id: 1 }));
    await client.expect("puback");
    client.send(publish5("offers/a", "x", { qos: 2, id: 2 }));
    await client.expectRefused(0x9b);
    const { client: old } = await broker().connect("maximum 4", { level: 4 });
    old.send(publish("offers/a", "x", { qos: 2, id: 2 }));
    await old.expectRefused(0x9b);
  });

  test("[3.2.2-10] SUBSCRIBE with QoS 2 is granted the maximum", async () => {
    const { client } = await broker().connect("grants");
    client.send(
      subscribe5(1, [
        ["offers/2", 2],
        ["offers/1", 1],
        ["offers/0", 0],
      ]),
    );
    await client.expectBytes("90 06 0001 00 01 01 00");
    client.send(publish5("offers/2", "x", { qos: 1, id: 9 }));
    await client.expect("puback");
    await client.expectBytes(publish5("offers/2", "x", { qos: 1, id: 1 }));
  });

  test("[3.2.2-12] a will above Maximum QoS is refused with 0x9B", async () => {
    const watch = await subscribed("offers/will");
    expect(await refusalOf(willOf(5, 0x10))).toBe(0x9b);
    expect(await refusalOf(willOf(4, 0x10), 4)).toBeUndefined();
    await watch.expectNothing();
  });
});

describe("without retained messages", () => {
  test("RETAIN 1 ends the connection with 0x9A, and nothing is kept or sent", async () => {
    const watch = await subscribed("offers/kept");
    const { client, connack } = await broker().connect("retains");
    expect(connack.properties?.retainAvailable).toBe(false);
    client.send(publish5("offers/kept", "x", { retain: true }));
    await client.expectRefused(0x9a);
    const { client: old } = await broker().connect("retains 4", { level: 4 });
    old.send(publish("offers/kept", "x", { retain: true }));
    await old.expectRefused(0x9a);
    await watch.expectNothing();
  });

  test("[3.2.2-13] a retained will is refused with 0x9A", async () => {
    const watch = await subscribed("offers/will");
    expect(await refusalOf(willOf(5, 0x20))).toBe(0x9a);
    expect(await refusalOf(willOf(4, 0x20), 4)).toBeUndefined();
    await watch.expectNothing();
  });
});

test("[3.1.2-28] Response Information comes exactly when asked for", async () => {
  const informed = async (asked: boolean | undefined): Promise<string | undefined> => {
    const properties = asked === undefined ? {} : { requestResponseInformation: asked };
    const { connack } = await broker().connect("ri", { connect: { properties } });
    return connack.properties?.responseInformation;
  };
  expect(await informed(true)).toBe("answers/here");
  expect(await informed(false)).toBeUndefined();
  expect(await informed(undefined)).toBeUndefined();
});

test("[3.8.4-7] a filter without rights can be answered with 0x80", async () => {
  const { client } = await broker().connect("denied");
  client.send(subscribe5(1, [["$internal/#", 0]]));
  await client.expectBytes("90 04 0001 00 80");
});

test("a will is subject to the rights of its publisher: 0x87, in 3.1.1 0x05", async () => {
  for (const [level, code] of [
    [5, 0x87],
    [4, 0x05],
  ] as const) {
    const rest = [level === 5 ? "00" : "", field("$SYS/will"), field("gone")];
    expect(await refusalOf(connect({ level, flags: 0x06, rest }), level)).toBe(code);
  }
});

test("[3.2.2-8] refusals have a reason of the list, in 3.1.1 1 to 5 or none", async () => {
  const listed = [
    0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x8c, 0x90, 0x95, 0x97, 0x99,
    0x9a, 0x9b, 0x9c, 0x9d, 0x9f,
  ];
  const faults = [
    connect({ flags: 0x01 }),
    connect({ flags: 0x06 }),
    connect({ clientId: "x".repeat(31) }),
    connect({ properties: "15 0001 6d" }),
    connect({ properties: "16 0001 6d" }),
    connect({ properties: "21 0000" }),
    connect({ properties: "26 0001 61 0001 62".repeat(65) }),
    connect({ flags: 0x06, rest: ["00", field("a/#"), field("")] }),
    willOf(5, 0x10),
    willOf(5, 0x20),
  ];
  for (const fault of faults) expect(listed).toContain(await refusalOf(fault));
  for (const sent of [
    connect({ level: 4, clientId: "", clean: false }),
    connect({ level: 4, clientId: "x".repeat(31) }),
    connect({ level: 4, flags: 0x01 }),
    connect({ level: 4, flags: 0x06, rest: [field("$SYS/x"), field("")] }),
  ]) {
    expect([1, 2, 3, 4, 5, undefined]).toContain(await refusalOf(sent, 4));
  }
});

test("[3.2.2-20] nothing optional makes CONNACK larger than the client's maximum", async () => {
  const refused = connect({ properties: "27 00000014 15 0001 6d" });
  const client = await broker().raw(5);
  client.send(refused);
  const [connack] = await client.expectClosed();
  expect(connack?.bytes[3]).toBe(0x8c);
  expect(connack?.bytes.length).toBeLessThanOrEqual(20);
});

test("Server Reference comes with 0x9C: clients of a broker that stops are sent to the other", async () => {
  await using own = await LaunchedBroker.open(["--set", "mqtt.serverReference=b.example:1883"]);
  const { client: five, connack } = await own.connect("five");
  const { client: four } = await own.connect("four", { level: 4 });
  expect(connack.properties?.serverReference).toBeUndefined();
  await own.end("stop");
  const text = Buffer.from("b.example:1883").toString("hex");
  await five.expectBytes(`e0 13 9c 11 1c 000e ${text}`);
  expect(await five.expectClosed()).toEqual([]);
  expect(await four.expectClosed()).toEqual([]);
});
