// The launcher as its own process: what it prints, what it refuses, how it ends.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, openSync } from "node:fs";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import mqtt, { type IConnackPacket } from "mqtt";
import { describe, expect, test } from "vitest";
import { formatStamp } from "../../src/node/data-dir.ts";
import { launcherPath, startBroker, startRefused } from "../support/broker-process.ts";
import { runFlagstone } from "../support/command-line.ts";
import { compilePreload } from "../support/preload.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

async function until(
  holds: () => boolean | Promise<boolean>,
  what: string,
  withinMs = 10_000,
): Promise<void> {
  const endMs = Date.now() + withinMs;
  while (!(await holds())) {
    if (Date.now() > endMs) throw new Error(`not within ${withinMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

function connack(port: number): Promise<IConnackPacket> {
  return new Promise((resolve, reject) => {
    const client = mqtt.connect({ port, host: "127.0.0.1", protocolVersion: 5 });
    client.once("error", reject);
    client.once("connect", (packet) => {
      client.end(true);
      resolve(packet);
    });
  });
}

/** Opens the writing end of a pipe as soon as somebody reads it, and writes nothing. */
async function writerOf(path: string): Promise<number> {
  let fd: number | undefined;
  await until(() => {
    try {
      fd = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENXIO") throw error;
    }
    return fd !== undefined;
  }, "somebody reads the pipe");
  return fd as number;
}

const threadsOf = async (pid: number): Promise<number> =>
  (await readdir(`/proc/${pid}/task`)).length;

describe("a start", () => {
  test("prints at most 12 lines, the ready line last, with the port it was given", () =>
    withTemporaryFolder(async (folder) => {
      await using broker = await startBroker({ dataDir: join(folder, "data") });
      expect(broker.port).toBeGreaterThan(0);
      expect(broker.host).toBe("127.0.0.1");
      expect(broker.startLines.length).toBeLessThanOrEqual(12);
      expect(broker.startLines.at(-1)).toMatch(/^ready mqtt=127\.0\.0\.1:\d+ admin=off ms=\d+$/);
      const text = broker.startLines.join("\n");
      expect(text).toContain(`127.0.0.1:${broker.port}  (anonymous, loopback only)`);
      expect(text).toContain(`pub -h 127.0.0.1 -p ${broker.port} -t demo/hello -m world`);
      expect(broker.stderr()).toBe("");
      await connack(broker.port);
    }));

  test("takes keys from file, environment, --set and its flags, in that order", () =>
    withTemporaryFolder(async (folder) => {
      const file = join(folder, "flagstone.yaml");
      const keys = "maxPacketSize: 1MiB, receiveMaximum: 11, topicAliasMaximum: 12";
      await writeFile(file, `mqtt: {${keys}}\nlisteners: {tcp: {host: "::1", port: 1}}\n`);
      await using broker = await startBroker({
        dataDir: join(folder, "data"),
        args: ["--config", file, "--set", "mqtt.topicAliasMaximum=32", "--host", "127.0.0.1"],
        env: { FLAGSTONE__MQTT__RECEIVE_MAXIMUM: "21", FLAGSTONE__MQTT__TOPIC_ALIAS_MAXIMUM: "22" },
      });
      expect((await connack(broker.port)).properties).toMatchObject({
        maximumPacketSize: 2 ** 20,
        receiveMaximum: 21,
        topicAliasMaximum: 32,
      });
    }));

  test("has at least 8 threads for the disk, and as many more as it is asked for", () =>
    withTemporaryFolder(async (folder) => {
      const dataDir = join(folder, "data");
      const counts: number[] = [];
      for (const size of [undefined, "2", "16"]) {
        const env = size === undefined ? {} : { UV_THREADPOOL_SIZE: size };
        await using broker = await startBroker({ dataDir, env });
        counts.push(await threadsOf(broker.pid));
        await broker.stop();
      }
      const [byDefault = 0, tooFew = 0, more = 0] = counts;
      expect(tooFew).toBe(byDefault);
      expect(more).toBe(byDefault + 8);
    }));
});

describe("a refused start says why in a sentence and ends with", () => {
  test("2: a flag that does not exist", () =>
    withTemporaryFolder(async (dataDir) => {
      const { exit, stderr } = await startRefused({ dataDir, args: ["--prot", "1"] });
      expect(exit.code).toBe(2);
      expect(stderr).toContain("unknown option '--prot'");
    }));

  test("3: an admin port that is none", () =>
    withTemporaryFolder(async (dataDir) => {
      const { exit, stderr } = await startRefused({ dataDir, args: ["--admin-port", "on"] });
      expect(exit.code).toBe(3);
      expect(stderr).toContain("--admin-port");
      await using broker = await startBroker({ dataDir, args: ["--admin-port", "off"] });
      expect(broker.adminPort).toBeUndefined();
    }));

  test("3: a wrong configuration, all faults at once", () =>
    withTemporaryFolder(async (folder) => {
      const file = join(folder, "f.yaml");
      await writeFile(file, "mqtt:\n  maxPacketsize: 1MiB\n  publishWait: soon\n");
      const args = ["--config", file, "--set", "log.onDamage=ask"];
      const { exit, stderr } = await startRefused({ dataDir: join(folder, "data"), args });
      expect(exit.code).toBe(3);
      expect(stderr).toContain(`${file}:2:3: unknown key "mqtt.maxPacketsize"; did you mean`);
      expect(stderr).toContain("--set log.onDamage");
      expect(stderr).toContain("3 faults in the configuration");
      expect(await readdir(folder)).toEqual(["f.yaml"]);
    }));

  test("3: a variable of the environment that is no key", () =>
    withTemporaryFolder(async (dataDir) => {
      const env = { FLAGSTONE__MQTT__INFLIGHTMX: "5" };
      const { exit, stderr } = await startRefused({ dataDir, env });
      expect(exit.code).toBe(3);
      expect(stderr).toContain('did you mean "inflightMax"?');
    }));

  test("4: a data directory in use", () =>
    withTemporaryFolder(async (folder) => {
      const dataDir = join(folder, "data");
      await using broker = await startBroker({ dataDir });
      const { exit, stderr } = await startRefused({ dataDir });
      expect(exit.code).toBe(4);
      expect(stderr).toBe(
        `cannot open data directory "${dataDir}": in use by process ${broker.pid}; ` +
          "stop it or choose another data.dir\n",
      );
      await connack(broker.port);
    }));

  test("4: a data directory that this user cannot make", async () => {
    const { exit, stderr } = await startRefused({ dataDir: "/sys/flagstone" });
    expect(exit.code).toBe(4);
    expect(stderr).toMatch(/^cannot open data directory "\/sys\/flagstone": .*\n$/);
  });

  test("4: a file where the data directory should be", () =>
    withTemporaryFolder(async (folder) => {
      const dataDir = join(folder, "data");
      await writeFile(dataDir, "");
      const { exit, stderr } = await startRefused({ dataDir });
      expect(exit.code).toBe(4);
      expect(stderr).toContain(`cannot open data directory "${dataDir}"`);
    }));

  test("4: a data directory of a newer format, and leaves it as it is", () =>
    withTemporaryFolder(async (dataDir) => {
      const stamp = formatStamp({ format: 7, siteId: "0".repeat(32) });
      await writeFile(join(dataDir, "FLAGSTONE"), stamp);
      const { exit, stderr } = await startRefused({ dataDir });
      expect(exit.code).toBe(4);
      expect(stderr).toMatch(/format 7.*newer|newer.*format 7/);
      expect(await readdir(dataDir)).toEqual(["FLAGSTONE"]);
    }));

  test("4: somebody else's folder", () =>
    withTemporaryFolder(async (dataDir) => {
      await mkdir(join(dataDir, "photos"));
      const { exit, stderr } = await startRefused({ dataDir });
      expect(exit.code).toBe(4);
      expect(stderr).toContain('it holds "photos", which is not Flagstone\'s');
    }));

  test("4: an address that is taken, and gives the directory back", () =>
    withTemporaryFolder(async (folder) => {
      const dataDir = join(folder, "data");
      const server = createServer();
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      const { port } = server.address() as { port: number };
      try {
        const { exit, stderr } = await startRefused({ dataDir, port });
        expect(exit.code).toBe(4);
        expect(stderr).toContain(`cannot listen on 127.0.0.1:${port} (listeners.tcp)`);
      } finally {
        server.close();
      }
      await using broker = await startBroker({ dataDir });
      await connack(broker.port);
    }));
});

test("SIGHUP reads the configuration again: hot keys now, others at the next start", () =>
  withTemporaryFolder(async (folder) => {
    const file = join(folder, "f.yaml");
    await writeFile(file, "logger: {level: warn}\n");
    const args = ["--config", file];
    await using broker = await startBroker({ dataDir: join(folder, "data"), args });
    await writeFile(file, "logger: {level: debug}\nmqtt: {inflightMax: 7}\n");
    process.kill(broker.pid, "SIGHUP");
    await until(() => broker.stderr().includes("node.reloaded"), "reloaded");
    expect(broker.stderr()).toContain("logger.level: warn -> debug");
    expect(broker.stderr()).toContain("mqtt.inflightMax: 1000 -> 7");
    await writeFile(file, "logger: {level: loud}\n");
    process.kill(broker.pid, "SIGHUP");
    await until(() => broker.stderr().includes("node.reload_refused"), "refused");
    await connack(broker.port);
  }));

describe("a start that waits for its disk", () => {
  test.each(["SIGTERM", "SIGINT"] as const)("ends at once by %s", (signal) =>
    withTemporaryFolder(async (dataDir) => {
      // A pipe in the place of a file: reading it waits for ever, as on a volume that hangs.
      execFileSync("mkfifo", [join(dataDir, "FLAGSTONE")]);
      const child = spawn(process.execPath, [launcherPath(), "start", "--data", dataDir]);
      // Its end, and all it said.
      const exited = once(child, "close");
      let said = "";
      child.stderr.on("data", (chunk) => {
        said += chunk;
      });
      const pipe = await writerOf(join(dataDir, "FLAGSTONE"));
      child.kill(signal);
      expect(await exited).toEqual([null, signal]);
      closeSync(pipe);
      expect(said).toContain("node.start_ended");
    }),
  );
});

describe("on a full volume", () => {
  const shim = fileURLToPath(new URL("shim/small-volume.c", import.meta.url));
  const volume = async (folder: string, freeBytes: number): Promise<Record<string, string>> => {
    const file = join(folder, "free");
    await writeFile(file, String(freeBytes));
    return {
      LD_PRELOAD: compilePreload(shim),
      FLAGSTONE_VOLUME_FREE: file,
      UV_USE_IO_URING: "0",
    };
  };

  test("a node that was killed starts by its ballast and delivers every acked message", () =>
    withTemporaryFolder(async (folder) => {
      const dataDir = join(folder, "data");
      let broker = await startBroker({ dataDir });
      const { port } = broker;
      const at = ["-p", String(port)];
      const keep = ["-t", "demo/#", "-q", "1", "-i", "reader", "-c"];
      await runFlagstone(["sub", ...at, ...keep, "-W", "1"]);
      const input = Array.from({ length: 500 }, (_, index) => `line ${index}\n`).join("");
      const sent = ["pub", ...at, "-t", "demo/many", "-l", "-q", "1"];
      expect((await runFlagstone(sent, { input })).code).toBe(0);
      await broker.kill();
      await writeFile(join(dataDir, "ballast"), Buffer.alloc(32 * 2 ** 20));
      broker = await startBroker({ dataDir, port, env: await volume(folder, 2000) });
      try {
        expect(broker.stderr()).toContain("node.ballast_spent");
        const read = await runFlagstone(["sub", ...at, ...keep, "-C", "500", "-W", "15"]);
        expect(read.stdout).toBe(input);
      } finally {
        expect(await broker.stop()).toEqual({ code: 0, signal: null });
      }
    }));

  test("a first start is refused with 4, the room it needs and what to do", () =>
    withTemporaryFolder(async (folder) => {
      for (const freeBytes of [1000, 100_000, 3_000_000]) {
        const dataDir = join(folder, `data${freeBytes}`);
        const env = await volume(folder, freeBytes);
        const { exit, stderr } = await startRefused({ dataDir, env });
        expect(exit.code).toBe(4);
        expect(stderr).toMatch(/its volume has \S+ \S+ free and a start needs about 16\.0 MiB; /);
        expect(await readdir(dataDir)).not.toContain("probe.tmp.new");
      }
    }));
});

describe("a running node ends", () => {
  test("not with the reader of its standard output", () =>
    withTemporaryFolder(async (folder) => {
      await using broker = await startBroker({ dataDir: join(folder, "data") });
      await connack(broker.port);
      const main = `${process.execPath} ${launcherPath()}`;
      const dataDir = join(folder, "other");
      const line = `${main} start --data ${dataDir} --port 0 --set logger.level=debug & echo $! >&2; wait $!; echo "rc $?" >&2`;
      const child = spawn("sh", ["-c", `(${line}) | head -1`]);
      let said = "";
      child.stderr.on("data", (chunk) => {
        said += chunk;
      });
      const exited = once(child, "exit");
      await until(() => said.includes("node.ready"), "the other one is ready");
      await new Promise((resolve) => setTimeout(resolve, 500));
      expect(said).not.toContain("rc");
      process.kill(Number(/^\d+$/m.exec(said)?.[0]), "SIGTERM");
      await exited;
      expect(said).toContain("rc 0");
    }));

  test.each(["SIGTERM", "SIGINT"] as const)("well and soon at %s", (signal) =>
    withTemporaryFolder(async (folder) => {
      await using broker = await startBroker({ dataDir: join(folder, "data") });
      const client = mqtt.connect({ port: broker.port, host: "127.0.0.1", protocolVersion: 5 });
      const told = new Promise<number | undefined>((resolve) => {
        client.on("disconnect", (packet) => resolve(packet.reasonCode));
      });
      await new Promise((resolve) => client.once("connect", resolve));
      const startedMs = Date.now();
      process.kill(broker.pid, signal);
      expect(await broker.exited).toEqual({ code: 0, signal: null });
      expect(Date.now() - startedMs).toBeLessThan(4000);
      expect(await told).toBe(0x8b);
      client.end(true);
      expect(broker.stderr()).toContain("node.stopped");
    }),
  );

  test("with 5 when the disk fails a sync, and acknowledges nothing after it", () =>
    withTemporaryFolder(async (folder) => {
      const broken = join(folder, "broken");
      const shim = fileURLToPath(new URL("shim/fail-sync.c", import.meta.url));
      await using broker = await startBroker({
        dataDir: join(folder, "data"),
        env: {
          LD_PRELOAD: compilePreload(shim),
          FLAGSTONE_FAIL_SYNC: broken,
          UV_USE_IO_URING: "0",
        },
      });
      const at = ["-p", String(broker.port)];
      const keep = ["-i", "s", "-c", "-q", "1"];
      const made = await runFlagstone(["sub", ...at, "-t", "a", ...keep, "-W", "1"]);
      expect(made.code).toBe(1);
      await writeFile(broken, "");
      const publish = await runFlagstone(["pub", ...at, "-t", "a", "-m", "1", "-q", "1"]);
      expect(publish.code).not.toBe(0);
      expect((await broker.exited).code).toBe(5);
      expect(broker.stderr()).toContain("the node failed and stopped acknowledging");
    }));

  test("with 70 at a fault of our own, and asks to report it", () =>
    withTemporaryFolder(async (folder) => {
      const fault = join(folder, "fault.cjs");
      const go = join(folder, "go");
      await writeFile(
        fault,
        `const { existsSync } = require("node:fs");
         setInterval(() => { if (existsSync(${JSON.stringify(go)})) throw new Error("planted"); }, 20);`,
      );
      await using broker = await startBroker({
        dataDir: join(folder, "data"),
        env: { NODE_OPTIONS: `--require=${fault}` },
      });
      await writeFile(go, "");
      expect((await broker.exited).code).toBe(70);
      expect(broker.stderr()).toContain("this is a fault of Flagstone, please report it:");
      expect(broker.stderr()).toContain("planted");
    }));
});

describe("the command line beside a node", () => {
  test("what pub sends at any QoS comes out of sub, also over kill -9 of the node", () =>
    withTemporaryFolder(async (folder) => {
      const dataDir = join(folder, "data");
      let broker = await startBroker({ dataDir });
      const { port } = broker;
      const at = ["-p", String(port)];
      const keep = ["-t", "demo/#", "-q", "2", "-i", "reader", "-c"];
      const made = await runFlagstone(["sub", ...at, ...keep, "-W", "1"]);
      expect(made).toMatchObject({ code: 1, stderr: "timed out after 1 s\n" });
      const one = ["pub", ...at, "-t", "demo/one", "-m", "first", "-q", "2"];
      expect((await runFlagstone(one)).code).toBe(0);
      const many = ["pub", ...at, "-t", "demo/many", "-l", "-q", "1"];
      const input = Array.from({ length: 200 }, (_, index) => `line ${index}\n`).join("");
      expect((await runFlagstone(many, { input })).code).toBe(0);
      await broker.kill();
      broker = await startBroker({ dataDir, port });
      try {
        const read = await runFlagstone(["sub", ...at, ...keep, "-C", "201", "-W", "15"]);
        expect(read).toMatchObject({ code: 0, stderr: "" });
        expect(read.stdout.split("\n")).toContain("first");
        const lines = read.stdout.split("\n").filter((line) => line.startsWith("line "));
        expect(lines).toEqual(input.trimEnd().split("\n"));
      } finally {
        await broker.kill();
      }
    }));

  test("a broker that is not there is 4", async () => {
    const { code, stderr } = await runFlagstone(["pub", "-p", "1", "-t", "a", "-m", "b"]);
    expect(code).toBe(4);
    expect(stderr).toBe("cannot reach 127.0.0.1:1: nobody listens there\n");
  });

  test("config check judges a file without starting anything", () =>
    withTemporaryFolder(async (folder) => {
      const good = join(folder, "good.yaml");
      const bad = join(folder, "bad.yaml");
      await writeFile(good, "mqtt: {inflightMax: 5}\n");
      await writeFile(bad, "mqtt: {inflightMax: 0}\n");
      expect((await runFlagstone(["config", "check", good])).code).toBe(0);
      const refused = await runFlagstone(["config", "check", bad]);
      expect(refused.code).toBe(3);
      expect(refused.stderr).toContain(`${bad}:1:21: mqtt.inflightMax: got "0"`);
    }));

  test("config show --origin says where each value came from", () =>
    withTemporaryFolder(async (folder) => {
      const file = join(folder, "f.yaml");
      await writeFile(file, "mqtt: {inflightMax: 5}\n");
      const { code, stdout } = await runFlagstone(
        ["config", "show", "--origin", "--config", file, "--set", "mqtt.receiveMaximum=6"],
        { env: { FLAGSTONE__DATA__DIR: "/srv/data" } },
      );
      expect(code).toBe(0);
      expect(stdout).toMatch(/^ {2}inflightMax: 5 +# .*f\.yaml:1:21$/m);
      expect(stdout).toMatch(/^ {2}receiveMaximum: 6 +# --set mqtt\.receiveMaximum$/m);
      expect(stdout).toMatch(/^ {2}dir: \/srv\/data +# environment FLAGSTONE__DATA__DIR$/m);
      expect(stdout).toMatch(/^ {2}topicLevelsMax: 128 +# default$/m);
    }));
});

describe("the hooks for tests", () => {
  test("a kill at a phase is a kill -9, and the next start brings everything back", () =>
    withTemporaryFolder(async (folder) => {
      const dataDir = join(folder, "data");
      const env = { FLAGSTONE_TEST_KILL: "checkpoint.committed:1", FLAGSTONE_TEST_SIGNALS: "1" };
      const broker = await startBroker({ dataDir, env });
      const at = ["-p", String(broker.port)];
      const keep = ["-t", "a", "-q", "1", "-i", "s", "-c"];
      await runFlagstone(["sub", ...at, ...keep, "-W", "1"]);
      await runFlagstone(["pub", ...at, "-t", "a", "-m", "kept", "-q", "1"]);
      process.kill(broker.pid, "SIGUSR2");
      expect((await broker.exited).signal).toBe("SIGKILL");
      expect(broker.stderr()).toContain("test: killed at checkpoint.committed");
      await using again = await startBroker({ dataDir, port: broker.port });
      const read = await runFlagstone(["sub", ...at, ...keep, "-C", "1", "-W", "10"]);
      expect(read).toMatchObject({ code: 0, stdout: "kept\n" });
      expect(again.stderr()).not.toContain('"level":"error"');
    }));

  test("SIGUSR2 ends the generation and takes a checkpoint in a running node", () =>
    withTemporaryFolder(async (folder) => {
      const dataDir = join(folder, "data");
      await using broker = await startBroker({ dataDir, env: { FLAGSTONE_TEST_SIGNALS: "1" } });
      const at = ["-p", String(broker.port)];
      const keep = ["-t", "a", "-q", "1", "-i", "s", "-c"];
      await runFlagstone(["sub", ...at, ...keep, "-W", "1"]);
      await runFlagstone(["pub", ...at, "-t", "a", "-m", "kept", "-q", "1"]);
      process.kill(broker.pid, "SIGUSR2");
      await until(() => broker.stderr().includes("node.test_rotated"), "rotated");
      const read = await runFlagstone(["sub", ...at, ...keep, "-C", "1", "-W", "10"]);
      expect(read).toMatchObject({ code: 0, stdout: "kept\n" });
    }));
});

test("the log is one JSON object a line when standard error is no terminal", () =>
  withTemporaryFolder(async (folder) => {
    await using broker = await startBroker({ dataDir: join(folder, "data") });
    await broker.stop();
    const lines = broker.stderr().trimEnd().split("\n");
    expect(lines.map((line) => JSON.parse(line).event)).toContain("node.stopping");
    expect((await readFile(join(folder, "data", "FLAGSTONE"), "utf8")).split("\n")).toHaveLength(5);
  }));
