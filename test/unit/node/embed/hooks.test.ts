import { expect, test } from "vitest";
import type { HookPublish, Hooks } from "../../../../src/node/index.ts";
import {
  beginConnect,
  codeOf,
  connectTo,
  openBroker,
  takeTexts,
} from "../../../support/embedded.ts";

const later = <T>(value: T): Promise<T> => new Promise((resolve) => setImmediate(resolve, value));
const never = (): Promise<never> => new Promise(() => undefined);

/** Reason code of CONNACK. */
function connackOf(client: ReturnType<typeof beginConnect>): Promise<number | undefined> {
  return new Promise((resolve) => {
    client.on("packetreceive", (packet) => {
      if (packet.cmd === "connack") resolve(packet.reasonCode);
    });
  });
}

for (const [how, answer] of [
  ["at once", (value: false) => value],
  ["later", (value: false) => later(value)],
] as const) {
  test(`a publish refused ${how} reaches no subscriber, store, retained message or later hook`, async () => {
    const heard: string[] = [];
    const broker = await openBroker({
      hooks: [
        { authorizePublish: (_client, { topic }) => (topic === "no" ? answer(false) : undefined) },
        {
          authorizePublish: (_client, { topic }) => void heard.push(`asked ${topic}`),
          published: (_client, { topic }) => heard.push(`published ${topic}`),
        },
      ],
    });
    const live = await broker.subscribe("#");
    const kept = await broker.subscribe("#", { name: "kept" });
    const client = await connectTo(broker);
    for (const qos of [1, 2] as const) {
      const refused = client.publishAsync("no", "x", { qos, retain: true });
      expect(await codeOf(refused)).toBe(0x87);
    }
    client.publish("no", "x", { qos: 0 });
    await client.publishAsync("yes", "x", { qos: 1 });
    expect((await live.next()).value?.topic).toBe("yes");
    expect((await kept.next()).value?.topic).toBe("yes");
    expect(await broker.retained("no")).toBeUndefined();
    await expect.poll(() => heard, { timeout: 20_000 }).toEqual(["asked yes", "published yes"]);
  });
}

test("a hook changes topic, payload and properties, and the next hook sees the change", async () => {
  const seen: HookPublish[] = [];
  const broker = await openBroker({
    hooks: [
      {
        authorizePublish: async (_client, { topic, payload }) => ({
          topic: `tenant/${topic}`,
          payload: Buffer.from(payload.toString().toUpperCase()),
          properties: { contentType: "text/plain", messageExpiryS: 60 },
        }),
      },
      { authorizePublish: (_client, publish) => void seen.push(publish) },
    ],
  });
  const messages = await broker.subscribe("#", { qos: 2 });
  for (const protocolVersion of [4, 5] as const) {
    const client = await connectTo(broker, { protocolVersion, clientId: `v${protocolVersion}` });
    await client.publishAsync("a", "text", { qos: 2 });
    const { value } = await messages.next();
    expect(value).toMatchObject({ topic: "tenant/a", qos: 2, publisher: `v${protocolVersion}` });
    expect(value?.payload.toString()).toBe("TEXT");
    expect(value?.properties.contentType).toBe("text/plain");
  }
  expect(seen.map(({ topic }) => topic)).toEqual(["tenant/a", "tenant/a"]);
});

test("publishes keep their order, however long each hook takes", async () => {
  let turn = 0;
  const broker = await openBroker({
    hooks: {
      authorizePublish: () => {
        turn++;
        return turn % 3 === 0 ? undefined : later(undefined);
      },
    },
  });
  const messages = await broker.subscribe("a", { name: "order", qos: 2 });
  const client = await connectTo(broker);
  const texts = Array.from({ length: 300 }, (_, at) => `${at}`);
  await Promise.all(
    texts.map((text, at) => client.publishAsync("a", text, { qos: at % 2 ? 1 : 2 })),
  );
  expect(await takeTexts(messages, texts.length)).toEqual(texts);
});

test("QoS 0 that came right before a DISCONNECT is published when its hook has let it pass", async () => {
  const broker = await openBroker({ hooks: { authorizePublish: () => later(undefined) } });
  const messages = await broker.subscribe("a");
  const client = await connectTo(broker);
  client.publish("a", "last words", { qos: 0 });
  client.end();
  expect(await takeTexts(messages, 1)).toEqual(["last words"]);
});

const broken: Array<[string, unknown]> = [
  [
    "throws",
    () => {
      throw new Error("oops");
    },
  ],
  ["rejects", () => Promise.reject(new Error("oops"))],
  ["answers a text", () => "yes"],
  ["answers null", () => null],
  ["answers a topic with a wildcard", () => ({ topic: "a/#" })],
  ["answers another QoS", () => ({ qos: 0 })],
  ["answers a payload that is none", () => ({ payload: 7 })],
];

