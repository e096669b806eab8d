// Wildcard look-up in a map slab without an index of its own: keys sort level by level, so a
// mismatch at a level says where to jump to. Keys read stay near keys returned.

import type { KvCursor, KvEntry } from "../../kv/index.ts";
import { afterSubtree, childrenOf, decodeMapKey } from "./keys.ts";

/** What to do after a key: go on to the next one, or jump. */
type Verdict = { readonly matched: boolean; readonly seek: Buffer | undefined };

/** Keys asked for at once: one after a jump and one more, then twice as many each time. */
const pageCountMax = 256;

/** Where a dollar topic's branch ends: "$" is followed by "%". */
const afterDollar = "%";

export type MatchVisit = (key: string, value: Buffer) => boolean;

/**
 * Visits the entries below `prefix` whose remaining levels match `filterWords`, in key order, until
 * `visit` returns false. Returns the number of keys read.
 * REQUIRES: `cursor` covers the children of `prefix`.
 */
export async function scanMatching(
  cursor: KvCursor,
  prefix: string,
  filterWords: readonly string[],
  visit: MatchVisit,
): Promise<number> {
  let keysRead = 0;
  let pagesInRow = 0;
  for (;;) {
    const pageCount = Math.min(2 ** Math.max(0, pagesInRow - 1), pageCountMax);
    const page = await cursor.next(pageCount);
    if (page.length === 0) return keysRead;
    keysRead += page.length;
    const outcome = scanPage(page, prefix, filterWords, visit);
    if (outcome === "stop") return keysRead;
    if (outcome === undefined) {
      pagesInRow++;
    } else {
      pagesInRow = 0;
      cursor.seek(outcome);
    }
  }
}

/** The position to jump to when it lies behind the page; "stop" when the visitor had enough. */
function scanPage(
  page: readonly KvEntry[],
  prefix: string,
  filterWords: readonly string[],
  visit: MatchVisit,
): Buffer | "stop" | undefined {
  let skipTo: Buffer | undefined;
  for (const [keyBytes, value] of page) {
    if (skipTo !== undefined && keyBytes.compare(skipTo) < 0) continue;
    skipTo = undefined;
    const key = decodeMapKey(keyBytes);
    const levels = key.slice(prefix.length + 1).split("/");
    const verdict = judge(prefix, levels, filterWords);
    if (verdict.matched && !visit(key, value)) return "stop";
    skipTo = verdict.seek;
  }
  return skipTo;
}

function judge(prefix: string, levels: readonly string[], filterWords: readonly string[]): Verdict {
  const wide = filterWords[filterWords.length - 1] === "#";
  const fixed = wide ? filterWords.length - 1 : filterWords.length;
  const first = filterWords[0];
  if ((first === "+" || first === "#") && levels[0]?.startsWith("$")) {
    return { matched: false, seek: childAt(prefix, [], afterDollar) };
  }
  const shared = Math.min(fixed, levels.length);
  for (let at = 0; at < shared; at++) {
    const word = filterWords[at] as string;
    const level = levels[at] as string;
    if (word === "+" || word === level) continue;
    const above = levels.slice(0, at);
    const isBehind = Buffer.from(level).compare(Buffer.from(word)) > 0;
    const seek = isBehind ? afterSubtree(path(prefix, above)) : childAt(prefix, above, word);
    return { matched: false, seek };
  }
  if (levels.length < fixed) {
    const next = filterWords[levels.length] as string;
    const seek =
      next === "+" ? childrenOf(path(prefix, levels)) : childAt(prefix, [...levels], next);
    return { matched: false, seek };
  }
  if (wide) return { matched: true, seek: undefined };
  if (levels.length > fixed) {
    return { matched: false, seek: afterSubtree(path(prefix, levels.slice(0, fixed))) };
  }
  // Behind the last "+" all is said: no other key of this branch matches.
  const open = filterWords.lastIndexOf("+") + 1;
  if (open === fixed) return { matched: true, seek: undefined };
  return { matched: true, seek: afterSubtree(path(prefix, levels.slice(0, open))) };
}

function path(prefix: string, levels: readonly string[]): string {
  return levels.length === 0 ? prefix : `${prefix}/${levels.join("/")}`;
}

function childAt(prefix: string, above: readonly string[], word: string): Buffer {
  const parent = childrenOf(path(prefix, above));
  return Buffer.concat([parent, Buffer.from(word)]);
}
