import type { MqttClient } from "mqtt";
import { afterEach, expect, test } from "vitest";
import { SeededRandom } from "../../../src/base/index.ts";
import { AedesMachine } from "../../support/aedes-host.ts";

const machines: AedesMachine[] = [];

function createMachine(): AedesMachine {
  const machine = new AedesMachine();
  machines.push(machine);
  return machine;
}

afterEach(async () => {
  for (const machine of machines.splice(0)) await machine.stop();
});

const away = { clientId: "away", clean: false };

/** Texts in order of arrival; resolves with `count` of them. */
function collect(client: MqttClient, count: number): Promise<string[]> {
  const texts: string[] = [];
  return new Promise((resolve) => {
    client.on("message", (_topic, payload) => {
      if (texts.push(payload.toString()) === count) resolve(texts);
    });
  });
}

async function keysOf(machine: AedesMachine): Promise<string[]> {
  const entries = await machine.host?.store.state("aedes/default").list("aedes/", {
    countMax: 10_000,
  });
  return (entries ?? []).map(({ key }) => key).filter((key) => !key.endsWith("/numbers"));
}

for (const qos of [1, 2] as const) {
  test(`what was acknowledged at QoS ${qos} survives a power cut in the same turn, in order`, async () => {
    const machine = createMachine();
    await machine.start();
    const subscriber = await machine.connect(away);
    await subscriber.subscribeAsync("a/#", { qos });
    await subscriber.endAsync();
    const publisher = await machine.connect({ clientId: "p" });
    const texts = Array.from({ length: 50 }, (_, index) => `${index}`);
    await Promise.all(texts.map((text) => publisher.publishAsync("a/b", text, { qos })));
    machine.crash();
    await machine.start();
    let received: Promise<string[]> | undefined;
    await machine.connect(away, (client) => {
      received = collect(client, texts.length);
    });
    expect(await received).toEqual(texts);
  });
}

for (const qos of [1, 2] as const) {
  test(`publishes and handshakes at QoS ${qos} keep their order though look-ups end in any order`, async () => {
    const machine = createMachine();
    await machine.start({}, new SeededRandom(qos));
    const subscriber = await machine.connect(away);
    await subscriber.subscribeAsync("a", { qos });
    await subscriber.endAsync();
    const publisher = await machine.connect({ clientId: "p" });
    const texts = Array.from({ length: 200 }, (_, index) => `${index}`);
    await Promise.all(texts.map((text) => publisher.publishAsync("a", text, { qos })));
    let received: Promise<string[]> | undefined;
    await machine.connect(away, (client) => {
      received = collect(client, texts.length);
    });
    expect(await received).toEqual(texts);
  });
}

test("Aedes alone would acknowledge before it stores: with early acks a power cut loses messages", async () => {
  const machine = createMachine();
  await machine.start({ acks: "early" });
  const subscriber = await machine.connect(away);
  await subscriber.subscribeAsync("a", { qos: 1 });
  await subscriber.endAsync();
  const publisher = await machine.connect({ clientId: "p" });
  await publisher.publishAsync("a", "1", { qos: 1 });
  machine.crash();
  const { persistence } = await machine.start();
  expect(await persistence.outgoingStream({ id: "away" }).toArray()).toEqual([]);
});

test("a client whose subscriptions overlap gets one copy, and nothing is left when it is acknowledged", async () => {
  const machine = createMachine();
  await machine.start();
  const subscriber = await machine.connect(away);
  await subscriber.subscribeAsync(["a/#", "a/+", "a/b"], { qos: 1 });
  await subscriber.endAsync();
  const publisher = await machine.connect({ clientId: "p" });
  await publisher.publishAsync("a/b", "once", { qos: 1 });
  await publisher.publishAsync("a/b", "last", { qos: 2 });
  let received: Promise<string[]> | undefined;
  const back = await machine.connect(away, (client) => {
    received = collect(client, 2);
  });
  expect(await received).toEqual(["once", "last"]);
  await back.endAsync();
  await expect
    .poll(async () => keysOf(machine))
    .toEqual([
      "aedes/default/sub/away/a/#",
      "aedes/default/sub/away/a/+",
      "aedes/default/sub/away/a/b",
    ]);
});

test("a message for many is stored once, and goes with the last who acknowledges it", async () => {
  const machine = createMachine();
  const { persistence } = await machine.start();
  const clients = Array.from({ length: 1200 }, (_, index) => ({ id: `c${index}` }));
  const packet = {
    cmd: "publish",
    topic: "t",
    payload: Buffer.from("body"),
    qos: 1 as const,
    brokerId: "host",
    brokerCounter: 7,
  };
  const receivers = clients.map(({ id }) => ({ clientId: id }));
  await persistence.outgoingEnqueueCombi(receivers, packet);
  const bodies = async () => (await keysOf(machine)).filter((key) => key.includes("/body/")).length;
  expect(await bodies()).toBe(1);
  const acknowledge = async (id: string) => {
    await persistence.outgoingUpdate({ id }, { ...packet, messageId: 3 });
    return persistence.outgoingClearMessageId({ id }, { messageId: 3 });
  };
  // Two at once for the same packet count once.
  const [first, again] = await Promise.all([acknowledge("c0"), acknowledge("c0")]).catch(() => []);
  expect([first, again].filter((each) => each !== undefined).length).toBeLessThanOrEqual(1);
  for (const { id } of clients.slice(1, -1)) await acknowledge(id);
  expect(await bodies()).toBe(1);
  await acknowledge("c1199");
  expect(await keysOf(machine)).toEqual([]);
});

