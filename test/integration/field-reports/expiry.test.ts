// Faults that users of MQTT brokers have met, against the launched broker (docs/reported-faults.md):
// expiry of messages and sessions. Waits run side by side.

import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createAdminClient } from "../../../src/admin/client.ts";
import { isLong } from "../../support/amount.ts";
import { diskList, diskUsage } from "../../support/disk-usage.ts";
import { collectedHeapBytes, withInspector } from "../../support/heap-size.ts";
import { LaunchedBroker } from "../../support/launched-broker.ts";
import {
  bytes,
  connect,
  puback,
  pubcomp,
  publish5,
  pubrec,
  pubrel,
  subscribe4,
  subscribe5,
  unsubscribe5,
} from "../../support/mqtt-bytes.ts";
import { numbers, pause, publishNumbered } from "../../support/numbered-run.ts";
import type { RawClient } from "../../support/raw-client.ts";

let broker: LaunchedBroker;
let admin: ReturnType<typeof createAdminClient>;

function adminOf({ process: { adminPort, startLines } }: LaunchedBroker) {
  const key = /\bfs_\w{8}_[\w-]{43}/.exec(startLines.join("\n"))?.[0] ?? "";
  return createAdminClient({ url: `http://127.0.0.1:${adminPort}`, key });
}

beforeAll(async () => {
  const args = ["--set", "mqtt.sessionExpiryMax=60s", "--admin-port", "0"];
  broker = await LaunchedBroker.open([...args, "--set", "mqtt.receiveMaximum=1000"]);
  admin = adminOf(broker);
});
afterAll(async () => {
  await broker[Symbol.asyncDispose]();
});

async function resume(clientId: string, maximumPacketSize?: number): Promise<RawClient> {
  const properties = {
    sessionExpiryInterval: 60,
    ...(maximumPacketSize !== undefined && { maximumPacketSize }),
  };
  return (await broker.resume(clientId, { connect: { properties } })).client;
}

async function subscribed(topic: string): Promise<RawClient> {
  const client = await resume(`s ${topic}`);
  client.send(subscribe5(1, [[topic, 2]]));
  await client.expect("suback");
  return client;
}

type Sent = { readonly qos?: 1 | 2; readonly expiryS?: number; readonly payload?: string };

async function publishOne(topic: string, sent: Sent = {}): Promise<void> {
  const { qos = 1, expiryS, payload = "x" } = sent;
  const { client } = await broker.connect(`p ${topic}`);
  const properties = expiryS === undefined ? "" : `02 ${expiryS.toString(16).padStart(8, "0")}`;
  client.send(publish5(topic, payload, { qos, id: 1, properties }));
  await client.expect(qos === 1 ? "puback" : "pubrec");
  if (qos === 2) {
    client.send(pubrel(1));
    await client.expect("pubcomp");
  }
  await client.close();
}

