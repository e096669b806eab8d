// How the topic trie of a generation begins: from the patterns that were declared, from what the
// generation before it learned, or from the rows of its slab.
//
// What it begins with is data as well: the caller puts `records()` of a new trie into the entry
// that starts the generation, and replicas load those.

import { isCodedError } from "../../base/index.ts";
import { storeErrors } from "../errors.ts";
import { Lts, type LtsSettings } from "./lts.ts";
import {
  dollarCatchAll,
  dollarRoot,
  firstNode,
  type LtsNode,
  type LtsRecord,
  mainCatchAll,
  mainRoot,
} from "./lts-trie.ts";
import { catchAllStructure, type Structure } from "./structure.ts";

/** Share of the byte limit that a generation may inherit; the rest is room to learn. */
const inheritedShare = 1 / 16;

/** A trie that knows the declared patterns. */
export function createLts(settings: LtsSettings): Lts {
  const lts = new Lts(settings);
  for (const pattern of settings.patterns) {
    const words = pattern.words;
    lts.addPath(words.at(-1) === "#" ? words.slice(0, -1) : words);
  }
  return lts;
}

/**
 * A trie for the next generation: the declared patterns and the paths in use of `previous` that
 * have a varying level. Stream numbers begin anew. An exact branch beside a "+" is left out where
 * the "+" says all that it says, so early exact branches do not live for ever.
 */
export function inheritLts(settings: LtsSettings, previous: Lts): Lts {
  const lts = createLts(settings);
  const bytesMax = Math.max(lts.sizeBytes, settings.bytesMax * inheritedShare);
  for (const root of previous.roots) {
    for (const path of pathsOf(branchOf(root, false))) {
      if (lts.sizeBytes >= bytesMax) return lts;
      lts.addPath(path);
    }
  }
  return lts;
}

/** A trie from the records of a slab or of an entry. @throws STORE_TOPICS_CORRUPT. */
export function loadLts(settings: LtsSettings, records: Iterable<LtsRecord>): Lts {
  const lts = new Lts(settings);
  try {
    for (const record of records) lts.apply([record]);
  } catch (error) {
    if (!isCodedError(error, "BASE_ASSERTION_FAILED")) throw error;
    throw storeErrors.topicsCorrupt({ reason: error.message }, error);
  }
  return lts;
}

/**
 * Records of a trie with these streams, made from their structures alone. Nodes get other numbers than
 * those they were learned with, and edges that no stream uses are not known.
 */
export function rebuildRecords(
  streams: ReadonlyMap<number, { readonly structure: Structure; readonly dollar: boolean }>,
): LtsRecord[] {
  const edges: LtsRecord[] = [];
  const ends: LtsRecord[] = [];
  const nodes = new Map<string, number>();
  for (const [stream, { structure, dollar }] of streams) {
    const isCatchAll = structure[0] === catchAllStructure[0];
    let node = dollar ? dollarRoot : mainRoot;
    if (isCatchAll) node = dollar ? dollarCatchAll : mainCatchAll;
    for (const word of isCatchAll ? [] : structure) {
      const name = `${node}/${word}`;
      const known = nodes.get(name);
      const next = known ?? firstNode + nodes.size;
      if (known === undefined) {
        edges.push({ kind: "edge", node: next, parent: node, word });
        nodes.set(name, next);
      }
      node = next;
    }
    ends.push({ kind: "stream", stream, node });
  }
  return [...edges, ...ends];
}

type Branch = {
  readonly exact: Map<string, Branch>;
  plus: Branch | undefined;
  ends: boolean;
};

/** What is in use at `node` and below and lies on a path with a varying level. */
function branchOf(node: LtsNode, varied: boolean): Branch {
  const branch: Branch = { exact: new Map(), plus: undefined, ends: varied && node.stream > 0 };
  if (node.plus !== undefined && node.plus.streamsWithin > 0) {
    branch.plus = branchOf(node.plus, true);
  }
  for (const [word, child] of node.children ?? []) {
    if (child.streamsWithin === 0) continue;
    const below = branchOf(child, varied);
    if (branch.plus === undefined || !says(branch.plus, below)) branch.exact.set(word, below);
  }
  return branch;
}

/** True when every path of `part` has one in `whole` that takes it. */
function says(whole: Branch, part: Branch): boolean {
  if (part.ends && !whole.ends) return false;
  if (part.plus !== undefined && !(whole.plus !== undefined && says(whole.plus, part.plus))) {
    return false;
  }
  for (const [word, below] of part.exact) {
    const other = whole.exact.get(word) ?? whole.plus;
    if (other === undefined || !says(other, below)) return false;
  }
  return true;
}

function* pathsOf(branch: Branch, words: readonly string[] = []): Generator<readonly string[]> {
  if (branch.ends) yield words;
  if (branch.plus !== undefined) yield* pathsOf(branch.plus, [...words, "+"]);
  for (const [word, below] of branch.exact) yield* pathsOf(below, [...words, word]);
}
