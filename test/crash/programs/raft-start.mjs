// The first start of a Raft node that is alone in its cluster: it appends numbered entries and marks
// each when it is acknowledged. Usage: raft-start.mjs FOLDER MARKS ENTRIES SOCKET

import { openSync, writeSync } from "node:fs";
import { join } from "node:path";
import { defaultLogSettings, startRaftNode } from "../../../dist/raft/index.js";

const [folder, marksPath, entries, socket] = process.argv.slice(2);
const marks = openSync(marksPath, "a");
const machine = {
  version: 1,
  durableIndex: 0,
  apply: (applied) => applied.map(() => undefined),
  capture: () => [],
  install: async () => undefined,
};
const KiB = 1024;
const node = await startRaftNode({
  dir: join(folder, "node"),
  clusterId: "ab".repeat(16),
  node: 1,
  members: [{ node: 1, siteId: "01".repeat(16), name: "one", address: { path: socket } }],
  groups: [1, 2],
  machineOf: () => machine,
  logSettings: { ...defaultLogSettings, segmentBytes: 64 * KiB, flushBytesMax: 16 * KiB },
});
for (let entry = 1; entry <= Number(entries); entry++) {
  const group = node.group(1 + (entry % 2));
  if (entry <= 2) group.campaign();
  while (group.role !== "leader") await new Promise((done) => setImmediate(done));
  await group.propose([{ version: 1, data: Buffer.from(`entry ${entry}`) }]);
  writeSync(marks, `${entry}`);
}
await node.close();
console.log("done");
