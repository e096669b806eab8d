// What a program may get wrong, and what may end under it: told with codes, and nothing is waited for
// in vain.

import { join } from "node:path";
import { expect, test } from "vitest";
import { openPersistence } from "../../../../src/aedes/index.ts";
import { createBroker, type Hooks, type InsideMessage } from "../../../../src/node/index.ts";
import { openLocalStore } from "../../../../src/store/index.ts";
import { codeOf, connectTo, openBroker, takeTexts } from "../../../support/embedded.ts";
import { withTemporaryFolder } from "../../../support/temporary-folder.ts";

const invalid = "NODE_ARGUMENT_INVALID";
const reasonOf = (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    () => "fine",
    ({ message }: Error) => message,
  );

const wrongOptions: Array<[unknown, string]> = [
  [undefined, "the options of createBroker: got undefined, expected an object"],
  [{ memory: "yes" }, 'the option "memory" of createBroker: got "yes", expected true or false'],
  [{ memory: true, prot: 1883 }, 'createBroker: there is no option "prot"; did you mean "port"?'],
  [{ memory: true, port: "1883" }, 'got "1883", expected a whole number from 0 to 65535'],
  [{ memory: true, port: 65_536 }, "got 65536, expected a whole number from 0 to 65535"],
  [{ dir: "" }, 'the option "dir" of createBroker: got "", expected a text that is not empty'],
  [{ memory: true, clock: "fast" }, 'got "fast", expected "system" or "manual"'],
  [{ memory: true, seed: Number.NaN }, "got NaN, expected a number or a text"],
  [{ memory: true, settings: "mqtt" }, 'got "mqtt", expected an object'],
  [{ memory: true, logger: { info: () => 1 } }, "the functions debug, info, warn, error"],
  [{ memory: true, hooks: "all" }, 'got "all", expected a set of hooks or a list'],
  [{ memory: true, port: 1, settings: { listeners: {} } }, "`settings.listeners` names others"],
];

test("an option that is wrong or does not exist is named", async () => {
  for (const [options, message] of wrongOptions) {
    expect(await reasonOf(createBroker(options as never))).toContain(message);
    expect(await codeOf(createBroker(options as never))).toBe(invalid);
  }
});

test("hooks that would never be asked are refused at the start", async () => {
  const wrong: Array<[unknown, string]> = [
    [
      { authorisePublish: () => false },
      'there is no hook "authorisePublish", there are preConnect',
    ],
    [{ authenticate: true }, "authenticate is no function"],
    [[{}, null], "a set of hooks is an object with functions"],
  ];
  for (const [hooks, message] of wrong) {
    const made = createBroker({ memory: true, hooks: hooks as Hooks });
    await expect(made).rejects.toMatchObject({ code: "BROKER_HOOKS_INVALID" });
    expect(await reasonOf(made)).toContain(message);
  }
});

test("what a hook keeps for itself beside its functions is its own", async () => {
  class Rules {
    readonly names = ["a"];
    authorizePublish(_client: unknown, { topic }: { topic: string }): true | false {
      return this.names.includes(topic);
    }
  }
  const broker = await openBroker({ hooks: new Rules() });
  const client = await connectTo(broker);
  await client.publishAsync("a", "x", { qos: 1 });
  expect(await codeOf(client.publishAsync("b", "x", { qos: 1 }))).toBe(0x87);
});

const nonsense: Array<[string, unknown]> = [
  ["a field that means nothing", { allow: false }],
  ["a property that cannot be sent", { properties: { contentType: 5 } }],
  ["an alias", { properties: { topicAlias: 3 } }],
  ["a property that is none", { properties: { colour: "red" } }],
];

