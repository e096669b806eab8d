// The choice that learning makes: for a topic that has no path yet, which new levels get an exact
// edge and which a "+". Reads the trie, never changes it.
//
// A level becomes varying in one of two ways:
// - its node has reached its threshold of exact children (lowered under pressure, so that the
//   fullest nodes are forced first, down to one child at half of a limit and none beyond);
// - a sibling branch has found the same level to vary. Ten hosts then do not learn ten times that
//   sockets and cores vary: the first one's finding is the model for the others. Branches of the
//   root are strangers to each other and model nothing, except under pressure.

import { edgeBytes, isWild, type LtsNode } from "./lts-trie.ts";

/** By level; the last one counts for all levels below it. */
export type Thresholds = readonly [number, ...number[]];

export type LearnContext = {
  readonly thresholds: Thresholds;
  /** Largest used share of a limit, 0 to 1. */
  readonly pressure: number;
};

export type LearnedPath = {
  /** The last node that exists already. */
  readonly from: LtsNode;
  /** Words of the edges to add below it, "+" where the level varies. */
  readonly words: readonly string[];
};

/** From here on thresholds shrink, and roots take other roots as models. */
const pressureLow = 0.25;
/** From here on a second exact child is one too many. */
const pressureHigh = 0.5;
/** From here on every new level varies. */
const pressureFull = 0.625;

export function learnPath(
  root: LtsNode,
  words: readonly string[],
  context: LearnContext,
): LearnedPath {
  const pressed = context.pressure > pressureLow;
  let node: LtsNode | undefined = root;
  let from = root;
  let model: LtsNode | undefined;
  const added: string[] = [];
  for (const [level, word] of words.entries()) {
    const next: LtsNode | undefined = node?.children?.get(word) ?? node?.plus;
    if (next === undefined) {
      const exactCount = node?.children?.size ?? 0;
      const varies = model?.plus !== undefined || exactCount >= thresholdAt(level, context);
      added.push(varies ? "+" : word);
    } else {
      from = next;
    }
    const sibling: LtsNode | undefined = level > 0 || pressed ? node?.model : undefined;
    model = modelBelow(model, word) ?? (sibling === next ? undefined : sibling);
    node = next;
  }
  return { from, words: added };
}

export function pathBytes(path: LearnedPath): number {
  let sizeBytes = 0;
  for (const word of path.words) sizeBytes += edgeBytes(word);
  return sizeBytes;
}

/** The branch that corresponds to `word` below a model, where there is something to learn from. */
function modelBelow(model: LtsNode | undefined, word: string): LtsNode | undefined {
  if (model === undefined) return undefined;
  const exact = model.children?.get(word);
  if (exact !== undefined && isWild(exact)) return exact;
  if (model.plus !== undefined && isWild(model.plus)) return model.plus;
  return model.model;
}

function thresholdAt(level: number, context: LearnContext): number {
  const { thresholds, pressure } = context;
  const full = thresholds[Math.min(level, thresholds.length - 1)] as number;
  if (pressure <= pressureLow) return full;
  if (pressure >= pressureFull) return 0;
  const left = Math.max(0, (pressureHigh - pressure) / (pressureHigh - pressureLow));
  return Math.min(full, Math.max(1, Math.floor(full * left)));
}
