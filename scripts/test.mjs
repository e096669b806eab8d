// `npm test`: the same set-up as `npm start`, then the quick suites. Names of test files or flags of
// vitest behind `--` are passed on; `npm run test:long` runs every suite with its full counts.

import { availableParallelism } from "node:os";
import { join } from "node:path";
import { become, root, setUp } from "./set-up.mjs";

const quick = ["unit", "property", "conformance", "tidy"];

setUp();
const given = process.argv.slice(2);
const isLong = given.includes("--long");
const projects = isLong ? [] : quick.flatMap((name) => ["--project", name]);
// Many of the quick ones wait for a broker more than they work.
const workers = isLong ? [] : [`--maxWorkers=${Math.ceil(availableParallelism() * 1.5)}`];
const rest = given.filter((argument) => argument !== "--long");
const vitest = join(root, "node_modules/vitest/vitest.mjs");
become(
  [vitest, "run", "--passWithNoTests", ...projects, ...workers, ...rest],
  isLong ? { FLAGSTONE_LONG: "1" } : {},
);
