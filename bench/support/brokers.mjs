// The brokers under test, each started by us on a free port of the loopback address and ended by its
// own process id.
//
// `flagstone` is this checkout's build. `NAME=PATH` is another build's dist/cli/main.js, for runs of
// two versions beside each other. `mosquitto` is Debian's, in memory and without limits on queues.

import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { has, pinned } from "./machine.mjs";

const launcher = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));

/** What `--brokers` names; undefined for a peer that is not installed. */
export function brokerOf(text) {
  const [name, path] = text.split("=");
  if (path !== undefined) return { name, launcher: path };
  if (name === "flagstone") return { name, launcher };
  if (name !== "mosquitto") throw new Error(`no broker "${name}"`);
  return has("mosquitto") || has("/usr/sbin/mosquitto") ? { name } : undefined;
}

/** Starts it with an empty data folder below `dir`. */
export async function startBroker(broker, { dir, core, profileDir }) {
  const data = join(dir, broker.name);
  mkdirSync(data, { recursive: true });
  const port = await freePort();
  const command =
    broker.launcher === undefined
      ? mosquittoCommand(data, port)
      : flagstoneCommand(broker.launcher, data, port, profileDir);
  const [program, ...args] = pinned(core, command);
  const env = { ...process.env, UV_THREADPOOL_SIZE: process.env.UV_THREADPOOL_SIZE ?? "8" };
  const child = spawn(program, args, { stdio: ["ignore", "ignore", "inherit"], env });
  const ended = new Promise((resolve) => {
    child.once("close", resolve);
  });
  try {
    await accepts(port, child);
  } catch (error) {
    child.kill("SIGKILL");
    throw error;
  }
  return {
    name: broker.name,
    port,
    // taskset becomes the program it starts: the id stays.
    pid: child.pid,
    stop: async () => {
      child.kill("SIGTERM");
      const timer = setTimeout(() => child.kill("SIGKILL"), 20_000);
      await ended;
      clearTimeout(timer);
    },
  };
}

function flagstoneCommand(main, data, port, profileDir) {
  const profiling = profileDir === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${profileDir}`];
  const listen = ["--data", data, "--port", String(port), "--set", "logger.level=warn"];
  return [process.execPath, ...profiling, main, "start", ...listen];
}

function mosquittoCommand(data, port) {
  const config = join(data, "mosquitto.conf");
  const lines = [
    `listener ${port} 127.0.0.1`,
    "allow_anonymous true",
    "persistence false",
    "max_queued_messages 0",
    "max_inflight_messages 1000",
    "set_tcp_nodelay true",
    "log_type error",
  ];
  writeFileSync(config, `${lines.join("\n")}\n`);
  return ["/usr/sbin/mosquitto", "-c", config];
}

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

async function accepts(port, child) {
  const until = performance.now() + 30_000;
  while (!(await canConnect(port))) {
    if (child.exitCode !== null) throw new Error(`broker ended with ${child.exitCode}`);
    if (performance.now() > until) throw new Error(`broker does not listen on ${port}`);
    await new Promise((resolve) => {
      setTimeout(resolve, 50);
    });
  }
}

function canConnect(port) {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}
