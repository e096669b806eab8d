// Data directories that frozen builds left (test/fixtures): today's build opens them, goes on in them,
// and gives its clients what they are owed. What is in them says scripts/make-data-dir.mjs.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { gunzipSync } from "node:zlib";
import mqtt, { type MqttClient } from "mqtt";
import { expect, test } from "vitest";
import { startBroker } from "../support/broker-process.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

function unpack(fixture: string, dataDir: string): void {
  const packed = readFileSync(new URL(`../fixtures/${fixture}`, import.meta.url));
  const files: Record<string, string> = JSON.parse(gunzipSync(packed).toString());
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(dataDir, path)), { recursive: true, mode: 0o700 });
    writeFileSync(join(dataDir, path), Buffer.from(content, "base64"), { mode: 0o600 });
  }
}

/** Connects and collects: what is owed, however long it takes, and until nothing has come for a while. */
async function collect(
  port: number,
  clientId: string,
  { owed = 0, subscribe }: { readonly owed?: number; readonly subscribe?: string } = {},
): Promise<{ client: MqttClient; got: string[] }> {
  const got: string[] = [];
  let lastMs = Date.now();
  const client = mqtt.connect({
    ...{ host: "127.0.0.1", port, clientId, protocolVersion: 5, reconnectPeriod: 0 },
    ...{ clean: false, properties: { sessionExpiryInterval: 31_536_000 } },
  });
  client.on("message", (_, payload) => {
    got.push(payload.toString());
    lastMs = Date.now();
  });
  await new Promise<void>((resolve, reject) => {
    client.once("connect", () => resolve());
    client.once("error", reject);
  });
  if (subscribe !== undefined) await client.subscribeAsync(subscribe, { qos: 1 });
  await expect.poll(() => got.length, { timeout: 20_000 }).toBeGreaterThanOrEqual(owed);
  await expect.poll(() => Date.now() - lastMs, { timeout: 20_000 }).toBeGreaterThan(400);
  return { client, got };
}

const values = (from: number, to: number): string[] =>
  Array.from({ length: to - from }, (_, n) => `value ${from + n}`);
const numberOf = (value: string): number => Number(value.split(" ")[1]);
/** In order of their numbers: the client tells of QoS 2 messages when they are released. */
const metricsOf = (got: readonly string[]): string[] =>
  got.filter((value) => value.startsWith("value")).sort((a, b) => numberOf(a) - numberOf(b));

test.each(["data-log-v1.json.gz", "data-log-v2.json.gz"])("%s", { timeout: 60_000 }, (fixture) =>
  withTemporaryFolder(async (folder) => {
    const dataDir = join(folder, "data");
    unpack(fixture, dataDir);
    const args = ["--admin-port", "0"];
    const key = /"first"/.test(readFileSync(join(dataDir, "admin/keys.json"), "utf8"));
    expect(key).toBe(true);
    {
      await using broker = await startBroker({ dataDir, args });
      const half = await collect(broker.port, "half", { owed: 40 });
      // What it had not acknowledged before the end comes again.
      expect(half.got.slice(-40)).toEqual(values(80, 120));
      const none = await collect(broker.port, "none", { owed: 125 });
      expect(metricsOf(none.got)).toEqual(values(0, 120));
      expect(none.got.filter((value) => value.startsWith("job")).sort()).toEqual(
        Array.from({ length: 5 }, (_, n) => `job ${n}`),
      );
      const fresh = await collect(broker.port, "fresh", { owed: 5, subscribe: "state/+" });
      expect(fresh.got.sort()).toEqual(Array.from({ length: 5 }, (_, n) => `kept ${n}`));
      // It goes on, in a generation of today's layout.
      await fresh.client.publishAsync("metrics/host1/cpu/1", "value 120", { qos: 1 });
      await expect.poll(() => metricsOf(none.got).at(-1)).toBe("value 120");
      const endedMs = performance.now();
      for (const { client } of [half, none, fresh]) await client.endAsync();
      // Sessions write down what was acknowledged to them within about 50 ms.
      await expect.poll(() => performance.now() - endedMs).toBeGreaterThan(500);
      await broker.kill();
    }
    await using broker = await startBroker({ dataDir, args });
    const none = await collect(broker.port, "none");
    expect(metricsOf(none.got)).toEqual([]);
    await none.client.endAsync();
  }),
);
