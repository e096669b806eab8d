// node scripts/raft-recover.mjs DIR...                        what the replicas in them hold
// node scripts/raft-recover.mjs DIR --group N --force         lets group N go on with that of DIR
//
// For directories of `startRaftNode`, of stopped nodes, when the majority of a group is lost for
// good (docs/architecture.md, Raft). Survey all that is left first: the best comes first, with the
// entries that the others are behind. `--force` asks for a sentence to be typed. After a build.
// Exit codes: 0 done, 1 refused or failed, 2 usage.

import { statSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline/promises";
import { parseArgs } from "node:util";
import { nodeDisk, silentLogger, systemClock, systemRandom } from "../dist/base/index.js";
import { openLog } from "../dist/log/index.js";
import {
  defaultLogSettings,
  forceRecovery,
  formatReplicas,
  lockRaftDir,
  recoveryConfirmation,
  surveyReplicas,
} from "../dist/raft/index.js";

function usage() {
  console.error("usage: raft-recover.mjs DIR... | raft-recover.mjs DIR --group N --force");
  process.exit(2);
}

async function withPlace(dir, run) {
  const shared = { disk: nodeDisk, clock: systemClock, random: systemRandom, logger: silentLogger };
  if (!(await nodeDisk.exists(join(dir, "raft"))))
    throw new Error(`${dir} is no directory of a node`);
  const lock = await lockRaftDir(nodeDisk, dir);
  const log = await openLog(defaultLogSettings, shared, join(dir, "log"));
  try {
    return await run({ disk: nodeDisk, dir: join(dir, "raft"), log });
  } finally {
    await log.close();
    await lock.close();
  }
}

/** Commands are not known here: when the log was last written to is the best there is. */
async function lastWritten(dir) {
  const folder = join(dir, "log");
  const times = (await readdir(folder)).map((name) => statSync(join(folder, name)).mtimeMs);
  return new Date(Math.max(0, ...times));
}

async function survey(dirs) {
  const reports = [];
  for (const dir of dirs) {
    const writtenAt = await lastWritten(dir);
    reports.push(...(await withPlace(dir, (place) => surveyReplicas(place, () => writtenAt))));
  }
  return reports;
}

async function main() {
  const { values, positionals: dirs } = parseArgs({
    allowPositionals: true,
    options: { group: { type: "string" }, force: { type: "boolean", default: false } },
  });
  const group = Number(values.group);
  const isForced = values.force && dirs.length === 1 && Number.isSafeInteger(group);
  if (dirs.length === 0 || (values.force && !isForced)) usage();
  const reports = await survey(dirs);
  const shown = values.group ? reports.filter((report) => report.group === group) : reports;
  for (const each of new Set(shown.map((report) => report.group))) {
    const lines = formatReplicas(shown.filter((report) => report.group === each));
    for (const line of lines) console.log(line);
  }
  const [report] = shown;
  if (!values.force || report === undefined) return;
  console.log("Entries that were acknowledged and are not here are lost. To go on, type:");
  console.log(recoveryConfirmation(report));
  const terminal = createInterface({ input: process.stdin });
  const typed = (await terminal[Symbol.asyncIterator]().next()).value ?? "";
  terminal.close();
  const after = await withPlace(dirs[0], (place) => forceRecovery(place, group, typed.trim()));
  console.log(formatReplicas([after])[0]);
}

try {
  await main();
} catch (error) {
  console.error(error.message);
  process.exit(1);
}
