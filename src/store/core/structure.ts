// Structures and residuals: how a topic is split into what its stream already says and what has to
// be kept with each TTV.
//
// A structure is the path of a stream in the learned trie, "+" where a level varies
// ("metrics/+/cpu"); the catch-all's is "#", every level varies and their number too. A topic of the
// stream is the structure plus its varying words. A residual is what is left of a filter once the
// structure has been matched: a pattern over the varying words, or "all".
// The `$` rule is settled by the plan (lts.ts): residuals do not know it.

export type Structure = readonly string[];

/** Words with "+" for any word and a last "#" for any rest. Compared with the varying words. */
export type ResidualPattern = readonly string[];
export type Residual = "all" | ResidualPattern;

/** The structure of the catch-all streams. */
export const catchAllStructure: Structure = ["#"];

export function formatTopic(structure: Structure, varying: readonly string[]): string {
  if (structure[0] === "#") return varying.join("/");
  if (varying.length === 0) return structure.join("/");
  let topic = "";
  let taken = 0;
  for (let level = 0; level < structure.length; level++) {
    const word = structure[level] as string;
    if (level > 0) topic += "/";
    topic += word === "+" ? (varying[taken++] as string) : word;
  }
  return topic;
}

/** Number of varying levels; undefined where it differs from topic to topic. */
export function varyingCount(structure: Structure): number | undefined {
  if (structure[0] === "#") return undefined;
  let count = 0;
  for (const word of structure) if (word === "+") count++;
  return count;
}

export function residualMatches(residual: Residual, varying: readonly string[]): boolean {
  if (residual === "all") return true;
  for (let index = 0; index < residual.length; index++) {
    const word = residual[index];
    if (word === "#") return true;
    if (index >= varying.length) return false;
    if (word !== "+" && word !== varying[index]) return false;
  }
  return residual.length === varying.length;
}

/** "all" where the pattern lets every topic of a fixed structure pass. */
export function compressResidual(pattern: ResidualPattern): Residual {
  return pattern.every((word) => word === "+") ? "all" : pattern;
}
