import type mqtt from "mqtt";
import { expect, test } from "vitest";
import { createBroker, type InsideMessage, nodeErrors } from "../../../../src/node/index.ts";
import {
  beginConnect,
  codeOf as code,
  connectTo as connect,
  openBroker as open,
  takeTexts as take,
} from "../../../support/embedded.ts";

async function all(messages: AsyncIterable<InsideMessage>): Promise<InsideMessage[]> {
  const found: InsideMessage[] = [];
  for await (const message of messages) found.push(message);
  return found;
}

test("a broker in memory is there within 50 ms, on a port of its own", async () => {
  // Time of the processor: others may have the core. The first starts compile.
  const starts: number[] = [];
  for (let count = 0; count < 6; count++) {
    const before = process.cpuUsage();
    await open();
    const { user, system } = process.cpuUsage(before);
    starts.push((user + system) / 1000);
  }
  expect(Math.min(...starts)).toBeLessThan(50);
  const [one, other] = [await open(), await open()];
  expect(one.port).toBeGreaterThan(0);
  expect(one.port).not.toBe(other.port);
  await connect(one);
  await connect(other);
});

test("what the program publishes reaches clients, and the other way round", async () => {
  const broker = await open();
  const client = await connect(broker);
  await client.subscribeAsync("to/client", { qos: 1 });
  const received = new Promise<string>((resolve) => {
    client.once("message", (_topic, payload) => resolve(payload.toString()));
  });
  await broker.publish("to/client", "hello");
  expect(await received).toBe("hello");

  const subscription = await broker.subscribe("to/+");
  const properties = { contentType: "text/plain" };
  await client.publishAsync("to/program", "there", { qos: 2, properties });
  const { value } = await subscription.next();
  expect(value).toMatchObject({ topic: "to/program", qos: 1, retain: false, properties });
  expect(value?.payload.toString()).toBe("there");
  await subscription.close();
  expect((await subscription.next()).done).toBe(true);
});

test("a subscription with a name keeps its place, over the end of the loop and a power cut", async () => {
  const broker = await open();
  const first = await broker.subscribe("a/#", { name: "rule" });
  const client = await connect(broker);
  for (const text of ["1", "2", "3"]) await client.publishAsync("a/b", text, { qos: 1 });
  expect(await take(first, 1)).toEqual(["1"]);
  await broker.crash();
  const again = await broker.subscribe("a/#", { name: "rule" });
  expect(await take(again, 2)).toEqual(["2", "3"]);
});

test("what the loop has not finished comes again after a power cut", async () => {
  const broker = await open();
  const subscription = await broker.subscribe("a", { name: "rule", qos: 1 });
  await broker.publish("a", "once more");
  const { value } = await subscription.next();
  expect(value?.payload.toString()).toBe("once more");
  await broker.crash();
  await expect(subscription.next()).rejects.toMatchObject({ code: "NODE_CRASHED" });
  expect(await take(await broker.subscribe("a", { name: "rule" }), 1)).toEqual(["once more"]);
});

test("no more than the window is on its way to a slow loop; the rest waits in the store", async () => {
  const broker = await open();
  const subscription = await broker.subscribe("a", { name: "slow", windowMax: 5 });
  const count = 400;
  await Promise.all(Array.from({ length: count }, (_, at) => broker.publish("a", `${at}`)));
  const expected = Array.from({ length: count }, (_, at) => `${at}`);
  expect(await take(subscription, count)).toEqual(expected);
});

test("a loop without a name that is too slow ends with a code", async () => {
  const broker = await open({ settings: { mqtt: { memoryQueueMax: 10 } } });
  const subscription = await broker.subscribe("a", { windowMax: 2 });
  for (let at = 0; at < 30; at++) await broker.publish("a", `${at}`);
  await expect(subscription.next()).rejects.toMatchObject({ code: "NODE_SUBSCRIPTION_OVERRUN" });
});

test("acknowledged messages, retained ones and values survive a crash; a client is cut off", async () => {
  const broker = await open();
  const away = { clientId: "away", clean: false, properties: { sessionExpiryInterval: 600 } };
  const subscriber = await connect(broker, away);
  await subscriber.subscribeAsync("a/#", { qos: 1 });
  await subscriber.endAsync();
  const publisher = await connect(broker);
  const isCut = new Promise<void>((resolve) => publisher.once("close", () => resolve()));
  await publisher.publishAsync("a/1", "kept", { qos: 1 });
  await publisher.publishAsync("a/2", "retained", { qos: 1, retain: true });
  await broker.transact("app", async (tx) => tx.put("key", Buffer.from("value")));
  const { port } = broker;
  await broker.crash();
  await isCut;
  expect(broker.port).toBe(port);
  const client = beginConnect(broker, away);
  const texts: string[] = [];
  await new Promise<void>((resolve) => {
    client.on("message", (_topic, payload) => {
      if (texts.push(payload.toString()) === 2) resolve();
    });
  });
  expect(texts).toEqual(["kept", "retained"]);
  expect((await broker.retained("a/2"))?.payload.toString()).toBe("retained");
  const value = await broker.transact("app", async (tx) => (await tx.get("key"))?.value.toString());
  expect(value).toBe("value");
});

