// Faults that users of MQTT brokers have met, against the launched broker (docs/reported-faults.md):
// durable sessions over a restart and a kill -9.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isLong } from "../../support/amount.ts";
import { type End, LaunchedBroker } from "../../support/launched-broker.ts";
import { publish, publish5, subscribe4, subscribe5 } from "../../support/mqtt-bytes.ts";
import { numbers, pause, publishNumbered, Receiver } from "../../support/numbered-run.ts";
import { RawClient } from "../../support/raw-client.ts";

type Level = 4 | 5;
const ways = (["stop", "kill"] as const).flatMap((end) =>
  ([4, 5] as const).map((level) => [end, level] as [End, Level]),
);

async function subscribe(client: RawClient, filter: string, qos: 0 | 1 | 2): Promise<void> {
  const filters = [[filter, qos]] as const;
  client.send(client.level === 5 ? subscribe5(1, filters) : subscribe4(1, filters));
  const { granted } = await client.expect("suback");
  expect(granted).toEqual([qos]);
}

/** A durable session with one subscription to the topic of its name, left again. */
async function leaveBehind(
  broker: LaunchedBroker,
  level: Level,
  name: string,
  qos: 0 | 1 | 2,
): Promise<void> {
  const { client } = await broker.resume(name, { level });
  await subscribe(client, name, qos);
  await client.close();
}

type Numbered = { readonly count: number; readonly qos: 1 | 2; readonly first?: number };

async function publishTo(
  broker: LaunchedBroker,
  level: Level,
  topic: string,
  numbered: Numbered,
): Promise<void> {
  const { client } = await broker.connect("p", { level });
  await publishNumbered(client, { topic, ...numbered });
  await client.close();
}

/** A durable session that got so many messages and acked none. */
async function deliverUnacked(
  broker: LaunchedBroker,
  level: Level,
  name: string,
  count: number,
): Promise<number[]> {
  const { client } = await broker.resume(name, { level });
  await subscribe(client, name, 1);
  await publishTo(broker, level, name, { count, qos: 1 });
  const ids: number[] = [];
  for (let n = 0; n < count; n++) ids.push((await client.expect("publish")).messageId as number);
  return ids;
}

// One broker and one end of it serve all tests of a way: what each needs is made before.
describe.each(ways)("%s of the broker, MQTT level %i", (end, level) => {
  const form = level === 5 ? publish5 : publish;
  let broker: LaunchedBroker;
  let ids: number[] = [];

  beforeAll(async () => {
    broker = await LaunchedBroker.open();
    await leaveBehind(broker, level, "r1", 2);
    await leaveBehind(broker, level, "r7", 2);
    await leaveBehind(broker, level, "r7-again", 2);
    await leaveBehind(broker, level, "r15", 0);
    const lasting = level === 5 ? { clean: true, expiryS: 300 } : { clean: false };
    const { client } = await broker.connect("r8", { level, ...lasting });
    await subscribe(client, "r8", 1);
    client.send("e000");
    await client.expectClosed();
    await publishTo(broker, level, "r8", { count: 1, qos: 1 });
    expect(await deliverUnacked(broker, level, "r9", 1)).toEqual([1]);
    await pause(1100);
    ids = await deliverUnacked(broker, level, "r9-at-once", 3);
    await broker.restart(end);
  });

  afterAll(async () => {
    await broker[Symbol.asyncDispose]();
  });

  test("R1: what is published before the durable client is back is delivered", async () => {
    await publishTo(broker, level, "r1", { count: 10, qos: 2 });
    const { client, connack } = await broker.resume("r1", { level });
    expect(connack.sessionPresent).toBe(true);
    const receiver = new Receiver();
    receiver.attach(client);
    await receiver.until(10);
    await pause(100);
    expect(receiver.arrivals.map(({ text, qos }) => `${text} ${qos}`)).toEqual(
      numbers(1, 10).map((n) => `${n} 2`),
    );
  });

  test.each(["r7", "r7-again"])(
    "R7: a QoS 2 subscription gets stored and new messages, subscribed again or not: %s",
    async (name) => {
      await publishTo(broker, level, name, { count: 5, qos: 2 });
      const { client } = await broker.resume(name, { level });
      const receiver = new Receiver();
      if (name === "r7-again") {
        client.send(level === 5 ? subscribe5(2, [[name, 2]]) : subscribe4(2, [[name, 2]]));
      }
      receiver.attach(client);
      await publishTo(broker, level, name, { count: 5, qos: 2, first: 6 });
      await receiver.until(10);
      await pause(100);
      expect(receiver.arrivals.map(({ text }) => text)).toEqual(numbers(1, 10));
    },
  );

  test("R8: a session that lasts is resumed with its subscriptions", async () => {
    const { client, connack } = await broker.resume("r8", { level, expiryS: 300 });
    expect(connack.sessionPresent).toBe(true);
    const got = await client.expect("publish");
    expect([got.payload.toString(), got.qos]).toEqual(["1", 1]);
  });

  test("R9: sent, unacked for a second: resent under its id with DUP", async () => {
    const { client } = await broker.resume("r9", { level });
    await client.expectBytes(form("r9", "1", { qos: 1, id: 1, dup: true }));
    await publishTo(broker, level, "r9", { count: 1, qos: 1, first: 2 });
    const next = await client.expect("publish");
    expect(next.payload.toString()).toBe("2");
    expect(next.messageId).not.toBe(1);
  });

  test("R9: ended at once: redelivered with DUP, its id goes to no other message", async () => {
    const { client } = await broker.resume("r9-at-once", { level });
    const receiver = new Receiver();
    receiver.mute = () => true;
    receiver.attach(client);
    await receiver.until(3);
    await publishTo(broker, level, "r9-at-once", { count: 3, qos: 1, first: 4 });
    await receiver.until(6);
    expect(receiver.arrivals.map(({ text }) => text)).toEqual(numbers(1, 6));
    for (const [index, { dup, packetId }] of receiver.arrivals.entries()) {
      if (index < 3) expect(dup).toBe(true);
      if (index >= 3) expect(ids).not.toContain(packetId);
      else if (ids.includes(packetId as number)) expect(packetId).toBe(ids[index]);
    }
  });

  test("R15: a QoS 0 subscription belongs to the session", async () => {
    const { client, connack } = await broker.resume("r15", { level });
    expect(connack.sessionPresent).toBe(true);
    await publishTo(broker, level, "r15", { count: 1, qos: 1 });
    await client.expectBytes(form("r15", "1"));
  });
});

