// Clients that others wrote, against the launched broker with TLS, users and rules: Eclipse Paho's for
// Python, and MQTT.js inside Chromium over WSS. (Mosquitto's tools: security.test.ts.)

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { systemRandom } from "../../src/base/index.ts";
import { hashPassword } from "../../src/broker/index.ts";
import { type BrokerProcess, startBroker } from "../support/broker-process.ts";
import { BrowserPage } from "../support/browser.ts";
import { alice, authority, server } from "../support/certificates.ts";
import { runProgram } from "../support/child-process.ts";

const password = "correct horse battery staple";
const ports = { tls: 0, wss: 0 };
let folder = "";
let broker: BrokerProcess;

const programs = (name: string): string =>
  fileURLToPath(new URL(`programs/${name}`, import.meta.url));

async function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address() as AddressInfo;
      probe.close(() => resolve(port));
    });
  });
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "flagstone-clients-"));
  const file = (name: string): string => join(folder, name);
  ports.tls = await freePort();
  ports.wss = await freePort();
  const hash = await hashPassword(Buffer.from(password), systemRandom);
  const texts = {
    ...{ "ca.crt": authority, "server.crt": server.cert, "server.key": server.key },
    ...{ "alice.crt": alice.cert, "alice.key": alice.key, "users.txt": `alice:${hash}\n` },
    "rules.acl": "user alice\ntopic readwrite #\ntopic deny secret/#\n",
  };
  for (const [name, text] of Object.entries(texts)) {
    await writeFile(file(name), text, { mode: 0o600 });
  }
  const pair = `cert: ${file("server.crt")}, key: ${file("server.key")}`;
  await writeFile(
    file("flagstone.yaml"),
    `listeners:
  tcp: {port: 0}
  tls:
    type: tls
    port: ${ports.tls}
    tls: {${pair}, clientCa: ${file("ca.crt")}, clientCertificate: optional}
    authentication: [certificate, password_file]
  wss: {type: wss, port: ${ports.wss}, tls: {${pair}}}
authentication: {chain: [password_file], passwordFile: ${file("users.txt")}}
authorization: {sources: [rule_file], ruleFile: ${file("rules.acl")}}
`,
  );
  broker = await startBroker({ dataDir: file("data"), args: ["--config", file("flagstone.yaml")] });
});
afterAll(async () => {
  await broker?.stop();
  await rm(folder, { recursive: true, force: true });
});

test("Paho for Python: TLS, password and certificate, rules, sessions, wills, properties", async () => {
  // Debian's own Python has Debian's packages.
  const args = [programs("paho_client.py"), `${ports.tls}`, folder, "alice", password];
  const said = await runProgram("/usr/bin/python3", args);
  const each = ["exchange", "lasting", "denied", "turned_away", "last_will"];
  const wanted = ["paho4", "paho5"].flatMap((base) => each.map((name) => `${base} ${name}`));
  expect(said.trim().split("\n")).toEqual([...wanted, "paho5 meta"]);
});

test("MQTT.js in Chromium over WSS: every QoS, large and retained messages, sessions, rules", async () => {
  const bundle = fileURLToPath(
    new URL("../../node_modules/mqtt/dist/mqtt.min.js", import.meta.url),
  );
  await using page = await BrowserPage.open({
    files: { "/": programs("browser.html"), "/mqtt.js": bundle },
    query: { url: `wss://localhost:${ports.wss}/mqtt`, user: "alice", password },
    trusted: server.cert,
  });
  const each = ["exchange", "lasting", "denied"];
  const wanted = ["browser4", "browser5"].flatMap((base) => each.map((name) => `${base} ${name}`));
  expect(await page.until("done", 90_000)).toEqual([...wanted, "done"]);
});
