// Tells the checker what one host does, and watches what only the host can see: terms and indexes
// that must not fall, promises of availability, and which states were reached.

import type { Raft } from "../core/raft.ts";
import type {
  Configuration,
  Entry,
  Message,
  NodeId,
  Ready,
  Role,
  SnapshotMeta,
} from "../core/types.ts";
import type { SimContext } from "./context.ts";
import type { DiskWrite, SimDisk } from "./disk.ts";
import { entryHash, mix } from "./machine.ts";

export class HostObserver {
  readonly #id: NodeId;
  readonly #context: SimContext;
  /** Chain hash and term of each entry of the log, from `#base` on; the first is the base's. */
  #base = 0;
  #chains: number[] = [0];
  #terms: number[] = [0];
  #term = 0;
  /** Survives crashes: no life begins in an earlier term than the disk had taken. */
  #durableTerm = 0;
  #commit = 0;
  #applied = 0;
  #role: Role = "follower";
  #leaderTerm = 0;
  #isVoter = false;
  #isolatedTicks = 0;
  #isolatedTerm = 0;
  #era = 0;
  #transferTicks = 0;
  #transferTerm = 0;
  #transferTo = 0;
  /** Membership entries of the log, by index. */
  readonly #changes = new Map<number, string>();

  constructor(id: NodeId, context: SimContext) {
    this.#id = id;
    this.#context = context;
  }

  started(raft: Raft, snapshot: SnapshotMeta, entries: readonly Entry[]): void {
    this.#context.checker.notBelow(this.#id, "durable term", raft.term, this.#durableTerm);
    this.#rebase(snapshot);
    for (const entry of entries) this.#append(entry);
    this.#commit = raft.commit;
    this.#applied = snapshot.index;
    this.#role = "follower";
    this.#leaderTerm = 0;
    this.#isolatedTicks = 0;
    this.#transferTicks = 0;
    this.#term = raft.term;
  }

  woke(): void {
    this.#isolatedTicks = 0;
  }

  /** Highest committed index that was judged. */
  get commit(): number {
    return this.#commit;
  }

