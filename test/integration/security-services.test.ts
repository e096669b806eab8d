// A node in this process with users and rules in its store, tokens whose keys rotate, and a service
// that is asked about logins.

import { generateKeyPairSync, type KeyObject } from "node:crypto";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import * as jose from "jose";
import mqtt, { type IClientOptions, type MqttClient } from "mqtt";
import { afterEach, expect, test } from "vitest";
import { systemRandom } from "../../src/base/index.ts";
import { hashPassword } from "../../src/broker/index.ts";
import { createSettings, type RunningNode, startNode } from "../../src/node/index.ts";
import { waitUntil } from "../support/numbered-run.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const clients: MqttClient[] = [];
const servers: Server[] = [];

afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.endAsync(true)));
  for (const server of servers.splice(0)) server.close();
});

async function serve(answer: (body: string) => { status?: number; text: string }): Promise<string> {
  const server = createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (text: string) => {
      body += text;
    });
    request.on("end", () => {
      const { status = 200, text } = answer(body);
      response.writeHead(status).end(text);
    });
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

async function withNode(input: object, run: (node: RunningNode, login: Login) => Promise<void>) {
  await withTemporaryFolder(async (dir) => {
    const listeners = { tcp: { port: 0 } };
    await using node = await startNode(createSettings({ data: { dir }, listeners, ...input }));
    const port = node.listeners[0]?.port;
    await run(node, async (options) => {
      const fixed = { protocolVersion: 5, reconnectPeriod: 0 } as const;
      const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${port}`, { ...fixed, ...options });
      clients.push(client);
      return client;
    });
  });
}

type Login = (options: IClientOptions) => Promise<MqttClient>;

const publishes = (client: MqttClient, topic: string): Promise<boolean> =>
  client.publishAsync(topic, "x", { qos: 1 }).then(
    () => true,
    () => false,
  );

test("users and rules in the store: added, changed, removed while it runs, and there after a restart", async () => {
  const authentication = { chain: ["users"] };
  const authorization = { sources: ["rules"] };
  await withTemporaryFolder(async (dir) => {
    const settings = createSettings({
      ...{ data: { dir }, listeners: { tcp: { port: 0 } }, authentication, authorization },
    });
    const hash = await hashPassword(Buffer.from("pw"), systemRandom);
    const login = (node: RunningNode, username: string) => {
      const port = node.listeners[0]?.port;
      return mqtt.connectAsync(`mqtt://127.0.0.1:${port}`, {
        ...{ username, password: "pw", protocolVersion: 5, reconnectPeriod: 0 },
      });
    };
    {
      await using node = await startNode(settings);
      await expect(login(node, "alice")).rejects.toThrow();
      await node.security.users.put("alice", hash, 1);
      await node.security.users.put("bob", hash, 1);
      const alice = await login(node, "alice");
      const bob = await login(node, "bob");
      expect(await publishes(alice, "t")).toBe(false);
      await node.security.replaceRules("user alice\ntopic t\n");
      expect(await publishes(alice, "t")).toBe(true);
      await expect(node.security.replaceRules("user alice\ntopic reed t#\n")).rejects.toThrow(
        "line 2",
      );
      expect(await publishes(alice, "t")).toBe(true);
      expect(await node.security.users.remove("bob")).toBe(true);
      await waitUntil(
        () => !bob.connected,
        10_000,
        () => "bob is let go",
      );
      expect(alice.connected).toBe(true);
      expect(node.security.users.list()).toEqual([{ name: "alice", form: "scrypt", sinceUs: 1 }]);
      await expect(node.security.users.put("a:b", hash, 1)).rejects.toThrow("colon");
      await expect(node.security.users.put("c", "hunter2", 1)).rejects.toThrow("unknown hash");
      await alice.endAsync();
    }
    await using again = await startNode(settings);
    const alice = await login(again, "alice");
    expect(await publishes(alice, "t")).toBe(true);
    expect(await publishes(alice, "u")).toBe(false);
    await expect(login(again, "bob")).rejects.toThrow();
    await alice.endAsync();
  });
});

test("tokens: rights count, a rotated key is fetched, an outage keeps the keys that were good", async () => {
  const pair = () => generateKeyPairSync("ec", { namedCurve: "P-256" });
  const [first, second] = [pair(), pair()];
  const jwk = async (key: KeyObject, kid: string) => ({
    ...(await jose.exportJWK(key)),
    ...{ kid, alg: "ES256" },
  });
  let status = 200;
  let keys = [await jwk(first.publicKey, "one")];
  let fetches = 0;
  const jwksUrl = await serve(() => {
    fetches++;
    return { status, text: JSON.stringify({ keys }) };
  });
  const token = (key: KeyObject, kid: string, claims = {}) =>
    new jose.SignJWT({ sub: "alice", rights: { publish: ["up/%c"] }, ...claims })
      .setProtectedHeader({ alg: "ES256", kid })
      .setExpirationTime("1m")
      .sign(key);
  const input = {
    authentication: { chain: ["jwt"], jwt: { jwksUrl, refresh: "1s" } },
    authorization: { sources: ["login"] },
  };
  await withNode(input, async (_node, login) => {
    const client = await login({
      ...{ clientId: "c1", username: "alice", password: await token(first.privateKey, "one") },
    });
    expect(await publishes(client, "up/c1")).toBe(true);
    expect(await publishes(client, "up/c2")).toBe(false);
    const forged = token(second.privateKey, "one");
    await expect(login({ username: "alice", password: await forged })).rejects.toThrow();
    keys = [await jwk(second.publicKey, "two")];
    const before = fetches;
    await waitUntil(
      () => fetches > before,
      10_000,
      () => "the key set is fetched again",
    );
    const next = await token(second.privateKey, "two");
    await waitUntil(
      () => fetches > before + 1,
      10_000,
      () => "and again",
    );
    status = 500;
    expect((await login({ username: "alice", password: next })).connected).toBe(true);
    const old = token(first.privateKey, "one");
    await expect(login({ username: "alice", password: await old })).rejects.toThrow();
  });
});

test("the http method: its verdict and rights count; down, slow or odd it lets nobody in", async () => {
  let answer: { status?: number; text: string } = { text: "" };
  const asked: unknown[] = [];
  const url = await serve((body) => {
    asked.push(JSON.parse(body));
    return answer;
  });
  const input = {
    authentication: { chain: ["http"], http: { url, timeout: "1s" } },
    authorization: { sources: ["login"] },
  };
  await withNode(input, async (_node, login) => {
    answer = { text: '{"result":"allow","user":"a","rights":{"publish":["t"]}}' };
    const client = await login({ clientId: "c", username: "alice", password: "pw" });
    expect([await publishes(client, "t"), await publishes(client, "u")]).toEqual([true, false]);
    expect(asked[0]).toMatchObject({ clientId: "c", userName: "alice", password: "pw" });
    for (const bad of ['{"result":"deny"}', "{}", "nonsense", "x".repeat(2_000_000)]) {
      answer = { text: bad };
      await expect(login({ username: "alice", password: "pw" })).rejects.toThrow();
    }
    for (const server of servers.splice(0)) server.close().closeAllConnections();
    await expect(login({ username: "alice", password: "pw" })).rejects.toThrow();
  });
});