describe.concurrent("messages", () => {
  test("R30: the expiry of a queued message is counted down", async () => {
    const s = await subscribed("r30/a");
    await s.close();
    await publishOne("r30/a", { expiryS: 30 });
    await pause(2200);
    const { properties } = await (await resume("s r30/a")).expect("publish");
    expect(properties?.messageExpiryInterval).toBeLessThanOrEqual(28);
    expect(properties?.messageExpiryInterval).toBeGreaterThanOrEqual(25);
  });

  test("R30 R48: a QoS 2 exchange behind its PUBREC completes, whatever the expiry", async () => {
    const [expiryS, waitMs] = isLong ? [5, 10_000] : [1, 1500];
    const s = await subscribed("r30/b");
    await publishOne("r30/b", { qos: 2, expiryS });
    await s.expect("publish");
    s.send(pubrec(1));
    await s.expectBytes(pubrel(1));
    s.drop();
    await pause(waitMs);
    const back = await resume("s r30/b");
    await back.expectBytes(pubrel(1));
    back.send(pubcomp(1));
    await back.expectNothing();
  });

  test("R30 R84: what is too large for the client counts as sent, and blocks nothing", async () => {
    const s = await subscribed("r30/c");
    await s.close();
    for (const size of [100, 5000, 101]) {
      await publishOne("r30/c", { payload: "x".repeat(size), qos: size === 101 ? 2 : 1 });
    }
    const back = await resume("s r30/c", 200);
    const first = await back.expect("publish");
    const second = await back.expect("publish");
    expect([first.payload.length, second.payload.length]).toEqual([100, 101]);
    back.send(bytes(puback(first.messageId as number), pubrec(second.messageId as number)));
    await back.expect("pubrel");
    back.send(pubcomp(second.messageId as number));
    await back.expectNothing();
    await back.close();
    // It does not come to a later connection without the limit either.
    await (await resume("s r30/c")).expectNothing();
  });

  test("R47: what has expired in the queue is in no count at once, and never comes", async () => {
    const [count, expiryS] = [1000, isLong ? 10 : 2];
    const expiry = `02 ${expiryS.toString(16).padStart(8, "0")}`;
    const s = await subscribed("r47");
    await s.close();
    const { client: p } = await broker.connect("p r47");
    const sent = numbers(1, count).map((text) =>
      publish5("r47", text, { qos: 1, id: Number(text), properties: expiry }),
    );
    const sentMs = performance.now();
    p.send(bytes(...sent));
    for (let n = 0; n < count; n++) await p.expect("puback", 30_000);
    const backlogs = async (): Promise<string[]> =>
      (await admin.listSessions({ query: { backlog: true, clientIdPrefix: "s r47" } })).items.map(
        ({ clientId }) => clientId,
      );
    const found = await backlogs();
    // On a slow machine they have expired by now.
    if (performance.now() - sentMs < expiryS * 1000) expect(found).toEqual(["s r47"]);
    await pause(expiryS * 1000 + 200);
    // Its client has not been there.
    expect(await backlogs()).toEqual([]);
    await publishOne("r47", { payload: "lasts" });
    expect(await backlogs()).toEqual(["s r47"]);
    const back = await resume("s r47");
    expect((await back.expect("publish")).payload.toString()).toBe("lasts");
    await back.expectNothing();
  });

  test("R48: sent and unacked at QoS 1, expired: not sent again; at QoS 2 it completes", async () => {
    const s = await subscribed("r48");
    await publishOne("r48", { expiryS: 1, payload: "one" });
    await publishOne("r48", { expiryS: 1, payload: "two", qos: 2 });
    await publishOne("r48", { payload: "lasts" });
    for (let n = 0; n < 3; n++) await s.expect("publish");
    s.drop();
    await pause(1500);
    const back = await resume("s r48");
    const two = await back.expect("publish");
    expect([two.payload.toString(), two.dup, two.messageId]).toEqual(["two", true, 2]);
    const lasts = await back.expect("publish");
    expect([lasts.payload.toString(), lasts.dup, lasts.messageId]).toEqual(["lasts", true, 3]);
    back.send(bytes(pubrec(2), puback(3)));
    await back.expectBytes(pubrel(2));
    back.send(pubcomp(2));
    await back.expectNothing();
  });
});

describe.concurrent("sessions", () => {
  test("R50: an expired session is not resumed, one within its expiry is", async () => {
    const [shortS, waitMs] = isLong ? [3, 16_000] : [1, 2500];
    const present = async (clientId: string): Promise<boolean> => {
      const { connack } = await broker.resume(clientId, { expiryS: shortS });
      return connack.sessionPresent;
    };
    for (const clientId of ["r50", "r50 soon"]) {
      await present(clientId);
      const { client, connack } = await broker.resume(clientId, { expiryS: shortS });
      expect(connack.sessionPresent).toBe(true);
      client.drop();
    }
    await pause(300);
    expect(await present("r50 soon")).toBe(true);
    await pause(waitMs);
    expect(await present("r50")).toBe(false);
  });

  test("R51: a shortened Session Expiry is told, and is what counts", async () => {
    const { connack } = await broker.resume("r51", { expiryS: 0xffffffff });
    expect(connack.properties?.sessionExpiryInterval).toBe(60);
    const within = await broker.resume("r51 within", { expiryS: 59 });
    expect(within.connack.properties?.sessionExpiryInterval).toBeUndefined();
  });
});

async function compacted(operator: ReturnType<typeof createAdminClient>): Promise<void> {
  const { id } = await operator.startTask({ body: { kind: "compact" } });
  for (;;) {
    const { state, error } = await operator.getTask({ params: { task: id } });
    if (state === "done") return;
    if (state !== "running") throw new Error(`compact: ${state} ${error}`);
    await pause(50);
  }
}

/** What is looked up of retained messages is remembered, up to 16 MiB a shard: fills that up. */
async function rememberAbsent(own: LaunchedBroker): Promise<void> {
  const { client } = await own.connect("looks up");
  for (let round = 1; round <= 1000; round++) {
    const filters = Array.from({ length: 50 }, () => `absent/${randomBytes(1000).toString("hex")}`);
    const asked = filters.map((filter): [string, number] => [filter, 1]);
    client.send(subscribe5(round, asked));
    await client.expect("suback", 30_000);
    client.send(unsubscribe5(round, filters));
    await client.expect("unsuback", 30_000);
  }
  client.drop();
  await client.close();
}

