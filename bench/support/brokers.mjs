// The brokers under test, each started by us on a free port of the loopback address and ended by its
// own process id.
//
// `flagstone` is this checkout's build with its defaults. `NAME=PATH` is another build's
// dist/cli/main.js, for runs of two versions beside each other. The peers stand as their own manuals
// advise for durable sessions without limits on queues, none of them syncing before its acks:
// - `mosquitto`: Debian's, persistence on (it saves its memory to a file now and then);
// - `nats`: Debian's nats-server with JetStream on disk and room for 20,000 unacked messages;
// - `aedes`: in memory; `aedes-level`: with aedes-persistence-level, which writes to LevelDB;
//   `aedes-flagstone`: with `flagstone/aedes`, which syncs before its acks.

import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { resolve as absolute, join } from "node:path";
import { fileURLToPath } from "node:url";
import { has, pinned } from "./machine.mjs";

const launcher = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));

const programs = { mosquitto: "/usr/sbin/mosquitto", nats: "/usr/sbin/nats-server" };
const aedesProgram = fileURLToPath(new URL("aedes-broker.mjs", import.meta.url));
const nodePeers = ["aedes", "aedes-level", "aedes-flagstone"];

/** Names that `--brokers` takes. */
export const brokerNames = ["flagstone", ...Object.keys(programs), ...nodePeers];

/** What `--brokers` names; undefined for a peer that is not installed. */
export function brokerOf(text) {
  const [name, path] = text.split("=");
  if (path !== undefined) return { name, launcher: path };
  if (name === "flagstone") return { name, launcher };
  if (nodePeers.includes(name)) return { name };
  const program = programs[name];
  if (program === undefined) throw new Error(`no broker "${name}": ${brokerNames.join(", ")}`);
  return has(program) ? { name } : undefined;
}

/**
 * Starts it with an empty data folder below `dir`. Of Flagstone only: `extra` settings, `nodeArgs` of its
 * Node.js, whose output goes to `onOutput`.
 */
export async function startBroker(
  broker,
  { dir, core, profileDir, extra = [], nodeArgs = [], onOutput },
) {
  const data = absolute(dir, broker.name);
  mkdirSync(data, { recursive: true });
  const port = await freePort();
  const metricsPort = broker.launcher === undefined ? undefined : await freePort();
  const command =
    broker.launcher === undefined
      ? await peerCommand(broker.name, data, port)
      : flagstoneCommand(broker.launcher, { data, port, metricsPort, profileDir, extra, nodeArgs });
  const [program, ...args] = pinned(core, command);
  const env = { ...process.env, UV_THREADPOOL_SIZE: process.env.UV_THREADPOOL_SIZE ?? "8" };
  const child = spawn(program, args, {
    stdio: [
      "ignore",
      onOutput === undefined ? "ignore" : "pipe",
      broker.name === "nats" ? "ignore" : "inherit",
    ],
    env,
  });
  child.stdout?.setEncoding("utf8").on("data", onOutput);
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
    data,
    /** Where Flagstone answers `/metrics`; undefined for the others. */
    metricsPort,
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

function flagstoneCommand(main, { data, port, metricsPort, profileDir, extra, nodeArgs }) {
  const profiling = profileDir === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${profileDir}`];
  const listen = ["--data", data, "--port", String(port), "--admin-port", String(metricsPort)];
  const settings = ["logger.level=warn", ...extra].flatMap((setting) => ["--set", setting]);
  return [process.execPath, ...nodeArgs, ...profiling, main, "start", ...listen, ...settings];
}

async function peerCommand(name, data, port) {
  if (name === "mosquitto") return mosquittoCommand(data, port);
  if (name === "nats") return natsCommand(data, port);
  const [, kind] = name.split("-");
  const place = kind === undefined ? [] : [kind, join(data, kind)];
  return [process.execPath, aedesProgram, String(port), ...place];
}

async function natsCommand(data, port) {
  const config = join(data, "nats.conf");
  const lines = [
    "server_name: bench",
    `listen: 127.0.0.1:${await freePort()}`,
    `jetstream { store_dir: "${join(data, "jetstream")}" }`,
    `mqtt { listen: "127.0.0.1:${port}", max_ack_pending: 20000 }`,
  ];
  writeFileSync(config, `${lines.join("\n")}\n`);
  return [programs.nats, "-c", config];
}

function mosquittoCommand(data, port) {
  const config = join(data, "mosquitto.conf");
  const lines = [
    `listener ${port} 127.0.0.1`,
    "allow_anonymous true",
    // Started as root it would give its rights up, and with them its data folder.
    ...(process.getuid?.() === 0 ? ["user root"] : []),
    "persistence true",
    `persistence_location ${data}/`,
    "max_queued_messages 0",
    "max_inflight_messages 0",
    "set_tcp_nodelay true",
    "log_type error",
  ];
  writeFileSync(config, `${lines.join("\n")}\n`);
  return [programs.mosquitto, "-c", config];
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
