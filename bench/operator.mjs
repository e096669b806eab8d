// What an operator asks while a node works: `npm run bench -- operator`.
//
//   --sessions 50000    durable sessions, three of which get a backlog
//   --filters 20        subscriptions of each
//   --lanes 256         sessions made at once
//   --dir bench-data    a folder on a real disk
//   --only make         makes the sessions and leaves them; `--only measure` begins with those
//   --save NAME         keeps the lines under this name in bench/results
//
// Measured over HTTP: finding the sessions in trouble; walking all subscriptions page by page with a
// filter, with the time a publisher waits for its PUBACK meanwhile beside that without the walk, in the
// same run. And how long a command of the shell takes to its first output, beside an empty program of
// Node. One JSON line each. A list that is not complete is an error.

import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { availableParallelism } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const { values } = parseArgs({
  options: {
    sessions: { type: "string", default: "50000" },
    filters: { type: "string", default: "20" },
    lanes: { type: "string", default: "256" },
    dir: { type: "string", default: "bench-data" },
    only: { type: "string" },
    save: { type: "string" },
  },
});
const sessionCount = Number(values.sessions);
const filterCount = Number(values.filters);
const launcher = fileURLToPath(new URL("../dist/cli/main.js", import.meta.url));
const cli = fileURLToPath(new URL("../dist/cli/main.cjs", import.meta.url));
const lines = [];

