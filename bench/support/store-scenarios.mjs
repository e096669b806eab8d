// The scenarios of bench/store.mjs. Each runs in a process of its own and gives the fields of its line.

import { nodeDisk } from "../../dist/base/index.js";
import { defaultLogSettings, openLog } from "../../dist/log/index.js";
import { createPayloads } from "./payloads.mjs";
import {
  appendRunsWhile,
  appendWhile,
  createTopics,
  kv,
  measured,
  open,
  parts,
  rateOf,
  requestOf,
  rssMaxMib,
  scan,
} from "./store-process.mjs";

const blockTtvs = 256;
const mib = 1024 * 1024;
/** Until what is measured is compiled. */
const warmUpMs = 1_500;

const forMs = (runMs) => {
  const endMs = performance.now() + runMs;
  return () => performance.now() < endMs;
};
const round = (value, digits = 2) => Number(value.toFixed(digits));

/** What LevelDB takes when nothing is synced: blocks of the same bytes, two batches under way. */
async function levelBaseline({ dir, fill, bytes, streams, runMs }) {
  const store = await kv.open(`${dir}/level`, { writeBufferBytes: 16 * mib });
  const payload = createPayloads(fill, bytes);
  const topicOf = createTopics(streams);
  let count = 0;
  const worker = async (goesOn) => {
    while (goesOn()) {
      const chunks = [];
      for (let at = 0; at < blockTtvs; at++) {
        chunks.push(Buffer.from(topicOf(count)), payload(count++));
      }
      const key = Buffer.alloc(12);
      key.writeUInt32BE(count, 4);
      await store.batch().put(key, Buffer.concat(chunks)).write();
    }
  };
  const run = (goesOn) => Promise.all([worker(goesOn), worker(goesOn)]);
  await run(forMs(warmUpMs));
  const warm = count;
  const spent = await measured(() => run(forMs(runMs)));
  await store.close();
  const megabytesPerSecond = round(((count - warm) * bytes) / spent.ms / 1000);
  return { ...rateOf(count - warm, spent), megabytesPerSecond };
}

/** What the log takes: a record for each TTV, acked when it is synced. */
async function logBaseline({ dir, fill, bytes, streams, runMs, outstanding }) {
  const log = await openLog(defaultLogSettings, parts, `${dir}/log`);
  const payload = createPayloads(fill, bytes);
  const topicOf = createTopics(streams);
  let [sent, acked] = [0, 0];
  const run = (goesOn) =>
    new Promise((resolve, reject) => {
      const append = () => {
        const body = Buffer.concat([Buffer.from(topicOf(sent)), payload(sent)]);
        const record = { shard: 1, epoch: 1, index: ++sent, term: 1, kind: 1, version: 1 };
        log.append({ ...record, payload: body }, (error) => {
          if (error !== undefined) return reject(error);
          acked++;
          if (acked % 65_536 === 0) log.release(1, acked);
          if (goesOn()) append();
          else if (acked === sent) resolve();
        });
      };
      for (let n = 0; n < outstanding; n++) append();
    });
  await run(forMs(warmUpMs));
  const warm = acked;
  const spent = await measured(() => run(forMs(runMs)));
  const { records, flushes } = log.counters;
  await log.close();
  return { ...rateOf(acked - warm, spent), recordsPerFlush: Math.round(records / flushes) };
}

/** Appends with a sync before each ack, then what they take on disk when all is compacted. */
async function append(options) {
  const payload = createPayloads(options.fill, options.bytes);
  const topicOf = createTopics(options.streams);
  let number = 0;
  const next = () => requestOf(topicOf(number), payload(number++));
  const { outstanding } = options;
  return appendsBy(options, (store, goesOn) => appendWhile(store, { next, outstanding, goesOn }));
}

/** The same by runs of 256, as many as a block of the baseline has. */
async function appendRuns(options) {
  const payload = createPayloads(options.fill, options.bytes);
  const topicOf = createTopics(options.streams);
  let number = 0;
  const { outstanding } = options;
  return appendsBy(options, async (store, goesOn) => {
    const first = number;
    const parts = {
      ...{ size: blockTtvs, outstanding, goesOn },
      topicOf: (n) => topicOf(first + n),
      payload: (n) => payload(first + n),
    };
    const count = await appendRunsWhile(store, parts);
    number += count;
    return count;
  });
}

async function appendsBy({ dir, bytes, runMs }, work) {
  const { store, log, close } = await open(dir);
  const warm = await measured(() => work(store, forMs(warmUpMs)));
  const syncsBefore = log.counters.syncs;
  const spent = await measured(() => work(store, forMs(runMs)));
  const count = warm.value + spent.value;
  const rssMib = rssMaxMib();
  const syncs = log.counters.syncs - syncsBefore;
  const finish = await measured(async () => {
    await store.checkpoint();
    await store.rotate();
    await store.operator.compact();
  });
  const storedBytes = await nodeDisk.usedBytes(`${dir}/db/messages`);
  await close();
  const writtenBytes = warm.writtenBytes + spent.writtenBytes + finish.writtenBytes;
  return {
    ...rateOf(spent.value, spent),
    syncs,
    rssMib,
    storedBytesEach: round(storedBytes / count, 1),
    storedPerByte: round(storedBytes / (count * bytes)),
    writtenPerByte: round(writtenBytes / (count * bytes)),
  };
}

