// Session state over a restart of the broker: all of it is durable before it is acknowledged, so an
// orderly stop and kill -9 are alike.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { LaunchedBroker } from "../support/launched-broker.ts";
import {
  connect,
  field,
  properties,
  publish,
  publish5,
  pubrec,
  pubrel,
  subscribe4,
  subscribe5,
} from "../support/mqtt-bytes.ts";
import { pause } from "../support/numbered-run.ts";
import type { RawClient } from "../support/raw-client.ts";

const userProperties = "26 0001 62 0001 31 26 0001 61 0001 32";

describe.each(["stop", "kill"] as const)("after a %s", (end) => {
  let broker: LaunchedBroker;
  let watch: RawClient;

  beforeAll(async () => {
    broker = await LaunchedBroker.open(["--set", "mqtt.restartGrace=1s"]);
    await prepare(broker);
    await broker.restart(end);
    watch = (await broker.connect("watch", { level: 4 })).client;
    watch.send(subscribe4(1, [["will/#", 0]]));
    await watch.expect("suback");
  });
  afterAll(async () => {
    await broker[Symbol.asyncDispose]();
  });

  test("[4.1.0-2] the expiry clock runs from the close, over the restart", async () => {
    const { connack } = await broker.connect("lasts", { clean: false });
    expect(connack.sessionPresent).toBe(true);
    // One second of expiry and one of grace.
    await pause(2500);
    const expired = await broker.connect("expires", { clean: false });
    expect(expired.connack.sessionPresent).toBe(false);
  });

  test("[3.1.3-9] [3.1.2-8] a pending delayed will survives", async () => {
    const got = await watch.expect("publish", 10_000);
    expect([got.topic, got.payload.toString()]).toEqual(["will/delayed", "gone"]);
    await watch.expectNothing();
  });

  test("[3.8.3-3] [3.3.4-3] options and identifier of a subscription survive", async () => {
    const { client } = await broker.resume("options");
    client.send(publish5("options", "own", { qos: 1, id: 1 }));
    await client.expect("puback");
    const { client: other } = await broker.connect("other");
    other.send(publish5("options", "x", { qos: 1, id: 1, retain: true }));
    await other.expect("puback");
    const { bytes: got } = await client.next();
    // RETAIN as published, the identifier, and nothing of our own before it.
    expect((got[0] as number) & 0x01).toBe(1);
    expect(got.toString("hex")).toContain(`${properties("0b07").toString("hex")}78`);
    await client.expectNothing();
  });

  test("[3.3.2-6] [3.3.2-17] a queued message has its properties, its expiry runs on", async () => {
    const { client } = await broker.resume("queued");
    const got = await client.expect("publish");
    expect(got.topic).toBe("queued/lasting");
    expect(got.properties?.userProperties).toEqual({ a: "2", b: "1" });
    const left = got.properties?.messageExpiryInterval ?? 0;
    expect(left).toBeGreaterThan(0);
    expect(left).toBeLessThan(60);
    await client.expectNothing();
  });

  test("[4.3.3-10] identifiers of QoS 2 messages from a client survive", async () => {
    const { client } = await broker.resume("sender");
    client.send(publish5("queued/twice", "x", { qos: 2, id: 9, dup: true }));
    await client.expectBytes(pubrec(9));
    client.send(pubrel(9));
    await client.expectBytes("70 02 0009");
    const { client: reader } = await broker.resume("reader", { level: 4 });
    const got = await reader.expect("publish");
    expect(got.payload.toString()).toBe("x");
    await reader.expectNothing();
  });

  test("[3.3.1-5] retained messages survive with their properties", async () => {
    const { client } = await broker.connect("late");
    client.send(subscribe5(1, [["kept", 1]]));
    await client.expect("suback");
    const wanted = { qos: 1, id: 1, retain: true, properties: userProperties } as const;
    await client.expectBytes(publish5("kept", "x", wanted));
    client.send(subscribe5(2, [["removed", 1]]));
    await client.expect("suback");
    await client.expectSilence(150);
  });

  test("[3.10.4-2] a subscription that was removed does not come back", async () => {
    const { client, connack } = await broker.resume("unsubscribed", { level: 4 });
    expect(connack.sessionPresent).toBe(true);
    const { client: other } = await broker.connect("other", { level: 4 });
    other.send(publish("unsubscribed", "x", { qos: 1, id: 1 }));
    await other.expect("puback");
    await client.expectNothing();
  });

  test("[3.1.2-4] a session that was discarded does not come back", async () => {
    const { connack } = await broker.resume("discarded", { level: 4 });
    expect(connack.sessionPresent).toBe(false);
  });
});

/** Everything that the tests look for, acknowledged. */
async function prepare(broker: LaunchedBroker): Promise<void> {
  for (const [clientId, filter, options, identifier] of [
    ["options", "options", 0x0d, "0b 07"],
    ["queued", "queued/+", 0x01, ""],
    ["reader", "queued/twice", 0x00, ""],
    ["unsubscribed", "unsubscribed", 0x01, ""],
    ["discarded", "discarded", 0x01, ""],
    ["lasts", "lasts", 0x01, ""],
  ] as const) {
    // QoS 0 would be dropped for an absent session.
    const qos = clientId === "reader" ? 0x02 : options;
    const { client } = await broker.resume(clientId);
    client.send(subscribe5(1, [[filter, qos]], identifier));
    await client.expect("suback");
    if (clientId === "unsubscribed") {
      client.send("a2 11 0002 00 000c 756e73756273637269626564");
      await client.expect("unsuback");
    }
    await client.close();
  }
  await (await broker.connect("discarded")).client.close();
  await (await broker.connect("expires", { clean: false, expiryS: 1 })).client.close();

  const { client: publisher } = await broker.connect("publisher");
  const send = async (topic: string, props: string, retain = false, text = "x") => {
    publisher.send(publish5(topic, text, { qos: 1, id: 1, properties: props, retain }));
    await publisher.expect("puback");
  };
  await send("kept", userProperties, true);
  await send("removed", "", true);
  await send("removed", "", true, "");
  const { client: sender } = await broker.resume("sender");
  sender.send(publish5("queued/twice", "x", { qos: 2, id: 9 }));
  await sender.expectBytes(pubrec(9));
  // The queue of the session that reads them all is only the lasting one.
  const { client: queued } = await broker.resume("queued");
  const { messageId = 0 } = await queued.expect("publish");
  queued.send(Buffer.from([0x40, 0x02, messageId >> 8, messageId & 0xff]));
  await queued.expectNothing();
  queued.send("e000");
  await queued.expectClosed();
  await send("queued/short", "02 00000001");
  await send("queued/lasting", `02 0000003c ${userProperties}`);

  const will = [properties("18 00000002"), field("will/delayed"), field("gone")];
  const client = await broker.raw();
  const parts = { clientId: "will", properties: "11 0000003c", flags: 0x04, rest: will };
  client.send(connect(parts));
  await client.expect("connack");
  client.drop();
  // Long enough for the broker to see the end, shorter than the delay.
  await pause(1000);
}
