// The launched broker with every kind of listener, users and rules, and clients that others wrote.

import {
  chmod,
  copyFile,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  writeFile,
} from "node:fs/promises";
import { type AddressInfo, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import tls from "node:tls";
import mqtt from "mqtt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemRandom } from "../../src/base/index.ts";
import { hashPassword } from "../../src/broker/index.ts";
import { encodePacket } from "../../src/mqtt/index.ts";
import { type BrokerProcess, startBroker, startRefused } from "../support/broker-process.ts";
import { alice, authority, mallory, renewed, server } from "../support/certificates.ts";
import { runProgram, startProgram } from "../support/child-process.ts";
import { waitUntil } from "../support/numbered-run.ts";
import { connecting } from "../support/raw-mqtt.ts";

let folder = "";
let broker: BrokerProcess;
const ports = { tls: 0, ws: 0, wss: 0 };
const password = "correct horse battery staple";

async function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address() as AddressInfo;
      probe.close(() => resolve(port));
    });
  });
}

const file = (name: string): string => join(folder, name);
const socketPath = (): string => file("mqtt.sock");

/** As an editor should: the file is never half there. */
async function replaceFile(name: string, text: string): Promise<void> {
  await writeFile(file(`${name}.new`), text, { mode: 0o600 });
  await rename(file(`${name}.new`), file(name));
}

async function writeUsers(...names: string[]): Promise<void> {
  const hash = await hashOf();
  await replaceFile("users.txt", names.map((name) => `${name}:${hash}\n`).join(""));
}

let hash: Promise<string> | undefined;
function hashOf(): Promise<string> {
  hash ??= hashPassword(Buffer.from(password), systemRandom);
  return hash;
}

function configuration(): string {
  const pair = `cert: ${file("server.crt")}, key: ${file("server.key")}`;
  return `
listeners:
  tcp: {port: 0, authentication: [password_file]}
  tls:
    type: tls
    port: ${ports.tls}
    tls: {${pair}, clientCa: ${file("ca.crt")}, clientCertificate: optional}
    authentication: [certificate, password_file]
  ws: {type: ws, port: ${ports.ws}}
  wss: {type: wss, port: ${ports.wss}, tls: {${pair}}}
  unix: {type: unix, path: ${socketPath()}, authentication: [anonymous]}
authentication: {chain: [password_file], passwordFile: ${file("users.txt")}}
authorization: {sources: [rule_file], ruleFile: ${file("rules.acl")}}
`;
}

const rules = `topic read #
user alice
topic readwrite #
topic deny secret/#
user bob
topic read public/#
`;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "flagstone-secure-"));
  for (const kind of ["tls", "ws", "wss"] as const) ports[kind] = await freePort();
  await writeUsers("alice", "bob", "carol");
  await replaceFile("rules.acl", rules);
  await replaceFile("ca.crt", authority);
  await replaceFile("server.crt", server.cert);
  await replaceFile("server.key", server.key);
  for (const [name, pair] of Object.entries({ alice, mallory })) {
    await replaceFile(`${name}.crt`, pair.cert);
    await replaceFile(`${name}.key`, pair.key);
  }
  await replaceFile("flagstone.yaml", configuration());
  broker = await startBroker({ dataDir: file("data"), args: ["--config", file("flagstone.yaml")] });
});

afterAll(async () => {
  await broker?.stop();
  await rm(folder, { recursive: true, force: true });
});

describe("mosquitto's tools", () => {
  const withPassword = ["-u", "alice", "-P", password];
  const overTls = (): string[] => ["-p", `${ports.tls}`, "--cafile", file("ca.crt")];
  const pair = (name: string): string[] => [
    "--cert",
    file(`${name}.crt`),
    "--key",
    file(`${name}.key`),
  ];
  const publish = (...args: string[]): Promise<string> =>
    runProgram("mosquitto_pub", ["-h", "localhost", "-q", "1", "-V", "5", ...args]);
  const read = (...args: string[]): Promise<string> =>
    runProgram("mosquitto_sub", ["-h", "localhost", "-C", "1", "-W", "5", ...args]);

  test("over TLS with a password, and with a certificate, whose name is the user", async () => {
    await publish(...overTls(), ...withPassword, "-t", "tls/a", "-m", "one", "-r");
    await publish(...overTls(), ...pair("alice"), "-t", "tls/b", "-m", "two", "-r");
    expect(await read(...overTls(), ...pair("alice"), "-t", "tls/a")).toContain("one");
    expect(await read("-p", `${broker.port}`, ...withPassword, "-t", "tls/b")).toContain("two");
  });

  test("a certificate of strangers, no login and a wrong password are refused", async () => {
    const attempt = ["-t", "tls/c", "-m", "x"];
    await expect(publish(...overTls(), ...pair("mallory"), ...attempt)).rejects.toThrow();
    await expect(publish(...overTls(), ...attempt)).rejects.toThrow();
    await expect(publish(...overTls(), "-u", "alice", "-P", "no", ...attempt)).rejects.toThrow();
  });

  test("rules: who may write, who may only read, and whom a denial stops", async () => {
    const at = ["-p", `${broker.port}`];
    await publish(...at, ...withPassword, "-t", "public/x", "-m", "news", "-r");
    const bob = ["-u", "bob", "-P", password];
    expect(await read(...at, ...bob, "-t", "public/#")).toContain("news");
    expect(await read(...at, ...bob, "-t", "tls/#")).toBe("");
    for (const [who, topic] of [
      [bob, "public/x"],
      [withPassword, "secret/x"],
    ] as const) {
      const args = [
        "-h",
        "localhost",
        "-q",
        "1",
        "-V",
        "5",
        ...at,
        ...who,
        "-t",
        topic,
        "-m",
        "no",
      ];
      const program = startProgram("mosquitto_pub", args);
      await program.exited;
      expect(program.stderr()).toContain("Not authorized");
    }
  });

  test("over a Unix socket", async () => {
    const text = await runProgram("mosquitto_sub", [
      ...["--unix", socketPath(), "-t", "public/#", "-C", "1", "-W", "5"],
    ]);
    expect(text).toContain("news");
  });
});

