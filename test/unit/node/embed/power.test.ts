// A power cut of a broker in memory takes what was not durable, and nothing else; a clock that is
// turned by hand moves everything that waits for time.

import { expect, test } from "vitest";
import { SeededRandom } from "../../../../src/base/index.ts";
import type { EmbeddedBroker } from "../../../../src/node/index.ts";
import { beginConnect, connectTo, openBroker } from "../../../support/embedded.ts";

const count = 60;
const rounds = 12;

type Round = { readonly acked: number; readonly kept: number };

/** Begins `count` publishes and as many increments, cuts the power after some turns, and compares. */
async function cutOnce(seed: number): Promise<Round> {
  const random = new SeededRandom(seed);
  const broker = await openBroker({ seed });
  const keeper = await broker.subscribe("n", { name: "keeper" });
  await keeper.close();
  let acked = 0;
  let added = 0;
  const add = () =>
    broker.transact("app", async (tx) => {
      const before = Number((await tx.get("n"))?.value ?? 0);
      tx.put("n", Buffer.from(`${before + 1}`));
    });
  const calls: Array<Promise<unknown>> = [];
  const turns = random.between(0, 40);
  const cut = (async () => {
    for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate);
    const before = { acked, added };
    await broker.crash();
    return before;
  })();
  for (let number = 0; number < count; number++) {
    const published = broker.publish("n", `${number}`, { retain: true }).then(() => acked++);
    calls.push(published.catch(() => undefined)); // the power was cut
    calls.push(
      add()
        .then(() => added++)
        .catch(() => undefined),
    );
    if (number % 8 === 0) await new Promise(setImmediate);
  }
  const before = await cut;
  await Promise.all(calls);

  const texts: string[] = [];
  for await (const { payload } of broker.history("n")) texts.push(`${payload}`);
  const kept = texts.length;
  expect(texts).toEqual(Array.from({ length: kept }, (_, number) => `${number}`));
  expect(kept).toBeGreaterThanOrEqual(before.acked);
  const sum = await broker.transact("app", async (tx) => Number((await tx.get("n"))?.value ?? 0));
  expect(sum).toBeGreaterThanOrEqual(before.added);
  expect(sum).toBeLessThanOrEqual(count);
  const retained = Number((await broker.retained("n"))?.payload ?? -1);
  expect(retained).toBeGreaterThanOrEqual(before.acked - 1);
  return { acked: before.acked, kept };
}

test("a power cut keeps all that was durable, in order, and may take the rest", async () => {
  const seen: Round[] = [];
  for (let seed = 1; seed <= rounds; seed++) seen.push(await cutOnce(seed));
  // Cuts in the middle, before everything was durable: some took messages, some came with acks.
  expect(seen.some(({ kept }) => kept < count)).toBe(true);
  expect(seen.some(({ acked, kept }) => acked > 0 && kept < count)).toBe(true);
});

const few = 8;

/** Stores `few` messages, each acknowledged, cuts the power in the turn of the last ack, and reads. */
async function cutAfterAck(fsync: "always" | "interval", seed: number): Promise<number> {
  const settings = { groups: { default: { fsync } } };
  const broker = await openBroker({ clock: "manual", seed, settings });
  await (await broker.subscribe("n", { name: "keeper" })).close();
  for (let number = 0; number < few; number++) await broker.publish("n", `${number}`);
  await broker.crash();
  const texts: string[] = [];
  for await (const { payload } of broker.history("n")) texts.push(`${payload}`);
  expect(texts).toEqual(Array.from({ length: texts.length }, (_, number) => `${number}`));
  return texts.length;
}

// `interval` acknowledges what the operating system has, before it is on the medium: the end of a
// process keeps that, the end of the machine need not.
test("a power cut drops what was written and not synced, and only that", async () => {
  let kept = few;
  for (let seed = 1; kept === few && seed <= rounds; seed++) {
    kept = await cutAfterAck("interval", seed);
    expect(await cutAfterAck("always", seed)).toBe(few);
  }
  // Every publish waits for the flush before: no more than the last one is under way.
  expect(kept).toBe(few - 1);
});

test("a power cut ends what was only in memory: connections, sessions without expiry, their messages", async () => {
  const broker = await openBroker();
  const client = await connectTo(broker, { clientId: "short" });
  await client.subscribeAsync("a", { qos: 1 });
  await broker.publish("a", "nobody durable wants it");
  await broker.crash();
  expect(await countOf(broker.history("#"))).toBe(0);
  const back = beginConnect(broker, { clientId: "short", clean: false });
  const isPresent = await new Promise((resolve) => {
    back.once("connect", ({ sessionPresent }) => resolve(sessionPresent));
  });
  expect(isPresent).toBe(false);
});

async function countOf(messages: AsyncIterable<unknown>): Promise<number> {
  let found = 0;
  for await (const _ of messages) found++;
  return found;
}

test("with a manual clock a silent client is cut after one and a half keep alives, and its will comes", async () => {
  const broker = await openBroker({ clock: "manual" });
  const will = { topic: "w", payload: Buffer.from("silent"), qos: 1 as const };
  const client = await connectTo(broker, { keepalive: 600, will });
  const messages = await broker.subscribe("w");
  const causes: string[] = [];
  broker.on("closed", (_client, cause) => causes.push(cause));
  await broker.clock.advance(899_000);
  expect(client.connected).toBe(true);
  await broker.clock.advance(2000);
  expect((await messages.next()).value?.payload.toString()).toBe("silent");
  await expect.poll(() => causes, { timeout: 20_000 }).toEqual(["keep_alive"]);
});

test("with a manual clock messages expire when the test says so, stored and retained ones", async () => {
  const broker = await openBroker({ clock: "manual" });
  await (await broker.subscribe("a", { name: "n" })).close();
  const properties = { messageExpiryS: 60 };
  await broker.publish("a", "short", { retain: true, properties });
  await broker.publish("a", "long");
  await broker.clock.advance(59_000);
  expect((await broker.retained("a"))?.payload.toString()).toBe("short");
  await broker.clock.advance(2000);
  expect(await broker.retained("a")).toBeUndefined();
  const messages = await broker.subscribe("a", { name: "n" });
  expect((await messages.next()).value?.payload.toString()).toBe("long");
});

test("with a manual clock messages go with their generation when the test says so", async () => {
  const settings = { databases: { messages: { retention: { age: "80s" } } } };
  const broker = await openBroker({ clock: "manual", settings });
  const left = async (): Promise<number> => countOf(broker.history("a"));
  await wantedBriefly(broker);
  expect(await left()).toBe(1);
  await broker.clock.advance(60_000);
  expect(await left()).toBe(1);
  // Another generation has to end, and somebody to look.
  await broker.clock.advance(120_000);
  expect(await left()).toBe(0);
});

test("a loop is told how many messages went before it got to them", async () => {
  const settings = { databases: { messages: { retention: { age: "80s" } } } };
  const broker = await openBroker({ clock: "manual", settings });
  await (await broker.subscribe("a", { name: "n" })).close();
  for (let number = 0; number < 5; number++) await broker.publish("a", `${number}`);
  await broker.clock.advance(180_000);
  await broker.publish("a", "last");
  const messages = await broker.subscribe("a", { name: "n" });
  expect((await messages.next()).value?.payload.toString()).toBe("last");
  expect(messages.lostCount).toBe(5);
});

/** Stores one message in `a` for a subscription that ends a second later. */
async function wantedBriefly(broker: EmbeddedBroker): Promise<void> {
  await (await broker.subscribe("a", { name: "n", expiryS: 1 })).close();
  await broker.publish("a", "x");
}
