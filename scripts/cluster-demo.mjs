// `npm run cluster:demo`: three nodes of a cluster on this machine, publishers and durable subscribers at
// QoS 2 on all of them, and what was lost, doubled or reordered. Type `kill 2`, `start 2`, `stop 2` or `quit`.
//
//   --data DIR        ./cluster-demo-data; removed first, and at the end
//   --seconds N       end by itself, with exit code 1 if anything was lost, doubled or reordered
//   --kill-every N    kill a node every N seconds, and start it again 5 s later
//   --publishers 3 --subscribers 2 --rate 50      messages a second of each publisher

import { spawn } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { root, setUp } from "./set-up.mjs";

const { values } = parseArgs({
  options: {
    data: { type: "string", default: "cluster-demo-data" },
    seconds: { type: "string" },
    "kill-every": { type: "string" },
    publishers: { type: "string", default: "3" },
    subscribers: { type: "string", default: "2" },
    rate: { type: "string", default: "50" },
  },
});
setUp();
// Not there before, in a fresh clone.
const { default: mqtt } = await import("mqtt");
const dir = resolve(values.data);
const nodes = [];
/** By publisher: numbers that were acked, and by subscriber what came. */
const publishers = [];
const subscribers = [];
let isOver = false;

class DemoNode {
  child;
  said = "";

  constructor(number, ports) {
    this.number = number;
    this.ports = ports;
    this.config = join(dir, `n${number}.yaml`);
  }

  get isUp() {
    return this.child !== undefined && this.child.exitCode === null && !this.child.signalCode;
  }

  start() {
    if (this.isUp) return;
    const args = [join(root, "dist/cli/main.js"), "start", "--config", this.config];
    const child = spawn(process.execPath, args, {
      cwd: dir,
      env: { ...process.env, NO_COLOR: "1" },
    });
    this.child = child;
    const take = (bytes) => {
      this.said = (this.said + bytes).slice(-20_000);
    };
    child.stdout.on("data", take);
    child.stderr.on("data", take);
    child.once("exit", (code) => {
      if (!isOver && code !== null && code !== 0)
        console.log(`node ${this.number} ended:\n${this.said}`);
    });
  }

  async ended(signal) {
    if (!this.isUp) return;
    const gone = new Promise((done) => this.child.once("exit", done));
    this.child.kill(signal);
    await gone;
  }
}

