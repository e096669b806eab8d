// One node of a replicated key-value store, on flagstone/raft. Clients speak lines of JSON:
// {"id", "op": "put" | "get" | "status", "key", "value"} -> {"id", "value"} or {"id", "error"}.
// Usage: raft-kv.mjs OPTIONS.json with {dir, clusterId, node, members, listen, clientPath}

import { readFileSync } from "node:fs";
import {
  defaultHostSettings,
  defaultLogSettings,
  startRaftNode,
} from "../../../dist/raft/index.js";
import { serve } from "./serve.mjs";

const { clientPath, ...options } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const MiB = 1024 * 1024;

class Store {
  version = 1;
  durableIndex = 0;
  values = {};

  apply(entries) {
    return entries.map(({ data }) => {
      const { key, value } = JSON.parse(Buffer.from(data).toString());
      this.values[key] = value;
      return value;
    });
  }

  capture() {
    return [Buffer.from(JSON.stringify(this.values))];
  }

  async install(_head, pieces) {
    const parts = [];
    for await (const piece of pieces) parts.push(Buffer.from(piece));
    const text = Buffer.concat(parts).toString();
    this.values = text === "" ? {} : JSON.parse(text);
  }
}

const store = new Store();
const say = (event, fields) => console.error(`${event} ${JSON.stringify(fields ?? {})}`);
const logger = { debug: () => undefined, info: say, warn: say, error: say };
const node = await startRaftNode({
  ...options,
  groups: [1],
  machineOf: () => store,
  logger,
  logSettings: { ...defaultLogSettings, segmentBytes: MiB, flushBytesMax: MiB / 4 },
  settings: {
    ...defaultHostSettings,
    raft: { ...defaultHostSettings.raft, electionTicks: 10, heartbeatTicks: 2 },
    snapshotLogBytes: MiB,
    keptEntries: 100,
    keptLogBytes: 2 * MiB,
  },
  onFailure: (error) => {
    console.error(`ends: ${error.message}`);
    process.exit(5);
  },
});
const group = node.group(1);

async function answer({ op, key, value, padding = "" }) {
  if (op === "status") {
    const { role, leader, term, commit, applied } = group.status();
    return { role, leader, term, commit, applied };
  }
  if (op === "get") {
    await group.read();
    return store.values[key] ?? 0;
  }
  const data = Buffer.from(JSON.stringify({ key, value, padding }));
  return (await group.propose([{ version: 1, data }]))[0];
}

serve(clientPath, answer, (error) => error.code ?? error.message);
