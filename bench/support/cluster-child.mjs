// A node of a cluster for bench/cluster.mjs: answers what its parent asks, an id each.

import { resolve } from "node:path";
import {
  nodeDisk,
  nodeNetwork,
  silentLogger,
  systemClock,
  systemRandom,
} from "../../dist/base/index.js";
import { openClusterNode } from "../../dist/cluster/index.js";
import { StoreReader } from "../../dist/contracts/store-reader.js";
import { createClassicDriver } from "../../dist/kv/index.js";
import { defaultLogSettings } from "../../dist/log/index.js";
import { defaultHostSettings } from "../../dist/raft/index.js";

const { dir, listen, founding, ...options } = JSON.parse(process.argv[2]);
/** Waits that are told of. */
const waitsMax = 20_000;
const absolute = ({ path }) => ({ path: resolve(path) });
const node = await openClusterNode(
  {
    ...options,
    dir: resolve(dir),
    listen: absolute(listen),
    founding: {
      ...founding,
      members: founding.members.map(({ name, address }) => ({ name, address: absolute(address) })),
    },
    log: defaultLogSettings,
    raft: defaultHostSettings,
    store: {},
  },
  {
    ...{ disk: nodeDisk, kv: createClassicDriver({ disk: nodeDisk }), clock: systemClock },
    ...{ random: systemRandom, network: nodeNetwork, logger: silentLogger },
    onFailure: (error) => {
      console.error(error);
      process.exit(5);
    },
    stop: new AbortController().signal,
  },
);
const { store, host, logs } = node;
let number = 0;
let acked = 0;

function append(value) {
  const request = {
    ...{
      topic: `bench/${options.name}/${number % 16}`,
      publisher: `${options.name} ${number % 8}`,
    },
    ...{ form: "raw", qos: 1, retain: false, expiryUs: 0, expiryOffset: 0, keep: true },
    ...{ frame: value, evidence: undefined },
  };
  return new Promise((done, fail) => {
    store.append(request, (error, outcome) => (outcome?.kind === "stored" ? done() : fail(error)));
  });
}

function payload(bytes) {
  const value = Buffer.alloc(bytes, ".");
  value.write(`${options.name} ${process.pid} ${++number} `);
  return value;
}

const shards = () => host.status().filter(({ group }) => group > 0);

const answers = {
  warm: async () => {
    for (let at = 0; at < 8; at++) {
      await append(payload(20));
      acked++;
    }
  },
  drive: async ({ seconds, window, payloadBytes }) => {
    const endMs = performance.now() + seconds * 1000;
    const cpu = process.cpuUsage();
    const waitsMs = [];
    let count = 0;
    let failed = 0;
    const lane = async () => {
      while (performance.now() < endMs) {
        const beganMs = performance.now();
        try {
          await append(payload(payloadBytes));
        } catch {
          failed++;
          continue;
        }
        acked++;
        const nowMs = performance.now();
        if (nowMs <= endMs) count++;
        if (waitsMs.length < waitsMax) waitsMs.push(nowMs - beganMs);
      }
    };
    await Promise.all(Array.from({ length: window }, lane));
    const { user, system } = process.cpuUsage(cpu);
    return { acked: count, failed, waitsMs, cpuMs: (user + system) / 1000 };
  },
  positions: () => shards().map(({ group, commit }) => [group, commit]),
  reach: async ({ positions }) => {
    for (;;) {
      const applied = new Map(shards().map((each) => [each.group, each.applied]));
      if (positions.every(([group, index]) => (applied.get(group) ?? 0) >= index)) return;
      await new Promise((done) => setTimeout(done, 10));
    }
  },
  counters: () => ({ ...logs.counters }),
  acked: () => acked,
  count: async () => {
    for (const shard of store.logShards) await store.barrier(shard);
    const reader = new StoreReader(store, ["#"]);
    await reader.atTail();
    reader.subscriber.close();
    const texts = reader.received.map(({ value }) => Buffer.from(value).toString());
    return { count: texts.length, doubled: texts.length - new Set(texts).size };
  },
};

process.on("message", async ({ id, op, ...request }) => {
  try {
    process.send({ id, value: await answers[op](request) });
  } catch (error) {
    process.send({ id, error: error.stack });
  }
});
process.on("disconnect", () => process.exit(0));
process.send({ ready: true });
