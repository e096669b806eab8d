// Sums up CPU profiles that `--cpu-prof` wrote: self time by function, the share of each file's.
//
//   node bench/support/profile.mjs FILE_OR_FOLDER [rows]

import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";

const [path, rows = "30"] = process.argv.slice(2);
const files = statSync(path).isDirectory()
  ? readdirSync(path).map((name) => join(path, name))
  : [path];

const self = new Map();
let totalUs = 0;
for (const file of files.filter((name) => name.endsWith(".cpuprofile"))) {
  const { nodes, samples, timeDeltas } = JSON.parse(readFileSync(file, "utf8"));
  const byId = new Map(nodes.map((node) => [node.id, node.callFrame]));
  samples.forEach((id, index) => {
    const { functionName, url, lineNumber } = byId.get(id);
    if (functionName === "(idle)") return;
    const place = url === "" ? "" : ` ${url.split("/").slice(-3).join("/")}:${lineNumber + 1}`;
    const key = `${functionName || "(anonymous)"}${place}`;
    totalUs += timeDeltas[index];
    self.set(key, (self.get(key) ?? 0) + timeDeltas[index]);
  });
}
const sorted = [...self].sort((a, b) => b[1] - a[1]).slice(0, Number(rows));
for (const [key, us] of sorted) {
  console.log(`${((us / totalUs) * 100).toFixed(1).padStart(5)} %  ${key}`);
}
console.log(`${(totalUs / 1e6).toFixed(1)} s busy`);
