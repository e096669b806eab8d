// What operators may set, and what clients are told of it; the end of the broker.

import { expect, test } from "vitest";
import { LaunchedBroker, sharedBroker } from "../support/launched-broker.ts";
import {
  connect,
  field,
  properties,
  publish,
  publish5,
  subscribe4,
} from "../support/mqtt-bytes.ts";

const broker = sharedBroker([
  ...["--set", "mqtt.keepAliveMax=2s"],
  ...["--set", "mqtt.refuseControlCharacters=true"],
  ...["--set", "mqtt.topicAliasMaximum=0"],
]);

test("[3.1.2-21] Server Keep Alive in CONNACK overrides the client's value", async () => {
  const { client, connack } = await broker().connect("longer", { connect: { keepalive: 60 } });
  expect(connack.properties?.serverKeepAlive).toBe(2);
  const off = await broker().connect("off", { connect: { keepalive: 0 } });
  expect(off.connack.properties?.serverKeepAlive).toBe(2);
  const shorter = await broker().connect("shorter", { connect: { keepalive: 1 } });
  expect(shorter.connack.properties?.serverKeepAlive).toBeUndefined();
  // A 3.1.1 client cannot be told: it is timed by its own value.
  const old = await broker().connect("old", { level: 4, connect: { keepalive: 60 } });
  await shorter.client.expectRefused(0x8d);
  await client.expectRefused(0x8d);
  await old.client.expectSilence(1000);
});

test("[1.5.4-2] control characters are refused where that is set", async () => {
  for (const text of ["a\u0001", "a\u001f", "a\u007f", "a\u009f"]) {
    const { client } = await broker().connect("control");
    client.send(publish5(text, "x"));
    const [answer] = await client.expectClosed();
    expect(answer?.bytes[2]).toBeGreaterThanOrEqual(0x80);
  }
});

test("[3.2.2-18] without topic aliases none is announced, and any is refused with 0x94", async () => {
  const { client, connack } = await broker().connect("alias");
  expect(connack.properties?.topicAliasMaximum ?? 0).toBe(0);
  client.send(publish5("a", "x", { properties: "23 0001" }));
  await client.expectRefused(0x94);
});

test("[3.1.2-8] [3.1.3-9] Will Delay: waits, is cancelled by a return, ends with the session", async () => {
  const { client: watch } = await broker().connect("watch", { level: 4 });
  watch.send(subscribe4(1, [["will/#", 0]]));
  await watch.expect("suback");
  const drop = async (clientId: string, delayS: number, expiryS: number): Promise<void> => {
    const client = await broker().raw();
    const will = [properties(`18 0000000${delayS}`), field(`will/${clientId}`), field("gone")];
    const expiry = `11 0000000${expiryS}`;
    client.send(connect({ clientId, properties: expiry, flags: 0x06, rest: will }));
    await client.expect("connack");
    client.drop();
  };
  // Session Expiry 0 with a larger delay: at once.
  await drop("at-once", 5, 0);
  await watch.expectBytes(publish("will/at-once", "gone"));
  const started = performance.now();
  await drop("delayed", 1, 9);
  await drop("returns", 1, 9);
  await drop("session-end", 9, 2);
  await broker().connect("returns", { clean: false, expiryS: 60 });
  await watch.expectBytes(publish("will/delayed", "gone"));
  expect(performance.now() - started).toBeGreaterThan(950);
  // Whichever comes first.
  await watch.expectBytes(publish("will/session-end", "gone"));
  expect(performance.now() - started).toBeGreaterThan(1950);
  await watch.expectNothing();
});

test("a broker that stops says 0x8B to MQTT 5 clients and closes the others", async () => {
  await using own = await LaunchedBroker.open();
  const { client: five } = await own.connect("five");
  const { client: four } = await own.connect("four", { level: 4 });
  await own.end("stop");
  await five.expectBytes("e0 01 8b");
  expect(await five.expectClosed()).toEqual([]);
  expect(await four.expectClosed()).toEqual([]);
});
