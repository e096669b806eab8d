// Faults that users of MQTT brokers have met, against the launched broker (docs/reported-faults.md):
// retained messages.

import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { isLong } from "../../support/amount.ts";
import { LaunchedBroker } from "../../support/launched-broker.ts";
import { puback, publish, publish5, subscribe4, subscribe5 } from "../../support/mqtt-bytes.ts";
import { pause, waitUntil } from "../../support/numbered-run.ts";
import type { RawClient } from "../../support/raw-client.ts";

type Level = 4 | 5;
const levels = [4, 5] as const;

/** Retained messages of R56. */
const manyCount = isLong ? 100_000 : 20_000;
const payloadBytes = 500;

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

async function connected(who: string, level: Level, durable = false): Promise<RawClient> {
  const id = `${who} ${name}`;
  const opened = durable ? broker.resume(id, { level }) : broker.connect(id, { level });
  return (await opened).client;
}

function subscribing(level: Level, filter: string, options: number): Buffer {
  return level === 5 ? subscribe5(1, [[filter, options]]) : subscribe4(1, [[filter, options & 3]]);
}

async function keep(topic: string, payload: string, qos: 0 | 1 = 1): Promise<void> {
  const client = await connected("keeper", 4);
  client.send(publish(topic, payload, { qos, id: qos, retain: true }));
  if (qos === 1) await client.expectBytes(puback(1));
  else await client.expectNothing();
  await client.close();
}

/** Many at a time, each acked. */
async function keepMany(count: number): Promise<void> {
  const client = await connected("keeper", 4);
  const payload = "x".repeat(payloadBytes);
  let acked = 0;
  client.handle(({ packet }) => {
    if (packet?.cmd === "puback") acked++;
  });
  for (let sent = 0; sent < count; ) {
    for (const until = Math.min(count, sent + 500); sent < until; sent++) {
      const id = (sent % 60_000) + 1;
      client.send(publish(`${name}/${sent % 97}/${sent}`, payload, { qos: 1, id, retain: true }));
    }
    while (acked < sent) await pause(5);
  }
  await client.close();
}

async function residentBytes(): Promise<number> {
  const status = await readFile(`/proc/${broker.process.pid}/status`, "utf8");
  return Number(status.match(/VmRSS:\s+(\d+) kB/)?.[1]) * 1024;
}

describe.each(levels)("MQTT level %i", (level) => {
  test("R59: a delete goes to live subscribers, and stays over a restart", async () => {
    await keep(name, "old");
    const s = await connected("s", level);
    s.send(subscribing(level, name, 1));
    await s.expect("suback");
    s.send(puback((await s.expect("publish")).messageId!));
    await keep(name, "");
    const deleted = await s.expect("publish");
    expect([deleted.payload.length, deleted.retain]).toEqual([0, false]);
    for (const end of ["stop", "kill"] as const) {
      await broker.restart(end);
      const late = await connected("late", level);
      late.send(subscribing(level, name, 1));
      await late.expect("suback");
      await late.expectNothing();
    }
  });

  test("R63: a resume brings nothing, a SUBSCRIBE does by Retain Handling", async () => {
    await keep(name, "kept");
    const cases = level === 5 ? [0, 0x10, 0x20] : [0];
    for (const handling of cases) {
      const who = `s${handling}`;
      const s = await connected(who, level, true);
      s.send(subscribing(level, name, handling));
      await s.expect("suback");
      if (handling === 0x20) await s.expectNothing();
      else await s.expect("publish");
      await s.close();
      const again = await connected(who, level, true);
      await again.expectNothing();
      again.send(subscribing(level, name, handling));
      await again.expect("suback");
      if (handling === 0) await again.expect("publish");
      else await again.expectNothing();
    }
  });

  test("R66: a retained message has the QoS it came with", async () => {
    await keep(`${name}/0`, "m", 0);
    await keep(`${name}/1`, "m", 1);
    const s = await connected("s", level);
    s.send(subscribing(level, `${name}/+`, 1));
    await s.expect("suback");
    const got = [await s.expect("publish"), await s.expect("publish")];
    const qosByTopic = Object.fromEntries(got.map(({ topic, qos }) => [topic, qos]));
    expect(qosByTopic).toEqual({ [`${name}/0`]: 0, [`${name}/1`]: 1 });
  });

  test("R57: 5,000 retained messages come whole, with the default configuration", async () => {
    await keepMany(5000);
    const s = await connected("s", level);
    const topics = new Set<string>();
    s.send(subscribing(level, `${name}/#`, 1));
    s.handle(({ packet }) => {
      if (packet?.cmd !== "publish") return;
      topics.add(packet.topic);
      s.send(puback(packet.messageId!));
    });
    await waitUntil(
      () => topics.size === 5000,
      60_000,
      () => `${topics.size} came`,
    );
  });
});

test("R45: the expiry of a retained message is counted down, of a live one it is what it was", async () => {
  const live = await connected("live", 5);
  live.send(subscribe5(1, [[name, 0]]));
  await live.expect("suback");
  const p = await connected("p", 5);
  p.send(publish5(name, "m", { qos: 1, id: 1, retain: true, properties: "02 0000000a" }));
  await p.expect("puback");
  const atOnce = (await live.expect("publish")).properties?.messageExpiryInterval;
  expect([9, 10]).toContain(atOnce);
  await pause(1900);
  const s = await connected("s", 5);
  s.send(subscribe5(1, [[name, 0]]));
  await s.expect("suback");
  const { properties } = await s.expect("publish");
  expect(properties?.messageExpiryInterval).toBeLessThan(atOnce as number);
  expect(properties?.messageExpiryInterval).toBeGreaterThan(5);
});

test("R65: a retained message carries the Subscription Identifier", async () => {
  await keep(name, "m");
  const s = await connected("s", 5);
  s.send(subscribe5(1, [[name, 0]], "0b 2a"));
  await s.expect("suback");
  expect((await s.expect("publish")).properties?.subscriptionIdentifier).toBe(42);
});

test(`R56: ${manyCount} retained messages reach a reader that stops and goes, in flat memory`, async () => {
  await keepMany(manyCount);
  for (const qos of [0, 1] as const) {
    const s = await connected(`s${qos}`, 5);
    const topics = new Set<string>();
    s.handle(({ packet }) => {
      if (packet?.cmd !== "publish") return;
      topics.add(packet.topic);
      if (packet.qos === 1) s.send(puback(packet.messageId!));
    });
    const before = await residentBytes();
    s.send(subscribe5(1, [[`${name}/#`, qos]]));
    let highest = before;
    for (let quietSince = performance.now(); topics.size < manyCount; ) {
      const seen = topics.size;
      if (seen < manyCount / 2) {
        s.pause();
        await pause(150);
      }
      highest = Math.max(highest, await residentBytes());
      s.resume();
      await pause(100);
      if (topics.size > seen) quietSince = performance.now();
      if (performance.now() - quietSince > 20_000) break;
    }
    expect(topics.size).toBe(manyCount);
    if (isLong) console.log(`R56 QoS ${qos}: ${Math.round((highest - before) / 2 ** 20)} MiB more`);
    // All of them at once would be several times that.
    expect(highest - before).toBeLessThan(0.6 * manyCount * payloadBytes + 48 * 1024 * 1024);
  }
}, 180_000);
