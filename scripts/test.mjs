// `npm test`: the set-up if it is needed, then the quick suites. `npm run test:long` (--long) runs
// every suite with its full counts. Further arguments go to vitest: `npm test -- test/unit/log`.

import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { root, setUp } from "./setup.mjs";

const quick = ["unit", "property", "conformance", "tidy"];
const slow = ["sim", "integration", "crash"];

setUp();
const given = process.argv.slice(2);
const isLong = given.includes("--long");
const projects = isLong ? [...quick, ...slow] : quick;
const vitest = join(root, "node_modules/vitest/vitest.mjs");
const { status } = spawnSync(
  process.execPath,
  [
    vitest,
    "run",
    ...projects.flatMap((name) => ["--project", name]),
    ...given.filter((text) => text !== "--long"),
  ],
  { cwd: root, stdio: "inherit", env: { ...process.env, ...(isLong && { FLAGSTONE_LONG: "1" }) } },
);
process.exitCode = status ?? 1;
