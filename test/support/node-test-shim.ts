// `test` of node:test as far as published conformance suites use it, on top of vitest: plans, the
// assertions of node:assert and diagnostics.

import assert from "node:assert";
import { expect, test } from "vitest";

type Context = {
  plan(count: number): void;
  diagnostic(text: string): void;
  fail(message?: string): void;
  readonly assert: typeof assert;
};

type Body = (t: Context) => Promise<void> | void;

export type NodeTest = (name: string, body: Body) => void;

/**
 * Tests are named after `prefix`; a plan that is not met fails. `others`: names of tests that ask for
 * what the subject does not offer.
 */
export function createNodeTest(prefix: string, others: readonly string[] = []): NodeTest {
  return (name, body) => {
    if (others.includes(name)) return;
    test(`${prefix}: ${name}`, async () => {
      let planned: number | undefined;
      let made = 0;
      const counting = new Proxy(assert, {
        get(target, key) {
          const value: unknown = Reflect.get(target, key);
          if (typeof value !== "function") return value;
          return (...args: unknown[]) => {
            made++;
            return value.apply(target, args);
          };
        },
      });
      await body({
        plan: (count) => {
          planned = count;
        },
        diagnostic: () => undefined,
        fail: (message) => assert.fail(message),
        assert: counting,
      });
      if (planned !== undefined) expect(made, "assertions made").toBe(planned);
    });
  };
}