test("a hook whose answer makes no message refuses, at once or later, and the client goes on", async () => {
  let answer: unknown;
  const broker = await openBroker({ hooks: { authorizePublish: () => answer as true } });
  const client = await connectTo(broker);
  for (const [what, value] of nonsense) {
    for (const given of [value, Promise.resolve(value)]) {
      answer = given;
      expect(await codeOf(client.publishAsync("a", "x", { qos: 1 })), what).toBe(0x83);
    }
  }
  answer = { properties: { contentType: "text/plain" } };
  await client.publishAsync("a", "x", { qos: 1 });
});

test("the time of hooks is a key of the configuration", async () => {
  const broker = await openBroker({
    hooks: { authorizePublish: () => new Promise<undefined>(() => undefined) },
    settings: { mqtt: { hookTimeout: "20ms" } },
  });
  const client = await connectTo(broker);
  expect(await codeOf(client.publishAsync("a", "x", { qos: 1 }))).toBe(0x83);
});

test("a listener that fails keeps no other from hearing, and is told in the log", async () => {
  const heard: string[] = [];
  const told: unknown[] = [];
  const silent = () => undefined;
  const error = (event: string, fields: unknown) => told.push([event, fields]);
  const broker = await openBroker({
    logger: { debug: silent, info: silent, warn: silent, error },
  });
  broker.on("published", () => {
    throw new Error("oops");
  });
  broker.on("published", (_client, { topic }) => heard.push(topic));
  const client = await connectTo(broker);
  await client.publishAsync("a", "x", { qos: 1 });
  await expect.poll(() => heard, { timeout: 20_000 }).toEqual(["a"]);
  expect(told).toEqual([["broker.hook_failed", { hook: "published", reason: "oops" }]]);
  expect(() => broker.on("publish" as never, silent)).toThrow('got "publish", expected one of');
  expect(() => broker.on("closed", undefined as never)).toThrow("expected a function");
});

test("calls with wrong arguments are told which", async () => {
  const broker = await openBroker({ clock: "manual" });
  const any = broker as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>;
  const wrong: Array<[string, unknown[], string]> = [
    ["publish", [7, "x"], "the topic of publish: got 7"],
    ["publish", ["a", 7], "the payload of publish: got 7, expected a text or bytes"],
    ["publish", ["a", "x", { qos: 3 }], 'the option "qos" of publish: got 3, expected 0, 1 or 2'],
    ["publish", ["a", "x", { retian: true }], 'did you mean "retain"?'],
    ["publish", ["a", "x", { properties: { topicAlias: 1 } }], 'has no property "topicAlias"'],
    ["publish", ["a", "x", { properties: { contentType: 5 } }], "contentType is not a text"],
    [
      "publish",
      ["a", "x", { properties: { messageExpiryS: -1 } }],
      "messageExpiryS is not a whole",
    ],
    ["publish", ["a", "x", { properties: { userProperties: ["a"] } }], "is not a list of pairs"],
    ["publish", ["a", "x", { properties: { correlationData: "id" } }], "is not bytes"],
    ["subscribe", [[]], "the filters of subscribe: got a list, expected a filter, or a list"],
    ["subscribe", ["a", { windowMax: 0 }], "expected a whole number from 1 to 65535"],
    ["subscribe", ["a", { name: "" }], "expected a text of 1 to 1000 bytes"],
    ["subscribe", ["a", { expiryS: -1 }], "expected a whole number from 1 to 4294967295"],
    ["subscribe", ["a", { signal: {} }], "got an object, expected an AbortSignal"],
    ["retained", [undefined], "the topic of retained: got undefined"],
    ["transact", ["", () => 1], "the owner of transact"],
    ["transact", ["a"], "the body of transact: got undefined, expected a function"],
  ];
  for (const [call, args, message] of wrong) {
    const made = any[call]?.(...args) as Promise<unknown>;
    expect(await reasonOf(made)).toContain(message);
    expect(await codeOf(made)).toBe(invalid);
  }
  const wrongBodies: Array<(tx: never) => Promise<unknown>> = [
    async (tx: { put(...args: unknown[]): void }) => tx.put("key", "text"),
    async (tx: { put(...args: unknown[]): void }) => tx.put("", Buffer.from("x")),
    async (tx: { put(...args: unknown[]): void }) => tx.put("a\0b", Buffer.from("x")),
    async (tx: { delete(...args: unknown[]): void }) => tx.delete(7),
    async (tx: { get(...args: unknown[]): Promise<unknown> }) => tx.get("x".repeat(1025)),
    async (tx: { list(...args: unknown[]): Promise<unknown> }) => tx.list("", Number.NaN),
  ];
  for (const body of wrongBodies) {
    expect(await codeOf(broker.transact("app", body as never))).toBe(invalid);
  }
  expect(await broker.transact("app", (tx) => tx.list("", 10))).toEqual([]);
  expect(await codeOf(broker.history("a", { fromUs: -1 }).next())).toBe(invalid);
  expect(await codeOf(broker.clock.advance(Number.NaN))).toBe(invalid);
  expect(await codeOf(broker.clock.advance(-1))).toBe(invalid);
  await broker.publish("a", "the broker is as it was");
});

