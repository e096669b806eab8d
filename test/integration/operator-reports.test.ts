// What operators of brokers have complained of, on the launched broker, by the numbers of
// docs/reported-faults.md.

import { rename } from "node:fs/promises";
import { join } from "node:path";
import mqtt from "mqtt";
import { expect, test } from "vitest";
import { runFlagstone } from "../support/command-line.ts";
import { connect, leaveSessions, operated, startOperated } from "../support/operated-broker.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

test("R2: after a restart the subscriptions of a session are listed before its client is back", () =>
  withTemporaryFolder(async (folder) => {
    const first = await startOperated({ folder });
    await leaveSessions(first.broker.port, ["s"], ["a/#", "b"]);
    await first.broker.kill();
    const again = await startOperated({ folder, key: first.key });
    await using _broker = again.broker;
    const { items, total } = await again.admin.listSubscriptions({ query: {} });
    expect(total).toBe(2);
    expect(items.map(({ clientId, filter }) => [clientId, filter])).toEqual([
      ["s", "a/#"],
      ["s", "b"],
    ]);
  }));

test("R16: one subscription or one session is dropped, and its backlog goes at once", () =>
  operated(async ({ broker, admin, run }) => {
    await leaveSessions(broker.port, ["s"], ["a", "b"]);
    for (const topic of ["a", "b"]) await admin.publish({ body: { topic, payload: "x" } });
    const backlog = async () => (await admin.peekBacklog({ params: { clientId: "s" } })).items;
    expect((await backlog()).map(({ topic }) => topic).sort()).toEqual(["a", "b"]);
    expect(await run(["sessions", "unsubscribe", "s", "a"])).toMatchObject({ code: 0 });
    expect((await backlog()).map(({ topic }) => topic)).toEqual(["b"]);
    expect(await run(["sessions", "end", "s", "--yes"])).toMatchObject({ code: 0 });
    expect((await admin.listSessions({ query: {} })).total).toBe(0);
    expect((await admin.listSubscriptions({ query: {} })).total).toBe(0);
  }));

test("R67: a retained topic with control characters is found and cleared", () =>
  operated(async ({ broker, admin, run }) => {
    const topic = "odd/\u0001\u0085/x";
    const client = await connect(broker.port, "c", { reconnectPeriod: 0 });
    await client.publishAsync(topic, "x", { qos: 1, retain: true });
    await client.endAsync();
    const listed = await run(["retained", "odd/#"]);
    expect(listed.stdout).toContain("odd/\u00b7\u00b7/x");
    const message = await admin.getRetained({ query: { topic } });
    expect(message.topic).toBe(topic);
    expect(await run(["retained", "delete", topic, "--yes"])).toMatchObject({ code: 0 });
    expect((await admin.listRetained({ query: {} })).items).toEqual([]);
  }));

test("R119: the value of each limit that holds is read, and 0 has its one meaning in it", () =>
  operated(
    async ({ admin, run }) => {
      const { items } = await admin.getConfig();
      const of = (path: string) => items.find((item) => item.path === path);
      expect(of("mqtt.inflightMax")).toMatchObject({
        value: "1",
        origin: "--set mqtt.inflightMax",
      });
      expect(of("sessions.backlogMax")).toMatchObject({ value: "0" });
      expect(of("mqtt.receiveMaximum")).toMatchObject({ value: "1000", origin: "default" });
      const shown = await run(["config", "show", "--set", "mqtt.receiveMaximum=0"]);
      expect([shown.code, shown.stderr]).toEqual([3, expect.stringContaining("1 to 65535")]);
    },
    ["--set", "mqtt.inflightMax=1", "--set", "sessions.backlogMax=0"],
  ));

test("R136: with another host name, address and path the same volume is the same node", () =>
  withTemporaryFolder(async (folder) => {
    const env = { HOSTNAME: "old" };
    const first = await startOperated({ folder, env });
    await leaveSessions(first.broker.port, ["s"], ["a"]);
    await first.admin.publish({ body: { topic: "a", payload: "x" } });
    const { siteId } = await first.admin.getStatus();
    await first.broker.stop();
    const moved = join(folder, "elsewhere");
    await rename(first.dataDir, moved);
    const args = ["--host", "127.0.0.2"];
    const again = await startOperated({
      ...{ folder, dataDir: moved, key: first.key, args, env: { HOSTNAME: "new" } },
    });
    await using _broker = again.broker;
    expect((await again.admin.getStatus()).siteId).toBe(siteId);
    const { items } = await again.admin.peekBacklog({ params: { clientId: "s" } });
    expect(items).toHaveLength(1);
  }));

