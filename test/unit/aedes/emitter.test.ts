// The public conformance suite of mqemitter over a broker, and emitters that share one.

import { createRequire } from "node:module";
import { Aedes } from "aedes";
import mqtt from "mqtt";
import { afterAll, beforeAll, expect, test } from "vitest";
import { FlagstoneEmitter, type MqttBusClient } from "../../../src/aedes/index.ts";
import { SimClock } from "../../../src/base/index.ts";
import { createBroker, type EmbeddedBroker } from "../../../src/node/index.ts";
import { createNodeTest } from "../../support/node-test-shim.ts";

const require = createRequire(import.meta.url);
const abstract: (options: object) => void = require("mqemitter/abstractTest.js");

let broker: EmbeddedBroker;
let count = 0;
const clients: mqtt.MqttClient[] = [];

beforeAll(async () => {
  broker = await createBroker({ memory: true });
});

afterAll(async () => {
  for (const client of clients) client.end(true);
  await broker.close();
});

function build(prefix = `bus-${++count}`): FlagstoneEmitter {
  const client = mqtt.connect(broker.url, { protocolVersion: 5 });
  clients.push(client);
  const id = `emitter-${++count}`;
  return new FlagstoneEmitter(client as unknown as MqttBusClient, { id, prefix });
}

abstract({
  // The wildcards, separators and empty levels are MQTT's.
  test: createNodeTest("mqemitter", [
    "support one level wildcard - not match empty words",
    "support changing one level wildcard",
    "support changing deep wildcard",
    "support changing the level separator",
  ]),
  builder: () => build(),
});

test("emitters of one prefix hear each other, in order; those of another do not", async () => {
  const [one, two, stranger] = [build("shared"), build("shared"), build("apart")];
  const heard: unknown[] = [];
  const strange: unknown[] = [];
  await new Promise<void>((resolve) => {
    two.on(
      "a/#",
      (message, done) => {
        heard.push(message.number0);
        // Slowly: the next one waits.
        setTimeout(done, heard.length % 2);
      },
      () => resolve(),
    );
  });
  await new Promise<void>((resolve) => {
    stranger.on(
      "#",
      (message, done) => {
        strange.push(message);
        done();
      },
      () => resolve(),
    );
  });
  const numbers = Array.from({ length: 50 }, (_, at) => at);
  for (const number0 of numbers) one.emit({ topic: "a/b", number0 });
  await expect.poll(() => heard, { timeout: 20_000 }).toEqual(numbers);
  expect(strange).toEqual([]);
});

test("clients of two Aedes reach each other through one broker", async () => {
  const mq = () => build("aedes-of-two") as never;
  const first = await Aedes.createBroker({ id: "first", mq: mq() });
  const second = await Aedes.createBroker({ id: "second", mq: mq() });
  const texts: string[] = [];
  await new Promise<void>((resolve) => {
    const listener = (packet: { payload: Buffer | string }, done: () => void): void => {
      texts.push(packet.payload.toString());
      done();
    };
    second.subscribe("t", listener as never, () => resolve());
  });
  const packet = { cmd: "publish", topic: "t", payload: Buffer.from("over"), qos: 0 };
  await new Promise<void>((resolve) => first.publish(packet as never, () => resolve()));
  await expect.poll(() => texts, { timeout: 20_000 }).toEqual(["over"]);
  await Promise.all([first, second].map((each) => new Promise<void>((r) => each.close(() => r()))));
});

test("what is emitted beyond the limit is refused with a code", async () => {
  const client = mqtt.connect(broker.url, { protocolVersion: 5 });
  clients.push(client);
  const options = { id: "small", prefix: "small", pendingMax: 1 };
  const emitter = new FlagstoneEmitter(client as unknown as MqttBusClient, options);
  const first = new Promise<unknown>((resolve) => emitter.emit({ topic: "a" }, resolve));
  const second = new Promise<unknown>((resolve) => emitter.emit({ topic: "b" }, resolve));
  expect(await second).toMatchObject({ code: "AEDES_EMITTER_FULL" });
  expect(await first).toBeUndefined();
});

test("an own message that was lost on its way back is not waited for", async () => {
  const clock = new SimClock();
  const heard: unknown[] = [];
  let isLost = false;
  // A broker that answers at once, and whose connection may go before it sends the message back.
  const client: MqttBusClient = {
    connected: true,
    publish: (topic, payload, _options, done) => {
      done();
      if (!isLost) client.handleMessage({ topic, payload }, () => undefined);
    },
    subscribe: (_filter, _options, done) => done(null),
    unsubscribe: (_filter, done) => done(),
    end: (_force, done) => done(),
    handleMessage: () => undefined,
  };
  const emitter = new FlagstoneEmitter(client, { id: "one" }, clock);
  let finishListener = (): void => undefined;
  emitter.on("a", (message, done) => {
    heard.push(message.number0);
    finishListener = done;
  });
  const done: number[] = [];
  emitter.emit({ topic: "a", number0: 1 }, () => done.push(1));
  await clock.advance(60_000);
  expect(heard).toEqual([1]);
  expect(done).toEqual([]); // its listener is at work, however long that takes
  finishListener();
  expect(done).toEqual([1]);
  isLost = true;
  emitter.emit({ topic: "a", number0: 2 }, () => done.push(2));
  await clock.advance(4900);
  expect([done, emitter.length]).toEqual([[1], 1]);
  await clock.advance(200);
  expect([done, emitter.length]).toEqual([[1, 2], 0]);
});
