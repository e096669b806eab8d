// What a node does with what its leader sends: appends, heartbeats, snapshots.
//
// Keeps: entries are replaced only where their terms differ; the commit index never passes the last
// entry known to agree with the leader; every acceptance leaves after the sync of what it promises.

import { becomeFollower } from "./roles.ts";
import type { RaftState } from "./state.ts";
import type {
  AppendRequest,
  AppendResponse,
  Entry,
  Heartbeat,
  NodeId,
  SnapshotMessage,
  SnapshotMeta,
} from "./types.ts";

/** A sign of life from the leader of this term. */
export function heardLeader(state: RaftState, leader: NodeId): void {
  if (state.role !== "follower") becomeFollower(state, state.term);
  state.leader = leader;
  state.electionElapsed = 0;
}

export function onAppend(state: RaftState, message: AppendRequest): void {
  const { log } = state;
  heardLeader(state, message.from);
  if (message.prevIndex < log.commit) {
    accept(state, message.from, log.commit);
    return;
  }
  if (log.termAt(message.prevIndex) !== message.prevTerm) {
    reject(state, message);
    return;
  }
  mergeEntries(state, message.entries);
  const lastIndex = message.prevIndex + message.entries.length;
  log.commitTo(Math.min(message.commit, lastIndex));
  accept(state, message.from, lastIndex);
}

export function onHeartbeat(state: RaftState, message: Heartbeat): void {
  heardLeader(state, message.from);
  // The leader never names more than we acknowledged; if we hold less, our disk was tampered with
  // and committing would guess.
  if (message.commit <= state.log.lastIndex) state.log.commitTo(message.commit);
  const { from, round } = message;
  const type = "heartbeat-resp";
  state.outbox.push({ type, from: state.id, to: from, term: state.term, round });
}

export function onSnapshot(state: RaftState, message: SnapshotMessage): void {
  const { log } = state;
  const { snapshot } = message;
  heardLeader(state, message.from);
  if (snapshot.index > log.commit) {
    // A log that agrees up to the snapshot keeps what it holds beyond.
    if (log.termAt(snapshot.index) === snapshot.term) log.commitTo(snapshot.index);
    else restore(state, snapshot);
  }
  accept(state, message.from, log.commit);
}

/** A leader of an earlier term is told the term of today, so that it steps down. */
export function answerDeposed(state: RaftState, from: NodeId): void {
  const { log } = state;
  answer(state, from, { rejected: true, index: 0, hintIndex: log.lastIndex, hintTerm: 0 });
}

function mergeEntries(state: RaftState, entries: readonly Entry[]): void {
  const { log } = state;
  for (const entry of entries) {
    const held = log.termAt(entry.index);
    if (held === entry.term) continue;
    if (held !== undefined) truncateFrom(state, entry.index);
    log.append(entry);
    if (entry.kind === "membership") {
      state.configurations.add(entry.index, entry.configuration);
    }
  }
}

function truncateFrom(state: RaftState, index: number): void {
  state.log.truncateFrom(index);
  state.configurations.truncateFrom(index);
  // What is on its way to the disk and was replaced here must not count when it arrives.
  for (const flight of state.diskFlights) {
    flight.lastIndex = Math.min(flight.lastIndex, index - 1);
  }
}

function restore(state: RaftState, snapshot: SnapshotMeta): void {
  const { log } = state;
  for (const flight of state.diskFlights) {
    flight.lastIndex = Math.min(flight.lastIndex, log.commit);
  }
  log.restore(snapshot);
  state.configurations.restore(snapshot.configurationIndex, snapshot.configuration);
  state.snapshot = snapshot;
  state.incoming = snapshot;
}

function accept(state: RaftState, to: NodeId, index: number): void {
  answer(state, to, { rejected: false, index, hintIndex: 0, hintTerm: 0 });
}

function reject(state: RaftState, message: AppendRequest): void {
  const { prevIndex, prevTerm } = message;
  const hint = state.log.lastIndexWithin(prevIndex, prevTerm);
  const { index: hintIndex, term: hintTerm } = hint;
  answer(state, message.from, { rejected: true, index: prevIndex, hintIndex, hintTerm });
}

type Answer = Pick<AppendResponse, "rejected" | "index" | "hintIndex" | "hintTerm">;

function answer(state: RaftState, to: NodeId, fields: Answer): void {
  state.outboxAfterSync.push({
    type: "append-resp",
    from: state.id,
    to,
    term: state.term,
    ...fields,
    commit: state.log.commit,
  });
}
