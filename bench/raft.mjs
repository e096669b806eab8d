// Raft on one machine: three processes, entries of 100 bytes at 1, 64 and 1,024 a batch over 1 and 64
// groups, beside the plain log in the same run; then the leader is killed under load. Prints one
// JSON line per scenario. The data lie on a real disk: tmpfs is refused. All three processes and
// their disks share this one machine, so every entry is written and synced three times on it.
//
//   npm run bench -- raft [--dir bench-raft-data] [--seconds 3] [--save NAME]

import { fork, spawnSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { nodeDisk } from "../dist/base/index.js";
import { startRaftNode } from "../dist/raft/index.js";
import { conditions, loadNow, settle } from "./support/machine.mjs";

const own = fileURLToPath(import.meta.url);
const entryBytes = 100;
const groupsMax = 64;
/** Proposals under way in a group, and entries over all: enough to keep disks and links busy. */
const windowMax = 32;
const entriesUnderWay = 16_384;
/** Waits that a process tells of. */
const waitsMax = 20_000;

async function main() {
  const { values } = parseArgs({
    options: {
      dir: { type: "string", default: "bench-raft-data" },
      seconds: { type: "string", default: "3" },
      save: { type: "string" },
    },
  });
  const { dir } = values;
  const seconds = Number(values.seconds);
  rmSync(dir, { recursive: true, force: true });
  await nodeDisk.makeDir(dir);
  if ((await nodeDisk.space(dir)).type === "tmpfs") {
    console.error(`${dir} is on tmpfs, which syncs nothing; give another --dir`);
    process.exit(2);
  }
  const machine = await conditions(dir);
  const logBench = fileURLToPath(new URL("log.js", import.meta.url));
  const logArguments = [logBench, "--dir", `${dir}/plain`, "--seconds", String(seconds)];
  print(JSON.parse(spawnSync(process.execPath, logArguments, { encoding: "utf8" }).stdout));
  const children = await startChildren(dir);
  await measureIdle(children, seconds);
  for (const groups of [1, groupsMax]) {
    for (const batch of [1, 64, 1024]) {
      await settle();
      const answers = await Promise.all(
        children.map((child) => ask(child, { groups, batch, seconds })),
      );
      const entries = answers.reduce((sum, { count }) => sum + count, 0);
      const perSecond = Math.round(entries / seconds);
      const waits = answers.flatMap(({ waitsMs }) => waitsMs).sort((one, other) => one - other);
      const [ackMsP50, ackMsP99] = [0.5, 0.99].map((share) => {
        return Math.round((waits[Math.floor(waits.length * share)] ?? 0) * 10) / 10;
      });
      const cpuMs = answers.reduce((sum, answer) => sum + answer.cpuMs, 0);
      const cpuUsPerEntry = Math.round((cpuMs / entries) * 10_000) / 10;
      const window = windowOf(groups, batch);
      const shape = { nodes: 3, groups, batch, entryBytes, window };
      print({ scenario: "raft", ...shape, perSecond, ackMsP50, ackMsP99, cpuUsPerEntry });
    }
  }
  await killLeader(children);
  for (const child of children) child.kill("SIGKILL");
  rmSync(dir, { recursive: true, force: true });
  if (values.save === undefined) return;
  const path = fileURLToPath(new URL(`results/${values.save}.json`, import.meta.url));
  writeFileSync(path, `${JSON.stringify({ ...machine, loadAfter: loadNow(), lines }, null, 2)}\n`);
}

async function startChildren(dir) {
  const members = [];
  for (const node of [1, 2, 3]) {
    const address = { host: "127.0.0.1", port: await freePort() };
    members.push({ node, siteId: String(node).padStart(32, "0"), name: `node${node}`, address });
  }
  const children = members.map(({ node }) => {
    return fork(own, [JSON.stringify({ dir: `${dir}/n${node}`, node, members })]);
  });
  await Promise.all(children.map((child) => new Promise((done) => child.once("message", done))));
  for (;;) {
    const states = await Promise.all(children.map((child) => ask(child, { groups: 0 })));
    if (states.reduce((sum, { leads }) => sum + leads, 0) === groupsMax) return children;
    await new Promise((done) => setTimeout(done, 100));
  }
}

// What groups cost that nobody writes to: heartbeats, and the ticks of their timers.
async function measureIdle(children, seconds) {
  const request = { groups: groupsMax, batch: 0, seconds: 2 * seconds };
  const answers = await Promise.all(children.map((child) => ask(child, request)));
  const cpuMs = answers.reduce((sum, answer) => sum + answer.cpuMs, 0);
  const cpuUsPerGroupSecond = Math.round((cpuMs * 1000) / (2 * seconds) / groupsMax);
  print({ scenario: "raft-idle", nodes: 3, groups: groupsMax, cpuUsPerGroupSecond });
}

// One entry after the other into group 1, each with an id of its own; the leader dies in the middle.
// Afterwards the ids that were acknowledged are looked for at both that are left.
async function killLeader(children) {
  const live = [...children];
  const acked = [];
  let id = 0;
  let longestMs = 0;
  let lastMs = performance.now();
  const endMs = lastMs + 15_000;
  let hasDied = false;
  while (performance.now() < endMs) {
    const asked = live.map((child) => ask(child, { add: ++id }));
    const answers = await Promise.all(asked);
    const done = answers.find(({ added }) => added !== undefined);
    if (done === undefined) continue;
    const nowMs = performance.now();
    longestMs = Math.max(longestMs, nowMs - lastMs);
    lastMs = nowMs;
    acked.push(done.added);
    if (!hasDied && acked.length === 50) {
      hasDied = true;
      const [leader] = live.splice(answers.indexOf(done), 1);
      leader.kill("SIGKILL");
    }
  }
  const stores = await Promise.all(live.map((child) => ask(child, { list: true })));
  const lost = acked.filter((each) => !stores.every(({ ids }) => ids.includes(each))).length;
  const doubled = Math.max(...stores.map(({ ids }) => ids.length - new Set(ids).size));
  const longestStallMs = Math.round(longestMs);
  print({ scenario: "raft-leader-kill", acked: acked.length, lost, doubled, longestStallMs });
}

function windowOf(groups, batch) {
  return Math.max(1, Math.min(windowMax, Math.floor(entriesUnderWay / (groups * batch))));
}

const lines = [];

function print(line) {
  lines.push(line);
  console.log(JSON.stringify(line));
}

function ask(child, request) {
  return new Promise((done) => {
    child.once("message", done);
    child.send(request);
  });
}

function freePort() {
  return new Promise((done) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}

/** Keeps the ids of the entries that have one. */
class IdStore {
  version = 1;
  durableIndex = 0;
  ids = [];

  apply(entries) {
    return entries.map(({ data }) => {
      if (data[0] === "+".charCodeAt(0)) this.ids.push(Number(Buffer.from(data).toString()));
      return undefined;
    });
  }

  capture() {
    return [Buffer.from(JSON.stringify(this.ids))];
  }

  async install(_head, pieces) {
    let text = "";
    for await (const piece of pieces) text += Buffer.from(piece).toString();
    this.ids = text === "" ? [] : JSON.parse(text);
  }
}

async function serve(options) {
  const groups = Array.from({ length: groupsMax }, (_, place) => place + 1);
  const clusterId = "be".repeat(16);
  const node = await startRaftNode({
    ...options,
    clusterId,
    groups,
    machineOf: () => new IdStore(),
  });
  process.on("message", (request) => {
    answer(node, request).then((result) => process.send(result));
  });
  process.on("disconnect", () => process.exit(0));
  process.send({ ready: true });
}

async function answer(node, { groups, batch, seconds, add, list }) {
  if (list) {
    const group = node.group(1);
    for (;;) {
      // There may be no leader for a moment.
      const isCovered = await group.read().then(
        () => true,
        () => false,
      );
      if (isCovered) return { ids: group.machine.ids };
    }
  }
  const led = node.host.status().filter(({ role }) => role === "leader");
  if (add) {
    if (node.group(1).role !== "leader") return {};
    const proposed = node.group(1).propose([{ version: 1, data: Buffer.from(`+${add}`) }]);
    return proposed.then(
      () => ({ added: add }),
      () => ({}),
    );
  }
  if (groups === 0) return { leads: led.length };
  const endMs = performance.now() + seconds * 1000;
  const commands = Array.from({ length: batch }, () => {
    return { version: 1, data: Buffer.alloc(entryBytes, "x") };
  });
  let count = 0;
  const waitsMs = [];
  const cpu = process.cpuUsage();
  const drive = async (group) => {
    while (performance.now() < endMs) {
      try {
        const beganMs = performance.now();
        await group.propose(commands);
        const nowMs = performance.now();
        // What ends behind the time does not count.
        if (nowMs <= endMs) count += batch;
        if (waitsMs.length < waitsMax) waitsMs.push(nowMs - beganMs);
      } catch {
        // Refused at a limit: counted by nobody, asked again.
        await new Promise((done) => setTimeout(done, 10));
      }
    }
  };
  const wanted = batch === 0 ? [] : led.filter(({ group }) => group <= groups);
  await Promise.all(
    wanted.flatMap(({ group }) => {
      return Array.from({ length: windowOf(groups, batch) }, () => drive(node.group(group)));
    }),
  );
  // A process that leads nothing waits as well: it works for the others.
  await new Promise((done) => setTimeout(done, Math.max(0, endMs - performance.now())));
  const { user, system } = process.cpuUsage(cpu);
  return { count, waitsMs, cpuMs: (user + system) / 1000 };
}

// Behind the class: a child makes its machines at once.
if (process.send) await serve(JSON.parse(process.argv[2]));
else await main();
