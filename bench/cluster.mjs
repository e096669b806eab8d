// The replicated store on one machine: acked appends a second and their waits at 1, 3 and 5 nodes beside
// the plain log, then a node that was away for 20 s while the others went on: how quickly it caught up, and
// what was copied for it. All processes and their disks share this machine, so each message is written and
// synced once a node on it.
//
//   npm run bench -- cluster [--dir bench-cluster-data] [--seconds 3] [--away 20] [--nodes 1,3,5]
//                            [--window 256] [--save NAME]
//
// One JSON line a scenario. A lost or doubled message ends it with an error.

import { fork, spawnSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { nodeDisk } from "../dist/base/index.js";
import { conditions, loadNow, settle } from "./support/machine.mjs";

const { values } = parseArgs({
  options: {
    dir: { type: "string", default: "bench-cluster-data" },
    seconds: { type: "string", default: "3" },
    away: { type: "string", default: "20" },
    nodes: { type: "string", default: "1,3,5" },
    window: { type: "string", default: "256" },
    save: { type: "string" },
  },
});
const { dir } = values;
const seconds = Number(values.seconds);
const window = Number(values.window);
const payloadBytes = 100;
const program = fileURLToPath(new URL("support/cluster-child.mjs", import.meta.url));
const lines = [];

function print(line) {
  lines.push(line);
  console.log(JSON.stringify(line));
}

/** A node of the cluster in a process of its own. */
class Child {
  #last = 0;

  constructor(options) {
    this.options = options;
    this.start();
  }

  start() {
    this.process = fork(program, [JSON.stringify(this.options)]);
    this.ready = new Promise((done) => this.process.once("message", done));
  }

  ask(request) {
    const id = ++this.#last;
    return new Promise((done, fail) => {
      const hear = (answer) => {
        if (answer.id !== id) return;
        this.process.off("message", hear);
        if (answer.error === undefined) done(answer.value);
        else fail(new Error(answer.error));
      };
      this.process.on("message", hear);
      this.process.send({ id, ...request });
    });
  }

  kill() {
    const gone = new Promise((done) => this.process.once("exit", done));
    this.process.kill("SIGKILL");
    return gone;
  }
}

async function form(count) {
  const members = Array.from({ length: count }, (_, at) => ({
    name: `n${at + 1}`,
    address: { path: `${dir}/n${at + 1}.sock` },
  }));
  const children = members.map(({ name, address }) => {
    const founding = { cluster: "bench", members };
    return new Child({ dir: `${dir}/${count}-${name}`, name, founding, listen: address });
  });
  await Promise.all(children.map(({ ready }) => ready));
  // Until every shard has a leader that took a write.
  await Promise.all(children.map((child) => child.ask({ op: "warm" })));
  return children;
}

async function measure(children) {
  await settle();
  const request = { op: "drive", seconds, window, payloadBytes };
  const answers = await Promise.all(children.map((child) => child.ask(request)));
  const acked = answers.reduce((sum, each) => sum + each.acked, 0);
  const waits = answers.flatMap(({ waitsMs }) => waitsMs).sort((one, other) => one - other);
  const at = (share) => Math.round((waits[Math.floor(waits.length * share)] ?? 0) * 10) / 10;
  const cpuMs = answers.reduce((sum, each) => sum + each.cpuMs, 0);
  return {
    perSecond: Math.round(acked / seconds),
    ...{ ackMsP50: at(0.5), ackMsP99: at(0.99) },
    cpuUsPerMessage: Math.round((cpuMs / Math.max(1, acked)) * 10_000) / 10,
    failed: answers.reduce((sum, each) => sum + each.failed, 0),
  };
}

/** One of three is killed and comes back; what it lacks comes from the log, or as a copy. */
async function comeBack(children) {
  const [last] = children.slice(-1);
  const rest = children.slice(0, -1);
  await last.kill();
  const awayS = Number(values.away);
  const request = { op: "drive", seconds: awayS, window: 16, payloadBytes };
  const answers = await Promise.all(rest.map((child) => child.ask(request)));
  const missed = answers.reduce((sum, each) => sum + each.acked, 0);
  const wanted = await rest[0].ask({ op: "positions" });
  const beganMs = performance.now();
  last.start();
  await last.ready;
  const readyMs = performance.now() - beganMs;
  await last.ask({ op: "reach", positions: wanted });
  const caughtUpMs = performance.now() - beganMs;
  const { copyBytesTaken } = await last.ask({ op: "counters" });
  const rate = Math.round(missed / Math.max(0.001, (caughtUpMs - readyMs) / 1000));
  print({
    ...{ scenario: "comes back", nodes: children.length, awayS, missed },
    ...{ readyMs: Math.round(readyMs), caughtUpMs: Math.round(caughtUpMs) },
    ...{ messagesPerSecondBehindReady: rate, copyBytesTaken },
  });
  const counts = await Promise.all(children.map((child) => child.ask({ op: "count" })));
  const acked = await Promise.all(children.map((child) => child.ask({ op: "acked" })));
  const ackedAll = acked.reduce((sum, each) => sum + each, 0);
  // What the killed process had been told is not known any more.
  const least = Math.min(...counts.map(({ count }) => count));
  const doubled = Math.max(...counts.map((each) => each.doubled));
  print({
    scenario: "judged",
    stored: counts.map(({ count }) => count),
    ackedKnown: ackedAll,
    doubled,
  });
  if (least < ackedAll || doubled > 0) throw new Error("a message was lost or doubled");
}

rmSync(dir, { recursive: true, force: true });
mkdirSync(dir, { recursive: true });
if ((await nodeDisk.space(dir)).type === "tmpfs") {
  console.error(`${dir} is on tmpfs, which syncs nothing; give another --dir`);
  process.exit(2);
}
const machine = await conditions(dir);
const logBench = fileURLToPath(new URL("log.js", import.meta.url));
const logArguments = [logBench, "--dir", `${dir}/plain`, "--seconds", String(seconds)];
print(JSON.parse(spawnSync(process.execPath, logArguments, { encoding: "utf8" }).stdout));
for (const count of values.nodes.split(",").map(Number)) {
  const children = await form(count);
  print({ scenario: "appends", nodes: count, payloadBytes, window, ...(await measure(children)) });
  if (count === 3) await comeBack(children);
  await Promise.all(children.map((child) => child.kill()));
}
rmSync(dir, { recursive: true, force: true });
if (values.save !== undefined) {
  const path = fileURLToPath(new URL(`results/${values.save}.json`, import.meta.url));
  writeFileSync(path, `${JSON.stringify({ ...machine, loadAfter: loadNow(), lines }, null, 2)}\n`);
}
