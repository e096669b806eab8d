// The board and the alert rules in config/ against the metrics that there are.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { httpReference } from "../../../src/cli/reference.ts";

const root = new URL("../../../", import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, root), "utf8");

/** By name; what a page of the reference says there is. */
const known = new Map(
  [...read("docs/reference/metrics.md").matchAll(/^\| `(\w+)` \| (\w+) \| ([^|]*) \|/gm)].map(
    ([, name = "", type = "", labels = ""]) => [name, { type, labels }] as const,
  ),
);

/** Metrics of an expression with the labels it asks for. */
function usesOf(expression: string): Array<{ name: string; labels: string[] }> {
  return [...expression.matchAll(/(flagstone_\w+)(?:\{([^}]*)\})?/g)].map(
    ([, name = "", list = ""]) => ({
      name: name.replace(/_(bucket|sum|count)$/, ""),
      labels: [...list.matchAll(/(\w+)[=!]/g)].map(([, label = ""]) => label),
    }),
  );
}

const fromScrape = new Set(["job", "instance"]);

function expectKnown(expression: string): void {
  const uses = usesOf(expression);
  for (const { name, labels } of uses) {
    const metric = known.get(name);
    expect(metric, name).toBeDefined();
    for (const label of labels) {
      if (!fromScrape.has(label))
        expect(metric?.labels, `${name}{${label}}`).toContain(`\`${label}\``);
    }
    if (metric?.type === "counter") expect(expression, name).toMatch(/rate\(|increase\(/);
  }
}

test("every metric and label on the Grafana board is one that a node has", () => {
  const board = JSON.parse(read("config/grafana-dashboard.json"));
  const expressions = board.panels.flatMap((panel: { targets: Array<{ expr: string }> }) =>
    panel.targets.map(({ expr }) => expr),
  );
  expect(expressions.length).toBeGreaterThan(15);
  for (const expression of expressions) {
    expect(usesOf(expression).length, expression).toBeGreaterThan(0);
    expectKnown(expression);
  }
});

test("every alert rule asks for metrics that a node has, and says what to do", () => {
  const { groups } = parse(read("config/prometheus-alerts.yaml"));
  const rules = groups.flatMap((group: { rules: unknown[] }) => group.rules);
  expect(rules.length).toBeGreaterThanOrEqual(8);
  for (const { alert, expr, labels, annotations } of rules) {
    expect(alert).toMatch(/^Flagstone[A-Z]\w+$/);
    if (alert !== "FlagstoneDown") expect(usesOf(expr).length, alert).toBeGreaterThan(0);
    expectKnown(expr);
    expect(["warning", "critical"], alert).toContain(labels.severity);
    expect(annotations.summary.length, alert).toBeGreaterThan(10);
    expect(annotations.action.length, alert).toBeGreaterThan(10);
  }
});

test("docs/reference/http.md is what the contract says (else: npm run docs)", () => {
  expect(read("docs/reference/http.md")).toBe(httpReference());
});
