// Configurations: the pure step from one to the next, and the history of those in a log.
//
// A change takes effect when its entry is appended and is rolled back when that entry is truncated,
// so the configuration in force is always the newest in the log. Two configurations one step apart
// share a member in every pair of majorities; more than one step at a time is refused upstairs.

import { assert } from "../../base/index.ts";
import type { Configuration, MembershipChange, NodeId } from "./types.ts";

export function createConfiguration(
  voters: readonly NodeId[],
  learners: readonly NodeId[] = [],
): Configuration {
  return { voters: sortedIds(voters), learners: sortedIds(learners) };
}

export function isVoter(configuration: Configuration, node: NodeId): boolean {
  return configuration.voters.includes(node);
}

export function isMember(configuration: Configuration, node: NodeId): boolean {
  return configuration.voters.includes(node) || configuration.learners.includes(node);
}

export function membersOf(configuration: Configuration): NodeId[] {
  return sortedIds([...configuration.voters, ...configuration.learners]);
}

/** The configuration after `change`; undefined if the change does not fit or leaves no voter. */
export function changeConfiguration(
  before: Configuration,
  change: MembershipChange,
): Configuration | undefined {
  const { op, node } = change;
  const voter = before.voters.includes(node);
  const learner = before.learners.includes(node);
  if (!Number.isSafeInteger(node) || node <= 0) return undefined;
  const voters = before.voters.filter((id) => id !== node);
  const learners = before.learners.filter((id) => id !== node);
  switch (op) {
    case "add":
      if (voter || learner) return undefined;
      voters.push(node);
      break;
    case "promote":
      if (!learner) return undefined;
      voters.push(node);
      break;
    case "learner":
      if (learner) return undefined;
      learners.push(node);
      break;
    case "remove":
      if (!voter && !learner) return undefined;
      break;
  }
  return voters.length === 0 ? undefined : createConfiguration(voters, learners);
}

/** Equal members in equal roles. */
export function sameConfiguration(left: Configuration, right: Configuration): boolean {
  return sameIds(left.voters, right.voters) && sameIds(left.learners, right.learners);
}

type Dated = { readonly index: number; readonly configuration: Configuration };

/** The configurations of a log, oldest first; never empty. */
export class ConfigurationHistory {
  #steps: Dated[];

  constructor(index: number, configuration: Configuration) {
    this.#steps = [{ index, configuration }];
  }

  /** In force now. */
  get newest(): Configuration {
    return this.#last().configuration;
  }

  get newestIndex(): number {
    return this.#last().index;
  }

  /** In force at `index`, with the index that made it. */
  at(index: number): Dated {
    for (let step = this.#steps.length - 1; step > 0; step--) {
      const dated = this.#steps[step] as Dated;
      if (dated.index <= index) return dated;
    }
    return this.#steps[0] as Dated;
  }

  /** Whether `node` votes in the one in force at `index` or in any later one. */
  hasVoterFrom(index: number, node: NodeId): boolean {
    const base = this.#steps.indexOf(this.at(index));
    return this.#steps.slice(base).some(({ configuration }) => isVoter(configuration, node));
  }

  add(index: number, configuration: Configuration): void {
    assert(index > this.newestIndex, `configuration at ${index} is not the newest`);
    this.#steps.push({ index, configuration });
  }

  /** Takes back what the log lost from `index` on. */
  truncateFrom(index: number): void {
    while (this.#steps.length > 1 && this.newestIndex >= index) this.#steps.pop();
  }

  /** Forgets what no index above `index` needs. */
  compactTo(index: number): void {
    const base = this.#steps.indexOf(this.at(index));
    this.#steps.splice(0, base);
  }

  /** Starts again from a snapshot. */
  restore(index: number, configuration: Configuration): void {
    this.#steps = [{ index, configuration }];
  }

  #last(): Dated {
    return this.#steps[this.#steps.length - 1] as Dated;
  }
}

function sortedIds(ids: readonly NodeId[]): NodeId[] {
  return [...new Set(ids)].sort((left, right) => left - right);
}

function sameIds(left: readonly NodeId[], right: readonly NodeId[]): boolean {
  return left.length === right.length && left.every((id, place) => id === right[place]);
}