for (const [what, authorizePublish] of broken) {
  test(`a publish hook that ${what} refuses, and the client goes on`, async () => {
    let isBroken = true;
    const hooks = {
      authorizePublish: (...facts: unknown[]) =>
        isBroken ? (authorizePublish as (...facts: unknown[]) => unknown)(...facts) : undefined,
    } as Hooks;
    const broker = await openBroker({ hooks });
    const client = await connectTo(broker);
    expect(await codeOf(client.publishAsync("a", "x", { qos: 1 }))).toBe(0x83);
    isBroken = false;
    const messages = await broker.subscribe("a");
    await client.publishAsync("a", "fine", { qos: 1 });
    expect(await takeTexts(messages, 1)).toEqual(["fine"]);
  });
}

test("a hook that hangs refuses when its time is over", async () => {
  const broker = await openBroker({ clock: "manual", hooks: { authorizePublish: never } });
  const client = await connectTo(broker);
  const refused = codeOf(client.publishAsync("a", "x", { qos: 1 }));
  let isDone = false;
  refused.finally(() => {
    isDone = true;
  });
  const reachesHook = new Promise((resolve) => setTimeout(resolve, 50));
  await reachesHook;
  await broker.clock.advance(4900);
  expect(isDone).toBe(false);
  await broker.clock.advance(200);
  expect(await refused).toBe(0x83);
});

test("a hook cannot publish into the broker's own topics", async () => {
  const broker = await openBroker({ hooks: { authorizePublish: () => ({ topic: "$SYS/x" }) } });
  const client = await connectTo(broker);
  expect(await codeOf(client.publishAsync("a", "x", { qos: 1 }))).toBe(0x87);
});

test("a will is asked for like a publish", async () => {
  const broker = await openBroker({
    clock: "manual",
    hooks: {
      authorizePublish: (_client, { topic }) =>
        topic === "no" ? false : { payload: Buffer.from("changed") },
    },
  });
  const messages = await broker.subscribe("#");
  for (const topic of ["no", "will"]) {
    const will = { topic, payload: Buffer.from("x"), qos: 1 as const };
    const client = await connectTo(broker, { clientId: topic, will });
    client.stream.destroy();
  }
  const { value } = await messages.next();
  expect(value).toMatchObject({ topic: "will" });
  expect(value?.payload.toString()).toBe("changed");
});

test("preConnect and authenticate refuse, let in under a user, or leave it to the listener", async () => {
  const order: string[] = [];
  const broker = await openBroker({
    hooks: {
      preConnect: async ({ clientId }) => {
        order.push(`pre ${clientId}`);
        if (clientId === "banned") return false;
        if (clientId === "breaks") throw new Error("oops");
        return undefined;
      },
      authenticate: ({ clientId, userName, password }) => {
        order.push(`auth ${clientId}`);
        if (userName === undefined) return undefined;
        return password?.toString() === "right" ? later({ user: `known ${userName}` }) : false;
      },
      connected: ({ clientId, user }) => order.push(`in ${clientId} ${user}`),
    },
  });
  const code = (clientId: string, options = {}) =>
    connackOf(beginConnect(broker, { clientId, ...options }));
  expect(await code("banned")).toBe(0x87);
  expect(await code("breaks")).toBe(0x88);
  expect(await code("liar", { username: "u", password: "wrong" })).toBe(0x86);
  expect(await code("anna", { username: "a", password: "right" })).toBe(0);
  expect(await code("guest")).toBe(0);
  await expect
    .poll(() => order, { timeout: 20_000 })
    .toEqual([
      "pre banned",
      "pre breaks",
      "pre liar",
      "auth liar",
      "pre anna",
      "auth anna",
      "in anna known a",
      "pre guest",
      "auth guest",
      "in guest undefined",
    ]);
});

test("nobody becomes the program itself, not even by a hook", async () => {
  const broker = await openBroker({ hooks: { authenticate: () => ({ user: "$inside" }) } });
  const client = beginConnect(broker, { username: "u", password: "p" });
  expect(await connackOf(client)).not.toBe(0);
});

test("authorizeSubscribe refuses one filter and lowers another", async () => {
  const told: unknown[] = [];
  const broker = await openBroker({
    hooks: {
      authorizeSubscribe: async (_client, { filter }) =>
        filter === "no/#" ? false : filter === "low" ? { qos: 0 } : undefined,
      subscribed: (_client, subscriptions) => told.push(subscriptions),
    },
  });
  const client = await connectTo(broker);
  const suback = new Promise<number[]>((resolve) => {
    client.on("packetreceive", (packet) => {
      if (packet.cmd === "suback") resolve(packet.granted as number[]);
    });
  });
  client.subscribe({ "no/#": { qos: 1 }, low: { qos: 2 }, a: { qos: 1 } }, () => undefined);
  expect(await suback).toEqual([0x87, 0, 1]);
  await expect
    .poll(() => told, { timeout: 20_000 })
    .toEqual([
      [
        { filter: "low", qos: 0 },
        { filter: "a", qos: 1 },
      ],
    ]);
});