describe("MQTT.js", () => {
  test.each(["ws", "wss"] as const)("over %s", async (scheme) => {
    const client = await mqtt.connectAsync(`${scheme}://localhost:${ports[scheme]}/mqtt`, {
      ...{ username: "alice", password, protocolVersion: 5, ca: authority, reconnectPeriod: 0 },
    });
    const large = "x".repeat(300_000);
    const received: string[] = [];
    client.on("message", (_topic, payload) => received.push(payload.toString()));
    await client.subscribeAsync(`${scheme}/#`, { qos: 1 });
    await client.publishAsync(`${scheme}/a`, "small", { qos: 1 });
    await client.publishAsync(`${scheme}/b`, large, { qos: 2 });
    await waitUntil(
      () => received.length === 2,
      15_000,
      () => "messages over WebSocket",
    );
    expect(received).toEqual(["small", large]);
    await client.endAsync();
  });
});

test("R130: a certificate that changes on disk is used, a pair that does not fit is not", async () => {
  const serial = (): Promise<string> =>
    new Promise((resolve, reject) => {
      const socket = tls.connect({ port: ports.tls, host: "localhost", ca: authority }, () => {
        resolve(socket.getPeerCertificate().serialNumber);
        socket.destroy();
      });
      socket.on("error", reject);
    });
  const before = await serial();
  const old = await mqtt.connectAsync(`mqtts://localhost:${ports.tls}`, {
    ...{ username: "alice", password, ca: authority, reconnectPeriod: 0 },
  });
  // Of this listener: another one with the same files may have been looked at before or after it.
  const said = (event: string) => (): boolean =>
    broker
      .output()
      .split("\n")
      .some((line) => line.includes(event) && line.includes('"listener":"tls"'));
  await replaceFile("server.crt", renewed.cert);
  process.kill(broker.pid, "SIGHUP");
  await waitUntil(said("node.certificate_refused"), 15_000, () => broker.output());
  expect(await serial()).toBe(before);
  await replaceFile("server.key", renewed.key);
  process.kill(broker.pid, "SIGHUP");
  await waitUntil(said("node.certificate_changed"), 15_000, () => broker.output());
  expect(await serial()).not.toBe(before);
  expect(old.connected).toBe(true);
  await old.endAsync();
});

describe("R122, R124: reloading users and rules", () => {
  async function connected(username: string): Promise<mqtt.MqttClient> {
    return mqtt.connectAsync(`mqtt://127.0.0.1:${broker.port}`, {
      ...{ username, password, protocolVersion: 5, reconnectPeriod: 0 },
    });
  }

  /** Resolves when the reload is over, which the log says one way or the other. */
  async function reload(): Promise<string> {
    const from = broker.output().length;
    process.kill(broker.pid, "SIGHUP");
    const said = (): string => broker.output().slice(from);
    await waitUntil(() => /node\.(reloaded|reload_refused)/.test(said()), 15_000, said);
    return said();
  }

  test("nothing has changed: nobody is disconnected", async () => {
    const clients = await Promise.all(["alice", "bob", "carol"].map(connected));
    expect(await reload()).toContain("node.reloaded");
    await Promise.all(clients.map((client) => client.publishAsync("public/ping", "x", { qos: 0 })));
    expect(clients.map((client) => client.connected)).toEqual([true, true, true]);
    await Promise.all(clients.map((client) => client.endAsync()));
  });

  test("a broken, half-written or unreadable file keeps everything that held, and is logged", async () => {
    const client = await connected("bob");
    const good = await readFile(file("users.txt"), "utf8");
    const faults: Array<() => Promise<void>> = [
      () => replaceFile("users.txt", `${good}dave:hunter2\n`),
      () => replaceFile("users.txt", good.slice(0, -1)),
      () => rm(file("users.txt")),
      () => replaceFile("rules.acl", "user bob\ntopic reed #\n"),
      () => replaceFile("rules.acl", "user bob\ntopic read #"),
    ];
    for (const spoil of faults) {
      await spoil();
      const said = await reload();
      expect(said).toContain("node.security_kept");
      expect(said).toContain("node.reload_refused");
      expect(said).not.toContain("hunter2");
      const other = await connected("bob");
      await expect(other.subscribeAsync("tls/#")).rejects.toThrow();
      await other.endAsync();
      await replaceFile("users.txt", good);
      await replaceFile("rules.acl", rules);
    }
    expect(client.connected).toBe(true);
    await client.endAsync();
  });

  test("who is no longer in the file is let go, the others stay", async () => {
    const [bob, carol] = [await connected("bob"), await connected("carol")];
    const reasons: number[] = [];
    carol.on("disconnect", ({ reasonCode = 0 }) => reasons.push(reasonCode));
    await writeUsers("alice", "bob");
    await reload();
    await waitUntil(
      () => !carol.connected,
      15_000,
      () => "carol is let go",
    );
    expect([bob.connected, reasons]).toEqual([true, [0x87]]);
    await expect(connected("carol")).rejects.toThrow();
    await bob.endAsync();
  });
});

