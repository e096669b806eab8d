// Faults that users of MQTT brokers have met, against the launched broker (docs/reported-faults.md):
// windows and sizes, many clients, many topics, bridges.

import { readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { isLong } from "../../support/amount.ts";
import { collectedHeapBytes, withInspector } from "../../support/heap-size.ts";
import { LaunchedBroker } from "../../support/launched-broker.ts";
import {
  bytes,
  connect,
  puback,
  publish,
  publish5,
  subscribe4,
  subscribe5,
  unsubscribe4,
  varint,
} from "../../support/mqtt-bytes.ts";
import {
  numbers,
  pause,
  publishNumbered,
  Receiver,
  waitUntil,
} from "../../support/numbered-run.ts";
import type { RawClient } from "../../support/raw-client.ts";

const mib = 2 ** 20;
const limitBytes = 2 * mib;

let broker: LaunchedBroker;

beforeAll(async () => {
  const args = [
    ...["--set", "mqtt.receiveMaximum=1"],
    ...["--set", `mqtt.maxPacketSize=${limitBytes / mib}MiB`],
    ...["--set", "mqtt.preAuthSocketsPerAddress=0"],
    ...["--set", "mqtt.preAuthTime=3s"],
  ];
  broker = await LaunchedBroker.open(args, withInspector);
});
beforeEach(async () => {
  await broker.closeClients();
});
afterAll(async () => {
  await broker[Symbol.asyncDispose]();
});

function residentBytes(): number {
  const status = readFileSync(`/proc/${broker.process.pid}/status`, "utf8");
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) * 1024;
}

function descriptors(): number {
  return readdirSync(`/proc/${broker.process.pid}/fd`).length;
}

async function subscribed(clientId: string, filter: string, qos: 0 | 1 | 2): Promise<RawClient> {
  const { client } = await broker.connect(clientId, { level: 4 });
  client.send(subscribe4(1, [[filter, qos]]));
  await client.expect("suback");
  return client;
}

describe("windows and sizes", () => {
  test("R77: more than our Receive Maximum at once: 0x93", async () => {
    const { client, connack } = await broker.connect("r77");
    expect(connack.properties?.receiveMaximum).toBe(1);
    client.send(publish5("r77", "1", { qos: 2, id: 1 }));
    await client.expect("pubrec");
    client.send(publish5("r77", "2", { qos: 2, id: 2 }));
    await client.expectRefused(0x93);
  });

  test("R81: one missing PUBACK holds its slot of the window, and nothing else", async () => {
    const count = 1000;
    const { client } = await broker.resume("r81", { receiveMaximum: 20 });
    client.send(
      subscribe5(1, [
        ["r81/+", 1],
        ["r81/zero", 0],
      ]),
    );
    await client.expect("suback");
    const receiver = new Receiver();
    receiver.mute = ({ text, connection }) => text === "3" && connection === 1;
    receiver.attach(client);
    const { client: p } = await broker.connect("p r81", { level: 4 });
    await publishNumbered(p, { topic: "r81/a", count });
    p.send(publish("r81/zero", "zero"));
    await receiver.until(count + 1);
    expect(receiver.texts("r81/a")).toEqual(numbers(1, count));
    expect(receiver.arrivals).toHaveLength(count + 1);
  });

  test("R83: the limit counts the fixed header; 0x95 as soon as the length is known", async () => {
    const watch = await subscribed("w r83", "r83", 0);
    const { client } = await broker.connect("r83", { level: 4 });
    const sized = (size: number): Buffer => {
      const overhead = publish("r83", "x".repeat(limitBytes / 2)).length - limitBytes / 2;
      return publish("r83", Buffer.alloc(size - overhead, "x"));
    };
    for (const size of [limitBytes - 1, limitBytes]) {
      const sent = sized(size);
      expect(sent.length).toBe(size);
      client.send(sent);
      expect((await watch.next()).bytes.equals(sent)).toBe(true);
    }
    const before = residentBytes();
    const { client: five } = await broker.connect("r83 five");
    five.send(bytes("30", varint(200 * mib)));
    await five.expectRefused(0x95);
    client.send(bytes("30", varint(limitBytes)));
    await client.expectRefused(0x95);
    expect(residentBytes() - before).toBeLessThan(16 * mib);
  });

  test("R131: a retained document of over a megabyte passes; a refusal says why in the log", async () => {
    const document = Buffer.alloc(1.2 * mib, "z");
    const { client: p } = await broker.connect("p r131", { level: 4 });
    p.send(publish("bridge/devices", document, { qos: 1, id: 1, retain: true }));
    await p.expect("puback");
    const { client } = await broker.connect("r131", { level: 4 });
    client.send(subscribe4(1, [["bridge/#", 0]]));
    await client.expect("suback");
    const kept = (await client.next()).bytes;
    expect(kept.equals(publish("bridge/devices", document, { retain: true }))).toBe(true);
    const { client: large } = await broker.connect("r131 too large", { level: 4 });
    large.send(publish("bridge/devices", Buffer.alloc(3 * mib, "z")));
    await large.expectClosed();
    await waitUntil(
      () => broker.process.stderr().includes("r131 too large"),
      2000,
      () => "no line names the client",
    );
    const line = broker.process
      .stderr()
      .split("\n")
      .find((each) => each.includes("r131 too large"));
    expect(line).toMatch(/packet_too_large/);
    expect(line).toMatch(/3145\d\d\d bytes/);
  });

  test("R86: announced lengths before login cost no memory, and time is limited", async () => {
    const before = residentBytes();
    const open = descriptors();
    const count = isLong ? 1000 : 300;
    const trickling = await Promise.all(
      Array.from({ length: count }, async (_, n) => {
        const client = await broker.raw(4);
        // Half of them announce too much; the others send a CONNECT of 60 KB byte by byte.
        client.send(n % 2 === 0 ? bytes("10", varint(256 * mib - 1)) : bytes("10", varint(60_000)));
        return client;
      }),
    );
    const slow = trickling.filter((_, n) => n % 2 === 1);
    const trickle = setInterval(() => {
      for (const client of slow) if (!client.isClosed) client.send("00");
    }, 500);
    await Promise.all(
      trickling.map(async (client, n) => {
        const frames = await client.expectClosed(n % 2 === 0 ? 2000 : 6000);
        expect(frames.every(({ type }) => type === 2)).toBe(true);
      }),
    );
    clearInterval(trickle);
    expect(residentBytes() - before).toBeLessThan(32 * mib);
    await broker.closeClients();
    await waitUntil(
      () => descriptors() <= open,
      5000,
      () => `${descriptors()} open, once ${open}`,
    );
  });
});