test("calls that are under way end when the power is cut, also in a transaction", async () => {
  const broker = await openBroker();
  let began: () => void = () => undefined;
  const inBody = new Promise<void>((resolve) => {
    began = resolve;
  });
  const never = new Promise<void>(() => undefined);
  const transaction = codeOf(
    broker.transact("app", async (tx) => {
      tx.put("key", Buffer.from("half"));
      began();
      await never;
    }),
  );
  await inBody;
  const published = codeOf(broker.publish("a", "x", { retain: true }));
  const subscribed = codeOf(broker.subscribe("a", { name: "n" }));
  const crashed = broker.crash();
  expect(await transaction).toBe("NODE_CRASHED");
  expect(await published).toBe("NODE_CRASHED");
  expect(await subscribed).toBe("NODE_CRASHED");
  expect(await codeOf(broker.publish("a", "while it is down"))).toBe("NODE_CRASHED");
  await crashed;
  expect(await broker.transact("app", (tx) => tx.get("key"))).toBeUndefined();
});

test("a reader of the past hears of a close and of a power cut", async () => {
  for (const [end, code] of [
    ["crash", "NODE_CRASHED"],
    ["close", "NODE_CLOSED"],
  ] as const) {
    const broker = await openBroker();
    await broker.subscribe("a", { name: "keeper" });
    for (let at = 0; at < 10; at++) await broker.publish("a", `${at}`);
    const history = broker.history("a");
    expect((await history.next()).value?.payload.toString()).toBe("0");
    const next = codeOf(history.next().then(() => history.next()));
    const ended = broker[end]();
    expect(["fine", code]).toContain(await next);
    expect([code, undefined]).toContain(await codeOf(readOn(history)).then(codeOrEnd));
    await ended;
  }
});

const codeOrEnd = (code: unknown): unknown => (code === "fine" ? undefined : code);

async function readOn(history: AsyncGenerator<InsideMessage, void, void>): Promise<void> {
  for await (const _ of history);
}

test("an aborted signal ends the loop with its reason, and the place is kept", async () => {
  const broker = await openBroker();
  const aborter = new AbortController();
  const messages = await broker.subscribe("a", { name: "n", signal: aborter.signal });
  await broker.publish("a", "1");
  expect((await messages.next()).value?.payload.toString()).toBe("1");
  const next = messages.next();
  const why = new Error("enough");
  aborter.abort(why);
  await expect(next).rejects.toBe(why);
  await broker.publish("a", "2");
  expect(await takeTexts(await broker.subscribe("a", { name: "n" }), 1)).toEqual(["2"]);
  const late = broker.subscribe("a", { signal: aborter.signal });
  await expect(late).rejects.toBe(why);
});

