// Faults that users of MQTT brokers have met, against the launched broker (docs/reported-faults.md):
// takeover, keep alive, wills. Waits run side by side.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isLong } from "../../support/amount.ts";
import { LaunchedBroker } from "../../support/launched-broker.ts";
import {
  type ConnectParts,
  connect,
  field,
  properties,
  publish,
  publish5,
  subscribe4,
  subscribe5,
} from "../../support/mqtt-bytes.ts";
import { numbers, pause, publishNumbered, Receiver } from "../../support/numbered-run.ts";
import type { RawClient } from "../../support/raw-client.ts";

type Level = 4 | 5;
const levels = [4, 5] as const;

let broker: LaunchedBroker;

beforeAll(async () => {
  // Wills and expiries of absent clients count from the start on.
  broker = await LaunchedBroker.open(["--set", "mqtt.restartGrace=0"]);
});
afterAll(async () => {
  await broker[Symbol.asyncDispose]();
});

async function subscribed(on: LaunchedBroker, clientId: string, filter: string) {
  const { client } = await on.connect(clientId, { level: 4 });
  client.send(subscribe4(1, [[filter, 1]]));
  await client.expect("suback");
  return client;
}

type Mortal = ConnectParts & {
  readonly topic: string;
  readonly delayS?: number;
  readonly expiryS?: number;
};

/** Connects with a will; resolves with the client and Session Present. */
async function mortal(on: LaunchedBroker, parts: Mortal) {
  const { topic, level = 5, delayS = 0, expiryS, clean = true } = parts;
  const client = await on.raw(level as Level);
  const u32 = (value: number): string => value.toString(16).padStart(8, "0");
  const will = [field(topic), field("gone")];
  client.send(
    connect({
      ...parts,
      flags: clean ? 0x0e : 0x0c,
      ...(expiryS !== undefined && { properties: `11 ${u32(expiryS)}` }),
      rest: level === 5 ? [properties(`18 ${u32(delayS)}`), ...will] : will,
    }),
  );
  const { bytes } = await client.next();
  expect(bytes[3]).toBe(0);
  return { client, isPresent: bytes[2] === 1 };
}

/**
 * What must happen within a delay says nothing when the machine was too slow for it (false): it is
 * tried with twice the delay then.
 */
async function inTime(firstS: number, run: (delayS: number) => Promise<boolean>): Promise<void> {
  for (let delayS = firstS; !(await run(delayS)); delayS *= 2) {
    if (delayS > 60) throw new Error(`nothing could be done within ${delayS} s`);
  }
}

/** When the watcher hears of the will, counted from now. */
async function secondsToWill(watch: RawClient, withinMs: number): Promise<number> {
  const started = performance.now();
  const { payload } = await watch.expect("publish", withinMs);
  expect(payload.toString()).toBe("gone");
  return (performance.now() - started) / 1000;
}

describe.each(levels)("MQTT level %i", (level) => {
  test("R31: no message is lost while a session is handed over, again and again", async () => {
    const topic = `r31/${level}`;
    const takeovers = isLong ? 200 : 60;
    const receiver = new Receiver();
    const join = async (): Promise<RawClient> => {
      const { client } = await broker.resume(topic, { level });
      receiver.attach(client);
      return client;
    };
    const first = (await broker.resume(topic, { level })).client;
    const filters = [[topic, 1]] as const;
    first.send(level === 5 ? subscribe5(1, filters) : subscribe4(1, filters));
    await first.expect("suback");
    receiver.attach(first);
    let sent = 0;
    let isDone = false;
    const publishing = (async () => {
      const { client } = await broker.connect(`p ${topic}`, { level });
      for (; !isDone; sent += 10) {
        await publishNumbered(client, { topic, count: 10, first: sent + 1 });
        await pause(10);
      }
    })();
    for (let n = 0; n < takeovers; n++) {
      await join();
      await pause(n % 20);
    }
    isDone = true;
    await publishing;
    await receiver.until(sent);
    expect(sent).toBeGreaterThan(takeovers);
    expect(receiver.texts()).toEqual(numbers(1, sent));
    const again = receiver.arrivals.filter((arrival, at) => {
      const before = receiver.arrivals.findIndex(({ text }) => text === arrival.text);
      return before < at && !arrival.dup;
    });
    expect(again).toEqual([]);
  });
});

