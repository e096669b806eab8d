// Sums up CPU profiles that `--cpu-prof` wrote: the share of each function in the busy time, by itself
// and with what it calls.
//
//   node bench/support/profile.mjs FILE_OR_FOLDER [rows]

import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";

const [path, rows = "30"] = process.argv.slice(2);
const files = statSync(path).isDirectory()
  ? readdirSync(path).map((name) => join(path, name))
  : [path];

const own = new Map();
const whole = new Map();
let totalUs = 0;

function keyOf({ functionName, url, lineNumber }) {
  const place = url === "" ? "" : ` ${url.split("/").slice(-3).join("/")}:${lineNumber + 1}`;
  return `${functionName || "(anonymous)"}${place}`;
}

function add(map, key, us) {
  map.set(key, (map.get(key) ?? 0) + us);
}

for (const file of files.filter((name) => name.endsWith(".cpuprofile"))) {
  const { nodes, samples, timeDeltas } = JSON.parse(readFileSync(file, "utf8"));
  const byId = new Map(nodes.map((node) => [node.id, { key: keyOf(node.callFrame) }]));
  for (const { id, children = [] } of nodes) {
    for (const child of children) byId.get(child).parent = byId.get(id);
  }
  samples.forEach((id, index) => {
    const node = byId.get(id);
    if (node.key === "(idle)") return;
    const us = timeDeltas[index];
    totalUs += us;
    add(own, node.key, us);
    const seen = new Set();
    for (let at = node; at !== undefined; at = at.parent) seen.add(at.key);
    for (const key of seen) add(whole, key, us);
  });
}

function print(title, map) {
  console.log(`\n${title}`);
  const sorted = [...map].sort((a, b) => b[1] - a[1]).slice(0, Number(rows));
  for (const [key, us] of sorted) {
    console.log(`${((us / totalUs) * 100).toFixed(1).padStart(5)} %  ${key}`);
  }
}

console.log(`${(totalUs / 1e6).toFixed(1)} s busy`);
print("by itself", own);
print("with what it calls", whole);
