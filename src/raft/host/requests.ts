// What is asked of a group from above: proposals, reads, changes of membership and of leadership, and
// what is said to whoever is refused.
//
// Keeps: what is refused had no effect; what was taken is answered once, by the waiters.

import type { WriteAheadLog } from "../../log/index.ts";
import type { Raft } from "../core/raft.ts";
import type { Command, MembershipChange, NodeId, Refused } from "../core/types.ts";
import { raftErrors } from "../errors.ts";
import type { HostCounters } from "./counters.ts";
import type { HostSettings } from "./ports.ts";
import type { Entered, Waiters } from "./waiters.ts";

export type RequestHost = {
  readonly log: WriteAheadLog;
  readonly settings: HostSettings;
  readonly counters: HostCounters;
  readonly random: { below(limit: number): number };
  /** @throws when the node takes no more. */
  readonly admit: (bytes: number) => void;
  /** Settles now, or at the next tick when the node is near its limit. */
  readonly pace: (settle: () => void) => void;
};

export type RequestParts = {
  readonly group: number;
  readonly node: NodeId;
  readonly raft: Raft;
  readonly waiters: Waiters;
  /** @throws when the group takes nothing. */
  readonly checkUp: () => void;
  /** The core has work. */
  readonly wake: () => void;
};

export class Requests {
  readonly #host: RequestHost;
  readonly #parts: RequestParts;
  #contexts = 0;

  constructor(host: RequestHost, parts: RequestParts) {
    this.#host = host;
    this.#parts = parts;
  }

  async propose(commands: readonly Command[]): Promise<unknown[]> {
    if (commands.length === 0) return [];
    const applied = await this.enter(commands).applied;
    await new Promise<void>((resolve) => this.#host.pace(resolve));
    return applied;
  }

  enter(commands: readonly Command[]): Entered {
    this.#admit(commands);
    const { raft, waiters, wake } = this.#parts;
    const { index, term } = this.#accepted(raft.propose(commands));
    let at = index - commands.length;
    const results = commands.map(({ data }) => waiters.propose(++at, term, data.length));
    wake();
    return { index, term, applied: Promise.all(results) };
  }

  async changeMembership(change: MembershipChange): Promise<void> {
    const { raft, waiters, wake } = this.#parts;
    this.#parts.checkUp();
    waiters.admit();
    const { index, term } = this.#accepted(raft.proposeMembership(change));
    const applied = waiters.propose(index, term, 0);
    wake();
    await applied;
  }

  async read(): Promise<number> {
    const { node, raft, waiters, wake } = this.#parts;
    this.#parts.checkUp();
    waiters.admit();
    const context = `${node}.${this.#host.random.below(2 ** 32)}.${++this.#contexts}`;
    this.#accepted(raft.readIndex(context));
    wake();
    return waiters.read(context);
  }

  transfer(to: NodeId): void {
    this.#parts.checkUp();
    this.#accepted(this.#parts.raft.transfer(to));
    this.#parts.wake();
  }

  campaign(): void {
    this.#parts.checkUp();
    this.#parts.raft.campaign();
    this.#parts.wake();
  }

  /** What those are told who ask a node that does not lead. */
  notLeader(reason: string): Error {
    const { group, raft } = this.#parts;
    return raftErrors.notLeader({ group, leader: raft.leader, reason });
  }

  #admit(commands: readonly Command[]): void {
    this.#parts.checkUp();
    const { log, counters, admit } = this.#host;
    const bytes = commands.reduce((sum, { data }) => sum + data.length, 0);
    try {
      const limit = log.payloadBytesMax;
      const large = commands.find(({ data }) => data.length > limit);
      if (large) throw raftErrors.limit({ what: `a command of ${large.data.length} bytes`, limit });
      if (log.full) throw raftErrors.diskFull({ group: this.#parts.group });
      this.#parts.waiters.admit();
      admit(bytes);
    } catch (error) {
      counters.proposalsRefused++;
      throw error;
    }
  }

  #accepted<T extends { readonly accepted: true }>(answer: T | Refused): T {
    if (!answer.accepted) throw this.#refusal(answer);
    return answer;
  }

  #refusal({ reason }: Refused): Error {
    const { group } = this.#parts;
    if (reason === "not_leader" || reason === "transferring" || reason === "repairing") {
      return this.notLeader(reason);
    }
    if (reason !== "limit") return raftErrors.declined({ group, reason });
    this.#host.counters.proposalsRefused++;
    const limit = this.#host.settings.raft.uncommittedBytesMax;
    return raftErrors.limit({ what: `what group ${group} has not committed`, limit });
  }
}
