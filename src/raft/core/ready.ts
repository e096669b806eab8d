// The two ends of the core towards its host: `takeReady` hands out work, `noteProgress` takes the
// report of what is durable and applied. Several readies may be under way at once.
//
// Keeps: everything is handed out once and in order; what was replaced while on its way to the disk
// does not count when it arrives; committed entries follow the snapshot they build on.

import { assert } from "../../base/index.ts";
import { onVoteDurable } from "./election.ts";
import { leaveOffice, pushTransfer } from "./leader.ts";
import { advanceReads } from "./reads.ts";
import { advanceCommit, sendAppends } from "./replication.ts";
import type { RaftState } from "./state.ts";
import type { Entry, HardState, Progressed, Ready } from "./types.ts";

/** Undefined when there is nothing to do. */
export function takeReady(state: RaftState): Ready | undefined {
  if (state.role === "leader") {
    leaveOffice(state);
    pushTransfer(state);
    advanceReads(state);
    sendAppends(state);
  }
  const hardState = changedHardState(state);
  const saved = state.savedHardState;
  const promised = hardState && (hardState.term !== saved.term || hardState.vote !== saved.vote);
  const { log, incoming: snapshot } = state;
  const entries = log.tail(log.handedToDisk + 1);
  const committed = takeCommitted(state);
  const idle =
    hardState === undefined &&
    snapshot === undefined &&
    entries.length + committed.length === 0 &&
    state.outbox.length + state.outboxAfterSync.length === 0 &&
    state.readStates.length + state.readsLost.length === 0;
  if (idle) return undefined;
  state.readyNumber++;
  if (hardState !== undefined || snapshot !== undefined || entries.length > 0) {
    const last = entries.at(-1)?.index ?? snapshot?.index ?? 0;
    state.diskFlights.push({ number: state.readyNumber, hardState, lastIndex: last });
  }
  log.handedToDisk = log.lastIndex;
  state.savedHardState = hardState ?? state.savedHardState;
  state.incoming = undefined;
  return {
    number: state.readyNumber,
    hardState,
    mustSync: promised === true || snapshot !== undefined || entries.length > 0,
    entries,
    snapshot,
    messages: empty(state, "outbox"),
    messagesAfterSync: empty(state, "outboxAfterSync"),
    committed,
    readStates: empty(state, "readStates"),
    readsLost: empty(state, "readsLost"),
  };
}

export function noteProgress(state: RaftState, progressed: Progressed): void {
  const { persisted, applied } = progressed;
  if (persisted !== undefined) notePersisted(state, persisted);
  if (applied !== undefined) {
    const { log } = state;
    assert(applied <= log.handedOut, `applied ${applied} was never handed out`);
    log.applied = Math.max(log.applied, applied);
  }
}

function notePersisted(state: RaftState, number: number): void {
  assert(number <= state.readyNumber, `ready ${number} was never handed out`);
  const { log } = state;
  while (state.diskFlights.length > 0) {
    const flight = state.diskFlights[0];
    if (flight === undefined || flight.number > number) break;
    state.diskFlights.shift();
    log.persisted = Math.max(log.persisted, flight.lastIndex);
    if (flight.hardState) onVoteDurable(state, flight.hardState.term, flight.hardState.vote);
  }
  if (state.role === "leader") advanceCommit(state);
}

function changedHardState(state: RaftState): HardState | undefined {
  const { term, vote, savedHardState: saved, log } = state;
  // Only what is durable here already: hard state and log may be stored apart, and a commit index
  // that outlives a crash must not meet the entries that a lost write was to replace.
  const commit = Math.max(saved.commit, Math.min(log.commit, log.persisted));
  if (saved.term === term && saved.vote === vote && saved.commit === commit) return undefined;
  return { term, vote, commit };
}

function takeCommitted(state: RaftState): Entry[] {
  const { log } = state;
  // The state machine must have installed the snapshot first.
  if (log.handedOut >= log.commit || log.applied < log.startIndex) return [];
  const limits = { entries: log.commit, bytes: state.settings.applyBytesMax };
  const committed = log.slice(log.handedOut + 1, log.commit, limits);
  log.handedOut += committed.length;
  return committed;
}

type ListName = "outbox" | "outboxAfterSync" | "readStates" | "readsLost";

function empty<N extends ListName>(state: RaftState, name: N): RaftState[N] {
  const list = state[name];
  (state[name] as unknown[]) = [];
  return list;
}