test.each([4, 5] as const)(
  "R9: a dropped link, MQTT level %i: resent under its id with DUP",
  async (level) => {
    await using broker = await LaunchedBroker.open();
    const { client } = await broker.resume("s", { level });
    await subscribe(client, "t", 1);
    await publishTo(broker, level, "t", { count: 1, qos: 1 });
    const { messageId } = await client.expect("publish");
    client.drop();
    const { client: back } = await broker.resume("s", { level });
    const again = await back.expect("publish");
    expect([again.messageId, again.dup, again.payload.toString()]).toEqual([messageId, true, "1"]);
  },
);

test.each(["stop", "kill"] as const)(
  "R3: nothing is acked before the routes of stored sessions are back: %s",
  async (end) => {
    const sessions = isLong ? 1000 : 200;
    const perSession = isLong ? 100 : 10;
    await using broker = await LaunchedBroker.open();
    const names = numbers(1, sessions);
    await inBatches(names, async (name) => {
      const { client } = await broker.resume(`s${name}`, { level: 4 });
      await subscribe(client, `t/${name}`, 1);
      await client.close();
    });
    await broker.end(end);
    // Sockets are tried from before the start until one is accepted.
    const publisher = knock(broker.port);
    await broker.start();
    const client = await publisher;
    await client.connect({ clientId: "p" });
    const acked = new Map<string, number>();
    for (let n = 1; n <= perSession; n++) {
      const payload = `${n}`;
      for (const [index, name] of names.entries()) {
        client.send(publish(`t/${name}`, payload, { qos: 1, id: index + 1 }));
      }
      for (const name of names) {
        await client.expect("puback", 30_000);
        acked.set(name, n);
      }
    }
    await client.close();
    const lost: string[] = [];
    await inBatches(names, async (name) => {
      const { client: back, connack } = await broker.resume(`s${name}`, { level: 4 });
      const receiver = new Receiver();
      receiver.attach(back);
      const wanted = acked.get(name) as number;
      await receiver.until(wanted).catch((error: Error) => lost.push(`${name}: ${error.message}`));
      if (!connack.sessionPresent) lost.push(`${name}: no session`);
      const found = receiver.texts();
      if (found.join() !== numbers(1, wanted).join()) lost.push(`${name}: ${found.join()}`);
      await back.close();
    });
    expect(lost).toEqual([]);
  },
);

async function inBatches(
  names: readonly string[],
  act: (name: string) => Promise<void>,
): Promise<void> {
  // Fewer than the sockets that one address may have before login.
  const sizeMax = 40;
  for (let at = 0; at < names.length; at += sizeMax) {
    await Promise.all(names.slice(at, at + sizeMax).map(act));
  }
}

async function knock(port: number): Promise<RawClient> {
  const deadline = performance.now() + 60_000;
  for (;;) {
    try {
      return await RawClient.open(port, 4);
    } catch (error) {
      if (performance.now() > deadline) throw error;
      await pause(2);
    }
  }
}