describe.concurrent("takeover and wills", () => {
  test.each([true, false])(
    "R32: 3.1.1: one will for each kick: clean session %s",
    async (clean) => {
      const topic = `r32/${clean}`;
      const watch = await subscribed(broker, `w ${topic}`, topic);
      for (let n = 0; n < 5; n++) await mortal(broker, { level: 4, clientId: topic, topic, clean });
      for (let n = 1; n <= 4; n++) {
        await watch.expectBytes(publish(topic, "gone", { qos: 1, id: n }));
      }
      await watch.expectSilence(300);
    },
  );

  test.each([undefined, 0])(
    "R33: takeover ends a session of expiry %s: will at once, Session Present 0, 0x8E",
    async (expiryS) => {
      const topic = `r33/${expiryS}`;
      const watch = await subscribed(broker, `w ${topic}`, topic);
      const expiry = expiryS === undefined ? {} : { expiryS };
      const old = await mortal(broker, { clientId: topic, topic, delayS: 5, ...expiry });
      const { connack } = await broker.connect(topic, { clean: false, expiryS: 60 });
      expect(connack.sessionPresent).toBe(false);
      await old.client.expectRefused(0x8e);
      expect(await secondsToWill(watch, 2000)).toBeLessThan(1);
    },
  );

  test("R33: a session that goes on keeps a delayed will back at a takeover", async () => {
    const topic = "r33/goes-on";
    const watch = await subscribed(broker, `w ${topic}`, topic);
    const parts = { clientId: topic, topic, delayS: 2, expiryS: 60, clean: false };
    await mortal(broker, parts);
    const { client, isPresent } = await mortal(broker, parts);
    expect(isPresent).toBe(true);
    await watch.expectSilence(2500);
    client.send("e000");
    await watch.expectSilence(500);
  });

  test("R35: a return within the Will Delay cancels the will", async () => {
    await inTime(isLong ? 5 : 2, async (delayS) => {
      const topic = `r35/${delayS}`;
      const watch = await subscribed(broker, `w ${topic}`, topic);
      const { client } = await mortal(broker, { clientId: topic, topic, delayS, expiryS: 60 });
      const droppedMs = performance.now();
      client.drop();
      await pause(delayS * 400);
      const { connack } = await broker.resume(topic);
      if (performance.now() - droppedMs >= delayS * 1000) return false;
      expect(connack.sessionPresent).toBe(true);
      await watch.expectSilence(delayS * 1000);
      return true;
    });
  });

  test.each(["stop", "kill"] as const)(
    "R35: a Will Delay survives a restart, and a return still cancels it: %s",
    async (end) => {
      await inTime(6, async (delayS) => {
        await using own = await LaunchedBroker.open(["--set", "mqtt.restartGrace=0"]);
        const droppedMs = performance.now();
        for (const clientId of ["returns", "stays"]) {
          const { client } = await mortal(own, { clientId, topic: clientId, delayS, expiryS: 60 });
          client.drop();
        }
        await pause(500);
        await own.restart(end);
        const watch = await subscribed(own, "watch", "+");
        await own.resume("returns");
        if (performance.now() - droppedMs >= delayS * 1000) return false;
        const wills = await watch.expect("publish", delayS * 1000 + 30_000);
        expect(wills.topic).toBe("stays");
        await watch.expectSilence(1000);
        return true;
      });
    },
  );

  test.each([
    [0, 5, 0, 0.7],
    [2, 10, 1.8, 3],
  ])(
    "R36: a session of %i s with a Will Delay of %i s: its will comes with its end",
    async (expiryS, delayS, least, most) => {
      const topic = `r36/${expiryS}`;
      const watch = await subscribed(broker, `w ${topic}`, topic);
      const { client } = await mortal(broker, { clientId: topic, topic, delayS, expiryS });
      client.drop();
      const seconds = await secondsToWill(watch, 5000);
      expect(seconds).toBeGreaterThanOrEqual(least);
      expect(seconds).toBeLessThan(most);
    },
  );

  test("R42: a refused CONNECT with a used client id leaves its owner alone", async () => {
    const topic = "r42";
    const owner = await subscribed(broker, topic, topic);
    const refused = [
      connect({ clientId: topic, properties: "15 0001 6d" }),
      connect({ clientId: topic, flags: 0x06, rest: ["00", field("$SYS/x"), field("")] }),
      connect({ clientId: topic, flags: 0x03 }),
    ];
    for (const sent of refused) {
      const client = await broker.raw();
      client.send(sent);
      const [connack] = await client.expectClosed();
      expect(connack?.bytes[3]).toBeGreaterThanOrEqual(0x80);
    }
    const { client: p } = await broker.connect(`p ${topic}`);
    p.send(publish5(topic, "x"));
    await owner.expectBytes(publish(topic, "x"));
  });
});

describe.concurrent("R38: keep alive", () => {
  // Short form and the reported one.
  const keepAliveS = isLong ? 10 : 2;
  const pingMs = keepAliveS * 900;

  test("who pings in time under a flood stays; who then falls silent is cut, with will", async () => {
    const topic = "r38/flood";
    const { client, watch } = await alive(topic);
    const flood = await broker.connect(`flood ${topic}`, { level: 4 });
    client.send(subscribe5(1, [[`${topic}/in`, 0]]));
    await client.expect("suback");
    let floods = 0;
    let pongs = 0;
    client.handle(({ type }) => {
      if (type === 3) floods++;
      if (type === 13) pongs++;
    });
    const rounds = isLong ? 33 : 4;
    let isFlooding = true;
    const flooding = (async () => {
      const batch = Buffer.concat(Array.from({ length: 100 }, () => publish(`${topic}/in`, "x")));
      while (isFlooding) {
        flood.client.send(batch);
        await pause(20);
      }
    })();
    for (let n = 0; n < rounds; n++) {
      await pause(pingMs);
      client.send("c000");
    }
    expect(client.isClosed).toBe(false);
    isFlooding = false;
    await flooding;
    expect(await secondsToWill(watch, keepAliveS * 2000)).toBeLessThan(keepAliveS * 1.5 + 0.5);
    await client.expectClosed();
    expect([pongs, floods > rounds * 100]).toEqual([rounds, true]);
  });

  test("a PUBLISH that trickles in and never completes is no sign of life", async () => {
    const topic = "r38/trickle";
    const { client, watch } = await alive(topic);
    client.send("30 7f 0001 61");
    const started = performance.now();
    const trickle = setInterval(() => !client.isClosed && client.send("78"), keepAliveS * 500);
    await secondsToWill(watch, keepAliveS * 2000);
    clearInterval(trickle);
    expect((performance.now() - started) / 1000).toBeLessThan(keepAliveS * 1.5 + 0.5);
    await client.expectClosed();
  });

  async function alive(topic: string) {
    const watch = await subscribed(broker, `w ${topic}`, topic);
    const { client } = await mortal(broker, { clientId: topic, topic, keepAliveS });
    return { client, watch };
  }
});
