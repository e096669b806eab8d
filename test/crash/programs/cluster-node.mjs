// One node of a cluster with a replicated store. Clients speak lines of JSON:
// {"id", "op", ...} -> {"id", "value"} or {"id", "error"}; see `answers` for what is asked.
// Usage: cluster-node.mjs OPTIONS.json with
// {dir, name, founding, listen, clientPath, electionTicks, clockAheadMs}

import { readFileSync } from "node:fs";
import {
  nodeDisk,
  nodeNetwork,
  silentLogger,
  systemClock,
  systemRandom,
} from "../../../dist/base/index.js";
import { membersOf, openClusterNode } from "../../../dist/cluster/index.js";
import { StoreReader } from "../../../dist/contracts/store-reader.js";
import { createClassicDriver } from "../../../dist/kv/index.js";
import { defaultLogSettings } from "../../../dist/log/index.js";
import { defaultHostSettings, lockRaftDir } from "../../../dist/raft/index.js";
import { serve } from "./serve.mjs";

const {
  clientPath,
  electionTicks,
  clockAheadMs = 0,
  ...options
} = JSON.parse(readFileSync(process.argv[2], "utf8"));
const MiB = 1024 * 1024;

const say = (event, fields) => {
  const { error, ...rest } = fields ?? {};
  console.error(`${event} ${JSON.stringify({ ...rest, error: error?.message })}`);
};
const logger = { ...silentLogger, info: say, warn: say, error: say };
await lockRaftDir(nodeDisk, options.dir);
const abort = new AbortController();
const opening = openClusterNode(
  {
    ...options,
    log: { ...defaultLogSettings, segmentBytes: MiB, flushBytesMax: MiB / 4 },
    raft: {
      ...defaultHostSettings,
      raft: { ...defaultHostSettings.raft, electionTicks, heartbeatTicks: 2 },
    },
    store: { shards: 2, stateShards: 1, checkpoint: { bytesMax: MiB / 4, ageMsMax: 3_000 } },
  },
  {
    disk: nodeDisk,
    kv: createClassicDriver({ disk: nodeDisk }),
    clock: { ...systemClock, wallUs: () => systemClock.wallUs() + clockAheadMs * 1_000 },
    random: systemRandom,
    network: nodeNetwork,
    logger,
    onFailure: (error) => {
      console.error(`ends: ${error.message}`);
      process.exit(5);
    },
    stop: abort.signal,
  },
);
const node = await opening.catch((error) => {
  console.error(`cannot start: ${error.code} ${error.message}`);
  process.exit(4);
});
const { store, host, logs, roster, controller } = node;

const answers = {
  /** Resolves with the commit time. */
  append: ({ topic, publisher, value }) =>
    new Promise((resolve, reject) => {
      const plain = {
        form: "raw",
        qos: 1,
        retain: false,
        expiryUs: 0,
        expiryOffset: 0,
        keep: true,
      };
      const request = {
        ...plain,
        topic,
        publisher,
        frame: Buffer.from(value),
        evidence: undefined,
      };
      store.append(request, (error, outcome) =>
        outcome?.kind === "stored" ? resolve(outcome.timeUs) : reject(error),
      );
    }),
  status: () =>
    host.status().map(({ group, role, leader, commit, applied, state, configuration }) => {
      return { group, role, leader, commit, applied, state, configuration };
    }),
  counters: () => ({ ...logs.counters }),
  barrier: ({ shard }) => store.barrier(shard),
  hash: async ({ shard }) => {
    const before = host.group(shard).appliedIndex;
    const hash = await store.operator.logicalHash(shard);
    return { hash, before, after: host.group(shard).appliedIndex };
  },
  /** Every TTV of this replica, by shard in the order of commit times. */
  dump: async () => {
    const reader = new StoreReader(store, ["#"]);
    await reader.atTail();
    reader.subscriber.close();
    return reader.received.map(({ value, timeUs, ref }) => [value, timeUs, ref.shard]);
  },
  put: ({ key, value }) =>
    store.state("owner").transact(async (tx) => tx.put(key, Buffer.from(value))),
  transfer: ({ group, to }) => host.group(group).transfer(to),
  roster: () => {
    const { cluster, replicas, sites, placements } = roster.roster;
    return { cluster, replicas, sites: [...sites.values()], placements: [...placements] };
  },
  change: ({ command }) => roster.change(command),
  /** Whom the one that joins has to know. */
  members: () => membersOf(roster.roster),
  drain: () => controller.drain(10_000),
};

/** A code; what was refused says why. */
function nameOf({ code, message, stack }) {
  if (code === undefined) return stack;
  return code === "CLUSTER_CHANGE_REFUSED" ? message : code;
}

async function answer({ op, ...request }) {
  return (await answers[op](request)) ?? "done";
}

serve(clientPath, answer, nameOf);