test("10,000 refused connections leave descriptors and memory as they were", async () => {
  const descriptors = async (): Promise<number> => (await readdir(`/proc/${broker.pid}/fd`)).length;
  const residentKib = async (): Promise<number> => {
    const status = await readFile(`/proc/${broker.pid}/status`, "utf8");
    return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]);
  };
  const hello = encodePacket(connecting("nobody"), 5);
  const refusedOnce = (n: number): Promise<void> =>
    new Promise((resolve) => {
      const port = n % 4 === 3 ? ports.tls : broker.port;
      const socket = connect(port, "127.0.0.1", () => {
        if (n % 4 === 2) socket.write("GET / HTTP/1.1\r\n\r\n");
        else socket.write(hello);
      });
      socket.on("error", () => undefined).on("close", () => resolve());
      socket.resume();
    });
  const round = async (count: number): Promise<void> => {
    for (let at = 0; at < count; at += 50) {
      await Promise.all(Array.from({ length: 50 }, (_, n) => refusedOnce(n)));
    }
  };
  await round(1000);
  const before = { descriptors: await descriptors(), kib: await residentKib() };
  await round(10_000);
  for (let look = 0; (await descriptors()) > before.descriptors + 2; look++) {
    expect(look).toBeLessThan(100);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  expect((await residentKib()) - before.kib).toBeLessThan(64 * 1024);
});

describe("what the broker says and keeps", () => {
  test("no secret is in what it printed", async () => {
    const printed = broker.output();
    for (const secret of [password, await hashOf(), "PRIVATE KEY", "hunter2"]) {
      expect(printed).not.toContain(secret);
    }
    expect(printed).toContain("broker.login_refused");
  });

  test("R98: what lies in the data directory is nobody else's", async () => {
    const modes: string[] = [];
    for (const entry of await readdir(file("data"), { recursive: true, withFileTypes: true })) {
      const path = join(entry.parentPath, entry.name);
      const mode = (await stat(path)).mode & 0o777;
      if ((mode & 0o077) !== 0) modes.push(`${mode.toString(8)} ${path}`);
    }
    expect(modes).toEqual([]);
    expect((await stat(file("data"))).mode & 0o777).toBe(0o700);
    expect((await stat(socketPath())).mode & 0o777).toBe(0o660);
  });

  test("a secret file that others can read is told", async () => {
    await chmod(file("users.txt"), 0o644);
    await copyFile(file("flagstone.yaml"), file("again.yaml"));
    await writeFile(
      file("again.yaml"),
      `authentication: {chain: [password_file], passwordFile: ${file("users.txt")}}\n`,
    );
    const secret = "authentication.http.bearer=a word that nobody should see";
    const args = ["--config", file("again.yaml"), "--set", secret];
    const other = await startBroker({ dataDir: file("other"), args });
    expect(other.output()).toContain("node.secret_file_open");
    // Everybody on the machine may read that one.
    const commandLine = await readFile(`/proc/${other.pid}/cmdline`, "utf8");
    expect(commandLine).toContain("flagstone start");
    expect(commandLine).not.toContain("nobody should see");
    await other.stop();
  });

  test("it does not start for a network without a word on who may enter, or with broken files", async () => {
    const refused = async (...args: string[]) => {
      const { exit, stderr } = await startRefused({ dataDir: file("refused"), args });
      return `${exit.code} ${stderr}`;
    };
    expect(await refused("--host", "0.0.0.0")).toMatch(/^3 .*nothing says who may enter/s);
    const users = "authentication.chain=[password_file]";
    const missing = `authentication.passwordFile=${file("nowhere.txt")}`;
    expect(await refused("--set", users, "--set", missing)).toMatch(/^4 .*nowhere\.txt/s);
  });
});