/** Fills a folder for `scans`, and says what it holds. */
async function fill({ dir, fill, bytes, streams, count, outstanding, settings, dies }) {
  const { store, close } = await open(dir, settings);
  const payload = createPayloads(fill, bytes);
  const topicOf = createTopics(streams);
  const next = (n) => requestOf(topicOf(n), payload(n));
  const goesOn = (sent) => sent < count;
  const spent = await measured(() => appendWhile(store, { next, outstanding, goesOn }));
  const line = {
    ...rateOf(count, spent),
    gigabytes: round((count * bytes) / 2 ** 30),
    rssMib: rssMaxMib(),
  };
  if (dies) return line; // the process ends like this: what is in memory is in the log alone
  await store.checkpoint();
  await close();
  return line;
}

/** Reads with the cache of decoded blocks off: each block is read, checked and decoded each time. */
async function scans({ dir, count }) {
  const { store, close } = await open(dir, { blockCacheBytesMax: 0 });
  const lines = {};
  for (const [name, filter, share] of [
    ["all", "#", 1],
    ["1/10", "+/+/+/w3", 10],
    ["1/100", "+/+/u37/+", 100],
    ["1/10,000", "+/h7919/+/+", 10_000],
    ["none", "+/nobody/+/+", Number.POSITIVE_INFINITY],
  ]) {
    await scan(store, filter);
    const before = store.blockCache.counters.blocksRead;
    const spent = await measured(() => scan(store, filter));
    const read = store.blockCache.counters.blocksRead - before;
    if (Math.abs(spent.value - count / share) > count / share / 20 + 1) {
      throw new Error(`${filter} matched ${spent.value} of ${count}`);
    }
    lines[name] = {
      ...rateOf(spent.value, spent),
      blocksRead: read,
      passedPerSecond: Math.round((count / spent.ms) * 1000),
      passedPerCpuSecond: Math.round((count / spent.cpuMs) * 1000),
    };
  }
  await store.operator.verify();
  const walked = await measured(() => store.operator.verify());
  lines.verify = rateOf(walked.value.ttvs, walked);
  await close();
  return { scans: lines, rssMib: rssMaxMib() };
}

/** 64 at a time, over keys that seldom meet. */
async function transactions({ dir, runMs }) {
  const { store, close } = await open(dir, { stateShards: 4 });
  const goesOn = forMs(runMs);
  let [count, key] = [0, 1];
  const worker = async () => {
    while (goesOn()) {
      key = (key * 48_271) % 2_147_483_647;
      const name = key % 100_000;
      await store.state(`c${name}`).transact(async (tx) => {
        for (const part of ["a", "b", "c"]) {
          const entry = await tx.get(`bench/${name}/${part}`);
          tx.put(`bench/${name}/${part}`, Buffer.from(String(Number(entry?.value ?? 0) + 1)));
        }
      });
      count++;
    }
  };
  const spent = await measured(() => Promise.all(Array.from({ length: 64 }, worker)));
  await close();
  return rateOf(count, spent);
}

/** Opens what is there, until it serves. */
async function restart({ dir, settings }) {
  const spent = await measured(() => open(dir, settings));
  const { store, close } = spent.value;
  const logical = store.operator.databases().find(({ name }) => name === "messages");
  const firstTtv = await measured(() => firstOf(store));
  await close();
  return {
    ms: Math.round(spent.ms),
    cpuMs: Math.round(spent.cpuMs),
    firstTtvMs: Math.round(firstTtv.ms),
    ttvs: logical.ttvs,
    rssMib: rssMaxMib(),
  };
}

function firstOf(store) {
  return new Promise((resolve) => {
    const port = {
      offer: () => {
        setImmediate(() => {
          subscriber.close();
          resolve();
        });
        return false;
      },
      moved: () => undefined,
      missed: () => undefined,
    };
    const filters = [{ filter: "#", start: new Map(), durable: true, context: 0 }];
    const subscriber = store.subscribe({ filters, positions: new Map(), port });
  });
}

/** Drops all that was filled, in one generation or more. */
async function drop({ dir, settings }) {
  const { store, close } = await open(dir, settings);
  const beforeBytes = await nodeDisk.usedBytes(`${dir}/db/messages`);
  await store.rotate();
  const spent = await measured(() => store.operator.dropUntil(Number.MAX_SAFE_INTEGER));
  const removed = await measured(async () => {
    while ((await nodeDisk.usedBytes(`${dir}/db/messages`)) > beforeBytes / 100) {
      await new Promise((resolve) => {
        setTimeout(resolve, 5);
      });
    }
  });
  await close();
  return {
    generations: spent.value,
    gigabytes: round(beforeBytes / 2 ** 30),
    ms: Math.round(spent.ms),
    removedMs: Math.round(spent.ms + removed.ms),
    writtenMib: round((spent.writtenBytes + removed.writtenBytes) / mib, 1),
  };
}

export const scenarios = {
  levelBaseline,
  logBaseline,
  append,
  appendRuns,
  fill,
  scans,
  transactions,
  restart,
  drop,
};