test("a QoS 2 message that is sent again after a crash is taken once", async () => {
  const machine = createMachine();
  const { persistence } = await machine.start();
  await persistence.addSubscriptions({ id: "away" }, [{ topic: "a", qos: 2 }]);
  const { aedes } = machine.host as NonNullable<AedesMachine["host"]>;
  const send = () =>
    new Promise<void>((resolve, reject) => {
      const packet = {
        ...{ cmd: "publish", topic: "a", payload: Buffer.from("x"), qos: 2, messageId: 9 },
      };
      aedes.authorizePublish({ id: "p" } as never, packet as never, (error) =>
        error ? reject(error) : resolve(),
      );
    });
  await send();
  await send();
  const queued = await persistence.outgoingStream({ id: "away" }).toArray();
  expect(queued).toHaveLength(1);
  // Body of both the queue and the inbox.
  expect((await keysOf(machine)).filter((key) => key.includes("/body/"))).toHaveLength(1);
});

for (const qos of [1, 2] as const) {
  test(`connected subscribers get QoS ${qos} live, once, and their queues are empty afterwards`, async () => {
    const machine = createMachine();
    const { persistence } = await machine.start();
    const texts = Array.from({ length: 30 }, (_, index) => `${index}`);
    const received: Array<Promise<string[]>> = [];
    for (const options of [away, { clientId: "clean" }]) {
      const subscriber = await machine.connect(options);
      received.push(collect(subscriber, texts.length));
      await subscriber.subscribeAsync("a", { qos });
    }
    const publisher = await machine.connect({ clientId: "p" });
    for (const text of texts) await publisher.publishAsync("a", text, { qos });
    expect(await Promise.all(received)).toEqual([texts, texts]);
    const queued = () => persistence.outgoingStream({ id: "away" }).toArray();
    await expect.poll(queued, { timeout: 10_000 }).toEqual([]);
  });
}

test("what may not be published is not stored", async () => {
  const machine = createMachine();
  const { aedes, persistence } = await machine.start();
  await persistence.addSubscriptions({ id: "away" }, [{ topic: "#", qos: 1 }]);
  aedes.authorizePublish = (_client, packet, done) =>
    done(packet.topic === "secret" ? new Error("no") : null);
  const publisher = await machine.connect({ clientId: "p" });
  const closed = new Promise<void>((resolve) => publisher.once("close", () => resolve()));
  publisher.publish("secret", "x", { qos: 1 });
  await closed;
  expect(await persistence.outgoingStream({ id: "away" }).toArray()).toEqual([]);
});

test("properties, texts and empty payloads come back as they were", async () => {
  const machine = createMachine();
  const { persistence } = await machine.start();
  const properties = {
    correlationData: Buffer.from([0, 1, 255]),
    userProperties: { $bytes: "not bytes", list: ["a", "b"] },
    messageExpiryInterval: 5,
  };
  const payload = Buffer.from("p");
  await persistence.storeRetained({ topic: "r", payload, retain: true, qos: 1, properties });
  const [packet] = await persistence.createRetainedStream("r").toArray();
  expect(packet).toEqual({ topic: "r", payload, retain: true, qos: 1, properties });
});

test("after destroy every call is refused with a code, and destroy may be called again", async () => {
  const machine = createMachine();
  const { persistence } = await machine.start();
  await persistence.destroy();
  await persistence.destroy();
  const closed = { code: "AEDES_CLOSED" };
  await expect(persistence.storeRetained({ topic: "t" })).rejects.toMatchObject(closed);
  await expect(persistence.getWill({ id: "c" })).rejects.toMatchObject(closed);
  await expect(persistence.outgoingStream({ id: "c" }).toArray()).rejects.toMatchObject(closed);
});

test("a damaged record is passed over and keeps nobody from the others", async () => {
  const machine = createMachine();
  const { persistence, store } = await machine.start();
  for (const topic of ["a", "b"]) {
    await persistence.storeRetained({ topic, payload: Buffer.from("x") });
  }
  const key = "aedes/default/retained/a";
  await new Promise<void>((resolve) => {
    store.state("aedes/default").write([{ key, value: Buffer.from([1]) }], [], () => resolve());
  });
  const topics = await persistence.createRetainedStream("#").toArray();
  expect(topics.map(({ topic }) => topic)).toEqual(["b"]);
});
