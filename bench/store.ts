// Rates of the store on a real disk (tmpfs is refused), one JSON line a scenario: appends over 1 and
// 16 streams, a scan by one and by ten readers, a selective scan, a start after kill, a start after a
// checkpoint.
//
//   npm run bench -- store [--dir bench-store-data] [--seconds 3] [--outstanding 4096] [--shards 1]

import { rmSync } from "node:fs";
import { parseArgs } from "node:util";
import { nodeDisk, silentLogger, systemClock, systemRandom } from "../src/base/index.ts";
import { createClassicDriver } from "../src/kv/index.ts";
import { defaultLogSettings, openLog, type WriteAheadLog } from "../src/log/index.ts";
import {
  type AppendRequest,
  type LocalStore,
  openStore,
  storeSettingsDefault,
} from "../src/store/index.ts";

const { values } = parseArgs({
  args: process.argv.slice(2),
  options: {
    dir: { type: "string", default: "bench-store-data" },
    seconds: { type: "string", default: "3" },
    outstanding: { type: "string", default: "4096" },
    bytes: { type: "string", default: "120" },
    shards: { type: "string", default: "1" },
  },
});
const dir = values.dir;
const runMs = Number(values.seconds) * 1000;
const outstandingMax = Number(values.outstanding);
const frame = Buffer.alloc(Number(values.bytes), "x");
const hosts = 1_000;

type Process = { readonly store: LocalStore; readonly log: WriteAheadLog };

const kv = createClassicDriver({ disk: nodeDisk });

async function open(): Promise<Process> {
  const components = {
    ...{ disk: nodeDisk, clock: systemClock, random: systemRandom, logger: silentLogger },
  };
  const log = await openLog(defaultLogSettings, components, `${dir}/log`);
  await nodeDisk.makeDir(`${dir}/db`);
  const store = await openStore(
    {
      ...storeSettingsDefault,
      shards: Number(values.shards),
      dir: `${dir}/db`,
      quarantineDir: `${dir}/quarantine`,
    },
    { ...components, kv, log },
  );
  await store.start();
  return { store, log };
}

async function close({ store, log }: Process): Promise<void> {
  await store.close();
  await log.close();
}

function requestFor(n: number, streams: number): AppendRequest {
  return {
    topic: `s${n % streams}/h${n % hosts}/value`,
    publisher: `p${n % 16}`,
    ...{ form: "v5", qos: 1, retain: false, expiryUs: 0, expiryOffset: 0 },
    ...{ frame, keep: true, evidence: undefined },
  };
}

/** Keeps `outstandingMax` appends under way for some seconds; resolves with how many were acked. */
function appendFor(store: LocalStore, streams: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const startMs = performance.now();
    let sent = 0;
    let acked = 0;
    const more = (): void => {
      if (performance.now() - startMs > runMs) {
        if (acked === sent) resolve(acked);
        return;
      }
      while (sent - acked < outstandingMax) {
        if (store.refusal !== undefined) {
          store.onceWritable(more);
          return;
        }
        store.append(requestFor(sent++, streams), (error) => {
          if (error !== undefined) return reject(error);
          acked++;
          if (acked % 64 === 0 || acked === sent) more();
        });
      }
    };
    more();
  });
}

async function scan(store: LocalStore, filter: string, readers: number): Promise<number> {
  let count = 0;
  const one = (): Promise<void> =>
    new Promise((resolve) => {
      const port = {
        offer: () => {
          count++;
          return true;
        },
        moved: () => undefined,
        missed: () => undefined,
      };
      const start = new Map<number, number>();
      const filters = [{ filter, start, durable: true, context: 0 }];
      const subscriber = store.subscribe({ filters, positions: new Map(), port });
      const look = (): void => {
        if (!subscriber.atTail) return void setTimeout(look, 1);
        subscriber.close();
        resolve();
      };
      subscriber.wake();
      look();
    });
  await Promise.all(Array.from({ length: readers }, one));
  return count;
}

function print(line: Record<string, unknown>): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

async function timed<T>(work: () => Promise<T>): Promise<{ value: T; ms: number; cpuMs: number }> {
  const startMs = performance.now();
  const startCpu = process.cpuUsage();
  const value = await work();
  const { user, system } = process.cpuUsage(startCpu);
  return { value, ms: performance.now() - startMs, cpuMs: (user + system) / 1000 };
}

function rate(scenario: string, count: number, spent: { ms: number; cpuMs: number }): void {
  const perSecond = Math.round((count / spent.ms) * 1000);
  const cpuUsEach = Number(((spent.cpuMs * 1000) / Math.max(1, count)).toFixed(2));
  print({ scenario, count, perSecond, cpuUsEach, ms: Math.round(spent.ms) });
}

rmSync(dir, { recursive: true, force: true });
await nodeDisk.makeDir(dir);
const { type } = await nodeDisk.space(dir);
if (type === "tmpfs") {
  process.stderr.write(`${dir} is on tmpfs, which syncs nothing; give another --dir\n`);
  process.exit(2);
}
print({ scenario: "setting", fileSystem: type, frameBytes: frame.length, outstandingMax });

let current = await open();
for (const streams of [1, 16]) {
  const spent = await timed(() => appendFor(current.store, streams));
  rate(`append over ${streams} streams`, spent.value, spent);
}
const checkpoint = await timed(() => current.store.checkpoint());
print({ scenario: "checkpoint", ms: Math.round(checkpoint.ms) });
for (const [filter, readers] of [
  ["#", 1],
  ["#", 10],
  ["+/h7/value", 1],
] as const) {
  const spent = await timed(() => scan(current.store, filter, readers));
  rate(`scan ${filter} by ${readers}`, spent.value, spent);
}
await close(current);
const clean = await timed(open);
print({ scenario: "start after a checkpoint", ms: Math.round(clean.ms) });
current = clean.value;
const backlog = await timed(() => appendFor(current.store, 16));
await close(current);
const replayed = await timed(open);
rate("start with a replay", backlog.value, replayed);
await close(replayed.value);
rmSync(dir, { recursive: true, force: true });
process.exit(0);
