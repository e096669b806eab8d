// Rules for injected faults of simulated things: which calls they hit and what happens to them.
// Rules are asked in the order they were added; the first that matches is used up by one.

import type { Cancel } from "./clock.ts";

/** EBADMSG stands for damage that a checksum shows. */
export type SimErrno = "EIO" | "ENOSPC" | "EBADMSG";

export type FaultRule<Operation extends string> = {
  readonly on: Operation;
  /** Hits every path without it. A text must occur in the path. */
  readonly path?: string | RegExp;
  /** Matching calls that are let through first; default 0. */
  readonly skip?: number;
  /** Calls that are hit; default 1, `Infinity` for a fault that stays. */
  readonly times?: number;
  /** The call fails with this errno. */
  readonly fails?: SimErrno;
  /** The call does not complete before `heal()`. */
  readonly hangs?: boolean;
  /** The call takes this much longer. */
  readonly delayMs?: number;
};

export class SimFaults<Operation extends string> {
  #rules: Array<{ rule: FaultRule<Operation>; skip: number; left: number }> = [];
  #hanging: Array<() => void> = [];

  add(rule: FaultRule<Operation>): Cancel {
    const entry = { rule, skip: rule.skip ?? 0, left: rule.times ?? 1 };
    this.#rules.push(entry);
    return () => {
      this.#rules = this.#rules.filter((other) => other !== entry);
    };
  }

  match(operation: Operation, path: string): FaultRule<Operation> | undefined {
    for (const entry of this.#rules) {
      if (entry.left <= 0 || entry.rule.on !== operation) continue;
      if (!pathMatches(entry.rule.path, path)) continue;
      if (entry.skip > 0) {
        entry.skip--;
        continue;
      }
      entry.left--;
      return entry.rule;
    }
    return undefined;
  }

  /** Keeps `resume` until `clear`. */
  hang(resume: () => void): void {
    this.#hanging.push(resume);
  }

  /** Forgets all rules; returns what resumes the calls that hang. */
  clear(): Array<() => void> {
    this.#rules = [];
    return this.#hanging.splice(0);
  }
}

function pathMatches(wanted: string | RegExp | undefined, path: string): boolean {
  if (wanted === undefined) return true;
  return typeof wanted === "string" ? path.includes(wanted) : wanted.test(path);
}
