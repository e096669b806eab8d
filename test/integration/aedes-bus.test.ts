// Several Aedes processes over one Flagstone, each a process of its own: one of them is killed, then
// the Flagstone under all of them.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import mqtt, { type MqttClient } from "mqtt";
import { expect, test } from "vitest";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const pathOf = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const bus = pathOf("programs/aedes-bus.mjs");
const launcher = pathOf("../../dist/cli/main.cjs");
const waits = { timeout: 60_000 };

type Running = { readonly child: ChildProcess; readonly port: number };

async function run(cwd: string, args: readonly string[], ready: RegExp): Promise<Running> {
  const child = spawn(process.execPath, args, { cwd, stdio: ["ignore", "pipe", "inherit"] });
  for await (const line of createInterface(child.stdout)) {
    const port = ready.exec(line)?.[1];
    if (port !== undefined) return { child, port: Number(port) };
  }
  throw new Error(`${args[0]} ended before it was ready`);
}

async function kill({ child }: Running): Promise<void> {
  child.kill("SIGKILL");
  await once(child, "exit");
}

const flagstone = (cwd: string, port: number): Promise<Running> =>
  run(
    cwd,
    [launcher, "start", "--data", "flagstone", "--port", `${port}`, "--admin-port", "off"],
    /^ready mqtt=\S+:(\d+)/,
  );

class Reader {
  readonly texts: string[] = [];

  static async on(port: number): Promise<Reader> {
    const client = await connect(port);
    const reader = new Reader();
    client.on("message", (_topic, payload) => reader.texts.push(payload.toString()));
    await client.subscribeAsync("t/#", { qos: 1 });
    return reader;
  }
}

const clients: MqttClient[] = [];

async function connect(port: number): Promise<MqttClient> {
  const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${port}`, { reconnectPeriod: 0 });
  client.on("error", () => undefined);
  clients.push(client);
  return client;
}

const numbers = (from: number, to: number): string[] =>
  Array.from({ length: to - from }, (_, at) => `${from + at}`);

const publish = (client: MqttClient, texts: readonly string[]): Promise<unknown> =>
  Promise.all(texts.map((text) => client.publishAsync("t/x", text, { qos: 1 })));

test("Aedes processes over one Flagstone hear each other, over kill -9 of one and of the Flagstone", () =>
  withTemporaryFolder(async (cwd) => {
    const running = new Set<Running>();
    const started = async (starting: Promise<Running>): Promise<Running> => {
      const one = await starting;
      running.add(one);
      return one;
    };
    try {
      const below = await started(flagstone(cwd, 0));
      const url = `mqtt://127.0.0.1:${below.port}`;
      const aedes = (id: string) => started(run(cwd, [bus, id, url], /^ready (\d+)/));
      const [a, b, c] = await Promise.all([aedes("a"), aedes("b"), aedes("c")]);
      const readers = await Promise.all([a, b, c].map(({ port }) => Reader.on(port)));
      const [atA, atB, atC] = readers as [Reader, Reader, Reader];
      const publisher = await connect(a.port);

      await publish(publisher, numbers(0, 100));
      for (const { texts } of readers)
        await expect.poll(() => texts, waits).toEqual(numbers(0, 100));

      const under = publish(publisher, numbers(100, 200));
      await kill(b);
      await under;
      for (const { texts } of [atA, atC]) {
        await expect.poll(() => texts, waits).toEqual(numbers(0, 200));
      }
      // What it had got is a beginning, in order.
      expect(atB.texts).toEqual(numbers(0, 200).slice(0, atB.texts.length));
      const again = await aedes("b");
      const back = await Reader.on(again.port);
      await publish(publisher, numbers(200, 250));
      await expect.poll(() => back.texts, waits).toEqual(numbers(200, 250));

      // No call may wait for ever for what was on its way when the Flagstone ended.
      const over = publish(publisher, numbers(250, 350));
      await kill(below);
      await started(flagstone(cwd, below.port));
      await over;
      await publish(publisher, numbers(350, 400));
      for (const { texts } of [atA, atC, back]) {
        await expect.poll(() => texts.at(-1), waits).toBe("399");
        expect(texts.filter((text) => Number(text) >= 350)).toEqual(numbers(350, 400));
      }
    } finally {
      for (const client of clients.splice(0)) client.end(true);
      for (const { child } of running) child.kill("SIGKILL");
    }
  }));