test("several calls of `next` get several messages, in order", async () => {
  const broker = await openBroker();
  const messages = await broker.subscribe("a", { name: "n" });
  const asked = [messages.next(), messages.next(), messages.next()];
  for (const text of ["1", "2", "3"]) await broker.publish("a", text);
  const texts = (await Promise.all(asked)).map(({ value }) => value?.payload.toString());
  expect(texts).toEqual(["1", "2", "3"]);
  const left = [messages.next(), messages.next()];
  await messages.close();
  expect((await Promise.all(left)).map(({ done }) => done)).toEqual([true, true]);
});

test("what an error in the loop interrupts comes again; what was acknowledged before a break does not", async () => {
  const broker = await openBroker();
  const name = "worker";
  const first = await broker.subscribe("a", { name });
  for (const text of ["1", "2", "3"]) await broker.publish("a", text);
  const work = async (): Promise<void> => {
    for await (const { payload } of first) {
      if (payload.toString() === "2") throw new Error("the database is away");
    }
  };
  await expect(work()).rejects.toThrow("the database is away");
  expect(await takeTexts(await broker.subscribe("a", { name }), 1)).toEqual(["2"]);
  expect(await takeTexts(await broker.subscribe("a", { name }), 1)).toEqual(["3"]);
});

test("after a crash every listener and the HTTP interface are where they were", async () => {
  const settings = {
    listeners: { one: { port: 0 }, two: { type: "ws", port: 0 } },
    admin: { enabled: true, port: 0 },
  };
  const broker = await openBroker({ settings });
  const before = broker.listeners.map(({ name, port }) => [name, port]);
  const { port } = broker.admin ?? { port: 0 };
  await broker.crash();
  expect(broker.listeners.map(({ name, port }) => [name, port])).toEqual(before);
  await expect(fetch(`http://127.0.0.1:${port}/livez`)).rejects.toThrow();
  const response = await fetch(`http://127.0.0.1:${broker.admin?.port}/livez`);
  expect(response.status).toBe(200);
  await response.arrayBuffer();
});

test("a crash whose start fails says why, and may be tried again", async () => {
  const mqtt: Record<string, unknown> = {};
  const broker = await openBroker({ settings: { mqtt } });
  await broker.publish("a", "kept", { retain: true });
  mqtt.nonsense = 1;
  expect(await codeOf(broker.crash())).toBe("CONFIG_INVALID");
  expect(await codeOf(broker.publish("a", "x"))).toBe("NODE_CRASHED");
  delete mqtt.nonsense;
  await broker.crash();
  expect((await broker.retained("a"))?.payload.toString()).toBe("kept");
});

test("a folder has one owner: a second node, store or persistence is told, and disturbs nobody", () =>
  withTemporaryFolder(async (folder) => {
    const at = (name: string) => ({ dir: join(folder, name) });
    const broker = await createBroker(at("broker"));
    expect(await codeOf(createBroker(at("broker")))).toBe("NODE_DATA_DIR_IN_USE");
    await broker.publish("a", "kept", { retain: true });
    await broker.close();
    const again = await createBroker(at("broker"));
    expect((await again.retained("a"))?.payload.toString()).toBe("kept");
    await again.close();
    const opened = await openLocalStore(at("store"));
    expect(await codeOf(openLocalStore(at("store")))).toBe("STORE_IN_USE");
    expect(await codeOf(openPersistence(at("store")))).toBe("STORE_IN_USE");
    await opened.close();
  }));

test("a broker leaves the process as it was", async () => {
  const facts = () => ({
    listeners: process.eventNames().map((name) => [name, process.listenerCount(name)]),
    globals: Object.getOwnPropertyNames(globalThis).length,
    environment: { ...process.env },
  });
  const before = facts();
  const [one, other] = [await openBroker(), await openBroker()];
  await one.publish("a", "x");
  expect(facts()).toEqual(before);
  await Promise.all([one.close(), other.close()]);
  expect(facts()).toEqual(before);
});
