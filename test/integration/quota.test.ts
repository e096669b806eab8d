// A group at work near its quota, with the launched broker and real clients on a real disk: any
// amount goes through while sessions read it, and what cannot be stored is told.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { connectAsync, type MqttClient } from "mqtt";
import { afterEach, expect, test } from "vitest";
import { createAdminClient } from "../../src/admin/client.ts";
import { isLong } from "../support/amount.ts";
import { LaunchedBroker } from "../support/launched-broker.ts";

const mib = 2 ** 20;
const quotaMib = 64;
const quotaOf = (limitMib: number): string[] => ["--set", `groups.default.quota=${limitMib}MiB`];
const quota = quotaOf(quotaMib);
const payloadBytes = 32 * 1024;

/** CI puts 2 GiB through; the long run 50 GiB through 1 GiB. */
const passage = isLong
  ? { quotaMib: 1_024, throughMib: 50 * 1_024, payloadBytes: 256 * 1024, timeoutMs: 7_200_000 }
  : { quotaMib, throughMib: 2_048, payloadBytes, timeoutMs: 600_000 };

const open: MqttClient[] = [];
let broker: LaunchedBroker | undefined;

afterEach(async () => {
  await Promise.all(open.splice(0).map((client) => client.endAsync(true)));
  await broker?.end("kill");
  broker = undefined;
});

async function client(
  clientId: string,
  protocolVersion: 4 | 5 = 5,
  clean = false,
): Promise<MqttClient> {
  const made = await connectAsync(`mqtt://127.0.0.1:${broker?.port}`, {
    ...{ clientId, protocolVersion, clean, reconnectPeriod: 0 },
    ...(protocolVersion === 5 ? { properties: { sessionExpiryInterval: 3600 } } : {}),
  });
  open.push(made);
  return made;
}

/** Databases and log; the ballast lies outside of quotas. */
async function diskBytes(dir: string): Promise<number> {
  const folders = ["db", "log"].map((name) => `${dir}/${name}`);
  // Files go while they are counted.
  const { stdout } = await promisify(execFile)("sh", [
    ...["-c", `du -s --block-size=1 ${folders.join(" ")} 2>/dev/null || true`],
  ]);
  return stdout
    .trim()
    .split("\n")
    .reduce((sum, line) => sum + Number(line.split("\t")[0]), 0);
}

test(`${passage.throughMib} MiB go through a quota of ${passage.quotaMib} MiB without a refusal, an idle sparse session beside`, {
  timeout: passage.timeoutMs,
}, async () => {
  broker = await LaunchedBroker.open(quotaOf(passage.quotaMib));
  const sparse = await client("sparse");
  await sparse.subscribeAsync("rare/#", { qos: 1 });
  await sparse.endAsync();
  const reader = await client("reader");
  await reader.subscribeAsync("bulk/#", { qos: 1 });
  let received = 0;
  reader.on("message", () => {
    received++;
  });
  const publisher = await client("publisher", 5, true);
  const total = (passage.throughMib * mib) / passage.payloadBytes;
  let highest = 0;
  for (let sent = 0; sent < total; ) {
    const batch = Array.from({ length: 32 }, (_, n) => {
      const payload = Buffer.alloc(passage.payloadBytes, `${sent + n} ${Math.random()} `);
      return publisher.publishAsync(`bulk/${(sent + n) % 16}`, payload, { qos: 1 });
    });
    // A refusal (0x97) rejects.
    await Promise.all(batch);
    sent += batch.length;
    if (sent % 512 === 0) highest = Math.max(highest, await diskBytes(broker.dataDir));
  }
  await expect.poll(() => received, { timeout: 60_000 }).toBe(total);
  expect(highest).toBeLessThanOrEqual(passage.quotaMib * mib);
  const rare = await client("sparse");
  const told = new Promise((resolve) => rare.once("message", (topic) => resolve(topic)));
  await publisher.publishAsync("rare/1", "x", { qos: 1 });
  expect(await told).toBe("rare/1");
});

test("what nobody reads is refused at the quota: 0x97 in MQTT 5, closed in 3.1.1, QoS 0 dropped; a reader makes room", {
  timeout: 120_000,
}, async () => {
  const args = [...quota, "--set", "mqtt.publishWait=1s", "--admin-port", "0"];
  broker = await LaunchedBroker.open(args);
  const away = await client("away");
  await away.subscribeAsync("bulk/#", { qos: 1 });
  await away.endAsync();
  const publisher = await client("publisher", 5, true);
  let refusal: { code?: number } | undefined;
  let stored = 0;
  for (let n = 0; n < 4_000 && refusal === undefined; n++) {
    const payload = Buffer.alloc(payloadBytes, `${n} ${Math.random()} `);
    const sent = publisher.publishAsync(`bulk/${n % 16}`, payload, { qos: 1 });
    await sent.then(
      () => {
        stored++;
      },
      (error: { code?: number }) => {
        refusal = error;
      },
    );
  }
  expect(refusal?.code).toBe(0x97);
  expect(stored * payloadBytes).toBeGreaterThan(quotaMib * mib * 0.5);
  const takenBytes = await diskBytes(broker.dataDir);
  expect(takenBytes).toBeLessThanOrEqual(quotaMib * mib);
  const { adminPort, startLines } = broker.process;
  const key = /\bfs_\w{8}_[\w-]{43}/.exec(startLines.join("\n"))?.[0] ?? "";
  const operator = createAdminClient({ url: `http://127.0.0.1:${adminPort}`, key });
  // What the quota is judged by: slabs and log, as the volume sees them.
  const { physicalBytes = 0 } = (await operator.listGroups({})).items[0] ?? {};
  expect(Math.abs(physicalBytes / takenBytes - 1)).toBeLessThan(0.05);
  // Where nothing is stored, nothing is refused.
  await publisher.publishAsync("elsewhere", "x", { qos: 1 });
  await publisher.publishAsync("bulk/0", "x", { qos: 0 });
  expect(publisher.connected).toBe(true);
  const old = await client("old", 4, true);
  const closed = new Promise<void>((resolve) => old.once("close", () => resolve()));
  old.publish("bulk/1", "x", { qos: 1 });
  await closed;
  const back = await client("away");
  await expect
    .poll(
      () =>
        publisher.publishAsync("bulk/1", "again", { qos: 1 }).then(
          () => true,
          () => false,
        ),
      { timeout: 60_000, interval: 500 },
    )
    .toBe(true);
  expect(back.connected).toBe(true);
});
