// Mixed hostile and honest load for a long time: `npm run bench -- soak --minutes 60 [--save NAME]`.
//
// Honest pairs exchange numbered QoS 1 messages through durable sessions at a fixed rate; hostile
// clients do, ten times a second, one thing that clients should not (support/hostile.mjs). There is a
// line for each twelfth of the run, with the latency of the honest and what the broker holds. The last
// line says whether the honest noticed: none of their messages is lost, and the p99 of any five minutes
// (half of a run below ten) is at most 1.5 times that of the first five. Runs below ten minutes are
// judged by their losses only: in a minute the p99 is a single stall of the disk.

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Worker } from "node:worker_threads";
import { brokerOf, startBroker } from "./support/brokers.mjs";
import { conditions, loadNow } from "./support/machine.mjs";
import { Client, connecting, lasting, publishing, subscribing } from "./support/mqtt-client.mjs";

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "60" },
    pairs: { type: "string", default: "10" },
    rate: { type: "string", default: "10" },
    save: { type: "string" },
  },
});
const minutes = Number(values.minutes);
const pairs = Number(values.pairs);
/** Of each pair, messages a second. */
const rate = Number(values.rate);
const lineCount = 12;
const lineMs = (minutes * 60_000) / lineCount;
/** Lines of a stretch that is judged as one. */
const stretchLines = Math.round(Math.min(5 * 60_000, (minutes * 60_000) / 2) / lineMs);
const ratioMax = 1.5;
const judgedMinutesMin = 10;
const hostileEveryMs = 100;
/** Late messages may come for so long behind the last. */
const graceMs = 5000;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A pair: what it sends carries the time, and is looked for until it has come. */
class Pair {
  constructor(port, number) {
    this.topic = `honest/${number}`;
    this.sent = 0;
    this.open = new Set();
    this.latencies = [];
    this.reader = new Client(port).say(
      connecting(`reader ${number}`, lasting(3600)),
      subscribing(this.topic, 1),
    );
    this.reader.onPacket = (packet) => {
      if (packet.type !== "publish") return;
      this.reader.say({ type: "puback", packetId: packet.packetId, reasonCode: 0, properties: {} });
      const [n, at] = packet.payload.toString().split(" ");
      if (this.open.delete(Number(n))) this.latencies.push(performance.now() - Number(at));
    };
    this.writer = new Client(port).say(connecting(`writer ${number}`));
  }

  publish() {
    this.sent++;
    this.open.add(this.sent);
    const text = `${this.sent} ${performance.now()}`;
    this.writer.say(publishing(this.topic, text, 1, (this.sent % 60_000) + 1));
  }
}

function held(pid) {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return {
    rssMib: Math.round(Number(/VmRSS:\s+(\d+)/.exec(status)[1]) / 1024),
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
  };
}

/** Sorts what it is given. */
function quantiles(latencies) {
  const sorted = latencies.sort((a, b) => a - b);
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
  return { p50Ms: round(at(0.5)), p99Ms: round(at(0.99)), maxMs: round(sorted.at(-1)) };
}

const round = (value) => Math.round(value * 100) / 100;

const lines = [];
const say = (line) => {
  lines.push(line);
  console.log(JSON.stringify(line));
};

const dir = mkdtempSync(join(tmpdir(), "flagstone-soak-"));
say({ bench: "soak", ...(await conditions(dir)) });
// What the hostile do is worth a line each, which nobody reads here.
const quiet = { dir, core: undefined, extra: ["logger.level=error"] };
const broker = await startBroker(brokerOf("flagstone"), quiet);
let isWorking = false;
let hostile;
try {
  const all = Array.from({ length: pairs }, (_, n) => new Pair(broker.port, n));
  await pause(500);
  // In turns: what holds up one of them does not count for all.
  let turn = 0;
  const publish = setInterval(() => all[turn++ % pairs].publish(), 1000 / (rate * pairs));
  let acts = 0;
  hostile = new Worker(new URL("support/hostile.mjs", import.meta.url), {
    workerData: { port: broker.port, everyMs: hostileEveryMs },
  });
  hostile.on("message", (done) => {
    acts = done;
  });
  const p99s = [];
  let stretch = [];
  for (let line = 1; line <= lineCount; line++) {
    await pause(lineMs);
    const latencies = all.flatMap((pair) => pair.latencies.splice(0));
    stretch.push(...latencies);
    const counts = { messages: latencies.length, acts, load: loadNow() };
    say({ bench: "soak", line, ...counts, ...quantiles(latencies), ...held(broker.pid) });
    if (line % stretchLines !== 0) continue;
    p99s.push(quantiles(stretch).p99Ms);
    stretch = [];
  }
  clearInterval(publish);
  await hostile.terminate();
  await pause(graceMs);
  const sent = all.reduce((sum, pair) => sum + pair.sent, 0);
  const lost = all.reduce((sum, pair) => sum + pair.open.size, 0);
  const ratio = round(Math.max(...p99s.slice(1)) / p99s[0]);
  isWorking = lost === 0 && (minutes < judgedMinutesMin || ratio <= ratioMax);
  say({ bench: "soak", minutes, sent, lost, acts, p99sMs: p99s, ratio, isWorking });
} finally {
  await hostile?.terminate();
  await broker.stop();
  rmSync(dir, { recursive: true, force: true });
}
if (values.save !== undefined) {
  const file = new URL(`results/${values.save}.json`, import.meta.url);
  const text = lines.map((line) => JSON.stringify(line)).join("\n");
  writeFileSync(fileURLToPath(file), `${text}\n`);
}
process.exit(isWorking ? 0 : 1);
