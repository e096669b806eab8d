// docs/operating/cluster.md, word for word, with real processes: one node with data becomes three, one
// dies and returns, a disk is lost, a node goes. Beside it: two form a cluster at once, over TLS.

import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import mqtt from "mqtt";
import { expect, test } from "vitest";
import { type BrokerProcess, launcherPath, startBroker } from "../support/broker-process.ts";
import { spawnNode } from "../support/cluster-launch.ts";
import {
  authority,
  node1Certificate,
  node1Key,
  node2Certificate,
  node2Key,
} from "../support/raft-certificates.ts";
import { runDocument } from "../support/readme-commands.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const page = fileURLToPath(new URL("../../docs/operating/cluster.md", import.meta.url));

/** Ports that are free now: the document's are anybody's. */
const base = 20_000 + (process.pid % 2_000) * 20;
const portOf = (text: string): string =>
  text.replace(/\b(1740|1851)(\d)\b/g, (_, kind, digit) =>
    String(base + (kind === "1851" ? 10 : 0) + Number(digit)),
  );

/** What a node by itself had: two messages that a session waits for. */
async function fill(folder: string): Promise<void> {
  await using broker: BrokerProcess = await startBroker({ dataDir: join(folder, "d1") });
  const at = { port: broker.port, host: "127.0.0.1", protocolVersion: 5 } as const;
  const properties = { sessionExpiryInterval: 100_000 };
  const session = await mqtt.connectAsync({ ...at, clientId: "billing", clean: false, properties });
  await session.subscribeAsync("orders/#", { qos: 1 });
  await session.endAsync();
  const shop = await mqtt.connectAsync({ ...at, clientId: "shop" });
  for (const topic of ["orders/1", "orders/2"]) await shop.publishAsync(topic, "one", { qos: 1 });
  await shop.endAsync();
  await broker.stop();
}

test("the operator's page on clusters is true, command by command", () =>
  withTemporaryFolder(async (folder) => {
    const text = await readFile(page, "utf8");
    for (const [, yaml = "", name = ""] of text.matchAll(
      /```yaml\n(# (\w+\.yaml)\n[\s\S]*?)```/g,
    )) {
      await writeFile(join(folder, name), portOf(yaml));
    }
    await fill(folder);
    const ran = await runDocument(text, {
      cwd: folder,
      env: { XDG_CONFIG_HOME: folder },
      withinMs: 180_000,
      replace: (line) =>
        portOf(line).replaceAll(
          /(^|[ (])flagstone (?=cluster|start|context|history|status)/g,
          `$1${process.execPath} ${launcherPath()} `,
        ),
    });
    expect(ran).toBe(31);
  }));

test("two members form a cluster over TLS, and what one is told the other has", () =>
  withTemporaryFolder(async (folder) => {
    const ports = [base + 18, base + 19];
    const seeds = ports.map((port, at) => `node${at + 1}=127.0.0.1:${port}`);
    const pairs = [
      [node1Certificate, node1Key],
      [node2Certificate, node2Key],
    ] as const;
    await writeFile(join(folder, "ca.pem"), authority);
    const started = pairs.map(async ([certificate, key], at) => {
      const name = `node${at + 1}`;
      await writeFile(join(folder, `${name}.pem`), certificate);
      await writeFile(join(folder, `${name}.key`), key, { mode: 0o600 });
      const tls = { cert: `${name}.pem`, key: `${name}.key`, ca: "ca.pem" };
      const cluster = { name: "plant", storeOnly: true, node: name, expect: 2, seeds, tls };
      return spawnNode(folder, name, { ...cluster, port: ports[at] });
    });
    const nodes = await Promise.all(started);
    try {
      const [first, second] = nodes as [(typeof nodes)[0], (typeof nodes)[0]];
      await first.call("POST", "/publish", { topic: "a", payload: "x" });
      await second.until(async () => {
        const { items } = await second.call("GET", "/history?filter=%23");
        return items.length === 1;
      });
      const { sites } = await first.call("GET", "/cluster");
      expect(sites.map(({ answers }: { answers: boolean }) => answers)).toEqual([true, true]);
      await expect(first.call("GET", "/clients")).rejects.toThrow("501");
      await expect(first.call("POST", "/databases", { name: "more" })).rejects.toThrow(
        "databases are made at the first start on a cluster",
      );
    } finally {
      for (const node of nodes) await node.kill();
    }
  }));