describe("crowds", () => {
  test("R41: what churns leaves nothing behind: descriptors, sessions, memory", async () => {
    const churn = async (count: number): Promise<void> => {
      for (let at = 0; at < count; at += 25) {
        await Promise.all(
          Array.from({ length: 25 }, async (_, n) => {
            const client = await broker.raw(4);
            const clientId = n % 2 === 0 ? `r41 ${at + n}` : "r41 twin";
            client.send(bytes(connect({ level: 4, clientId }), subscribe4(1, [["r41", 0]])));
            // Some go before they have an answer.
            if (n % 5 !== 0) await client.next().catch(() => undefined);
            client.drop();
            await client.close();
          }),
        );
      }
    };
    await churn(500);
    const open = descriptors();
    const before = await collectedHeapBytes(broker.process);
    await churn(isLong ? 10_000 : 1500);
    await waitUntil(
      () => descriptors() <= open,
      5000,
      () => `${descriptors()} open, once ${open}`,
    );
    const growth = (await collectedHeapBytes(broker.process)) - before;
    // About two kilobytes a client.
    expect(growth).toBeLessThan((isLong ? 16 : 3) * mib);
    const { client: p } = await broker.connect("p r41");
    p.send(publish5("r41", "x", { qos: 1, id: 1 }));
    await p.expectBytes("40 03 0001 10");
  });

  // In memory, and on disk, which takes longer.
  test.each(isLong ? [true, false] : [true])(
    "R97: filters that are given up leave the tree as small and quick as before: clean %s",
    async (clean) => {
      // Every cache is full after so many.
      const warmUp = clean ? 80_000 : 200_000;
      const rounds = !isLong ? 150_000 : clean ? 1_000_000 : 300_000;
      await using own = await LaunchedBroker.open([], withInspector);
      let { client } = await own.connect("r97", { level: 4, clean });
      const { client: p } = await own.connect("p r97", { level: 4 });
      const roundTripMs = async (): Promise<number> => {
        const times: number[] = [];
        for (let n = 1; n <= 101; n++) {
          const started = performance.now();
          p.send(publish("r97/none", "x", { qos: 1, id: n }));
          await p.expect("puback");
          times.push(performance.now() - started);
        }
        return times.sort((a, b) => a - b)[50] as number;
      };
      const churn = async (from: number, count: number): Promise<void> => {
        for (let at = from; at < from + count; at += 500) {
          const names = Array.from({ length: 500 }, (_, n) => `r97/${at + n}/+/state`);
          const asked = names.map((name) => [name, clean ? 0 : 1] as const);
          client.send(subscribe4(1, asked));
          await client.expect("suback", 10_000);
          if (clean && at % 1000 === 0) {
            // Half of them go with their client.
            client.drop();
            client = (await own.connect("r97", { level: 4, clean })).client;
          } else {
            client.send(unsubscribe4(2, names));
            await client.expect("unsuback", 10_000);
          }
        }
      };
      const measure = async () => ({
        ms: await roundTripMs(),
        bytes: await collectedHeapBytes(own.process),
      });
      await churn(0, warmUp);
      const before = await measure();
      await churn(warmUp, rounds);
      const after = await measure();
      // Rounded up generously: a tree that is not pruned makes it ten times as slow.
      expect(after.ms).toBeLessThan(5 * before.ms + 2);
      // In the short run 56 bytes a filter: a name that stays is more. Full caches vary by half of it.
      expect(after.bytes - before.bytes).toBeLessThan(8 * mib);
    },
  );

  test.each([0, 1] as const)(
    "R134: a thousand retained documents reach a reader that pauses for 2 s: QoS %i",
    async (qos) => {
      const count = 1104;
      const topicOf = (n: number): string => `r134/${n}/config`;
      const { client: p } = await broker.connect("p r134", { level: 4 });
      const document = Buffer.alloc(2000, "{");
      for (let n = 0; n < count; n++) {
        p.send(publish(topicOf(n), document, { qos: 1, id: n + 1, retain: true }));
      }
      for (let n = 0; n < count; n++) await p.expect("puback");
      const { client } = await broker.connect("r134", { level: 4 });
      client.pause();
      client.send(subscribe4(1, [["r134/+/config", qos]]));
      await pause(2000);
      client.resume();
      await client.expect("suback");
      const topics = new Set<string>();
      while (topics.size < count) {
        const { topic, messageId, retain } = await client.expect("publish");
        expect(retain).toBe(true);
        topics.add(topic);
        if (qos === 1) client.send(puback(messageId as number));
      }
      await client.expectNothing();
    },
  );
});

