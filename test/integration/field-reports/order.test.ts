// Faults that users of MQTT brokers have met, against the launched broker (docs/reported-faults.md):
// order and completeness over a long outage, over the seam of backlog and live, and over QoS.

import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { isLong } from "../../support/amount.ts";
import { BreakableLink } from "../../support/breakable-link.ts";
import { LaunchedBroker } from "../../support/launched-broker.ts";
import {
  bytes,
  publish,
  publish5,
  pubrel,
  subscribe4,
  subscribe5,
} from "../../support/mqtt-bytes.ts";
import { numbers, pause, publishNumbered, Receiver } from "../../support/numbered-run.ts";
import type { RawClient } from "../../support/raw-client.ts";

type Level = 4 | 5;
const levels = [4, 5] as const;

let broker: LaunchedBroker;

beforeAll(async () => {
  broker = await LaunchedBroker.open();
});
afterEach(async () => {
  await broker.closeClients();
});
afterAll(async () => {
  await broker[Symbol.asyncDispose]();
});

async function subscribe(client: RawClient, filters: [string, 0 | 1 | 2][]): Promise<void> {
  client.send(client.level === 5 ? subscribe5(1, filters) : subscribe4(1, filters));
  await client.expect("suback");
}

type Stream = { stop(): Promise<number> };

/** Publishes numbers one by one, at a rate, until told to stop; resolves with the last acked one. */
function startStream(client: RawClient, topic: string, perSecond: number): Stream {
  let running = true;
  const form = client.level === 5 ? publish5 : publish;
  const run = (async () => {
    let n = 0;
    while (running) {
      n++;
      client.send(form(topic, `${n}`, { qos: 1, id: 1 }));
      await client.expect("puback");
      await pause(1000 / perSecond);
    }
    return n;
  })();
  return {
    stop: () => {
      running = false;
      return run;
    },
  };
}

/** Each number once, in order, whatever was repeated on the way. */
function expectContiguous(receiver: Receiver, last: number): void {
  expect(receiver.texts()).toEqual(numbers(1, last));
  // And a repeat, which only a resume may bring, carries DUP.
  const seen = new Map<string, number>();
  for (const { text, dup, connection } of receiver.arrivals) {
    const before = seen.get(text);
    if (before !== undefined) expect([text, dup, connection > before]).toEqual([text, true, true]);
    seen.set(text, connection);
  }
}

const outagesMs = isLong ? [20_000, 30_000, 134_000] : [1500, 4000];
const perSecond = isLong ? 2 : 25;

/** S is away without a word for so long, while P goes on. */
async function bridgeGap(level: Level, outageMs: number): Promise<void> {
  const topic = `gap/${level}/${outageMs}`;
  await using link = await BreakableLink.open(broker.port);
  const receiver = new Receiver();
  // Short: the broker itself finds that the client is gone, in the longer outages.
  const options = { level, port: link.port, connect: { keepalive: isLong ? 15 : 1 } };
  const { client } = await broker.resume(topic, withExpiry(options));
  await subscribe(client, [[topic, 1]]);
  receiver.attach(client);
  const ping = setInterval(() => client.send("c000"), isLong ? 5000 : 400);
  const { client: p } = await broker.connect(`p ${topic}`, { level });
  const stream = startStream(p, topic, perSecond);
  await receiver.until(5);
  link.swallow();
  await pause(outageMs);
  clearInterval(ping);
  const { client: back, connack } = await broker.resume(topic, { level });
  expect(connack.sessionPresent).toBe(true);
  receiver.attach(back);
  await pause(300);
  const last = await stream.stop();
  await receiver.until(last);
  expectContiguous(receiver, last);
}

test(`R5: gaps of ${outagesMs.join(", ")} ms are delivered whole and in order, at both levels`, async () => {
  await Promise.all(levels.flatMap((level) => outagesMs.map((ms) => bridgeGap(level, ms))));
});

