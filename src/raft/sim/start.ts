// Known-hard states to begin in: logs of several terms that diverge, as in figures 7 and 8 of the
// Raft paper. Every set drawn here could have come about: logs agree below every entry they share.

import type { SeededRandom } from "../../base/index.ts";
import type { Entry } from "../core/types.ts";

const termsMax = 6;
const runMax = 4;

export type HardStart = { readonly logs: readonly Entry[][]; readonly term: number };

/** In each term one log grows, and some others take over a prefix of it. */
export function drawHardStart(random: SeededRandom, nodeCount: number): HardStart {
  const logs: Entry[][] = Array.from({ length: nodeCount }, () => []);
  const terms = random.between(2, termsMax);
  for (let term = 1; term <= terms; term++) {
    const writer = random.below(nodeCount);
    const log = logs[writer] as Entry[];
    const run = random.between(1, runMax);
    for (let grown = 0; grown < run; grown++) {
      log.push({ kind: "empty", index: log.length + 1, term });
    }
    for (let other = 0; other < nodeCount; other++) {
      const takes = random.chance(0.3);
      const count = log.length - random.below(run + 1);
      const before = logs[other] as Entry[];
      // A log never gives up entries without receiving one that replaces them.
      const replaces = count > 0 && log[count - 1]?.term !== before[count - 1]?.term;
      if (takes && other !== writer && replaces) logs[other] = log.slice(0, count);
    }
  }
  return { logs, term: terms };
}
