// Hooks that do what they should not, and hooks that use the broker that asks them.

import { expect, test } from "vitest";
import type { EmbeddedBroker, HookPublish, Hooks } from "../../../../src/node/index.ts";
import {
  beginConnect,
  codeOf,
  connectTo,
  openBroker,
  takeTexts,
} from "../../../support/embedded.ts";

const settings = { mqtt: { hookTimeout: "50ms" } };

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

test("a hook that assigns to a message instead of answering refuses it, and the log says why", async () => {
  const told: unknown[] = [];
  const silent = () => undefined;
  const error = (_event: string, fields: unknown) => told.push(fields);
  const logger = { debug: silent, info: silent, warn: silent, error };
  let assign: (publish: Mutable<HookPublish>) => void = silent;
  const hooks: Hooks = {
    authorizePublish: (_client, publish) => {
      assign(publish);
      return undefined;
    },
    authorizeSubscribe: (_client, subscription) => {
      (subscription as Mutable<typeof subscription>).qos = 0;
    },
  };
  const broker = await openBroker({ hooks, logger });
  const client = await connectTo(broker);
  const assignments: Array<typeof assign> = [
    (publish) => {
      publish.payload = Buffer.from("y");
    },
    (publish) => {
      (publish.properties as { contentType?: string }).contentType = "y";
    },
    (publish) => {
      (publish.properties.userProperties as unknown as string[][]).push(["y", "y"]);
    },
  ];
  for (assign of assignments) {
    const properties = { userProperties: { x: "x" } };
    const sent = client.publishAsync("a", "x", { qos: 1, properties });
    expect(await codeOf(sent)).toBe(0x83);
  }
  const refused = client.subscribeAsync("a", { qos: 1 });
  await expect(refused).rejects.toMatchObject({ packet: { granted: [0x83] } });
  expect(told).toHaveLength(assignments.length + 1);
  expect(told[0]).toMatchObject({ hook: "authorizePublish" });
  expect(String((told[0] as { reason: string }).reason)).toContain("read only");
});

test("bytes that a hook changes in place are its own copy", async () => {
  const hooks: Hooks = { authorizePublish: (_client, { payload }) => void payload.fill("y") };
  const broker = await openBroker({ hooks });
  const messages = await broker.subscribe("a");
  const client = await connectTo(broker);
  await client.publishAsync("a", "xx", { qos: 1 });
  expect(await takeTexts(messages, 1)).toEqual(["xx"]);
});

test("every hook may publish, subscribe, read and write in the broker that asks it", async () => {
  let broker: EmbeddedBroker | undefined;
  const done: string[] = [];
  const use = async (name: string): Promise<undefined> => {
    if (broker === undefined) throw new Error("asked too early");
    await broker.publish(`log/${name}`, name, { retain: true });
    await broker.transact("hooks", async (tx) => tx.put(name, Buffer.from(name)));
    const messages = await broker.subscribe(`log/${name}`);
    done.push(...(await takeTexts(messages, 1)));
    return undefined;
  };
  const hooks: Hooks = {
    preConnect: () => use("preConnect"),
    authenticate: () => use("authenticate"),
    connected: () => use("connected"),
    authorizePublish: () => use("authorizePublish"),
    authorizeSubscribe: () => use("authorizeSubscribe"),
    authorizeForward: () => use("authorizeForward"),
    published: () => use("published"),
    subscribed: () => use("subscribed"),
    closed: () => use("closed"),
  };
  broker = await openBroker({ hooks });
  const client = await connectTo(broker);
  await client.subscribeAsync("a", { qos: 1 });
  const arrived = new Promise((resolve) => client.once("message", resolve));
  await client.publishAsync("a", "x", { qos: 1 });
  await arrived;
  await client.endAsync();
  const all = Object.keys(hooks).sort();
  await expect.poll(() => [...new Set(done)].sort(), { timeout: 20_000 }).toEqual(all);
});

