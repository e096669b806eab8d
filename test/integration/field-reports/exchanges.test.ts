// Faults that users of MQTT brokers have met, against the launched broker (docs/reported-faults.md):
// exchanges at QoS 1 and 2 that are cut in their middle.

import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { isLong } from "../../support/amount.ts";
import { LaunchedBroker } from "../../support/launched-broker.ts";
import {
  bytes,
  puback,
  pubcomp,
  publish,
  publish5,
  pubrec,
  pubrel,
  subscribe4,
  subscribe5,
} from "../../support/mqtt-bytes.ts";
import { pause, Receiver } from "../../support/numbered-run.ts";
import type { RawClient } from "../../support/raw-client.ts";

type Level = 4 | 5;
const levels = [4, 5] as const;

let broker: LaunchedBroker;
let serial = 0;
/** A name of its own for each test. */
let name = "";

beforeAll(async () => {
  broker = await LaunchedBroker.open();
});
beforeEach(() => {
  serial++;
  name = `n${serial}`;
});
afterAll(async () => {
  await broker[Symbol.asyncDispose]();
});

async function resume(clientId: string, level: Level): Promise<RawClient> {
  return (await broker.resume(clientId, { level })).client;
}

async function subscribed(level: Level, qos: 0 | 1 | 2): Promise<RawClient> {
  const client = await resume(`s ${name}`, level);
  client.send(level === 5 ? subscribe5(1, [[name, qos]]) : subscribe4(1, [[name, qos]]));
  await client.expect("suback");
  return client;
}

const formOf = (level: Level): typeof publish => (level === 5 ? publish5 : publish);

describe.each(levels)("MQTT level %i", (level) => {
  const form = formOf(level);

  test("R17: PUBREL again after a lost PUBCOMP is answered, the connection stays", async () => {
    const p = await resume(`p ${name}`, level);
    p.send(form(name, "x", { qos: 2, id: 5 }));
    expect((await p.expect("pubrec")).messageId).toBe(5);
    p.send(pubrel(5));
    await p.expectBytes(pubcomp(5));
    p.drop();
    const again = await resume(`p ${name}`, level);
    again.send(pubrel(5));
    const { bytes: answer } = await again.next();
    expect([...answer.subarray(0, 1), ...answer.subarray(2, 4)]).toEqual([0x70, 0, 5]);
    expect([undefined, 0x00, 0x92]).toContain(answer[4]);
    await again.expectSilence(isLong ? 10_000 : 500);
    await again.expectNothing();
  });

  test("R19: a PUBREC for each PUBLISH of this connection, one message", async () => {
    const s = await subscribed(level, 0);
    const p = await resume(`p ${name}`, level);
    p.send(form(name, "x", { qos: 2, id: 3 }));
    await p.expectBytes(pubrec(3));
    p.drop();
    const again = await resume(`p ${name}`, level);
    await again.expectNothing();
    again.send(form(name, "x", { qos: 2, id: 3, dup: true }));
    await again.expectBytes(pubrec(3));
    await again.expectNothing();
    again.send(pubrel(3));
    await again.expectBytes(pubcomp(3));
    await again.expectNothing();
    await s.expectBytes(form(name, "x"));
    await s.expectNothing();
  });

  test("R26: what is resent after a resume carries DUP and its id", async () => {
    const s = await subscribed(level, 2);
    const p = await resume(`p ${name}`, level);
    p.send(bytes(form(name, "one", { qos: 1, id: 1 }), form(name, "two", { qos: 2, id: 2 })));
    await p.expect("puback");
    await p.expect("pubrec");
    await s.expectBytes(form(name, "one", { qos: 1, id: 1 }));
    await s.expectBytes(form(name, "two", { qos: 2, id: 2 }));
    s.drop();
    const back = await resume(`s ${name}`, level);
    await back.expectBytes(form(name, "one", { qos: 1, id: 1, dup: true }));
    await back.expectBytes(form(name, "two", { qos: 2, id: 2, dup: true }));
    back.send(bytes(puback(1), pubrec(2)));
    await back.expectBytes(pubrel(2));
    back.send(pubcomp(2));
    await back.expectNothing();
  });

  test.each(["drop", "stop", "kill"] as const)(
    "R27: an owed PUBREL is the first packet behind CONNACK: %s",
    async (end) => {
      const s = await subscribed(level, 2);
      const p = await resume(`p ${name}`, level);
      p.send(form(name, "x", { qos: 2, id: 1 }));
      await p.expect("pubrec");
      await s.expectBytes(form(name, "x", { qos: 2, id: 1 }));
      s.send(pubrec(1));
      // The PUBREL is there, so the release is durable; the client never saw it.
      await s.expectBytes(pubrel(1));
      if (end === "drop") s.drop();
      else await broker.restart(end);
      const back = await resume(`s ${name}`, level);
      await back.expectBytes(pubrel(1));
      back.send(pubcomp(1));
      await back.expectNothing();
    },
  );

  test.each(["drop", "stop", "kill"] as const)(
    "R20: released on a second connection it keeps its QoS and is retained: %s",
    async (end) => {
      const s = await subscribed(level, 2);
      const p = await resume(`p ${name}`, level);
      p.send(form(name, "kept", { qos: 2, id: 9, retain: true }));
      await p.expectBytes(pubrec(9));
      if (end === "drop") p.drop();
      else await broker.restart(end);
      const again = await resume(`p ${name}`, level);
      again.send(pubrel(9));
      await again.expectBytes(pubcomp(9));
      const receiver = new Receiver();
      // With the broker its connection ended.
      receiver.attach(end === "drop" ? s : await resume(`s ${name}`, level));
      await receiver.until(1);
      await pause(100);
      expect(receiver.fresh().map(({ text, qos }) => `${text} ${qos}`)).toEqual(["kept 2"]);
      const { client: reader } = await broker.connect("reader", { level });
      reader.send(level === 5 ? subscribe5(1, [[name, 2]]) : subscribe4(1, [[name, 2]]));
      await reader.expect("suback");
      await reader.expectBytes(form(name, "kept", { qos: 2, id: 1, retain: true }));
    },
  );
});