for (const [how, answer] of [
  ["at once", (value: boolean) => value as true],
  ["later", (value: boolean) => later(value as true)],
] as const) {
  test(`authorizeForward, deciding ${how}, leaves messages out and keeps the order of the others`, async () => {
    const broker = await openBroker({
      hooks: {
        authorizeForward: ({ clientId }, { payload }) =>
          answer(clientId !== "reader" || Number(payload) % 2 === 0),
      },
    });
    const properties = { receiveMaximum: 5 };
    for (const qos of [0, 1, 2] as const) {
      const reader = await connectTo(broker, { clientId: "reader", properties });
      await reader.subscribeAsync("a", { qos });
      const texts: string[] = [];
      const isDone = new Promise<void>((resolve) => {
        reader.on("message", (_topic, payload) => {
          if (texts.push(payload.toString()) === 20) resolve();
        });
      });
      for (let at = 0; at < 40; at++) await broker.publish("a", `${at}`, { qos });
      await isDone;
      expect(texts).toEqual(Array.from({ length: 20 }, (_, at) => `${2 * at}`));
      await reader.endAsync();
    }
  });
}

test("what a durable client may not have is done with: it does not come again", async () => {
  const broker = await openBroker({
    hooks: { authorizeForward: (_client, { topic }) => later((topic !== "secret") as true) },
  });
  const away = { clientId: "away", clean: false, properties: { sessionExpiryInterval: 600 } };
  const subscriber = await connectTo(broker, away);
  await subscriber.subscribeAsync("#", { qos: 2 });
  await subscriber.endAsync();
  for (const qos of [1, 2] as const) {
    await broker.publish("secret", "x", { qos });
    await broker.publish("open", `${qos}`, { qos });
  }
  const texts: string[] = [];
  const back = beginConnect(broker, away);
  await new Promise<void>((resolve) => {
    back.on("message", (topic, payload) => {
      if (texts.push(`${topic} ${payload}`) === 2) resolve();
    });
  });
  expect(texts).toEqual(["open 1", "open 2"]);
});

test("a stored message that waits for a hook arrives whole, at clients of both versions", async () => {
  const broker = await openBroker({ hooks: { authorizeForward: () => later(true as const) } });
  const receivers = [
    { clientId: "four", clean: false, protocolVersion: 4 },
    { clientId: "five", clean: false, properties: { sessionExpiryInterval: 600 } },
  ] as const;
  for (const options of receivers) {
    const subscriber = await connectTo(broker, options);
    await subscriber.subscribeAsync("#", { qos: 1 });
    await subscriber.endAsync();
  }
  const properties = { contentType: "text/plain", messageExpiryS: 60 };
  for (const text of ["1", "2"]) await broker.publish("a/ü", text, { qos: 1, properties });
  for (const options of receivers) {
    const arrived: unknown[] = [];
    const back = beginConnect(broker, options);
    back.on("message", (topic, payload, packet) => {
      const { contentType, messageExpiryInterval = 0 } = packet.properties ?? {};
      const expires = messageExpiryInterval > 50 && messageExpiryInterval <= 60;
      arrived.push([topic, payload.toString(), packet.qos, contentType, expires]);
    });
    const end = "protocolVersion" in options ? [undefined, false] : ["text/plain", true];
    await expect
      .poll(() => arrived, { timeout: 20_000 })
      .toEqual(["1", "2"].map((text) => ["a/ü", text, 1, ...end]));
  }
});

test("events tell of clients, and end when they are no longer wanted", async () => {
  const broker = await openBroker();
  const told: string[] = [];
  const cancel = broker.on("published", ({ clientId }, { topic, payload }) =>
    told.push(`${clientId} ${topic} ${payload}`),
  );
  broker.on("connected", ({ clientId }) => told.push(`in ${clientId}`));
  broker.on("closed", ({ clientId }, cause) => told.push(`out ${clientId} ${cause}`));
  const client = await connectTo(broker, { clientId: "c" });
  await client.publishAsync("a", "1", { qos: 1 });
  await expect.poll(() => told.length, { timeout: 20_000 }).toBe(2);
  cancel();
  await client.publishAsync("a", "2", { qos: 1 });
  await client.endAsync();
  await expect
    .poll(() => told, { timeout: 20_000 })
    .toEqual(["in c", "c a 1", "out c client_disconnect"]);
});

test("an observer that fails disturbs nobody", async () => {
  const broker = await openBroker({
    hooks: {
      published: () => Promise.reject(new Error("oops")),
      connected: () => {
        throw new Error("oops");
      },
    },
  });
  const client = await connectTo(broker);
  await client.publishAsync("a", "1", { qos: 1 });
  await client.publishAsync("a", "2", { qos: 1 });
});

test("a client is not read on while hooks are far behind", async () => {
  const open: Array<() => void> = [];
  const broker = await openBroker({
    hooks: {
      authorizePublish: () =>
        new Promise<undefined>((resolve) => open.push(() => resolve(undefined))),
    },
  });
  const client = await connectTo(broker);
  const messages = await broker.subscribe("a", { name: "all" });
  const count = 500;
  const sent = Array.from({ length: count }, (_, at) =>
    client.publishAsync("a", `${at}`, { qos: 1 }),
  );
  const pump = setInterval(() => open.shift()?.(), 0);
  await Promise.all(sent);
  clearInterval(pump);
  expect(await takeTexts(messages, count)).toHaveLength(count);
});
