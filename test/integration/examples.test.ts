// Every example runs as a program of its own against the built package, and says what it should.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readdir } from "node:fs/promises";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import mqtt from "mqtt";
import { expect, test } from "vitest";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const folder = new URL("../../examples/", import.meta.url);
const execute = promisify(execFile);

/** Examples that this file runs, with what they say. */
const says: Readonly<Record<string, string>> = {
  "recorder.mjs": "60 samples after a restart, 15 of plant 1 in the second half\nhighest 79\n",
  "rule.mjs": 'refused with reason code 0x87\nrows: [["press-7","7",3]]\n',
  "fleet.mjs": "bus-1 at 3 km, bus-2 at 0 km, tram-9 at 0 km\n",
  "wire.mjs": [
    "-> connect",
    "<- connack",
    "-> publish #1 meter/1 20.5",
    "<- puback #1",
    "the device is done with #1",
    "the server's connection ended: keep_alive",
    "the device's connection ended: transport",
    "-> connect",
    "<- connack",
    "-> publish #2 again meter/1 21.0",
    "<- puback #2",
    "the device is done with #2",
    "taken: meter/1 20.5, meter/1 21.0\n",
  ].join("\n"),
  "device-test.mjs": "readings 1 2 3 4 arrived, over a power cut and half a day\n",
};

/** Run by other tests. */
const elsewhere: Readonly<Record<string, string>> = {
  "aedes.mjs": "below",
  "durable.mjs": "test/integration/readme.test.ts",
  "replicated.mjs": "test/integration/raft-example.test.ts",
};

for (const [name, text] of Object.entries(says)) {
  test(`examples/${name} does what it says`, () =>
    withTemporaryFolder(async (cwd) => {
      const path = fileURLToPath(new URL(name, folder));
      const { stdout, stderr } = await execute(process.execPath, [path], { cwd, timeout: 60_000 });
      expect(stderr).toBe("");
      expect(stdout).toBe(text);
    }));
}

test("every example in JavaScript is run by a test", async () => {
  const names = (await readdir(folder)).filter((name) => name.endsWith(".mjs"));
  const known = [...Object.keys(says), ...Object.keys(elsewhere)];
  expect(names.filter((name) => !known.includes(name))).toEqual([]);
});

test("examples/aedes.mjs keeps what was acknowledged over kill -9", () =>
  withTemporaryFolder(async (cwd) => {
    const path = fileURLToPath(new URL("aedes.mjs", folder));
    const start = async () => {
      const child = spawn(process.execPath, [path, "data", "0"], { cwd });
      const [line] = (await once(createInterface(child.stdout), "line")) as [string];
      return { child, url: `mqtt://127.0.0.1:${line.split(" ")[1]}` };
    };
    const away = { clientId: "away", clean: false, reconnectPeriod: 0 };
    const first = await start();
    const subscriber = await mqtt.connectAsync(first.url, away);
    await subscriber.subscribeAsync("a/#", { qos: 2 });
    await subscriber.endAsync();
    const publisher = await mqtt.connectAsync(first.url, { reconnectPeriod: 0 });
    publisher.on("error", () => undefined);
    const texts = Array.from({ length: 200 }, (_, at) => `${at}`);
    await Promise.all(
      texts.map((text, at) => publisher.publishAsync("a/b", text, { qos: at % 2 ? 1 : 2 })),
    );
    first.child.kill("SIGKILL");
    await once(first.child, "exit");
    const second = await start();
    const back = mqtt.connect(second.url, away);
    const received: string[] = [];
    await new Promise<void>((resolve) => {
      back.on("message", (_topic, payload) => {
        if (received.push(payload.toString()) === texts.length) resolve();
      });
    });
    await back.endAsync(true);
    second.child.kill("SIGKILL");
    expect([...received].sort()).toEqual([...texts].sort());
    // Of each kind in order: what Aedes has waiting of QoS 2 and 1 may pass each other.
    for (const kind of [0, 1]) {
      const own = received.filter((text) => Number(text) % 2 === kind);
      expect(own).toEqual(texts.filter((text) => Number(text) % 2 === kind));
    }
  }));
