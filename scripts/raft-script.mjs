// npm run raft:script -- FILE...
// Executes Raft conversations (docs/raft-testing.md) and compares what they print with what the
// files want. Exit codes: 0 all agree, 1 a mismatch, 2 usage. UPDATE_GOLDEN=1 rewrites the files.

import { readFileSync, writeFileSync } from "node:fs";
import { formatMismatch, runConversation } from "../dist/raft/index.js";

const files = process.argv.slice(2);
if (files.length === 0) {
  console.error("usage: npm run raft:script -- FILE...");
  process.exit(2);
}
let commands = 0;
let mismatches = 0;
let rewrites = 0;
for (const file of files) {
  let text;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    console.error(`cannot read ${file}: ${error.message}`);
    process.exit(2);
  }
  const outcome = runConversation(text);
  commands += outcome.commands;
  if (outcome.mismatches.length === 0) continue;
  if (process.env.UPDATE_GOLDEN === "1") {
    writeFileSync(file, outcome.rewritten);
    rewrites++;
    console.log(`${file}: rewritten, ${outcome.mismatches.length} outputs changed`);
    continue;
  }
  mismatches += outcome.mismatches.length;
  for (const mismatch of outcome.mismatches) console.log(formatMismatch(file, mismatch));
}
console.log(
  `${files.length} files, ${commands} commands, ${mismatches} mismatches` +
    (rewrites > 0 ? `, ${rewrites} rewritten` : ""),
);
process.exit(mismatches > 0 ? 1 : 0);
