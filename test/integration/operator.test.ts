// The operator's surface on the launched broker: HTTP interface and the commands over it.

import { spawn } from "node:child_process";
import { chmod, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import net from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { createAdminClient } from "../../src/admin/client.ts";
import { metricsReference } from "../../src/cli/reference.ts";
import { launcherPath, startBroker } from "../support/broker-process.ts";
import { runFlagstone } from "../support/command-line.ts";
import { connect, keyIn, leaveSessions, operated } from "../support/operated-broker.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

describe("the admin port", () => {
  test("prints the first key once, in at most 12 lines, and never again", () =>
    withTemporaryFolder(async (folder) => {
      const dataDir = join(folder, "data");
      const start = () => startBroker({ dataDir, args: ["--admin-port", "0"] });
      const first = await start();
      const key = keyIn(first.startLines);
      expect(key).toBeDefined();
      expect(first.startLines.length).toBeLessThanOrEqual(12);
      expect(first.startLines.at(-1)).toMatch(/ admin=127\.0\.0\.1:\d+ ms=/);
      await first.stop();
      await using second = await start();
      expect(keyIn([second.output()])).toBeUndefined();
      const url = `http://127.0.0.1:${second.adminPort}`;
      const status = await createAdminClient({ url, key: key as string }).getStatus();
      expect(status).toMatchObject({ state: "ready", pid: second.pid });
      const stored = await readFile(join(dataDir, "admin/keys.json"), "utf8");
      const secret = (key as string).slice("fs_12345678_".length);
      expect(secret).toHaveLength(43);
      expect(stored).not.toContain(secret);
    }));

  test("a taken one is 4, and the data directory is given back", () =>
    operated(async ({ broker, folder }) => {
      const dataDir = join(folder, "other");
      const args = ["--admin-port", String(broker.adminPort)];
      const { startRefused } = await import("../support/broker-process.ts");
      const { exit, stderr } = await startRefused({ dataDir, args });
      expect(exit.code).toBe(4);
      expect(stderr).toContain(`cannot listen on 127.0.0.1:${broker.adminPort} (admin.port)`);
      await using again = await startBroker({ dataDir, args: ["--admin-port", "0"] });
      expect(keyIn(again.startLines)).toBeDefined();
    }));

  test("one that nobody chose and another program has keeps no node from starting", () =>
    withTemporaryFolder(async (folder) => {
      const other = net.createServer().on("error", () => undefined);
      await new Promise((resolve) => {
        other.listen(18083, "127.0.0.1", () => resolve(undefined)).once("error", resolve);
      });
      const dataDir = join(folder, "data");
      // Names no port, and keeps the tool from turning the interface off.
      const args = ["--set", "admin.openMetrics=true"];
      const broker = await startBroker({ dataDir, args });
      expect(broker.startLines.join("\n")).toContain("none: another program has 127.0.0.1:18083");
      expect(broker.startLines.at(-1)).toContain(" admin=off ");
      await broker.stop();
      // No key was made that nobody was told of.
      await using again = await startBroker({ dataDir, args: ["--admin-port", "0"] });
      expect(keyIn(again.startLines)).toBeDefined();
      other.close();
    }));

  test("an idle stranger gets half of the connections, and others find room", () =>
    operated(async ({ broker, url }) => {
      const port = broker.adminPort as number;
      const at = { port, host: "127.0.0.1", localAddress: "127.0.0.2" };
      const sockets = Array.from({ length: 264 }, () =>
        net.connect(at).on("error", () => undefined),
      );
      const refused = () => sockets.filter((one) => one.destroyed).length;
      await expect.poll(refused, { timeout: 20_000 }).toBe(8);
      expect((await fetch(`${url}/livez`)).status).toBe(200);
      for (const socket of sockets) socket.destroy();
    }));

  test("health and metrics are there without a key; the page of metrics names them all", () =>
    operated(async ({ url }) => {
      for (const path of ["livez", "readyz", "startupz"]) {
        expect((await fetch(`${url}/${path}`)).status, path).toBe(200);
      }
      const text = await (await fetch(`${url}/metrics`)).text();
      const page = fileURLToPath(new URL("../../docs/reference/metrics.md", import.meta.url));
      expect(metricsReference(text)).toBe(await readFile(page, "utf8"));
    }));

  test("requests that are no HTTP, or far too large, harm nobody", () =>
    operated(async ({ url, broker, key }) => {
      const { connect: dial } = await import("node:net");
      const port = broker.adminPort as number;
      for (const bytes of [
        "\u0000\u0001\u0002",
        "GET / HTTP/9.9\r\n\r\n",
        `GET /${"x".repeat(200_000)} HTTP/1.1\r\n\r\n`,
        "POST /api/v1/publish HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 99999999999\r\n\r\n",
        "GET /api/v1/status HTTP/1.1\r\nhost: evil.example\r\n\r\n",
      ]) {
        const socket = dial(port, "127.0.0.1");
        socket.on("error", () => undefined);
        socket.end(bytes);
        await new Promise((resolve) => socket.once("close", resolve).resume());
      }
      expect((await createAdminClient({ url, key }).getStatus()).state).toBe("ready");
    }));
});

describe("an operator", () => {
  test("sees who is connected and kicks one, whose session stays", () =>
    operated(async ({ broker, run }) => {
      const client = await connect(broker.port, "device/7 ä", { reconnectPeriod: 0 });
      const told = new Promise((resolve) => {
        client.once("disconnect", (packet) => resolve(packet.reasonCode));
      });
      const listed = JSON.parse((await run(["clients", "-o", "json"])).stdout);
      expect(listed).toMatchObject({
        total: 1,
        items: [{ clientId: "device/7 ä", protocol: "5", isDurable: false, keepAliveS: 60 }],
      });
      const kicked = await run(["clients", "kick", "device/7 ä"]);
      expect(kicked).toMatchObject({ code: 0, stdout: "device/7 ä was disconnected\n" });
      expect(await told).toBe(0x98);
      expect((await run(["clients", "kick", "device/7 ä"])).code).toBe(1);
      client.end(true);
    }));

  test("publishes, finds it as history and as retained, and clears it", () =>
    operated(async ({ broker, run, url, key }) => {
      const admin = createAdminClient({ url, key });
      const session = { clean: false, properties: { sessionExpiryInterval: 1000 } };
      const reader = await connect(broker.port, "reader", session);
      await reader.subscribeAsync("plant/#", { qos: 1 });
      const got = new Promise<string>((resolve) => {
        reader.on("message", (topic, payload) => resolve(`${topic} ${payload}`));
      });
      const body = { topic: "plant/1", payload: "warm", qos: 1, retain: true } as const;
      expect(await admin.publish({ body })).toEqual({ done: true });
      expect(await got).toBe("plant/1 warm");
      for (let count = 0; count < 250; count++) {
        await admin.publish({
          body: { topic: `plant/${count % 7}`, payload: String(count), qos: 1 },
        });
      }
      const seen: number[] = [];
      let after: string | undefined;
      do {
        const query = { filter: "plant/#", limit: 60, payload: true, ...(after ? { after } : {}) };
        const page = await admin.queryHistory({ query });
        seen.push(...page.items.map(({ payload }) => Number(payload)));
        after = page.next;
      } while (after !== undefined);
      expect(seen.slice(1)).toEqual(Array.from({ length: 250 }, (_, index) => index));
      const one = await run(["history", "plant/3", "--from", "1h", "--all", "-o", "json"]);
      expect(JSON.parse(one.stdout).items).toHaveLength(36);
      const none = await run(["history", "plant/3", "--to", "1h", "-o", "json"]);
      expect(JSON.parse(none.stdout).items).toEqual([]);
      expect((await run(["retained", "get", "plant/1"])).stdout).toBe("warm\n");
      expect((await run(["retained", "delete", "plant/#"])).stdout).toContain(
        "1 retained messages would",
      );
      expect((await run(["retained", "delete", "plant/#", "--yes"])).code).toBe(0);
      expect((await run(["retained"])).stdout).toBe("no messages\n");
      await reader.endAsync();
    }));

  test("gets all of a long answer through a pipe, however late it is read", () =>
    operated(async ({ broker, admin, url, key }) => {
      await leaveSessions(broker.port, ["s"], ["a"]);
      const payload = "x".repeat(60_000);
      for (let n = 0; n < 8; n++) await admin.publish({ body: { topic: "a", payload } });
      const line = [launcherPath(), "history", "a", "--payload", "-o", "json"];
      const env = { ...process.env, FLAGSTONE_URL: url, FLAGSTONE_KEY: key };
      const child = spawn(process.execPath, line, { env, stdio: ["ignore", "pipe", "inherit"] });
      const ended = new Promise((resolve) => child.once("close", resolve));
      // The pipe is full long before that.
      await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 3000))]);
      let text = "";
      child.stdout.setEncoding("utf8").on("data", (part) => {
        text += part;
      });
      expect(await ended).toBe(0);
      expect(JSON.parse(text).items).toHaveLength(8);
    }));

  test("reloads the configuration: all or nothing, and sees what would change before", () =>
    withTemporaryFolder((place) => {
      const file = join(place, "f.yaml");
      return writeFile(file, "logger: {level: info}\n").then(() =>
        operated(
          async ({ run, url, key }) => {
            const level = async (): Promise<string | undefined> =>
              (await createAdminClient({ url, key }).getConfig()).items.find(
                ({ path }) => path === "logger.level",
              )?.value;
            const faults: ReadonlyArray<() => Promise<void>> = [
              () => writeFile(file, "logger: {level: loud}\nmqtt: {inflightMx: 5}\n"),
              () => writeFile(file, "logger: {level: debug}\nmqtt: {inflightM"),
              () => writeFile(file, Buffer.from([0xff, 0xfe, 0x00])),
              () => writeFile(file, "[".repeat(100_000)),
              // Nobody can read these two, whoever the test runs as.
              () => rm(file).then(() => mkdir(file)),
              () => rm(file, { recursive: true }),
            ];
            for (const spoil of faults) {
              await spoil();
              const { code, stderr } = await run(["reload"]);
              expect(code).toBe(3);
              expect(stderr).toContain("f.yaml");
              expect(await level()).toBe("info");
            }
            await writeFile(file, "logger: {level: debug}\nmqtt: {inflightMax: 7}\n");
            const dry = await run(["reload", "--dry-run"]);
            expect(dry.stdout).toContain("logger.level      info  debug  now");
            expect(dry.stdout).toContain("mqtt.inflightMax  1000  7      at the next start");
            expect(await level()).toBe("info");
            expect((await run(["reload"])).code).toBe(0);
            expect(await level()).toBe("debug");
            await chmod(file, 0o600);
          },
          ["--config", file],
        ),
      );
    }));

  test("does with doctor what somebody else needs to help, and names nobody in it", () =>
    operated(async ({ broker, run, folder, key }) => {
      const client = await connect(broker.port, "secret-client-name");
      const bundle = join(folder, "report.json");
      const { code, stdout } = await run(["doctor", "--bundle", bundle]);
      expect([code, stdout]).toEqual([0, expect.stringContaining("fdatasync takes")]);
      const report = await readFile(bundle, "utf8");
      expect(JSON.parse(report)).toMatchObject({ status: { clients: 1 } });
      for (const telling of ["secret-client-name", folder, key, "127.0.0.1"]) {
        expect(report).not.toContain(telling);
      }
      await client.endAsync();
    }));

  test("adds and removes users and replaces rules, which hold at once", () =>
    operated(
      async ({ broker, run, folder, url, key }) => {
        const admin = createAdminClient({ url, key });
        const as = { username: "meter", password: "word", reconnectPeriod: 0 };
        await expect(connect(broker.port, "m", as)).rejects.toThrow(/Not authorized|Bad User/i);
        await admin.putUser({ params: { user: "meter" }, body: { password: "word" } });
        const meter = await connect(broker.port, "m", as);
        const rules = join(folder, "rules.acl");
        await writeFile(rules, "user meter\ntopic write own/#\n");
        expect(await run(["acl", "apply", rules])).toMatchObject({ code: 0 });
        await meter.publishAsync("own/1", "x", { qos: 1 });
        await expect(meter.publishAsync("other", "x", { qos: 1 })).rejects.toThrow();
        await writeFile(rules, "nonsense here");
        const refused = await run(["acl", "apply", rules]);
        expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining("line 1")]);
        await meter.publishAsync("own/2", "x", { qos: 1 });
        const told = new Promise((resolve) => {
          meter.once("disconnect", (packet) => resolve(packet.reasonCode));
        });
        expect(await run(["user", "rm", "meter"])).toMatchObject({ code: 0 });
        expect(await told).toBe(0x87);
        await expect(connect(broker.port, "m", as)).rejects.toThrow();
        meter.end(true);
      },
      ["--set", "authentication.chain=[users]", "--set", "authorization.sources=[rules]"],
    ));

  test("with a data directory alone: doctor looks at the machine", () =>
    withTemporaryFolder(async (folder) => {
      const config = join(folder, "flagstone.yaml");
      await writeFile(config, "listeners: {tcp: {port: 0}}\n");
      const line = ["doctor", "--data", folder, "--config", config];
      const { code, stdout } = await runFlagstone(line);
      expect(code).toBe(0);
      for (const check of ["descriptors", "ports: all are free", "certificates: no listener"]) {
        expect(stdout).toContain(check);
      }
    }));

  test("sees the node drain: not ready, then gone", () =>
    operated(async ({ broker, url }) => {
      const clients = await Promise.all(
        Array.from({ length: 20 }, (_, index) =>
          connect(broker.port, `c${index}`, { reconnectPeriod: 0 }),
        ),
      );
      const seen = new Set<number | string>();
      process.kill(broker.pid, "SIGTERM");
      let isOver = false;
      broker.exited.then(() => {
        isOver = true;
      });
      while (!isOver) {
        try {
          seen.add((await fetch(`${url}/readyz`)).status);
        } catch {
          seen.add("gone");
        }
      }
      expect(seen).toContain(503);
      expect((await broker.exited).code).toBe(0);
      for (const client of clients) client.end(true);
    }));
});
