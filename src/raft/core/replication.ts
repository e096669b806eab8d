// The leader's flow to its peers: what to send next, and what an answer means.
//
// Appends are not sent by whatever makes them necessary but once per `ready`, so that many
// proposals share one message. Keeps: nothing is counted twice, or from a node outside the
// configuration; only entries of the own term commit by counting; a full window passes nothing but
// an empty append after a heartbeat answer.

import { entryBytes } from "./log.ts";
import {
  becomeProbe,
  becomeSnapshot,
  isWindowFull,
  noteAccepted,
  noteRejected,
  noteSent,
  type Progress,
} from "./progress.ts";
import { quorumValue } from "./quorum.ts";
import { type RaftState, voters } from "./state.ts";
import type { AppendResponse, Entry, HeartbeatResponse } from "./types.ts";

/** Puts what every peer can take now into the outbox. */
export function sendAppends(state: RaftState): void {
  for (const peer of state.peers.values()) {
    if (peer.state === "replicate") pipeline(state, peer);
    else if (peer.state === "probe" && !peer.probeSent)
      sendAppend(state, peer, nextEntries(state, peer));
  }
}

export function sendHeartbeats(state: RaftState): void {
  state.heartbeatElapsed = 0;
  for (const peer of state.peers.values()) {
    state.outbox.push({
      type: "heartbeat",
      from: state.id,
      to: peer.node,
      term: state.term,
      // Never more than the peer acknowledged: it may hold other entries beyond.
      commit: Math.min(peer.match, state.log.commit),
      round: state.readRound,
    });
  }
}

export function onAppendResponse(state: RaftState, message: AppendResponse): void {
  const peer = state.peers.get(message.from);
  if (peer === undefined || message.index > state.log.lastIndex) return;
  peer.active = true;
  if (message.rejected) {
    const { index } = state.log.lastIndexWithin(message.hintIndex, message.hintTerm);
    noteRejected(peer, message.index, index);
    return;
  }
  peer.commitAcked = Math.max(peer.commitAcked, message.commit);
  noteAccepted(peer, message.index, state.log.startIndex);
  advanceCommit(state);
}

export function onHeartbeatResponse(state: RaftState, message: HeartbeatResponse): void {
  const peer = state.peers.get(message.from);
  if (peer === undefined) return;
  peer.active = true;
  peer.probeSent = false;
  peer.readRound = Math.max(peer.readRound, Math.min(message.round, state.readRound));
  // An append or its answer may have been lost: ask with the next one.
  const lagging = peer.match < state.log.lastIndex || peer.commitAcked < state.log.commit;
  if (peer.state === "replicate" && lagging) peer.nudge = true;
}

/** Commits what a majority holds durably, if it is of this term. */
export function advanceCommit(state: RaftState): void {
  const { log } = state;
  const index = quorumValue(voters(state), (voter) =>
    voter === state.id ? log.persisted : (state.peers.get(voter)?.match ?? 0),
  );
  if (index <= log.commit || log.termAt(index) !== state.term) return;
  for (let at = log.commit + 1; at <= index; at++) {
    state.uncommittedBytes -= entryBytes(log.entryAt(at) as Entry);
  }
  log.commitTo(index);
}

/** A snapshot that shows no progress for too long is taken for lost. */
export function tickSnapshots(state: RaftState): void {
  for (const peer of state.peers.values()) {
    if (peer.state !== "snapshot") continue;
    peer.snapshotElapsed++;
    if (peer.snapshotElapsed >= state.settings.snapshotTicks) becomeProbe(peer, peer.match + 1);
  }
}

function pipeline(state: RaftState, peer: Progress): void {
  const { settings, log } = state;
  const window = { messages: settings.inflightMessagesMax, bytes: settings.inflightBytesMax };
  while (peer.state === "replicate" && peer.next <= log.lastIndex && !isWindowFull(peer, window)) {
    sendAppend(state, peer, nextEntries(state, peer));
  }
  if (peer.state !== "replicate") return;
  const commitNews = Math.min(log.commit, peer.next - 1) > peer.commitSent;
  if (peer.nudge || commitNews) sendAppend(state, peer, []);
}

// Undefined when the entries were cut from the log.
function nextEntries(state: RaftState, peer: Progress): Entry[] | undefined {
  const { settings, log } = state;
  if (peer.next <= log.startIndex) return undefined;
  const limits = { entries: settings.appendEntriesMax, bytes: settings.appendBytesMax };
  return log.slice(peer.next, log.lastIndex, limits);
}

function sendAppend(state: RaftState, peer: Progress, entries: Entry[] | undefined): void {
  const { log } = state;
  const prevIndex = peer.next - 1;
  const prevTerm = log.termAt(prevIndex);
  if (entries === undefined || prevTerm === undefined) {
    sendSnapshot(state, peer);
    return;
  }
  const { id: from, term } = state;
  const { commit } = log;
  const to = peer.node;
  state.outbox.push({ type: "append", from, to, term, prevIndex, prevTerm, commit, entries });
  let bytes = 0;
  for (const entry of entries) bytes += entryBytes(entry);
  noteSent(peer, prevIndex + entries.length, bytes);
  peer.commitSent = Math.min(commit, prevIndex + entries.length);
}

function sendSnapshot(state: RaftState, peer: Progress): void {
  // A peer that is down would cost a snapshot per time-out: wait for a sign of life.
  if (!peer.active && !peer.joining) {
    becomeProbe(peer, peer.next);
    return;
  }
  const { snapshot, id: from, term } = state;
  becomeSnapshot(peer, snapshot.index);
  state.outbox.push({ type: "snapshot", from, to: peer.node, term, snapshot });
}
