import { describe, expect, test } from "vitest";
// @ts-expect-error: a plain script without types
import { formatSummary, parseSteps, summarize } from "../../../scripts/ci-summary.mjs";

const one = (status: string, fullName = "a rule holds") => ({ status, fullName });
const report = (...assertionResults: object[]) => ({
  testResults: [{ name: "a.test.ts", status: "passed", assertionResults }],
});
const step = (name: string, code = 0) => ({ name, seconds: 3, code });
const lastLine = (steps: object[], reports: Record<string, object>): string =>
  formatSummary(summarize(steps, new Map(Object.entries(reports))))
    .split("\n")
    .at(-1);

describe("the last line", () => {
  test("counts the tests of all suites", () => {
    const reports = { test: report(one("passed"), one("passed")), crash: report(one("passed")) };
    const steps = [step("install"), step("test"), step("crash")];
    expect(lastLine(steps, reports)).toBe("3 passed, 0 failed");
  });

  test("counts a failed test once, although its suite failed too", () => {
    const reports = { test: report(one("passed"), one("failed")) };
    expect(lastLine([step("test", 1)], reports)).toBe("1 passed, 1 failed");
  });

  test.each(["skipped", "pending", "todo", "disabled"])("counts a %s test as failed", (status) => {
    expect(lastLine([step("test")], { test: report(one("passed"), one(status)) })).toBe(
      "1 passed, 1 failed",
    );
  });

  test("counts a step that failed", () => {
    const steps = [step("check", 1), step("test")];
    expect(lastLine(steps, { test: report(one("passed")) })).toBe("1 passed, 1 failed");
  });

  test("counts a suite that ended badly without a failed test", () => {
    expect(lastLine([step("test", 1)], { test: report(one("passed")) })).toBe("1 passed, 1 failed");
  });

  test("counts a suite in which no test ran, or that left no report", () => {
    expect(lastLine([step("test")], { test: report() })).toBe("0 passed, 1 failed");
    expect(lastLine([step("crash", 124)], {})).toBe("0 passed, 1 failed");
  });

  test("counts a file that could not be loaded", () => {
    const broken = { name: "b.test.ts", status: "failed", message: "no", assertionResults: [] };
    const reports = { test: { testResults: [...report(one("passed")).testResults, broken] } };
    expect(lastLine([step("test", 1)], reports)).toBe("1 passed, 1 failed");
  });
});

test("the table has a row a step, and names what failed", () => {
  const reports = new Map([["test", report(one("failed", "store > a rule holds"))]]);
  const steps = parseSteps("install\t12\t0\ntest\t40\t1\n");
  const text = formatSummary(summarize(steps, reports)) as string;
  expect(text).toMatch(/^install +12 +0 +0 +0$/m);
  expect(text).toMatch(/^test +40 +0 +1 +0$/m);
  expect(text).toMatch(/^total +52$/m);
  expect(text).toContain("failed: store > a rule holds");
});