test("R11: no topic of a durable reader stands still, whatever becomes of its publishers", async () => {
  const topics = 20;
  // The reported hour is the soak's (bench/soak); this is long enough for 240 restarts of a bridge.
  const rounds = isLong ? 6000 : 60;
  const { client: s } = await broker.resume("r11", { level: 4 });
  s.send(subscribe4(1, [["r11/#", 1]]));
  await s.expect("suback");
  const receiver = new Receiver();
  receiver.attach(s);
  // A bridge of 3.1.1 says so in its level.
  const join = async (): Promise<RawClient> => {
    const client = await broker.raw(4);
    const asked = connect({ level: 4, clientId: "bridge r11", clean: false });
    asked[asked.indexOf("MQTT") + 4] = 0x84;
    client.send(asked);
    await client.expect("connack");
    return client;
  };
  let bridge = await join();
  /** When each round was acked. */
  const ackedMs: number[] = [];
  for (let n = 1; n <= rounds; n++) {
    if (n % 25 === 0) {
      bridge.drop();
      bridge = await join();
    }
    for (let topic = 0; topic < topics; topic++) {
      bridge.send(publish(`r11/${topic}`, `${n}`, { qos: 1, id: topic + 1 }));
    }
    for (let topic = 0; topic < topics; topic++) await bridge.expect("puback");
    ackedMs.push(performance.now());
    await pause(100);
    for (let topic = 0; topic < topics; topic++) {
      const got = receiver.count(`r11/${topic}`);
      const silentMs = got < n ? performance.now() - (ackedMs[got] as number) : 0;
      expect(silentMs, `r11/${topic} stands still`).toBeLessThan(5000);
    }
  }
  await receiver.until(rounds * topics);
  for (let topic = 0; topic < topics; topic++) {
    expect(receiver.texts(`r11/${topic}`)).toEqual(numbers(1, rounds));
  }
});
