// Majorities: pure functions over a list of voters. They know nothing of roles or logs, and they
// never count anybody who is not in the list. An empty list has no majority at all: nothing
// commits and nobody wins.

import type { NodeId } from "./types.ts";

export type VoteResult = "won" | "lost" | "pending";

/** Smallest number of `count` voters of which any two sets share one. */
export function majorityOf(count: number): number {
  return Math.floor(count / 2) + 1;
}

/** The highest value that a majority has reached, given what each voter has reached. */
export function quorumValue(voters: readonly NodeId[], reached: (voter: NodeId) => number): number {
  if (voters.length === 0) return 0;
  const values = voters.map(reached).sort((left, right) => right - left);
  return values[majorityOf(voters.length) - 1] as number;
}

/** Outcome of an election, given the votes received so far. */
export function voteResult(
  voters: readonly NodeId[],
  votes: ReadonlyMap<NodeId, boolean>,
): VoteResult {
  let granted = 0;
  let refused = 0;
  for (const voter of voters) {
    const vote = votes.get(voter);
    if (vote === true) granted++;
    if (vote === false) refused++;
  }
  const need = majorityOf(voters.length);
  if (granted >= need) return "won";
  return granted + (voters.length - granted - refused) < need ? "lost" : "pending";
}

/** Whether a majority fulfils a condition. */
export function quorumHolds(voters: readonly NodeId[], holds: (voter: NodeId) => boolean): boolean {
  let count = 0;
  for (const voter of voters) if (holds(voter)) count++;
  return count >= majorityOf(voters.length);
}
