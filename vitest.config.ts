import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { isBuilt } from "./scripts/set-up.mjs";

/** Full counts take their time: 3,000 histories in a file about ten minutes on two idle cores. */
const longFactor = process.env.FLAGSTONE_LONG === "1" ? 6 : 1;

const root = fileURLToPath(new URL(".", import.meta.url));
const src = join(root, "src/");
const dist = join(root, "dist/");

// Tests name the sources. While the build is newer than all of these Node loads its modules in their
// place, as it does for users: vitest would compile 600 files anew in each run, hand them to each
// worker, and call a getter wherever one module uses another. Source maps lead back to the sources.
const fromBuild = {
  name: "from-build",
  enforce: "pre" as const,
  resolveId(source: string, importer = "") {
    const path = source.startsWith(".") ? resolve(dirname(importer), source) : "";
    if (!path.startsWith(src) || !path.endsWith(".ts")) return undefined;
    return join(dist, relative(src, path).replace(/\.ts$/, ".js"));
  },
};
// While vitest watches, sources change without a build.
const isRun = process.argv.includes("run");
const plugins = isRun && isBuilt() ? [fromBuild] : [];

// One project a suite; `npm test` runs the quick ones, .ci/run the rest. Files share the modules of
// their worker, which the quick suites spent a third of their time on: nothing in src/ is global.
const project = (name: string, timeoutMs: number) => ({
  plugins,
  test: {
    name,
    isolate: false,
    include: [`test/${name}/**/*.test.ts`],
    testTimeout: timeoutMs * longFactor,
    hookTimeout: timeoutMs * longFactor,
    pool: "forks" as const,
    server: { deps: { external: [/\/dist\/.*\.js$/] } },
  },
});

export default defineConfig({
  test: {
    // The default leaves a core to vitest itself, which on two cores means one file at a time.
    maxWorkers: "100%",
    projects: [
      project("unit", 60_000),
      project("property", 180_000),
      project("conformance", 120_000),
      project("tidy", 60_000),
      project("sim", 600_000),
      project("crash", 900_000),
      project("integration", 600_000),
    ],
  },
});
