// The drill of docs/operating/recover.md, word for word: find the stuck session, see why, purge it.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import mqtt from "mqtt";
import { expect, test } from "vitest";
import { launcherPath, startBroker } from "../support/broker-process.ts";
import { runDocument } from "../support/readme-commands.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const durable = { clean: false, properties: { sessionExpiryInterval: 100_000 } };

test("an operator finds the stuck session, sees why, and purges it", () =>
  withTemporaryFolder(async (folder) => {
    await using broker = await startBroker({
      dataDir: join(folder, "data"),
      args: ["--admin-port", "0"],
    });
    const connect = (clientId: string, options: object = {}) =>
      mqtt.connectAsync({
        ...{ port: broker.port, host: "127.0.0.1", protocolVersion: 5, clientId },
        ...options,
      });
    const online = await connect("dashboard", durable);
    await online.subscribeAsync("orders/#", { qos: 1 });
    for (const [clientId, filter] of [
      ["billing", "orders/#"],
      ["archive", "other/#"],
    ] as const) {
      const client = await connect(clientId, durable);
      await client.subscribeAsync(filter, { qos: 1 });
      await client.endAsync();
    }
    const shop = await connect("shop");
    for (let count = 0; count < 20; count++) {
      await shop.publishAsync(`orders/${count}`, `order ${count % 10}`, { qos: 1 });
    }
    await shop.endAsync();
    const page = fileURLToPath(new URL("../../docs/operating/recover.md", import.meta.url));
    const ran = await runDocument(await readFile(page, "utf8"), {
      cwd: folder,
      env: {
        FLAGSTONE_URL: `http://127.0.0.1:${broker.adminPort}`,
        FLAGSTONE_KEY: /fs_\S+/.exec(broker.startLines.join("\n"))?.[0] ?? "",
        XDG_CONFIG_HOME: folder,
      },
      replace: (text) => text.replace(/^flagstone /, `${process.execPath} ${launcherPath()} `),
    });
    expect(ran).toBe(6);
    await online.endAsync();
  }));
