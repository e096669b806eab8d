// The log-only limit of this machine: records of 120 bytes appended in groups as fast as the disk
// syncs them, on a real disk (tmpfs is refused). Prints one JSON line.
//
//   npm run build && node bench/log.js [--dir bench-log-data] [--seconds 5] [--outstanding 8192]

import { parseArgs } from "node:util";
import { nodeDisk, silentLogger, systemClock, systemRandom } from "../dist/base/index.js";
import { defaultLogSettings, openLog } from "../dist/log/index.js";

const { values } = parseArgs({
  options: {
    dir: { type: "string", default: "bench-log-data" },
    seconds: { type: "string", default: "5" },
    outstanding: { type: "string", default: "8192" },
    bytes: { type: "string", default: "120" },
  },
});
const runMs = Number(values.seconds) * 1000;
const outstandingMax = Number(values.outstanding);
const payload = Buffer.alloc(Number(values.bytes), "x");
const dir = `${values.dir}/log`;

await nodeDisk.makeDir(values.dir);
const { type } = await nodeDisk.space(values.dir);
if (type === "tmpfs") {
  process.stderr.write(`${values.dir} is on tmpfs, which syncs nothing; give another --dir\n`);
  process.exit(2);
}
const components = {
  disk: nodeDisk,
  clock: systemClock,
  random: systemRandom,
  logger: silentLogger,
};
const log = await openLog(defaultLogSettings, components, dir);

const latencies = [];
let index = 0;
let acked = 0;
const startMs = performance.now();
const startCpu = process.cpuUsage();

// Keeps `outstandingMax` records under way: what is acked is appended again in the same turn.
await new Promise((resolve, reject) => {
  const append = (sentMs) => {
    index++;
    log.append({ shard: 1, epoch: 1, index, term: 1, kind: 1, version: 1, payload }, (error) => {
      if (error !== undefined) {
        reject(error);
        return;
      }
      acked++;
      const nowMs = performance.now();
      if (acked % 64 === 0) latencies.push(nowMs - sentMs);
      if (acked % 65_536 === 0) log.release(1, acked);
      if (nowMs - startMs < runMs) append(nowMs);
      else if (acked === index) resolve();
    });
  };
  for (let count = 0; count < outstandingMax; count++) append(startMs);
});
const tookMs = performance.now() - startMs;
const cpu = process.cpuUsage(startCpu);
const { counters } = log;
latencies.sort((a, b) => a - b);
const percentile = (part) =>
  Number((latencies[Math.floor(latencies.length * part)] ?? 0).toFixed(2));
const line = {
  scenario: "log-only",
  fileSystem: type,
  recordBytes: payload.length,
  outstanding: outstandingMax,
  recordsPerSecond: Math.round((acked / tookMs) * 1000),
  megabytesPerSecond: Math.round(counters.bytes / tookMs / 1000),
  cpuUsPerRecord: Number(((cpu.user + cpu.system) / acked).toFixed(2)),
  flushes: counters.flushes,
  recordsPerFlush: Math.round(counters.records / counters.flushes),
  syncMsMean: Number((counters.syncMsSum / counters.syncs).toFixed(3)),
  syncMsMax: Number(counters.syncMsMax.toFixed(1)),
  ackMsP50: percentile(0.5),
  ackMsP99: percentile(0.99),
  ackMsP999: percentile(0.999),
  segmentWaits: counters.segmentWaits,
  segmentsRecycled: counters.segmentsRecycled,
};
await log.close();
await nodeDisk.removeDir(values.dir);
process.stdout.write(`${JSON.stringify(line)}\n`);