  took(ready: Ready, pending: readonly DiskWrite[]): void {
    const { coverage } = this.#context;
    if (ready.snapshot) this.#rebase(ready.snapshot);
    const first = ready.entries[0];
    if (first === undefined) return;
    const replaced = this.#base + this.#chains.length - first.index;
    if (replaced > 0) {
      coverage.suffixReplaced++;
      if (replaced >= 4) coverage.suffixReplacedLong++;
      const flying = pending.some((write) =>
        write.ready.entries.some((entry) => entry.index >= first.index),
      );
      if (flying) coverage.suffixReplacedInFlight++;
      for (const index of [...this.#changes.keys()].filter((at) => at >= first.index)) {
        coverage.membersRolledBack++;
        this.#changes.delete(index);
      }
      this.#chains.length = first.index - this.#base;
      this.#terms.length = this.#chains.length;
    }
    for (const entry of ready.entries) this.#append(entry);
  }

  synced({ ready }: DiskWrite): void {
    this.#durableTerm = Math.max(this.#durableTerm, ready.hardState?.term ?? 0);
  }

  applied(entry: Entry, stateHash: number): void {
    const { checker, coverage } = this.#context;
    checker.notBelow(this.#id, "applied index", entry.index, this.#applied);
    this.#applied = entry.index;
    checker.entryApplied(this.#id, { index: entry.index, term: entry.term, stateHash });
    if (entry.kind === "membership") coverage.membersChanged++;
  }

  observe(raft: Raft): void {
    const { checker, coverage } = this.#context;
    const { term, commit, role } = raft;
    checker.notBelow(this.#id, "term", term, this.#term);
    checker.notBelow(this.#id, "commit index", commit, this.#commit);
    checker.notBelow(this.#id, "last index", raft.lastIndex, commit);
    if (term >= this.#term + 3) coverage.termGapWide++;
    if (role === "candidate" && this.#role === role && term > this.#term) coverage.votesSplit++;
    if (role !== this.#role) this.#roleChanged(raft);
    if (role === "leader" && this.#leaderTerm !== term) this.#elected(raft);
    this.#term = term;
    this.#isVoter = raft.configuration.voters.includes(this.#id);
    if (commit > this.#commit) this.#committed(raft);
  }

  /** What a message promises must be on the disk when it leaves. */
  emitted(message: Message, disk: SimDisk, role: Role): void {
    const { checker, coverage } = this.#context;
    const { term, vote } = disk.hardState;
    const promise = (holds: boolean): void =>
      checker.demand(holds, "promises are durable", () => JSON.stringify(message));
    checker.demand(
      message.from === this.#id && message.to !== this.#id,
      "messages go to others",
      () => `node ${this.#id} sends ${message.from}->${message.to}`,
    );
    switch (message.type) {
      case "vote":
        checker.voteGranted(this.#id, message.term, this.#id);
        promise(term > message.term || (term === message.term && vote === this.#id));
        // A candidacy given up may have lost entries to the winner: it cannot win any more.
        promise(disk.lastIndex >= message.lastIndex || role !== "candidate");
        break;
      case "vote-resp":
        if (!message.granted) break;
        checker.voteGranted(this.#id, message.term, message.to);
        promise(term > message.term || (term === message.term && vote === message.to));
        if (!this.#isVoter) coverage.learnerVoted++;
        break;
      case "pre-vote-resp":
        if (!message.granted) coverage.prevotesRefused++;
        break;
      case "append-resp":
        if (!message.rejected) promise(disk.lastIndex >= message.index || term > message.term);
        break;
      default:
        break;
    }
  }

  ticked(raft: Raft): void {
    this.#watchIsolation(raft);
    this.#watchTransfer(raft);
    for (const { inflightMessages } of raft.role === "leader" ? raft.status().peers : []) {
      if (inflightMessages >= this.#context.swarm.settings.inflightMessagesMax) {
        this.#context.coverage.windowsFull++;
      }
    }
  }

  /** Its time begins anew, even if it goes to the same node. */
  transferRequested(): void {
    this.#transferTicks = 0;
  }

  /** At most one change that nobody knows to be committed. */
  membershipProposed(raft: Raft): void {
    const { checker } = this.#context;
    const open = raft
      .entries()
      .filter((entry) => entry.kind === "membership" && entry.index > checker.committedIndex);
    checker.demand(
      open.length <= 1,
      "one membership change at a time",
      () => `node ${this.#id} holds ${open.length} that are not committed`,
    );
  }

  #rebase(snapshot: SnapshotMeta): void {
    const { checker } = this.#context;
    const { index } = snapshot;
    checker.snapshotUsed(this.#id, index, formatConfiguration(snapshot.configuration));
    this.#base = index;
    this.#chains = [checker.chainAt(index)];
    this.#terms = [checker.termAt(index)];
    this.#changes.clear();
  }

  #append(entry: Entry): void {
    const chain = mix(this.#chains.at(-1) ?? 0, entryHash(entry));
    this.#chains.push(chain);
    this.#terms.push(entry.term);
    if (entry.kind === "membership") {
      this.#changes.set(entry.index, formatConfiguration(entry.configuration));
    }
    this.#context.checker.entryWritten(this.#id, entry.index, entry.term, chain);
  }

  #roleChanged(raft: Raft): void {
    const { coverage } = this.#context;
    const { role, term } = raft;
    this.#context.note(() => `node ${this.#id} is ${role} in term ${term}`);
    if (this.#role === "candidate" && role === "follower" && term === this.#term) {
      coverage.electionsLost++;
    }
    if (this.#role === "candidate" && role === "precandidate") coverage.votesSplit++;
    if (this.#role === "leader" && role === "follower" && term === this.#term) {
      if (raft.configuration.voters.includes(this.#id)) coverage.quorumLost++;
      else coverage.leaderRemoved++;
    }
    this.#role = role;
  }

  #elected(raft: Raft): void {
    const { checker, coverage } = this.#context;
    this.#leaderTerm = raft.term;
    coverage.leadersElected++;
    checker.voteGranted(this.#id, raft.term, this.#id);
    checker.leaderElected(this.#id, raft.term, raft.configuration.voters, (index) =>
      index < this.#base ? undefined : (this.#chains[index - this.#base] ?? -1),
    );
  }

  #committed(raft: Raft): void {
    const { checker, coverage } = this.#context;
    const { voters } = raft.configuration;
    for (let index = this.#commit + 1; index <= raft.commit; index++) {
      // Below a snapshot the checker has seen it all.
      if (index <= this.#base) continue;
      const term = this.#terms[index - this.#base] ?? 0;
      const chain = this.#chains[index - this.#base] ?? 0;
      if (index > checker.committedIndex && term < raft.term) coverage.oldTermCommitted++;
      checker.entryCommitted(this.#id, raft.term, { index, term, chain }, () => {
        const copies = voters.filter((voter) => this.#context.holds(voter, index, term));
        return copies.length * 2 > voters.length;
      });
      const change = this.#changes.get(index);
      if (change !== undefined) checker.configurationCommitted(index, change);
    }
    this.#commit = raft.commit;
  }

  #watchIsolation(raft: Raft): void {
    const { network, checker, swarm } = this.#context;
    const { voters } = raft.configuration;
    const alone = voters.length === 1 && voters[0] === this.#id;
    if (this.#era !== network.era) this.#isolatedTicks = 0;
    this.#era = network.era;
    if (alone || !network.isIsolated(this.#id, this.#context.ids)) {
      this.#isolatedTicks = 0;
      return;
    }
    if (this.#isolatedTicks === 0) this.#isolatedTerm = raft.term;
    this.#isolatedTicks++;
    checker.demand(
      !swarm.settings.preVote || raft.term === this.#isolatedTerm,
      "an isolated node keeps its term",
      () => `node ${this.#id} went from ${this.#isolatedTerm} to ${raft.term}`,
    );
    checker.demand(
      !swarm.settings.checkQuorum ||
        raft.role !== "leader" ||
        this.#isolatedTicks <= 2 * swarm.settings.electionTicks,
      "a leader that hears nobody steps down",
      () => `node ${this.#id} leads after ${this.#isolatedTicks} ticks alone`,
    );
  }

  #watchTransfer(raft: Raft): void {
    const { checker, swarm, coverage } = this.#context;
    if (raft.transferTo !== this.#transferTo || raft.term !== this.#transferTerm) {
      if (this.#transferTicks > 0) {
        if (raft.role === "leader" && raft.term === this.#transferTerm) {
          coverage.transfersAbandoned++;
        } else coverage.transfersDone++;
      }
      this.#transferTicks = 0;
      this.#transferTerm = raft.term;
      this.#transferTo = raft.transferTo;
    }
    if (raft.transferTo === 0) return;
    this.#transferTicks++;
    checker.demand(
      this.#transferTicks <= swarm.settings.electionTicks,
      "a transfer ends within an election time-out",
      () => `node ${this.#id} still hands over to ${raft.transferTo}`,
    );
  }
}

function formatConfiguration(configuration: Configuration): string {
  return `${configuration.voters.join(",")}/${configuration.learners.join(",")}`;
}