test("history gives what was stored, in order of time over all publishers, within bounds", async () => {
  const broker = await open();
  const keeper = await broker.subscribe("h/#", { name: "keeper" });
  await keeper.close();
  const texts = Array.from({ length: 60 }, (_, at) => `${at}`);
  const publishers = await Promise.all(
    ["p", "q", "r", "s"].map((clientId) => connect(broker, { clientId })),
  );
  for (const [at, text] of texts.entries()) {
    const publisher = publishers[at % publishers.length] as mqtt.MqttClient;
    await publisher.publishAsync(at % 2 ? "h/odd" : "h/even", text, { qos: 1 });
  }
  const found = await all(broker.history("h/#"));
  const textsOf = (messages: typeof found): string[] =>
    messages.map(({ payload }) => payload.toString());
  // Each shard has a clock of its own, which a busy machine may have set some milliseconds apart.
  const times = found.map(({ timeUs }) => timeUs);
  expect(times).toEqual(times.toSorted((a, b) => a - b));
  expect(textsOf(found).toSorted((a, b) => Number(a) - Number(b))).toEqual(texts);
  const fromUs = found[10]?.timeUs as number;
  const untilUs = found[20]?.timeUs as number;
  const part = await all(broker.history("h/even", { fromUs, untilUs, countMax: 3 }));
  const within = found.filter(({ topic, timeUs }) => topic === "h/even" && timeUs >= fromUs);
  expect(textsOf(part)).toEqual(textsOf(within.slice(0, 3)));
  expect(await all(broker.history("nothing/here"))).toEqual([]);
});

test("racing transactions of one owner all come through, and owners do not see each other", async () => {
  const broker = await open();
  const increment = () =>
    broker.transact("counter", async (tx) => {
      const before = Number((await tx.get("n"))?.value.toString() ?? 0);
      tx.put("n", Buffer.from(`${before + 1}`));
    });
  await Promise.all(Array.from({ length: 20 }, increment));
  const n = await broker.transact("counter", async (tx) => (await tx.get("n"))?.value.toString());
  expect(n).toBe("20");
  expect(await broker.transact("other", (tx) => tx.list("", 10))).toEqual([]);
});

test("with a manual clock a session expires when the test says so", async () => {
  const broker = await open({ clock: "manual" });
  const away = { clientId: "away", clean: false, properties: { sessionExpiryInterval: 600 } };
  const returns = async (): Promise<boolean> => {
    const client = beginConnect(broker, away);
    const isPresent = await new Promise<boolean>((resolve) => {
      client.once("connect", ({ sessionPresent }) => resolve(sessionPresent));
    });
    await client.endAsync();
    return isPresent;
  };
  expect(await returns()).toBe(false);
  await broker.clock.advance(599_000);
  expect(await returns()).toBe(true);
  await broker.clock.advance(601_000);
  expect(await returns()).toBe(false);
});

test("with a manual clock a delayed will comes when the test says so", async () => {
  const broker = await open({ clock: "manual" });
  const will = { topic: "w", payload: Buffer.from("gone"), qos: 1 as const };
  const properties = { sessionExpiryInterval: 60 };
  const client = await connect(broker, {
    ...{ clientId: "w", clean: true, properties },
    will: { ...will, properties: { willDelayInterval: 10 } },
  });
  const messages = await broker.subscribe("w");
  client.stream.destroy();
  const next = messages.next();
  let isThere = false;
  next.then(() => {
    isThere = true;
  });
  await broker.clock.advance(9000);
  expect(isThere).toBe(false);
  await broker.clock.advance(2000);
  expect((await next).value?.payload.toString()).toBe("gone");
});

test("wrong use is told with codes", async () => {
  expect(await code(createBroker({}))).toBe("NODE_PLACE_MISSING");
  expect(await code(createBroker({ memory: true, dir: "x" }))).toBe("NODE_PLACE_MISSING");
  expect(await code(createBroker({ memory: true, settings: { mqtt: { x: 1 } } }))).toBe(
    "CONFIG_INVALID",
  );
  const broker = await open();
  const taken = createBroker({ memory: true, port: broker.port });
  expect(await code(taken)).toBe("NODE_LISTEN_FAILED");
  expect(await code(broker.clock.advance(1))).toBe(nodeErrors.clockNotManual.row.code);
  expect(await code(broker.publish("a/+", "x"))).toBe("TOPIC_NAME_INVALID");
  expect(await code(broker.publish("$SYS/x", "x"))).toBe("BROKER_PUBLISH_DENIED");
  expect(await code(broker.subscribe("a/#/b"))).toBe("TOPIC_FILTER_INVALID");
  await broker.close();
  await broker.close();
  expect(await code(broker.publish("a", "x"))).toBe("NODE_CLOSED");
  expect(await code(broker.subscribe("a"))).toBe("NODE_CLOSED");
  expect(await code(broker.crash())).toBe("NODE_CLOSED");
});
