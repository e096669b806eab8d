// A store on a real disk for the benches: how it is opened, what is appended, and what a process used.

import { readFileSync } from "node:fs";
import { nodeDisk, silentLogger, systemClock, systemRandom } from "../../dist/base/index.js";
import { createClassicDriver } from "../../dist/kv/index.js";
import { defaultLogSettings, openLog } from "../../dist/log/index.js";
import { openStore, storeSettingsDefault } from "../../dist/store/index.js";

export const parts = {
  disk: nodeDisk,
  clock: systemClock,
  random: systemRandom,
  logger: silentLogger,
};
export const kv = createClassicDriver({ disk: nodeDisk });

/** One shard of messages, unless `settings` say else. */
export async function open(dir, settings = {}) {
  const log = await openLog(defaultLogSettings, parts, `${dir}/log`);
  await nodeDisk.makeDir(`${dir}/db`);
  const store = await openStore(
    {
      ...storeSettingsDefault,
      ...{ shards: 1, dir: `${dir}/db`, quarantineDir: `${dir}/quarantine`, ...settings },
    },
    { ...parts, kv, log },
  );
  await store.start();
  return {
    store,
    log,
    close: async () => {
      await store.close();
      await log.close();
    },
  };
}

const topicsPeriod = 10_000;

/**
 * Topics of `streams` streams and 10,000 hosts, so that parts of 1/10 to 1/10,000 exist; made once, as
 * a broker knows the topics of its clients. They come again after `topicsPeriod`.
 */
export function createTopics(streams) {
  const topics = Array.from({ length: topicsPeriod }, (_, n) =>
    Buffer.from(`s${n % streams}/h${(n * 7_919) % 10_000}/u${n % 100}/w${n % 10}`).toString(),
  );
  return (n) => topics[n % topicsPeriod];
}

const publishers = ["p0", "p1", "p2", "p3"];

export function requestOf(topic, frame) {
  return {
    topic,
    frame,
    publisher: publishers[topic.length % publishers.length],
    form: "v5",
    qos: 1,
    retain: false,
    expiryUs: 0,
    expiryOffset: 0,
    keep: true,
    evidence: undefined,
  };
}

/**
 * Keeps `outstanding` appends under way while `goesOn(sent)`; resolves with how many were acked, all
 * of them by then.
 */
export function appendWhile(store, { next, ...limits }) {
  return keepUnderWay(store, {
    ...limits,
    sizeMax: 1,
    isTurn: (acked, sent) => acked % 64 === 0 || acked === sent,
    begin: (from, done) => store.append(next(from), (error) => done(error, 1)),
  });
}

/** The same by runs of `size` messages of one publisher, in turn. */
export function appendRunsWhile(store, { size, topicOf, payload, ...limits }) {
  return keepUnderWay(store, {
    ...limits,
    sizeMax: size,
    isTurn: () => true,
    begin: (from, done) =>
      store.appendRun(runOf({ from, size, topicOf, payload }), (error, span) =>
        done(error, span?.count),
      ),
  });
}

/** `begin(from, done)` sends `sizeMax` messages; `isTurn(acked, sent)`: more are looked for now. */
function keepUnderWay(store, { sizeMax, isTurn, begin, outstanding, goesOn }) {
  return new Promise((resolve, reject) => {
    let [sent, acked] = [0, 0];
    const done = (error, count) => {
      if (error !== undefined) return reject(error);
      acked += count;
      if (isTurn(acked, sent)) more();
    };
    const more = () => {
      while (sent - acked < outstanding) {
        if (!goesOn(sent)) {
          if (acked === sent) resolve(acked);
          return;
        }
        if (store.refusal !== undefined) {
          store.onceWritable(more);
          return;
        }
        const from = sent;
        sent += sizeMax;
        begin(from, done);
      }
    };
    more();
  });
}

/** Topics and frames are made one by one, as they are for the baselines. */
function runOf({ from, size, topicOf, payload }) {
  const [topics, frames, starts] = [[], [], [0]];
  for (let n = from; n < from + size; n++) {
    const frame = payload(n);
    topics.push(topicOf(n));
    frames.push(frame);
    starts.push(starts.at(-1) + frame.length);
  }
  const publisher = publishers[(from / size) % publishers.length];
  return { publisher, form: "v5", qos: 1, topics, bytes: Buffer.concat(frames), starts };
}

/** Reads `filter` from the beginning; resolves with the number of TTVs. */
export function scan(store, filter) {
  return new Promise((resolve) => {
    let count = 0;
    const port = {
      offer: () => {
        count++;
        return true;
      },
      moved: () => undefined,
      missed: () => undefined,
      reachedTail: () => {
        if (!subscriber.atTail) return;
        // Not within its own call.
        setImmediate(() => {
          subscriber.close();
          resolve(count);
        });
      },
    };
    const filters = [{ filter, start: new Map(), durable: true, context: 0 }];
    const subscriber = store.subscribe({ filters, positions: new Map(), port });
  });
}

/** What `work` took: time, CPU of all threads, bytes that went to the volume. */
export async function measured(work) {
  const startMs = performance.now();
  const startCpu = process.cpuUsage();
  const startBytes = writtenBytes();
  const value = await work();
  const { user, system } = process.cpuUsage(startCpu);
  return {
    value,
    ms: performance.now() - startMs,
    cpuMs: (user + system) / 1000,
    writtenBytes: writtenBytes() - startBytes,
  };
}

/** The line of something done `count` times. */
export function rateOf(count, { ms, cpuMs }) {
  return {
    count,
    perSecond: Math.round((count / ms) * 1000),
    cpuUsEach: Number(((cpuMs * 1000) / Math.max(1, count)).toFixed(2)),
    ms: Math.round(ms),
  };
}

function writtenBytes() {
  return numberOf("/proc/self/io", /^write_bytes: (\d+)/m);
}

/** Most memory that this process ever had. */
export function rssMaxMib() {
  return Math.round(numberOf("/proc/self/status", /^VmHWM:\s+(\d+)/m) / 1024);
}

function numberOf(path, pattern) {
  try {
    return Number(pattern.exec(readFileSync(path, "utf8"))?.[1] ?? 0);
  } catch {
    return 0; // not Linux
  }
}
