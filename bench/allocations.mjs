// What the hot paths allocate: `npm run bench -- allocations`.
//
// Bytes of JavaScript heap allocated by message handled, summed up from the garbage collector's trace of
// the launched broker. A count and not a time: it says the same on a busy machine. Each scenario has a
// bound, which a path without an object for each message keeps; above it the exit code is 1.
//
//   --messages 1000000   by scenario      --dir bench-data      --only qos1,fanout

import { mkdirSync, rmSync } from "node:fs";
import { parseArgs } from "node:util";
import { brokerOf, startBroker } from "./support/brokers.mjs";
import { buildLoad, faultsOf, handledBy, runLoad } from "./support/load.mjs";

const { values } = parseArgs({
  options: {
    messages: { type: "string", default: "1000000" },
    dir: { type: "string", default: "bench-data" },
    only: { type: "string" },
  },
});
const messages = Number(values.messages);

const four = ["-P", "4", "-S", "4", "-w", "100", "-t", "%RUN/%i", "-f", "%RUN/%i"];
const kept = ["-q", "1", "-P", "4", "-S", "3", "-w", "100", "-t", "%RUN/%i", "-f", "%RUN/#"];

/** `bytesMax` by message; a small object takes 32 to 100. */
const scenarios = [
  { name: "qos0", args: ["pubsub", "-q", "0", ...four], bytesMax: 120 },
  { name: "qos1", args: ["pubsub", "-q", "1", ...four], bytesMax: 120 },
  {
    name: "fanout",
    args: ["fanout", "-q", "1", "-S", "100", "-w", "20", "-t", "%RUN/x", "-f", "%RUN/#"],
    fan: 100,
    bytesMax: 200,
  },
  { name: "store", args: ["store", ...kept], next: ["replay", ...kept], bytesMax: 4000 },
  { name: "replay", of: "store", fan: 3, bytesMax: 2000 },
];

/** Adds up what lies between the end of a collection and the begin of the next. */
class HeapTrace {
  allocatedMib = 0;
  #afterMib;
  #rest = "";

  take(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    for (const line of lines) {
      const found = /(\d+(?:\.\d+)?) \([\d.]+\) -> (\d+(?:\.\d+)?) \(/.exec(line);
      if (found === null) continue;
      const [before, after] = [Number(found[1]), Number(found[2])];
      if (this.#afterMib !== undefined) this.allocatedMib += Math.max(0, before - this.#afterMib);
      this.#afterMib = after;
    }
  }
}

async function measured(trace, run) {
  const before = trace.allocatedMib;
  const result = await run();
  // The trace of the last collection may be on its way.
  await new Promise((resolve) => {
    setTimeout(resolve, 300);
  });
  const bytes = ((trace.allocatedMib - before) * 2 ** 20) / handledBy(result);
  return { bytes: Number(bytes.toFixed(1)), result };
}

function tell(name, bytesMax, { bytes, result }) {
  const faults = faultsOf([result]);
  const isWrong = bytes > bytesMax || Object.keys(faults).length > 0;
  if (isWrong) process.exitCode = 1;
  const line = { scenario: name, bytesPerMessage: bytes, bytesMax, handled: handledBy(result) };
  process.stdout.write(`${JSON.stringify({ ...line, ...faults })}\n`);
}

async function measure({ name, args, next, fan = 1, bytesMax }) {
  const trace = new HeapTrace();
  const broker = await startBroker(brokerOf("flagstone"), {
    dir: values.dir,
    nodeArgs: ["--trace-gc"],
    onOutput: (text) => trace.take(text),
  });
  try {
    const count = String(Math.ceil(messages / fan));
    const warm = String(Math.ceil(messages / fan / 4));
    await runLoad([...args, "-n", warm], { broker, name: "warm" });
    const run = (given) => () => runLoad([...given, "-n", count], { broker, name: "run" });
    tell(name, bytesMax, await measured(trace, run(args)));
    if (next === undefined) return;
    const behind = scenarios.find(({ of }) => of === name);
    tell(behind.name, behind.bytesMax, await measured(trace, run(next)));
  } finally {
    await broker.stop();
    rmSync(values.dir, { recursive: true, force: true });
  }
}

buildLoad();
mkdirSync(values.dir, { recursive: true });
const only = values.only?.split(",");
for (const scenario of scenarios) {
  if (scenario.args === undefined) continue;
  if (only === undefined || only.includes(scenario.name)) await measure(scenario);
}
