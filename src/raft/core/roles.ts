// The four roles and the passage from one to the other. What a role remembers is dropped at its
// end: votes, peers, a transfer, waiting reads (whose owners are told).
//
// Keeps: the term never falls; the vote is forgotten only with a new term; entering pre-candidacy
// changes neither.

import { assert } from "../../base/index.ts";
import { entryBytes } from "./log.ts";
import { membersOf } from "./membership.ts";
import { createProgress, type Progress } from "./progress.ts";
import { drawElectionTimeout, type RaftState } from "./state.ts";
import { type Entry, type NodeId, noNode } from "./types.ts";

/** Of no leader as yet. */
export function becomeFollower(state: RaftState, term: number): void {
  reset(state, term);
  state.role = "follower";
}

/** Asks whether an election could be won, without disturbing anybody. */
export function becomePrecandidate(state: RaftState): void {
  assert(state.role !== "leader", "a leader does not stand for election");
  state.role = "precandidate";
  state.leader = noNode;
  state.votes = new Map();
}

export function becomeCandidate(state: RaftState): void {
  assert(state.role !== "leader", "a leader does not stand for election");
  reset(state, state.term + 1);
  state.role = "candidate";
  state.vote = state.id;
}

export function becomeLeader(state: RaftState): void {
  assert(state.role === "candidate", `a ${state.role} cannot lead`);
  reset(state, state.term);
  state.role = "leader";
  state.leader = state.id;
  syncPeers(state);
  for (const entry of state.log.tail(state.log.commit + 1)) {
    state.uncommittedBytes += entryBytes(entry);
  }
  state.barrierIndex = state.log.lastIndex + 1;
  appendOwn(state, { kind: "empty", index: state.barrierIndex, term: state.term });
}

/** The leader's only way to its log. A change of membership is in force from here on. */
export function appendOwn(state: RaftState, entry: Entry): void {
  state.log.append(entry);
  state.uncommittedBytes += entryBytes(entry);
  if (entry.kind !== "membership") return;
  state.configurations.add(entry.index, entry.configuration);
  const known = new Set(state.peers.keys());
  syncPeers(state);
  for (const peer of state.peers.values()) if (!known.has(peer.node)) peer.joining = true;
}

function syncPeers(state: RaftState): void {
  const peers = new Map<NodeId, Progress>();
  for (const node of membersOf(state.configurations.newest)) {
    if (node === state.id) continue;
    const known = state.peers.get(node);
    peers.set(node, known ?? createProgress(node, state.log.lastIndex + 1));
  }
  state.peers = peers;
}

function reset(state: RaftState, term: number): void {
  assert(term >= state.term, `term fell from ${state.term} to ${term}`);
  if (term > state.term) {
    state.term = term;
    state.vote = noNode;
  }
  state.leader = noNode;
  state.electionElapsed = 0;
  state.electionTimeout = drawElectionTimeout(state.settings, state.random);
  state.heartbeatElapsed = 0;
  state.votes = new Map();
  state.peers = new Map();
  state.uncommittedBytes = 0;
  state.transfer = undefined;
  loseReads(state);
}

function loseReads(state: RaftState): void {
  for (const read of state.reads) {
    if (read.from === state.id) state.readsLost.push(read.context);
  }
  state.reads = [];
  state.readRound = 0;
}
