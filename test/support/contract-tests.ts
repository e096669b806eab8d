// The rules of a contract suite as tests.

import { describe, test } from "vitest";
import type { ContractRule } from "../../src/contracts/index.ts";

export function testContract(name: string, rules: readonly ContractRule[]): void {
  describe(name, () => {
    for (const { title, run } of rules) test(title, run);
  });
}
