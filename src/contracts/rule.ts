// What a contract suite is made of: rules with a title and a run, for whatever runs tests. A rule that
// is broken rejects with node:assert's AssertionError, or with the error of a call that must not fail.
//
//   for (const { title, run } of kvContract(openRig)) test(title, run);
//
// A rig is what a suite needs of an implementation: something fresh for each rule.

import { equal } from "node:assert/strict";
import { isCodedError } from "../base/index.ts";

export type ContractRule = {
  /** A sentence: what holds. Unique within its suite. */
  readonly title: string;
  readonly run: () => Promise<void>;
};

/** What every rig has. */
export type Rig = {
  /** Runs whatever drives the implementation, such as a simulated clock, until the promise settles. */
  run<T>(promise: Promise<T>): Promise<T>;
  /** Ends the rig; what it made is gone. Once. */
  close(): Promise<void>;
};

export type AddRule<R extends Rig> = (title: string, program: (rig: R) => Promise<void>) => void;

/** Collects rules, each with a rig of its own. */
export function rulesOf<R extends Rig>(
  openRig: () => Promise<R>,
  addRules: (add: AddRule<R>) => void,
): ContractRule[] {
  const rules: ContractRule[] = [];
  addRules((title, program) => {
    rules.push({ title, run: () => runRule(openRig, program) });
  });
  return rules;
}

async function runRule<R extends Rig>(
  openRig: () => Promise<R>,
  program: (rig: R) => Promise<void>,
): Promise<void> {
  const rig = await openRig();
  try {
    await rig.run(program(rig));
  } finally {
    await rig.close();
  }
}

/** The call must fail with this code. */
export async function refuses(code: string, call: () => Promise<unknown>): Promise<void> {
  const error = await call().then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  equal(isCodedError(error) ? error.code : error, code);
}