test("R137: a typo ends a start with 3, its file, line and column, and the nearest key", () =>
  withTemporaryFolder(async (folder) => {
    const { writeFile } = await import("node:fs/promises");
    const file = join(folder, "flagstone.yaml");
    const start = ["start", "--data", join(folder, "data"), "--config", file];
    await writeFile(file, "mqtt:\n  inflightMx: 5\n");
    for (const line of [start, ["config", "check", file]]) {
      const { code, stderr, stdout } = await runFlagstone(line);
      expect(code).toBe(3);
      expect(stderr).toContain(`${file}:2:3`);
      expect(stderr).toContain("inflightMax");
      expect(stdout).toBe("");
    }
    await writeFile(file, Buffer.from("\ufeffmqtt:\n  inflightMax: 5\n", "utf16le"));
    const utf16 = await runFlagstone(["config", "check", file]);
    expect([utf16.code, utf16.stderr]).toEqual([3, expect.stringContaining("UTF-16")]);
    await writeFile(file, "\ufeffmqtt:\n  inflightMax: 5\n");
    expect((await runFlagstone(["config", "check", file])).code).toBe(0);
  }));

test("R141, R143: the few in trouble are found among many, lists say what they leave out", () =>
  operated(async ({ broker, admin, run }) => {
    const ids = Array.from({ length: 120 }, (_, index) => `s${String(index).padStart(3, "0")}`);
    await leaveSessions(broker.port, ids, ["own/none"]);
    await leaveSessions(broker.port, ["s007", "s050", "s119"], ["hot"]);
    for (const payload of ["1", "2", "3"]) await admin.publish({ body: { topic: "hot", payload } });
    const query = { backlog: true, state: "offline" } as const;
    const found = await admin.listSessions({ query });
    expect(found.items.map(({ clientId }) => clientId)).toEqual(["s007", "s050", "s119"]);
    for (let look = 0; look < 2; look++) {
      const peeked = await run(["sessions", "peek", "s050", "--limit", "2", "-o", "json"]);
      expect(JSON.parse(peeked.stdout).items).toHaveLength(2);
    }
    const client = mqtt.connect({
      ...{ port: broker.port, host: "127.0.0.1", protocolVersion: 5, clientId: "s050" },
      ...{ clean: false, properties: { sessionExpiryInterval: 3600 }, reconnectPeriod: 0 },
    });
    const got: string[] = [];
    client.on("message", (_topic, payload) => got.push(String(payload)));
    await expect.poll(() => got).toEqual(["1", "2", "3"]);
    await client.endAsync();

    const listed = await run(["sessions"]);
    expect(listed.stdout).toContain("100 of 120 sessions; the rest with --all\n");
    const subscriptions = await run(["subscriptions"]);
    expect(subscriptions.stdout).toContain("100 of 123 subscriptions; the rest with --all\n");
    const all = JSON.parse((await run(["sessions", "--all", "-o", "json"])).stdout);
    expect(all.items.map(({ clientId }: { clientId: string }) => clientId)).toEqual(ids);
    await run(["sessions", "end", "s000", "--yes"]);
    expect((await admin.listSessions({ query: { limit: 1 } })).total).toBe(119);
    expect((await admin.getStatus()).sessions).toBe(119);
    expect((await admin.listSubscriptions({ query: { limit: 1 } })).total).toBe(122);
  }));

test("R144: old retained messages, sessions and subscriptions go, dry first, and stay gone", () =>
  withTemporaryFolder(async (folder) => {
    const first = await startOperated({ folder });
    const { admin, run, broker } = first;
    await leaveSessions(broker.port, ["old-1", "old-2", "new"], ["x", "y"]);
    for (const topic of ["a/1", "a/2", "b"]) {
      await admin.publish({ body: { topic, payload: "x", retain: true } });
    }
    const dry = await run(["retained", "delete", "a/#"]);
    expect(dry.stdout).toContain("2 retained messages would be cleared; do it with --yes");
    expect((await admin.listRetained({ query: {} })).items).toHaveLength(3);
    await run(["retained", "delete", "a/#", "--yes"]);
    const ending = await run(["sessions", "end", "--prefix", "old-"]);
    expect(ending.stdout).toContain("would be ended");
    await run(["sessions", "end", "--prefix", "old-", "--yes"]);
    await run(["sessions", "unsubscribe", "new", "x"]);
    await broker.kill();
    const again = await startOperated({ folder, key: first.key });
    await using _broker = again.broker;
    const retained = await again.admin.listRetained({ query: {} });
    expect(retained.items.map(({ topic }) => topic)).toEqual(["b"]);
    const { items } = await again.admin.listSubscriptions({ query: {} });
    expect(items.map(({ clientId, filter }) => [clientId, filter])).toEqual([["new", "y"]]);
  }));
