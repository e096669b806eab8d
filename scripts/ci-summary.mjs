// Sums up a run of .ci/run: a table of steps with their time and counts, the names of what failed,
// and last, alone on its line, "N passed, N failed".
//
// Usage: ci-summary.mjs FOLDER, which holds steps.tsv (name, seconds, exit code) and, for each suite
// of tests, NAME.json as vitest's JSON reporter wrote it. Exit code 0 only if nothing failed and
// nothing was skipped. A step that failed without a failing test counts as one failure: a suite that
// could not start must not look like a suite without faults.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

/** Steps whose vitest report must exist. */
const suites = new Set(["test", "sim", "integration", "crash"]);

export function parseSteps(text) {
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const [name, seconds, code] = line.split("\t");
      return { name, seconds: Number(seconds), code: Number(code) };
    });
}

/** Counts of one vitest report, with a line for each test that failed or did not run. */
export function countReport(report) {
  const counts = { passed: 0, failed: 0, skipped: 0, problems: [] };
  for (const file of report.testResults) {
    for (const test of file.assertionResults) {
      if (test.status === "passed") counts.passed++;
      else if (test.status === "failed") {
        counts.failed++;
        counts.problems.push(`failed: ${test.fullName}`);
      } else {
        counts.skipped++;
        counts.problems.push(`did not run (${test.status}): ${test.fullName}`);
      }
    }
    const failedAlone = file.status === "failed" && !file.assertionResults.some(isFailed);
    if (failedAlone) {
      counts.failed++;
      counts.problems.push(`failed: ${file.name}: ${(file.message ?? "").split("\n")[0]}`);
    }
  }
  return counts;
}

const isFailed = (test) => test.status === "failed";

/** `reports` maps the name of a step to its vitest report. */
export function summarize(steps, reports) {
  const rows = steps.map((step) => {
    const report = reports.get(step.name);
    const row = { ...step, passed: 0, failed: 0, skipped: 0, problems: [] };
    if (report !== undefined) Object.assign(row, countReport(report));
    const tests = row.passed + row.failed + row.skipped;
    if (suites.has(step.name) && tests === 0) {
      row.failed++;
      row.problems.push(`failed: ${step.name}: no test ran`);
    } else if (step.code !== 0 && row.failed === 0) {
      row.failed++;
      row.problems.push(`failed: ${step.name}: exit code ${step.code}`);
    }
    return row;
  });
  const sum = (field) => rows.reduce((total, row) => total + row[field], 0);
  // A skipped test is a promise that nobody checked.
  return { rows, passed: sum("passed"), failed: sum("failed") + sum("skipped") };
}

export function formatSummary({ rows, passed, failed }) {
  const cells = [
    ["step", "seconds", "passed", "failed", "skipped"],
    ...rows.map((row) => [row.name, row.seconds, row.passed, row.failed, row.skipped].map(String)),
    ["total", String(rows.reduce((total, row) => total + row.seconds, 0)), "", "", ""],
  ];
  const widths = cells[0].map((_, column) => Math.max(...cells.map((row) => row[column].length)));
  const table = cells.map((row) =>
    row
      .map((cell, at) => (at === 0 ? cell.padEnd(widths[at]) : cell.padStart(widths[at])))
      .join("  ")
      .trimEnd(),
  );
  const problems = rows.flatMap((row) => row.problems);
  return ["", ...table, "", ...problems, `${passed} passed, ${failed} failed`].join("\n");
}

function main(folder) {
  const steps = parseSteps(readFileSync(join(folder, "steps.tsv"), "utf8"));
  const reports = new Map();
  for (const { name } of steps) {
    const path = join(folder, `${name}.json`);
    if (existsSync(path)) reports.set(name, JSON.parse(readFileSync(path, "utf8")));
  }
  const summary = summarize(steps, reports);
  console.log(formatSummary(summary));
  return summary.failed === 0 && summary.passed > 0 ? 0 : 1;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  process.exitCode = main(process.argv[2]);
}
