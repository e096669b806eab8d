// Long work on slabs, through the command line on the launched broker: rotten bytes are found and
// named, small blocks become large ones.

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import mqtt from "mqtt";
import { expect, test } from "vitest";
import { type BrokerProcess, startBroker } from "../support/broker-process.ts";
import { runFlagstone } from "../support/command-line.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const keyIn = (lines: readonly string[]): string | undefined =>
  /\bfs_\w{8}_[\w-]{43}/.exec(lines.join("\n"))?.[0];

test("verify names rotten bytes and ends with 1; repack ends with 0", { timeout: 60_000 }, () =>
  withTemporaryFolder(async (folder) => {
    const dataDir = join(folder, "data");
    const start = (): Promise<BrokerProcess> =>
      startBroker({ dataDir, args: ["--admin-port", "0", "--set", "databases.messages.shards=1"] });
    const first = await start();
    const key = keyIn(first.startLines) as string;
    const run = (broker: BrokerProcess, line: readonly string[]) => {
      const env = { FLAGSTONE_URL: `http://127.0.0.1:${broker.adminPort}`, FLAGSTONE_KEY: key };
      return runFlagstone(line, { env: { ...env, XDG_CONFIG_HOME: folder } });
    };
    const rotate = async (broker: BrokerProcess): Promise<void> => {
      const path = "/api/v1/databases/messages/rotate";
      const headers = { authorization: `Bearer ${key}` };
      const url = `http://127.0.0.1:${broker.adminPort}${path}`;
      expect((await fetch(url, { method: "POST", headers })).ok).toBe(true);
    };
    const client = await mqtt.connectAsync({
      ...{ host: "127.0.0.1", port: first.port, clientId: "reader", protocolVersion: 5 },
      ...{ clean: false, properties: { sessionExpiryInterval: 3_600 } },
    });
    await client.subscribeAsync("#", { qos: 1 });
    for (let n = 0; n < 20; n++) await client.publishAsync("a/b", "x".repeat(500), { qos: 1 });
    await rotate(first);
    await client.endAsync();
    const whole = await run(first, ["verify"]);
    expect([whole.code, whole.stdout]).toEqual([0, expect.stringContaining("done")]);
    const packed = await run(first, ["repack", "-o", "json"]);
    expect(packed.code).toBe(0);
    expect(JSON.parse(packed.stdout)).toMatchObject({ kind: "repack", state: "done" });
    await first.stop();
    // What a process leaves in a write log becomes a table at the next opening, which is by need.
    const second = await start();
    expect((await run(second, ["verify"])).code).toBe(0);
    await second.stop();
    const shard = readdirSync(join(dataDir, "db/messages"))[0] as string;
    const slabs = readdirSync(join(dataDir, "db/messages", shard));
    // Where a checkpoint cut its messages in two, it has been packed anew.
    const slab = slabs.filter((name) => name.startsWith("g00000001")).at(-1) as string;
    const blocks = join(dataDir, "db/messages", shard, slab, "blocks");
    // One that was compacted away may be there still.
    for (const table of readdirSync(blocks).filter((name) => name.endsWith(".ldb"))) {
      const bytes = readFileSync(join(blocks, table));
      bytes[200] = (bytes[200] as number) ^ 0x10;
      writeFileSync(join(blocks, table), bytes);
    }
    await using last = await start();
    const found = await run(last, ["verify"]);
    expect(found.code).toBe(1);
    expect(found.stderr).toMatch(/unreadable/);
    expect(found.stderr).toMatch(/generation.*1/);
    const one = await run(last, ["repack", "-o", "json"]);
    expect(one.code).toBe(0);
  }),
);