test("a hook that waits for its own client refuses when its time is over", async () => {
  let own: Promise<unknown> = Promise.resolve();
  const hooks: Hooks = {
    authorizePublish: async (_client, { topic }) => {
      if (topic !== "outer") return;
      own = client.publishAsync("inner", "x", { qos: 1 });
      await own;
    },
  };
  const broker = await openBroker({ hooks, settings });
  const client = await connectTo(broker);
  expect(await codeOf(client.publishAsync("outer", "x", { qos: 1 }))).toBe(0x83);
  await own;
});

const names = ["preConnect", "authenticate", "authorizePublish", "authorizeSubscribe"] as const;
const others = ["authorizeForward", "connected", "published", "subscribed", "closed"] as const;

for (const end of ["close", "crash"] as const) {
  for (const isAwaited of [false, true]) {
    const how = isAwaited ? "waits for" : "begins";
    test(`a hook that ${how} the ${end} of its broker does not keep it from that`, async () => {
      for (const name of [...names, ...others]) {
        let ended: Promise<void> | undefined;
        const hook = (): unknown => {
          ended ??= broker[end]();
          return isAwaited ? ended : undefined;
        };
        const broker = await openBroker({ hooks: { [name]: hook } as Hooks, settings });
        const client = connectTo(broker);
        const used = client.then(async (connected) => {
          connected.subscribe("a", { qos: 1 });
          connected.publish("a", "x", { qos: 1 });
          if (name === "closed") connected.stream.destroy();
        });
        used.catch(() => undefined); // cut off with its broker
        await expect.poll(() => ended !== undefined, { timeout: 20_000 }).toBe(true);
        await ended;
        if (end === "crash") await broker.publish("a", "goes on");
        await broker.close();
        expect(await codeOf(broker.publish("a", "x"))).toBe("NODE_CLOSED");
      }
    });
  }
}

const never = new Promise<never>(() => undefined);

function connackOf(broker: EmbeddedBroker): Promise<number | undefined> {
  const client = beginConnect(broker);
  return new Promise((resolve) => {
    client.on("packetreceive", (packet) => {
      if (packet.cmd === "connack") resolve(packet.reasonCode);
    });
  });
}

test("a login whose hook hangs is refused when its time is over", async () => {
  for (const name of ["preConnect", "authenticate"] as const) {
    const broker = await openBroker({ hooks: { [name]: () => never }, settings });
    expect(await connackOf(broker)).toBe(0x88);
  }
});

test("a filter or a delivery whose hook hangs is refused when its time is over, and the next goes on", async () => {
  const hooks: Hooks = {
    authorizeSubscribe: (_client, { filter }) => (filter === "hangs" ? never : undefined),
    authorizeForward: (_client, { topic }) => (topic === "a/hangs" ? never : undefined),
  };
  const broker = await openBroker({ hooks, settings });
  const client = await connectTo(broker);
  const refused = client.subscribeAsync("hangs", { qos: 1 });
  await expect(refused).rejects.toMatchObject({ packet: { granted: [0x83] } });
  await client.subscribeAsync("a/#", { qos: 1 });
  const texts: string[] = [];
  client.on("message", (_topic, payload) => texts.push(payload.toString()));
  await broker.publish("a/hangs", "never");
  await broker.publish("a/b", "next");
  await expect.poll(() => texts, { timeout: 20_000 }).toEqual(["next"]);
});

test("an observer that hangs keeps no later one from hearing", async () => {
  const heard: string[] = [];
  const hangs: Hooks = { connected: () => never, published: () => never, closed: () => never };
  const hears: Hooks = {
    connected: () => heard.push("connected"),
    published: () => heard.push("published"),
    closed: () => heard.push("closed"),
  };
  const broker = await openBroker({ hooks: [hangs, hears], settings });
  const client = await connectTo(broker);
  await client.publishAsync("a", "x", { qos: 1 });
  await client.endAsync();
  const all = ["closed", "connected", "published"];
  await expect.poll(() => heard.toSorted(), { timeout: 20_000 }).toEqual(all);
});
