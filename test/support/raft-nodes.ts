// One Raft node in a test: settings that make it quick to lead, and a host that persists at once.

import { Raft } from "../../src/raft/core/raft.ts";
import {
  defaultRaftSettings,
  type Entry,
  type Message,
  type RaftBoot,
  type RaftSettings,
  type Ready,
} from "../../src/raft/core/types.ts";

export const settings: RaftSettings = {
  ...defaultRaftSettings,
  electionTicks: 3,
  heartbeatTicks: 1,
  preVote: false,
  checkQuorum: false,
};

export const longest = { below: (limit: number): number => limit - 1 };

export function boot(voters: number[], changes: Partial<RaftBoot> = {}): RaftBoot {
  return {
    hardState: { term: 0, vote: 0, commit: 0 },
    snapshot: {
      index: 0,
      term: 0,
      configuration: { voters, learners: [] },
      configurationIndex: 0,
    },
    entries: [],
    applied: 0,
    ...changes,
  };
}

/** Persists and applies at once. */
export function finish(raft: Raft): Ready[] {
  const readies: Ready[] = [];
  for (let ready = raft.ready(); ready !== undefined; ready = raft.ready()) {
    readies.push(ready);
    raft.advance({ persisted: ready.number });
    const last = ready.committed.at(-1);
    if (last) raft.advance({ applied: last.index });
  }
  return readies;
}

export function leaderOf(voters: number[], changes: Partial<RaftSettings> = {}): Raft {
  const raft = new Raft(1, { ...settings, ...changes }, longest, boot(voters));
  raft.campaign();
  finish(raft);
  for (const from of voters.slice(1)) {
    raft.step({ type: "vote-resp", from, to: 1, term: 1, granted: true });
  }
  finish(raft);
  return raft;
}

export function accept(raft: Raft, from: number, index: number, commit = 0): void {
  const { term } = raft;
  raft.step({
    type: "append-resp",
    from,
    to: 1,
    term,
    rejected: false,
    index,
    hintIndex: 0,
    hintTerm: 0,
    commit,
  });
}

export const command = (size: number): { version: number; data: Uint8Array } => ({
  version: 1,
  data: new Uint8Array(size),
});

export const empty = (index: number, term: number): Entry => ({ kind: "empty", index, term });

export function append(
  term: number,
  prevIndex: number,
  prevTerm: number,
  entries: Entry[],
): Message {
  return { type: "append", from: 2, to: 1, term, prevIndex, prevTerm, entries, commit: 0 };
}