async function freePort() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await new Promise((done) => server.once("listening", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

async function form() {
  rmSync(dir, { recursive: true, force: true });
  mkdirSync(dir, { recursive: true });
  for (const number of [1, 2, 3]) {
    const ports = { mqtt: await freePort(), peer: await freePort(), admin: await freePort() };
    nodes.push(new DemoNode(number, ports));
  }
  const seeds = nodes.map(({ number, ports }) => `n${number}=127.0.0.1:${ports.peer}`);
  for (const { number, ports, config } of nodes) {
    const cluster = { name: "demo", node: `n${number}`, port: ports.peer, expect: 3, seeds };
    const settings = {
      data: { dir: join(dir, `n${number}`) },
      listeners: { tcp: { port: ports.mqtt } },
      admin: { port: ports.admin },
      cluster,
    };
    // JSON is YAML.
    writeFileSync(config, `${JSON.stringify(settings, null, 2)}\n`);
  }
  for (const node of nodes) node.start();
  for (const node of nodes) {
    while (!/^ready /m.test(node.said)) {
      if (!node.isUp) throw new Error(`node ${node.number} did not start:\n${node.said}`);
      await sleep(100);
    }
    console.log(
      `node ${node.number}  mqtt 127.0.0.1:${node.ports.mqtt}  admin 127.0.0.1:${node.ports.admin}`,
    );
  }
}

/** A client with a durable session, which goes on at another node when its own is gone. */
function connect(clientId, first) {
  const servers = nodes.map((_, at) => {
    const { ports } = nodes[(at + first) % nodes.length];
    return { host: "127.0.0.1", port: ports.mqtt, protocol: "mqtt" };
  });
  const client = mqtt.connect({
    ...{ servers, clientId, clean: false, protocolVersion: 5 },
    ...{ properties: { sessionExpiryInterval: 3600 }, reconnectPeriod: 300, connectTimeout: 5000 },
  });
  client.on("error", () => undefined);
  return client;
}

async function subscribe(number) {
  const seen = new Map();
  const counts = { delivered: 0, doubled: 0, reordered: 0 };
  const client = connect(`demo-subscriber-${number}`, number);
  client.on("message", (topic, payload) => {
    const numbers = seen.get(topic) ?? { last: 0, all: new Set() };
    seen.set(topic, numbers);
    const value = Number(payload);
    counts.delivered++;
    if (numbers.all.has(value)) counts.doubled++;
    else if (value < numbers.last) counts.reordered++;
    numbers.all.add(value);
    numbers.last = Math.max(numbers.last, value);
  });
  subscribers.push({ client, seen, counts });
  await client.subscribeAsync("demo/#", { qos: 2 });
}

function publish(number) {
  const topic = `demo/${number}`;
  const publisher = {
    topic,
    client: connect(`demo-publisher-${number}`, number),
    acked: [],
    sent: 0,
  };
  publishers.push(publisher);
  const step = async () => {
    while (!isOver) {
      const began = performance.now();
      const value = ++publisher.sent;
      await publisher.client.publishAsync(topic, String(value), { qos: 2 }).catch(() => undefined);
      publisher.acked.push(value);
      await sleep(Math.max(0, 1000 / Number(values.rate) - (performance.now() - began)));
    }
  };
  publisher.done = step();
}

/** Acked and not delivered: on their way, or lost. */
function missing() {
  let count = 0;
  for (const { seen } of subscribers) {
    for (const { topic, acked } of publishers) {
      const all = seen.get(topic)?.all;
      count += acked.filter((value) => !all?.has(value)).length;
    }
  }
  return count;
}

const sum = (name) => subscribers.reduce((all, { counts }) => all + counts[name], 0);

function line(word) {
  const up = nodes.map(({ number, isUp }) => (isUp ? number : "-")).join(" ");
  const acked = publishers.reduce((all, publisher) => all + publisher.acked.length, 0);
  const texts = [
    `up ${up}`,
    `acked ${acked}`,
    `delivered ${sum("delivered")}`,
    `${word} ${missing()}`,
  ];
  texts.push(`doubled ${sum("doubled")}`, `reordered ${sum("reordered")}`);
  return texts.join("   ");
}

async function killNow(node) {
  console.log(`kill -9 of node ${node.number}`);
  await node.ended("SIGKILL");
}

async function obey(text) {
  const [verb, number] = text.trim().split(/\s+/);
  const node = nodes[Number(number) - 1];
  if (verb === "quit") isOver = true;
  else if (node === undefined) console.log("kill N, stop N, start N (1 to 3), or quit");
  else if (verb === "kill") await killNow(node);
  else if (verb === "stop") await node.ended("SIGTERM");
  else if (verb === "start" || verb === "revive") node.start();
}

async function strike(everyMs) {
  for (let round = 0; !isOver; round++) {
    await sleep(everyMs);
    const node = nodes[round % nodes.length];
    if (isOver) return;
    await killNow(node);
    await sleep(5000);
    node.start();
  }
}

async function main() {
  await form();
  for (let number = 1; number <= Number(values.subscribers); number++) await subscribe(number);
  for (let number = 1; number <= Number(values.publishers); number++) publish(number);
  console.log("type kill N, stop N, start N, or quit");
  createInterface({ input: process.stdin }).on("line", (text) => void obey(text));
  process.once("SIGINT", () => {
    isOver = true;
  });
  if (values["kill-every"] !== undefined) void strike(Number(values["kill-every"]) * 1000);
  const endMs = performance.now() + Number(values.seconds ?? Number.POSITIVE_INFINITY) * 1000;
  while (!isOver && performance.now() < endMs) {
    await sleep(1000);
    console.log(line("on their way"));
  }
  isOver = true;
  for (const node of nodes) node.start();
  const lateMs = performance.now() + 60_000;
  const all = Promise.all(publishers.map(({ done }) => done));
  await Promise.race([all, sleep(60_000)]);
  while (missing() > 0 && performance.now() < lateMs) await sleep(200);
  console.log(line("lost"));
  for (const { client } of [...publishers, ...subscribers]) client.end(true);
  for (const node of nodes) await node.ended("SIGKILL");
  rmSync(dir, { recursive: true, force: true });
  process.exit(missing() + sum("doubled") + sum("reordered") === 0 ? 0 : 1);
}

await main();
