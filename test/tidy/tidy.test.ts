// Judges the project by every tidy rule. What a rule means, and that it sees a planted fault, is
// shown in rules.test.ts.

import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { type RuleName, rules } from "./rules.ts";
import { formatFaults, readTree } from "./tree.ts";

const tree = readTree(fileURLToPath(new URL("../..", import.meta.url)));

describe("the project keeps the rule", () => {
  test("that there is something to judge", () => {
    expect(tree.has("package.json")).toBe(true);
    expect([...tree.keys()].filter((path) => path.startsWith("src/")).length).toBeGreaterThan(10);
  });

  for (const name of Object.keys(rules) as RuleName[]) {
    test(name, () => {
      expect(formatFaults(rules[name](tree))).toBe("");
    });
  }
});
