// A failing seed made small: fewer events, fewer fault classes, as long as the same rule breaks.
// Concerns draw from sources of their own, so what is left out changes little else.

import { type SimOptions, type SimResult, simulate } from "./simulation.ts";
import { type FaultName, faultNames } from "./swarm.ts";

export type Shrunk = { readonly options: SimOptions; readonly result: SimResult };

/** The smallest run found that breaks the same rule. REQUIRES: `options` fails. */
export function shrink(options: SimOptions): Shrunk {
  let best: Shrunk = { options, result: simulate(options) };
  const rule = best.result.failure?.rule;
  const attempt = (tried: SimOptions): boolean => {
    const result = simulate(tried);
    if (rule === undefined || result.failure?.rule !== rule) return false;
    best = { options: tried, result };
    return true;
  };
  for (const name of faultNames) {
    const without = new Set<FaultName>(best.options.without);
    if (!best.result.swarm.faults.has(name)) continue;
    attempt({ ...best.options, without: without.add(name) });
  }
  // Halve, then creep: a failure in the healed part needs every event before it.
  for (let cut = best.options.steps >> 1; cut >= 1; cut >>= 1) {
    while (best.options.steps > cut) {
      if (!attempt({ ...best.options, steps: best.options.steps - cut })) break;
    }
  }
  return best;
}

/** The command that repeats a run. */
export function formatCommand(options: SimOptions): string {
  const words = [`npm run raft:sim -- --seed ${options.seed} --steps ${options.steps} --seeds 1`];
  if (options.without && options.without.size > 0) {
    words.push(`--without ${[...options.without].join(",")}`);
  }
  if (options.flaw) words.push(`--flaw ${options.flaw}`);
  return words.join(" ");
}
