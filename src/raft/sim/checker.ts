// The observer that knows everything: told of every entry, vote, leader, commit and application, it
// throws a Violation as soon as one of Raft's promises is broken.
//
// It trusts nothing but what it is told and keeps its own memory, so that histories can be planted
// in it without a simulation.

import type { NodeId } from "../core/types.ts";

export class Violation extends Error {
  readonly rule: string;

  constructor(rule: string, facts: string) {
    super(`${rule}: ${facts}`);
    this.rule = rule;
  }
}

type Committed = {
  readonly term: number;
  readonly chain: number;
  /** Term of the leader that committed it. */
  readonly commitTerm: number;
};

const termsMax = 2 ** 20;

export class Checker {
  readonly #leaders = new Map<number, NodeId>();
  readonly #votes = new Map<string, NodeId>();
  readonly #chains = new Map<number, number>();
  readonly #configurations: Array<{ readonly index: number; readonly configuration: string }> = [];
  readonly #states = new Map<number, number>();
  /** By index; the first place stands for the empty log. */
  readonly #committed: Committed[] = [{ term: 0, chain: 0, commitTerm: 0 }];

  /** Highest index that some node knows to be committed. */
  get committedIndex(): number {
    return this.#committed.length - 1;
  }

  /** Of a committed index. */
  chainAt(index: number): number {
    return this.#committed[index]?.chain ?? 0;
  }

  termAt(index: number): number {
    return this.#committed[index]?.term ?? 0;
  }

  /** `chain` is a hash of the entry and everything below it in the node's log. */
  entryWritten(node: NodeId, index: number, term: number, chain: number): void {
    const key = index * termsMax + term;
    const known = this.#chains.get(key);
    if (known === undefined) this.#chains.set(key, chain);
    else if (known !== chain) {
      throw new Violation("log matching", `node ${node} holds another log below ${index}/${term}`);
    }
  }

  voteGranted(voter: NodeId, term: number, candidate: NodeId): void {
    const key = `${voter}/${term}`;
    const earlier = this.#votes.get(key);
    if (earlier !== undefined && earlier !== candidate) {
      const facts = `node ${voter} voted for ${earlier} and ${candidate} in term ${term}`;
      throw new Violation("one vote a term", facts);
    }
    this.#votes.set(key, candidate);
  }

  /** `chainOf` answers for the leader's log. */
  leaderElected(
    node: NodeId,
    term: number,
    voters: readonly NodeId[],
    chainOf: (index: number) => number | undefined,
  ): void {
    const earlier = this.#leaders.get(term);
    if (earlier !== undefined && earlier !== node) {
      throw new Violation("one leader a term", `${earlier} and ${node} lead in term ${term}`);
    }
    this.#leaders.set(term, node);
    let votes = 0;
    for (const voter of voters) if (this.#votes.get(`${voter}/${term}`) === node) votes++;
    if (votes * 2 <= voters.length) {
      const facts = `node ${node} leads term ${term} with ${votes} of [${voters}]`;
      throw new Violation("votes of its own configuration", facts);
    }
    for (let index = this.committedIndex; index > 0; index--) {
      const committed = this.#committed[index] as Committed;
      if (committed.commitTerm >= term) continue;
      const chain = chainOf(index);
      if (chain !== undefined && chain !== committed.chain) {
        throw new Violation("leader completeness", `node ${node} of term ${term} lacks ${index}`);
      }
      // The chain covers everything below.
      break;
    }
  }

  /** `isOnQuorum`: whether a majority holds the entry durably; asked for its first commit only. */
  entryCommitted(
    node: NodeId,
    leaderTerm: number,
    entry: { index: number; term: number; chain: number },
    isOnQuorum: () => boolean,
  ): void {
    const known = this.#committed[entry.index];
    if (known !== undefined) {
      if (known.chain === entry.chain && known.term === entry.term) return;
      const { index, term } = entry;
      const facts = `node ${node} commits ${index}/${term}, before it was ${known.term}`;
      throw new Violation("committed for good", facts);
    }
    if (entry.index !== this.#committed.length) {
      throw new Violation("commit in order", `node ${node} commits ${entry.index} after a gap`);
    }
    if (!isOnQuorum()) {
      const facts = `${entry.index}/${entry.term} of node ${node} is not durable on a majority`;
      throw new Violation("committed means durable", facts);
    }
    const { term, chain } = entry;
    this.#committed.push({ term, chain, commitTerm: leaderTerm });
  }

  /** `configuration` as text; in force from `index` on. */
  configurationCommitted(index: number, configuration: string): void {
    const last = this.#configurations.at(-1);
    if (last === undefined || index > last.index) {
      this.#configurations.push({ index, configuration });
    }
  }

  /** A node builds on a snapshot: it must name the configuration that was in force there. */
  snapshotUsed(node: NodeId, index: number, configuration: string): void {
    if (index > this.committedIndex) {
      throw new Violation("a snapshot holds what is committed", `node ${node} has one at ${index}`);
    }
    const known = this.#configurations.findLast((each) => each.index <= index);
    if (known === undefined || known.configuration === configuration) return;
    const facts = `node ${node} at ${index} has [${configuration}], not [${known.configuration}]`;
    throw new Violation("a snapshot holds its configuration", facts);
  }

  /** `stateHash` is of the state machine after the entry. */
  entryApplied(node: NodeId, entry: { index: number; term: number; stateHash: number }): void {
    const { index, term, stateHash } = entry;
    if (index > this.committedIndex || this.termAt(index) !== term) {
      throw new Violation("applied is committed", `node ${node} applied ${index}/${term}`);
    }
    const known = this.#states.get(index);
    if (known === undefined) this.#states.set(index, stateHash);
    else if (known !== stateHash) {
      throw new Violation("equal states", `state of node ${node} differs at ${index}`);
    }
  }

  /** A number that must not fall while a node lives. */
  notBelow(node: NodeId, what: string, value: number, before: number): void {
    if (value >= before) return;
    throw new Violation(`${what} is monotonic`, `node ${node} fell from ${before} to ${value}`);
  }

  /** An availability promise. */
  demand(holds: boolean, rule: string, facts: () => string): void {
    if (!holds) throw new Violation(rule, facts());
  }
}
