// Clients that others wrote, against the launched broker: Mosquitto's command line tools and MQTT.js.

import mqtt, { type IClientOptions, type MqttClient } from "mqtt";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Program, runProgram, startProgram } from "../support/child-process.ts";
import { LaunchedBroker } from "../support/launched-broker.ts";
import { waitUntil } from "../support/numbered-run.ts";

let broker: LaunchedBroker;
let topic = "";
let serial = 0;

beforeAll(async () => {
  broker = await LaunchedBroker.open();
});
beforeEach(() => {
  serial++;
  topic = `clients/${serial}`;
});
afterAll(async () => {
  await broker[Symbol.asyncDispose]();
});

describe.each(["mqttv311", "mqttv5"])("mosquitto_pub and mosquitto_sub, %s", (version) => {
  const at = (): string[] => ["-h", "127.0.0.1", "-p", `${broker.port}`, "-V", version];
  const running: Program[] = [];

  afterEach(async () => {
    await Promise.all(running.splice(0).map((program) => program.kill("SIGKILL")));
  });

  const publish = (...args: string[]): Promise<string> =>
    runProgram("mosquitto_pub", [...at(), ...args]);

  /** Debug output tells when the subscription is made. */
  async function subscribe(...args: string[]): Promise<Program> {
    const program = startProgram("mosquitto_sub", [...at(), "-d", ...args]);
    running.push(program);
    await program.until("Subscribed (mid: 1)");
    return program;
  }

  /** Lines of `-F`, which begin with a mark of ours. */
  const messages = (program: Program): string[] =>
    program
      .stdout()
      .split("\n")
      .filter((line) => line.startsWith("> "));

  test.each([0, 1, 2])("QoS %i", async (qos) => {
    const format = ["-F", "> %t %q %r %p"];
    const reader = await subscribe("-t", `${topic}/#`, "-q", `${qos}`, "-C", "3", ...format);
    for (const text of ["one", "two", "three"]) {
      await publish("-t", `${topic}/${text}`, "-q", `${qos}`, "-m", text);
    }
    expect(await reader.exited).toBe(0);
    expect(messages(reader)).toEqual(
      ["one", "two", "three"].map((text) => `> ${topic}/${text} ${qos} 0 ${text}`),
    );
  });

  test("many lines in one connection arrive in order", async () => {
    const lines = Array.from({ length: 500 }, (_, n) => `line ${n}`);
    const reader = await subscribe("-t", topic, "-q", "2", "-C", "500", "-F", "> %p");
    const input = `${lines.join("\n")}\n`;
    await runProgram("mosquitto_pub", [...at(), "-t", topic, "-q", "2", "-l"], input);
    expect(await reader.exited).toBe(0);
    expect(messages(reader)).toEqual(lines.map((line) => `> ${line}`));
  });

  test("retained: kept, replaced, removed", async () => {
    for (const text of ["old", "new"]) await publish("-t", topic, "-q", "1", "-r", "-m", text);
    const args = ["-t", topic, "-q", "1", "-C", "1", "-F", "%r %p"];
    expect(await runProgram("mosquitto_sub", [...at(), ...args])).toBe("1 new\n");
    await publish("-t", topic, "-q", "1", "-r", "-n");
    const program = startProgram("mosquitto_sub", [...at(), ...args, "-W", "1"]);
    // 27: nothing came in time.
    expect([await program.exited, program.stdout()]).toEqual([27, ""]);
  });

  test("a will is published when the client is gone without DISCONNECT", async () => {
    const reader = await subscribe("-t", topic, "-q", "1", "-C", "1", "-F", "> %q %p");
    const will = ["--will-topic", topic, "--will-payload", "gone", "--will-qos", "1"];
    const client = await subscribe("-t", "elsewhere", "-i", `will ${topic}`, ...will);
    await client.kill("SIGKILL");
    expect(await reader.exited).toBe(0);
    expect(messages(reader)).toEqual(["> 1 gone"]);
  });

  test.each(["stop", "kill"] as const)("a session (-c) keeps messages over a %s", async (end) => {
    const session = ["-c", "-i", `session-${serial}`, "-q", "1", "-t", topic];
    const expiry = version === "mqttv5" ? ["-x", "3600"] : [];
    const first = await subscribe(...session, ...expiry);
    await first.kill("SIGTERM");
    // Order is promised for the messages of one publisher.
    const publisher = ["-i", `publisher-${serial}`, "-t", topic];
    for (const text of ["one", "two"]) await publish(...publisher, "-q", "1", "-m", text);
    await broker.restart(end);
    await publish(...publisher, "-q", "2", "-m", "three");
    const args = [...at(), ...session, ...expiry, "-C", "3", "-F", "%p"];
    expect(await runProgram("mosquitto_sub", args)).toBe("one\ntwo\nthree\n");
  });
});

