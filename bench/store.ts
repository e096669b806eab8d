// Rates of the store on a real disk (tmpfs is refused), one JSON line a scenario: appends over 1, 16
// and 1,000 streams, a scan by one and by ten readers, selective scans, three-key transactions, a
// start after kill, a start after a checkpoint, bytes on disk by message, the drop of all of it.
//
//   npm run bench -- store [--dir bench-store-data] [--seconds 3] [--outstanding 4096] [--shards 1]
//                          [--fill json|random|x] [--bytes 100] [--save NAME]
//
// Payloads repeat nothing: `json` is seeded telemetry, `random` bytes that nothing compresses.

import { rmSync, writeFileSync } from "node:fs";
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
    bytes: { type: "string", default: "100" },
    fill: { type: "string", default: "json" },
    save: { type: "string" },
    shards: { type: "string", default: "1" },
  },
});
const dir = values.dir;
const runMs = Number(values.seconds) * 1000;
const outstandingMax = Number(values.outstanding);
const payloadBytes = Number(values.bytes);
const hosts = 1_000;
const lines: Record<string, unknown>[] = [];

/** xorshift32: the same payloads in every run. */
let seed = 0x9e3779b9;
function draw(): number {
  seed ^= seed << 13;
  seed ^= seed >>> 17;
  seed ^= seed << 5;
  return seed >>> 0;
}

function payload(n: number): Buffer {
  if (values.fill === "x") return Buffer.alloc(payloadBytes, "x");
  if (values.fill === "random") {
    const bytes = Buffer.allocUnsafe(payloadBytes);
    for (let at = 0; at + 4 <= payloadBytes; at += 4) bytes.writeUInt32LE(draw(), at);
    return bytes;
  }
  const reading = { ts: 1_767_225_600_000 + n * 37, host: `host${draw() % hosts}`, seq: n };
  const values3 = { temp: draw() / 2 ** 26, load: draw() / 2 ** 32, free: draw() };
  const text = JSON.stringify({ ...reading, ...values3 });
  return Buffer.from(text.padEnd(payloadBytes, " ").slice(0, payloadBytes));
}

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
    ...{ frame: payload(n), keep: true, evidence: undefined },
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

/** 64 at a time, over keys that seldom meet. */
async function transactFor(store: LocalStore): Promise<number> {
  const endMs = performance.now() + runMs;
  let count = 0;
  const worker = async (): Promise<void> => {
    while (performance.now() < endMs) {
      const key = draw() % 100_000;
      await store.state(`c${key}`).transact(async (tx) => {
        for (const part of ["a", "b", "c"]) {
          const entry = await tx.get(`bench/${key}/${part}`);
          tx.put(`bench/${key}/${part}`, Buffer.from(String(Number(entry?.value ?? 0) + 1)));
        }
      });
      count++;
    }
  };
  await Promise.all(Array.from({ length: 64 }, worker));
  return count;
}

function print(line: Record<string, unknown>): void {
  lines.push(line);
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
const { fill } = values;
print({ scenario: "setting", fileSystem: type, fill, payloadBytes, outstandingMax });

let current = await open();
let appended = 0;
for (const streams of [1, 16, 1_000]) {
  const spent = await timed(() => appendFor(current.store, streams));
  appended += spent.value;
  rate(`append over ${streams} streams`, spent.value, spent);
}
const checkpoint = await timed(() => current.store.checkpoint());
print({ scenario: "checkpoint", ms: Math.round(checkpoint.ms) });
for (const [filter, readers] of [
  ["#", 1],
  ["#", 10],
  ["+/h7/value", 1],
  ["+/h7/nothing", 1],
] as const) {
  const spent = await timed(() => scan(current.store, filter, readers));
  rate(`scan ${filter} by ${readers}`, spent.value, spent);
}
const transactions = await timed(() => transactFor(current.store));
rate("transactions of three keys", transactions.value, transactions);
await current.store.rotate();
await current.store.operator.compact();
const storedBytes = await nodeDisk.usedBytes(`${dir}/db/messages`);
const perMessage = Number((storedBytes / appended).toFixed(1));
print({ scenario: "on disk after compaction", messages: appended, storedBytes, perMessage });
await close(current);
const clean = await timed(open);
print({ scenario: "start after a checkpoint", ms: Math.round(clean.ms) });
current = clean.value;
const backlog = await timed(() => appendFor(current.store, 16));
await close(current);
const replayed = await timed(open);
rate("start with a replay", backlog.value, replayed);
const everything = Number.MAX_SAFE_INTEGER;
await replayed.value.store.rotate();
const dropped = await timed(() => replayed.value.store.operator.dropUntil(everything));
print({ scenario: "drop", generations: dropped.value, ms: Math.round(dropped.ms) });
await close(replayed.value);
if (values.save !== undefined) {
  const path = new URL(`./results/${values.save}.json`, import.meta.url);
  writeFileSync(path, `${JSON.stringify({ node: process.version, lines }, null, 2)}\n`);
}
rmSync(dir, { recursive: true, force: true });
process.exit(0);