function emit(line) {
  lines.push(line);
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

// ---------------------------------------------------------------- raw MQTT 3.1.1

const textOf = (text) => {
  const bytes = Buffer.from(text);
  return Buffer.concat([Buffer.from([bytes.length >> 8, bytes.length & 255]), bytes]);
};

function packet(type, body) {
  const length = [];
  let rest = body.length;
  do {
    length.push((rest & 127) | (rest > 127 ? 128 : 0));
    rest >>= 7;
  } while (rest > 0);
  return Buffer.concat([Buffer.from([type, ...length]), body]);
}

const connectPacket = (clientId, isClean) =>
  packet(
    0x10,
    Buffer.concat([textOf("MQTT"), Buffer.from([4, isClean ? 2 : 0, 0, 0]), textOf(clientId)]),
  );
const subscribePacket = (filters) =>
  packet(
    0x82,
    Buffer.concat([
      Buffer.from([0, 1]),
      ...filters.map((one) => Buffer.concat([textOf(one), Buffer.from([1])])),
    ]),
  );
const publishPacket = (topic, id) =>
  packet(
    0x32,
    Buffer.concat([textOf(topic), Buffer.from([id >> 8, id & 255]), Buffer.alloc(100, 65)]),
  );

/** A connection that gives one answer after the other. */
async function dial(port, localAddress = "127.0.0.1") {
  const socket = net.connect({ port, host: "127.0.0.1", localAddress, noDelay: true });
  await new Promise((done, failed) => socket.once("connect", done).once("error", failed));
  let waiting = () => undefined;
  socket.on("data", () => waiting());
  let failed = () => undefined;
  socket.once("close", () => failed(new Error("the node closed a connection")));
  return {
    ask: (bytes) =>
      new Promise((done, closed) => {
        waiting = done;
        failed = closed;
        socket.write(bytes);
      }),
    end: () => socket.end(packet(0xe0, Buffer.alloc(0))),
  };
}

async function leaveSession(port, lane, clientId, filters) {
  // Strangers of one address are few: lanes come from several.
  const client = await dial(port, `127.0.0.${2 + (lane % 16)}`);
  await client.ask(connectPacket(clientId, false));
  await client.ask(subscribePacket(filters));
  client.end();
}

// ---------------------------------------------------------------- the node

async function startNode(dataDir) {
  const args = ["start", "--data", dataDir, "--port", "0", "--admin-port", "0"];
  const set = ["--set", "logger.level=warn", "--set", "protection.connectRate=0"];
  const child = spawn(process.execPath, [launcher, ...args, ...set], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let key = "";
  for await (const line of createInterface({ input: child.stdout })) {
    key = /fs_\w{8}_[\w-]{43}/.exec(line)?.[0] ?? key;
    const ready = /^ready mqtt=\S+:(\d+) admin=(\S+) /.exec(line);
    if (ready) return { child, port: Number(ready[1]), url: `http://${ready[2]}/api/v1`, key };
  }
  throw new Error("the node ended");
}

async function get({ url, key }, path) {
  const response = await fetch(`${url}${path}`, { headers: { authorization: `Bearer ${key}` } });
  const answer = await response.json();
  if (!response.ok) throw new Error(JSON.stringify(answer));
  return answer;
}

const quantile = (sorted, share) => sorted[Math.floor((sorted.length - 1) * share)];
const rounded = (value) => Math.round(value * 100) / 100;

async function ackTimes(client, whileTrue) {
  const times = [];
  for (let id = 1; whileTrue(times.length); id = (id % 60_000) + 1) {
    const startMs = performance.now();
    await client.ask(publishPacket("beat/1", id));
    times.push(performance.now() - startMs);
  }
  times.sort((a, b) => a - b);
  return { count: times.length, p50: quantile(times, 0.5), p99: quantile(times, 0.99) };
}

/** Milliseconds from the call of a program to its first byte. */
function firstOutputMs(args, environment = {}) {
  return new Promise((done, failed) => {
    const startMs = performance.now();
    const child = spawn(process.execPath, args, {
      stdio: ["ignore", "pipe", "inherit"],
      env: { ...process.env, ...environment },
    });
    let firstMs;
    child.stdout.once("data", () => {
      firstMs = performance.now() - startMs;
    });
    child.once("error", failed);
    child.once("close", (code) => {
      if (code === 0 && firstMs !== undefined) done(firstMs);
      else failed(new Error(`${args.join(" ")} ended with ${code}`));
    });
  });
}

/** In turn, so that what else the machine does hits all alike. */
async function firstOutputs(commands, environment) {
  const times = commands.map(() => []);
  for (let run = 0; run < 7; run++) {
    for (const [index, args] of commands.entries()) {
      times[index].push(await firstOutputMs(args, environment));
    }
  }
  return times.map((each) => each.sort((a, b) => a - b));
}

const dataDir = resolve(join(values.dir, "operator"));
/** The first key is told once, by the start that makes it. */
const keyFile = `${dataDir}.key`;
const isMade = values.only === "measure";
if (!isMade) rmSync(dataDir, { recursive: true, force: true });
mkdirSync(dataDir, { recursive: true });
const node = await startNode(dataDir);
if (isMade) node.key = readFileSync(keyFile, "utf8");
else writeFileSync(keyFile, node.key, { mode: 0o600 });

async function makeSessions() {
  const lanes = Number(values.lanes);
  let next = 0;
  const began = performance.now();
  await Promise.all(
    Array.from({ length: lanes }, async (_, lane) => {
      while (next < sessionCount) {
        const number = next++;
        const filters = Array.from({ length: filterCount }, (_, index) => `f/${number}/${index}/+`);
        await leaveSession(node.port, lane, `s${String(number).padStart(7, "0")}`, filters);
      }
    }),
  );
  emit({
    scenario: "sessions made",
    sessions: sessionCount,
    filters: filterCount,
    seconds: rounded((performance.now() - began) / 1000),
  });
}

async function measure() {
  const troubled = [7, Math.floor(sessionCount / 2), sessionCount - 1];
  const publisher = await dial(node.port);
  await publisher.ask(connectPacket("publisher", true));
  for (const [index, number] of troubled.entries()) {
    await publisher.ask(publishPacket(`f/${number}/0/x`, index + 1));
  }
  const finds = [];
  for (let run = 0; run < 20; run++) {
    const startMs = performance.now();
    const found = await get(node, "/sessions?backlog=true&state=offline");
    finds.push(performance.now() - startMs);
    if (found.items.length !== troubled.length) throw new Error(`found ${found.items.length}`);
  }
  finds.sort((a, b) => a - b);
  emit({
    scenario: "find the 3 in trouble",
    ms_p50: rounded(quantile(finds, 0.5)),
    ms_max: rounded(finds.at(-1)),
  });

  const reader = await dial(node.port);
  await reader.ask(connectPacket("beats", false));
  await reader.ask(subscribePacket(["beat/#"]));
  reader.end();
  await ackTimes(publisher, (count) => count < 1000);
  const before = await ackTimes(publisher, (count) => count < 2000);
  let isWalking = true;
  const walk = (async () => {
    const startMs = performance.now();
    let seen = 0;
    let pages = 0;
    let after = "";
    do {
      const page = await get(node, `/subscriptions?topic=f%2F1%2F1%2Fx&limit=1000${after}`);
      seen += page.items.length;
      pages++;
      after = page.next === undefined ? "" : `&after=${encodeURIComponent(page.next)}`;
    } while (after !== "");
    isWalking = false;
    return { seen, pages, seconds: (performance.now() - startMs) / 1000 };
  })();
  const during = await ackTimes(publisher, () => isWalking);
  const { seen, pages, seconds } = await walk;
  if (seen !== 1) throw new Error(`the walk found ${seen} subscriptions, not 1`);
  const after = await ackTimes(publisher, (count) => count < 2000);
  const plain = { p50: (before.p50 + after.p50) / 2, p99: (before.p99 + after.p99) / 2 };
  const { total } = await get(node, "/subscriptions?limit=1");
  emit({
    ...{ scenario: "walk all subscriptions with a filter", subscriptions: total, pages },
    ...{ seconds: rounded(seconds), acksMeanwhile: during.count },
    ackMs: {
      plainP50: rounded(plain.p50),
      walkP50: rounded(during.p50),
      plainP99: rounded(plain.p99),
      walkP99: rounded(during.p99),
    },
    ratioP50: rounded(during.p50 / plain.p50),
    ratioP99: rounded(during.p99 / plain.p99),
  });
  const commands = [
    ["-e", "console.log(1)"],
    [cli, "--help"],
    [cli, "version"],
    [cli, "status"],
    [cli, "sessions", "--backlog"],
  ];
  const environment = { FLAGSTONE_URL: node.url.replace("/api/v1", ""), FLAGSTONE_KEY: node.key };
  const outputs = await firstOutputs(commands, environment);
  for (const [index, args] of commands.entries()) {
    const command = args[0] === cli ? ["flagstone", ...args.slice(1)] : ["node", ...args];
    emit({
      ...{ scenario: "first output", command: command.join(" ") },
      ...{ ms_min: rounded(outputs[index][0]), ms_p50: rounded(quantile(outputs[index], 0.5)) },
      ms_max: rounded(outputs[index].at(-1)),
    });
  }
}

try {
  if (!isMade) await makeSessions();
  if (values.only !== "make") await measure();
  if (values.save !== undefined) {
    const machine = { node: process.version, cpus: availableParallelism() };
    const path = fileURLToPath(new URL(`results/${values.save}.json`, import.meta.url));
    writeFileSync(path, `${JSON.stringify({ machine, lines }, null, 2)}\n`);
  }
} finally {
  const isLeft = values.only === "make";
  const ended = new Promise((done) => node.child.once("exit", done));
  node.child.kill(isLeft ? "SIGTERM" : "SIGKILL");
  await ended;
  if (!isLeft)
    for (const path of [dataDir, keyFile]) rmSync(path, { recursive: true, force: true });
}
process.exit(0);
