import { defineConfig } from "vitest/config";

/** Full counts take their time: 3,000 histories in a file about ten minutes on two idle cores. */
const longFactor = process.env.FLAGSTONE_LONG === "1" ? 6 : 1;

// One project a suite; `npm test` runs the quick ones, .ci/run the rest. Files share the modules of
// their worker, which the quick suites spent a third of their time on: nothing in src/ is global.
const project = (name: string, timeoutMs: number) => ({
  test: {
    name,
    isolate: false,
    include: [`test/${name}/**/*.test.ts`],
    testTimeout: timeoutMs * longFactor,
    hookTimeout: timeoutMs * longFactor,
    pool: "forks" as const,
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
