// How much of a stream's topics a filter takes, by the stream's structure alone.

import type { Structure } from "./structure.ts";

export type Cover = "none" | "some" | "all";

/** `dollar`: the stream holds topics that start with `$`, which no leading wildcard matches. */
export function coverOf(
  stream: { readonly structure: Structure; readonly dollar: boolean },
  words: readonly string[],
): Cover {
  const { structure, dollar } = stream;
  if ((words[0]?.startsWith("$") === true) !== dollar) return "none";
  if (structure[0] === "#") return words[0] === "#" ? "all" : "some";
  let cover: Cover = "all";
  for (let level = 0; level < words.length; level++) {
    const word = words[level];
    if (word === "#") return level <= structure.length ? cover : "none";
    const own = structure[level];
    if (own === undefined) return "none";
    if (word === "+" || word === own) continue;
    if (own !== "+") return "none";
    cover = "some";
  }
  return words.length === structure.length ? cover : "none";
}