describe.each(levels)("R5, MQTT level %i", (level) => {
  test("a gap is delivered whole when the broker is killed while it drains", async () => {
    const topic = `drain/${level}`;
    await using link = await BreakableLink.open(broker.port);
    const receiver = new Receiver();
    const { client } = await broker.resume(topic, { level, port: link.port });
    await subscribe(client, [[topic, 1]]);
    receiver.attach(client);
    const { client: p } = await broker.connect(`p ${topic}`, { level });
    await publishNumbered(p, { topic, count: 5 });
    await receiver.until(5);
    link.swallow();
    const count = 4000;
    await publishNumbered(p, { topic, count: count - 5, first: 6, window: 500 });
    for (let kill = 1; kill <= 3; kill++) {
      const { client: back } = await broker.resume(topic, { level, receiveMaximum: 50 });
      receiver.attach(back);
      await receiver.until(Math.min(count, receiver.fresh().length + 400));
      await broker.restart("kill");
    }
    const { client: back } = await broker.resume(topic, { level });
    receiver.attach(back);
    await receiver.until(count);
    expectContiguous(receiver, count);
  });
});

/** CONNECT fields replace the defaults, so the expiry is said again. */
function withExpiry<T extends { level: Level; connect: object }>(options: T): T {
  if (options.level !== 5) return options;
  const properties = { sessionExpiryInterval: 3600 };
  return { ...options, connect: { ...options.connect, properties } };
}

describe.each(levels)("R52, MQTT level %i", (level) => {
  test.each([
    ["smaller", 10],
    ["larger", 1500],
  ])("a backlog %s than the window and live messages do not mix", async (name, backlog) => {
    const topic = `seam/${level}/${name}`;
    const { client } = await broker.resume(topic, { level });
    await subscribe(client, [[topic, 1]]);
    await client.close();
    const { client: p } = await broker.connect(`p ${topic}`, { level });
    await publishNumbered(p, { topic, count: backlog, window: 500 });
    // From here on without a pause, over the return of the subscriber.
    const form = level === 5 ? publish5 : publish;
    const receiver = new Receiver();
    let n = backlog;
    const sendFor = async (ms: number): Promise<void> => {
      const until = performance.now() + ms;
      while (performance.now() < until) {
        n++;
        p.send(form(topic, `${n}`, { qos: 1, id: (n % 60_000) + 1 }));
        await pause(isLong ? 50 : 3);
      }
    };
    p.handle(() => undefined);
    await sendFor(200);
    const { client: back } = await broker.resume(topic, { level });
    receiver.attach(back);
    await sendFor(isLong ? 20_000 : 1000);
    await receiver.until(n);
    expect(receiver.arrivals.map(({ text }) => text)).toEqual(numbers(1, n));
  });
});

test.each(levels)(
  "R53: QoS 0 messages between them do not cost a QoS 2 message, MQTT level %i",
  async (level) => {
    const count = isLong ? 50_000 : 3000;
    const { client } = await broker.resume(`r53 ${level}`, { level });
    await subscribe(client, [
      [`two/${level}`, 2],
      [`zero/${level}`, 2],
    ]);
    const receiver = new Receiver();
    receiver.attach(client);
    const { client: p } = await broker.connect(`p53 ${level}`, { level });
    const form = level === 5 ? publish5 : publish;
    const windowSize = 50;
    let sent = 0;
    let done = 0;
    const sendMore = (): void => {
      const batch: Buffer[] = [];
      while (sent < count && sent - done < windowSize) {
        sent++;
        batch.push(form(`two/${level}`, `${sent}`, { qos: 2, id: (sent % 60_000) + 1 }));
        batch.push(form(`zero/${level}`, `${sent}`));
      }
      if (batch.length > 0) p.send(bytes(...batch));
    };
    p.handle((frame) => {
      if (frame.type === 5) p.send(pubrel(frame.bytes.readUInt16BE(2)));
      if (frame.type !== 7) return;
      done++;
      sendMore();
    });
    sendMore();
    await receiver.until(2 * count, 120_000);
    // QoS 2 by method B would count by exchanges: none is repeated, none is missing.
    const two = receiver.arrivals.filter(({ topic }) => topic.startsWith("two"));
    expect(two.map(({ text }) => text)).toEqual(numbers(1, count));
    expect(new Set(two.map(({ qos }) => qos))).toEqual(new Set([2]));
    const zero = receiver.arrivals.filter(({ topic }) => topic.startsWith("zero"));
    expect(zero.map(({ text }) => text)).toEqual(numbers(1, count));
  },
);
