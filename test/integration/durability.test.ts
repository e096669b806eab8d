// Acked means durable, seen from outside: between the arrival of a packet at an idle broker and the
// answer that promises something, the broker has synced a file. (docs/testing.md, From outside.)

import { afterEach, beforeAll, expect, test } from "vitest";
import { LaunchedBroker } from "../support/launched-broker.ts";
import { publish, pubrel, subscribe4, unsubscribe4 } from "../support/mqtt-bytes.ts";
import { pause } from "../support/numbered-run.ts";
import type { RawClient } from "../support/raw-client.ts";
import { syncsBetween, traceProcess } from "../support/strace.ts";

let broker: LaunchedBroker;

beforeAll(async () => {
  broker = await LaunchedBroker.open();
  return () => broker[Symbol.asyncDispose]();
});
afterEach(async () => {
  await broker.closeClients();
});

/** Longer than anything that the broker still writes on its own behind the last request. */
const idleMs = 1500;

async function syncsFor(client: RawClient, sent: Buffer, answer: string): Promise<number> {
  await pause(idleMs);
  const trace = await traceProcess(broker.process.pid);
  client.send(sent);
  await client.expectBytes(answer, 20_000);
  const calls = await trace.stop();
  const count = syncsBetween(calls, sent, Buffer.from(answer.replaceAll(" ", ""), "hex"));
  if (count === undefined) throw new Error("strace saw neither request nor answer");
  return count;
}

async function subscribedElsewhere(topic: string): Promise<void> {
  const { client } = await broker.resume(`reader of ${topic}`, { level: 4 });
  client.send(subscribe4(1, [[topic, 1]]));
  await client.expect("suback");
  await client.close();
}

test("a sync lies between the last PUBLISH of an idle client and its PUBACK", async () => {
  await subscribedElsewhere("d/1");
  const { client } = await broker.connect("publisher", { level: 4 });
  const sent = publish("d/1", "the last one", { qos: 1, id: 0x1234 });
  expect(await syncsFor(client, sent, "40 02 1234")).toBeGreaterThanOrEqual(1);
});

test("a retained message is synced before its PUBACK, also when nobody reads it", async () => {
  const { client } = await broker.connect("publisher", { level: 4 });
  const sent = publish("d/retained", "the last one", { qos: 1, id: 0x1235, retain: true });
  expect(await syncsFor(client, sent, "40 02 1235")).toBeGreaterThanOrEqual(1);
});

test("QoS 2 of a durable publisher: a sync before PUBREC and one before PUBCOMP", async () => {
  const { client } = await broker.resume("durable publisher", { level: 4 });
  const sent = publish("d/2", "the last one", { qos: 2, id: 0x1236 });
  expect(await syncsFor(client, sent, "50 02 1236")).toBeGreaterThanOrEqual(1);
  expect(await syncsFor(client, pubrel(0x1236), "70 02 1236")).toBeGreaterThanOrEqual(1);
});

test("SUBACK and UNSUBACK of a durable session are promises too", async () => {
  const { client } = await broker.resume("durable subscriber", { level: 4 });
  const sent = subscribe4(0x1237, [["d/3", 1]]);
  expect(await syncsFor(client, sent, "90 03 1237 01")).toBeGreaterThanOrEqual(1);
  const unsubscribed = unsubscribe4(0x1238, ["d/3"]);
  expect(await syncsFor(client, unsubscribed, "b0 02 1238")).toBeGreaterThanOrEqual(1);
});

test("what promises nothing costs no sync: a QoS 1 message that nobody durable wants", async () => {
  const { client } = await broker.connect("publisher", { level: 4 });
  const sent = publish("d/nobody", "the last one", { qos: 1, id: 0x1239 });
  expect(await syncsFor(client, sent, "40 02 1239")).toBe(0);
});