test("mosquitto_pub and mosquitto_sub carry properties of MQTT 5", async () => {
  const at = ["-h", "127.0.0.1", "-p", `${broker.port}`, "-V", "mqttv5"];
  const set = (...parts: string[]): string[] => ["-D", "publish", ...parts];
  await runProgram("mosquitto_pub", [
    ...[...at, "-t", topic, "-r", "-q", "1", "-m", "x"],
    ...set("content-type", "text/plain"),
    ...set("response-topic", "answers"),
    ...set("user-property", "b", "1"),
    ...set("user-property", "a", "2"),
  ]);
  const format = "%C|%R|%P|%p";
  const found = await runProgram("mosquitto_sub", [...at, "-t", topic, "-C", "1", "-F", format]);
  expect(found.trim()).toBe("text/plain|answers|b:1 a:2|x");
});

describe.each([4, 5] as const)("MQTT.js, level %i", (level) => {
  const clients: MqttClient[] = [];

  afterEach(async () => {
    await Promise.all(clients.splice(0).map((client) => client.endAsync(true)));
  });

  async function connect(options: Partial<IClientOptions> = {}): Promise<MqttClient> {
    const client = await mqtt.connectAsync({
      host: "127.0.0.1",
      port: broker.port,
      protocolVersion: level,
      reconnectPeriod: 50,
      ...options,
    });
    // A broker that is restarted is an error for a while.
    client.on("error", () => undefined);
    clients.push(client);
    return client;
  }

  test("every QoS, wildcards, retained, zero bytes and a megabyte", async () => {
    const reader = await connect();
    const got: string[] = [];
    reader.on("message", (name, payload, packet) => {
      got.push(`${name} q${packet.qos} r${Number(packet.retain)} ${payload.length}`);
    });
    await reader.subscribeAsync({ [`${topic}/+/x`]: { qos: 2 }, [`${topic}/r`]: { qos: 1 } });
    const writer = await connect();
    const payloads = [Buffer.alloc(0), Buffer.from("text"), Buffer.alloc(1024 * 1024, 7)];
    for (const qos of [0, 1, 2] as const) {
      for (const payload of payloads) {
        await writer.publishAsync(`${topic}/${qos}/x`, payload, { qos });
      }
    }
    await writer.publishAsync(`${topic}/r`, "kept", { qos: 1, retain: true });
    const wanted = [0, 1, 2].flatMap((qos) =>
      payloads.map(({ length }) => `${topic}/${qos}/x q${qos} r0 ${length}`),
    );
    wanted.push(`${topic}/r q1 r0 4`);
    await waitUntil(
      () => got.length >= wanted.length,
      15_000,
      () => got.join("\n"),
    );
    expect(got.sort()).toEqual(wanted.sort());
    const late = await connect();
    const retained = new Promise<string>((resolve) => {
      late.once("message", (_name, payload, { retain }) => resolve(`${payload} ${retain}`));
    });
    await late.subscribeAsync(`${topic}/r`);
    expect(await retained).toBe("kept true");
    await late.unsubscribeAsync(`${topic}/r`);
  });

  test("a durable client that reconnects by itself misses nothing over a kill -9", async () => {
    const expiry = level === 5 ? { properties: { sessionExpiryInterval: 3600 } } : {};
    const durable = { clean: false, ...expiry };
    const reader = await connect({ clientId: `reader ${topic}`, ...durable });
    const got = new Set<string>();
    reader.on("message", (_name, payload) => got.add(payload.toString()));
    await reader.subscribeAsync(topic, { qos: 1 });
    const writer = await connect({ clientId: `writer ${topic}`, ...durable });
    const acks: Promise<unknown>[] = [];
    for (let n = 0; n < 400; n++) {
      acks.push(writer.publishAsync(topic, `${n}`, { qos: n % 2 === 0 ? 1 : 2 }));
      if (n === 200) await broker.restart("kill");
    }
    await Promise.all(acks);
    await waitUntil(
      () => got.size === 400,
      20_000,
      () => `${got.size} of 400`,
    );
  });

  test("a will, and what DISCONNECT does to it", async () => {
    const reader = await connect();
    const got: string[] = [];
    reader.on("message", (_name, payload) => got.push(payload.toString()));
    await reader.subscribeAsync(topic, { qos: 1 });
    const will = (payload: string): Partial<IClientOptions> => ({
      reconnectPeriod: 0,
      will: { topic, payload: Buffer.from(payload), qos: 1, retain: false },
    });
    const leaving = await connect(will("left"));
    await leaving.endAsync();
    const lost = await connect(will("lost"));
    lost.stream.destroy();
    await waitUntil(
      () => got.length > 0,
      5000,
      () => "no will came",
    );
    expect(got).toEqual(["lost"]);
  });
});