test("R14: of clients with random ids that never come back nothing stays behind their expiry", async () => {
  const count = isLong ? 100_000 : 300;
  const expiryS = isLong ? 60 : 1;
  // What the log keeps for later use shows in the short run too; the ballast would hide much else.
  const segmentBytes = isLong ? "8MiB" : "256KiB";
  const args = ["--admin-port", "0", "--set", "data.ballast=0"];
  args.push("--set", `log.segmentBytes=${segmentBytes}`);
  await using own = await LaunchedBroker.open(args, withInspector);
  const operator = adminOf(own);
  const expiry = `11 ${expiryS.toString(16).padStart(8, "0")}`;
  /** So many at a time; each session has a subscription of its own. */
  const comeAndGo = async (name: string, many: number): Promise<void> => {
    for (let at = 0; at < many; at += 50) {
      await Promise.all(
        Array.from({ length: Math.min(50, many - at) }, async (_, n) => {
          const client = await own.raw();
          client.send(
            bytes(
              connect({ clientId: `${name} ${at + n}`, clean: false, properties: expiry }),
              subscribe5(1, [
                ["r14", 1],
                [`${at + n}/${randomBytes(1000).toString("hex")}`, 1],
              ]),
            ),
          );
          await client.expect("connack", 30_000);
          await client.expect("suback", 30_000);
          client.drop();
          await client.close();
        }),
      );
    }
  };
  const total = async (): Promise<number> => (await operator.listSessions({})).total ?? -1;
  const gone = async (): Promise<void> => {
    for (const until = performance.now() + expiryS * 1000 + 60_000; (await total()) > 0; ) {
      if (performance.now() > until) throw new Error(`${await total()} sessions are left`);
      await pause(100);
    }
  };
  // What is there is counted: while its client is there, however long the counting takes.
  const { client: present } = await own.resume("present", { expiryS });
  expect(await total()).toBe(1);
  present.drop();
  if (isLong) await rememberAbsent(own);
  await comeAndGo("warm", isLong ? 5000 : 100);
  await gone();
  await compacted(operator);
  const diskBytes = await diskUsage(own.dataDir);
  const heapBytes = await collectedHeapBytes(own.process);
  await comeAndGo("r14", count);
  const loadedBytes = await diskUsage(own.dataDir);
  await gone();
  // Nobody is subscribed any more, and nothing is kept for anybody.
  const { client: p } = await own.connect("p r14");
  p.send(publish5("r14", "x", { qos: 1, id: 1 }));
  await p.expectBytes("40 03 0001 10");
  const { connack } = await own.resume("r14 0", { expiryS: 1 });
  expect(connack.sessionPresent).toBe(false);
  // Caches fill up for a while: in the short run that is most of it. What a transaction is judged by
  // goes with the next checkpoint, within a minute.
  const growthMax = isLong ? 0.1 * heapBytes : 5 * 2 ** 20;
  const grown = async (): Promise<number> => (await collectedHeapBytes(own.process)) - heapBytes;
  let grownBytes = await grown();
  for (let looks = 0; isLong && grownBytes >= growthMax && looks < 18; looks++) {
    await pause(5000);
    grownBytes = await grown();
  }
  expect(grownBytes).toBeLessThan(growthMax);
  // The disk was another matter while they were there, and is what it was behind a compaction.
  expect(loadedBytes).toBeGreaterThan(1.2 * diskBytes);
  await compacted(operator);
  const takenBytes = await diskUsage(own.dataDir);
  expect(takenBytes, await diskList(own.dataDir)).toBeLessThan(1.1 * diskBytes);
});

test("R2: a subscription is part of the session, before and after the client is back", async () => {
  for (const [end, level] of [
    ["stop", 4],
    ["kill", 5],
  ] as const) {
    const topic = `r2/${end}`;
    const { client } = await broker.resume(topic, { level });
    const filters = [[topic, 2]] as const;
    client.send(level === 5 ? subscribe5(1, filters) : subscribe4(1, filters));
    await client.expect("suback");
    await client.close();
    await broker.restart(end);
    const { client: p } = await broker.connect("p", { level: 4 });
    await publishNumbered(p, { topic, count: 1 });
    const { client: back, connack } = await broker.resume(topic, { level });
    expect(connack.sessionPresent).toBe(true);
    expect((await back.expect("publish")).payload.toString()).toBe("1");
    const again = (await broker.connect("p", { level: 4 })).client;
    await publishNumbered(again, { topic, count: 1, first: 2 });
    expect((await back.expect("publish")).payload.toString()).toBe("2");
  }
});
