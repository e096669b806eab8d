// Reads without a log entry: the commit index at the time of asking, served once a majority has
// answered a heartbeat that left afterwards (Ongaro 6.4). Never by the clock.
//
// A new leader's commit index may be behind what an earlier leader committed, so reads wait until
// an entry of its own term is committed. All that wait when a `ready` is taken share one round.

import { quorumValue } from "./quorum.ts";
import { sendHeartbeats } from "./replication.ts";
import { hasOwnCommit, type RaftState, refused, voters, type WaitingRead } from "./state.ts";
import {
  type Accepted,
  noNode,
  type ReadRequest,
  type ReadResponse,
  type Refused,
} from "./types.ts";

/**
 * Asks for the index a read has to wait for. The answer, if any, is a `ReadState`; a request or an
 * answer to another node may be lost, so callers keep a time limit.
 */
export function readIndex(state: RaftState, context: string): Accepted | Refused {
  if (state.role === "leader") {
    if (state.reads.length >= state.settings.readsMax) return refused(state, "limit");
    addRead(state, context, state.id);
    return { accepted: true };
  }
  if (state.leader === noNode) return refused(state, "not_leader");
  const { id: from, term, leader: to } = state;
  state.outbox.push({ type: "read-index", from, to, term, context });
  return { accepted: true };
}

export function onReadRequest(state: RaftState, message: ReadRequest): void {
  if (state.role !== "leader" || state.reads.length >= state.settings.readsMax) return;
  addRead(state, message.context, message.from);
}

export function onReadResponse(state: RaftState, message: ReadResponse): void {
  state.readStates.push({ context: message.context, index: message.index });
}

/** Begins a round for reads that have none, and answers those whose round is complete. */
export function advanceReads(state: RaftState): void {
  if (state.reads.length === 0 || !hasOwnCommit(state)) return;
  const fresh = state.reads.filter((read) => read.round === 0);
  if (fresh.length > 0) {
    state.readRound++;
    for (const read of fresh) {
      read.round = state.readRound;
      read.index ??= state.log.commit;
    }
    sendHeartbeats(state);
  }
  const proved = quorumValue(voters(state), (voter) =>
    voter === state.id ? state.readRound : (state.peers.get(voter)?.readRound ?? 0),
  );
  const open: WaitingRead[] = [];
  for (const read of state.reads) {
    if (read.round <= proved) answerRead(state, read);
    else open.push(read);
  }
  state.reads = open;
}

function addRead(state: RaftState, context: string, from: number): void {
  const index = hasOwnCommit(state) ? state.log.commit : undefined;
  state.reads.push({ context, from, index, round: 0 });
}

function answerRead(state: RaftState, read: WaitingRead): void {
  const { context, from: to, index = 0 } = read;
  if (to === state.id) {
    state.readStates.push({ context, index });
    return;
  }
  const { id: from, term } = state;
  state.outbox.push({ type: "read-index-resp", from, to, term, context, index });
}