/** Milliseconds between the delivery and the kill. */
const momentsMs = isLong
  ? Array.from({ length: 41 }, (_, index) => index * 25)
  : [0, 1, 3, 10, 50, 200, 1000];

test.each(momentsMs.map((ms, index) => [ms, index % 2 === 0 ? 4 : 5] as const))(
  "R21: killed %i ms after its delivery a QoS 2 message is not delivered again (level %i)",
  async (delayMs, level) => {
    const form = formOf(level);
    const s = new Receiver();
    s.attach(await subscribed(level, 2));
    const p = await resume(`p ${name}`, level);
    p.send(form(name, "once", { qos: 2, id: 7 }));
    await s.until(1);
    await pause(delayMs);
    await broker.restart("kill");
    const again = await resume(`p ${name}`, level);
    again.send(form(name, "once", { qos: 2, id: 7, dup: true }));
    await again.expectBytes(pubrec(7));
    again.send(pubrel(7));
    await again.expectBytes(pubcomp(7));
    s.attach(await resume(`s ${name}`, level));
    again.send(form(name, "behind", { qos: 1, id: 8 }));
    await again.expectBytes(puback(8));
    await s.until(2);
    await pause(50);
    const exchanges = s.arrivals.filter(({ isRepeat }) => !isRepeat).map(({ text }) => text);
    expect(exchanges).toEqual(["once", "behind"]);
  },
);

/** Milliseconds between the sending of PUBLISH and the kill: the broker is at work on it. */
const earlyMomentsMs = isLong ? Array.from({ length: 31 }, (_, ms) => ms) : [0, 2, 5, 10, 20];

test.each(earlyMomentsMs.map((ms, index) => [ms, index % 2 === 0 ? 5 : 4] as const))(
  "R21: killed %i ms after it was sent a QoS 2 message is delivered once (level %i)",
  async (delayMs, level) => {
    const form = formOf(level);
    const s = new Receiver();
    s.attach(await subscribed(level, 2));
    const p = await resume(`p ${name}`, level);
    p.send(form(name, "once", { qos: 2, id: 7 }));
    await pause(delayMs);
    await broker.restart("kill");
    s.attach(await resume(`s ${name}`, level));
    const again = await resume(`p ${name}`, level);
    again.send(form(name, "once", { qos: 2, id: 7, dup: true }));
    await again.expectBytes(pubrec(7));
    again.send(pubrel(7));
    await again.expectBytes(pubcomp(7));
    again.send(form(name, "behind", { qos: 1, id: 8 }));
    await again.expectBytes(puback(8));
    await s.until(2);
    await pause(50);
    const exchanges = s.arrivals.filter(({ isRepeat }) => !isRepeat).map(({ text }) => text);
    expect(exchanges).toEqual(["once", "behind"]);
  },
);

const silenceMs = isLong ? 120_000 : 5000;

describe.concurrent("R28", () => {
  test.each([true, false])(
    "nothing is resent on an open connection, MQTT 3.1.1 and 5, clean start %s",
    async (clean) => {
      const topic = `r28/${clean}`;
      const readers = await Promise.all(
        levels.map(async (level) => {
          const { client } = await broker.connect(`s ${topic} ${level}`, { level, clean });
          client.send(level === 5 ? subscribe5(1, [[topic, 2]]) : subscribe4(1, [[topic, 2]]));
          await client.expect("suback");
          return client;
        }),
      );
      const { client: p } = await broker.connect(`p ${topic}`, { level: 4 });
      p.send(
        bytes(publish(topic, "one", { qos: 1, id: 1 }), publish(topic, "two", { qos: 2, id: 2 })),
      );
      await p.expect("puback");
      for (const client of readers) {
        await client.expect("publish");
        await client.expect("publish");
      }
      await Promise.all(readers.map((client) => client.expectSilence(silenceMs)));
      for (const client of readers) await client.expectNothing();
    },
  );
});
