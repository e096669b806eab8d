// What a program waits for that embeds a broker: `npm run bench -- embed`.
//
//   --processes 9   fresh processes, each with one import and 20 starts
//   --save NAME     keeps the lines under this name in bench/results
//
// One JSON line: milliseconds of the import of the package, of the first start in memory of a process, and
// of the later ones; the median over processes and the longest.

import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs, promisify } from "node:util";
import { conditions } from "./support/machine.mjs";

const starts = 20;
const { values } = parseArgs({
  options: { processes: { type: "string", default: "9" }, save: { type: "string" } },
});

const program = `
const began = performance.now();
const { createBroker } = await import("flagstone");
const times = [performance.now() - began];
for (let start = 0; start < ${starts}; start++) {
  const from = performance.now();
  const broker = await createBroker({ memory: true });
  times.push(performance.now() - from);
  await broker.close();
}
console.log(JSON.stringify(times));
`;

const cwd = fileURLToPath(new URL("..", import.meta.url));
const runs = [];
for (let left = Number(values.processes); left > 0; left--) {
  const args = ["--input-type=module", "--eval", program];
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd });
  runs.push(JSON.parse(stdout));
}

const ms = (all) => {
  const sorted = all.toSorted((a, b) => a - b);
  return { median: round(sorted[sorted.length >> 1]), most: round(sorted.at(-1)) };
};
const round = (value) => Math.round(value * 10) / 10;
const line = {
  scenario: "start in memory",
  processes: runs.length,
  importMs: ms(runs.map(([importMs]) => importMs)),
  firstStartMs: ms(runs.map(([, first]) => first)),
  laterStartMs: ms(runs.flatMap(([, , ...later]) => later)),
  ...(await conditions(cwd)),
};
console.log(JSON.stringify(line));
if (values.save !== undefined) {
  writeFileSync(
    new URL(`results/${values.save}.json`, import.meta.url),
    `${JSON.stringify(line)}\n`,
  );
}
