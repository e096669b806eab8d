// Elections: standing, asking, answering, counting.
//
// Keeps: at most one vote a term, durable before it is answered; a candidate counts only voters of
// its own newest configuration, itself only once its vote is durable; a pre-vote changes neither
// term nor vote nor the time of last contact; with check-quorum nobody but the leader itself, or
// whom the leader asked, gets a vote while the leader is heard.
// (Ongaro, "Consensus: Bridging Theory and Practice", 3.4, 3.6, 4.2.3, 9.6.)

import { voteResult } from "./quorum.ts";
import { becomeCandidate, becomeFollower, becomeLeader, becomePrecandidate } from "./roles.ts";
import { mayCampaign, type RaftState, refused, voters } from "./state.ts";
import {
  type Accepted,
  type NodeId,
  noNode,
  type Refused,
  type VoteRequest,
  type VoteResponse,
} from "./types.ts";

/** Stands for election now; a leader has no need to. */
export function campaign(state: RaftState): Accepted | Refused {
  if (state.role === "leader") return { accepted: true };
  if (!mayCampaign(state)) return refused(state, state.repairing ? "repairing" : "not_voter");
  if (state.settings.preVote) startPrevote(state);
  else startVote(state, false);
  return { accepted: true };
}

/** The leader hands over: no pre-vote, and sticky voters are told why. */
export function campaignForLeader(state: RaftState): void {
  if (state.role !== "leader" && mayCampaign(state)) startVote(state, true);
}

/** Whether a sticky voter turns a deaf ear to `from`. */
export function sticksToLeader(state: RaftState, from: NodeId): boolean {
  if (!state.settings.checkQuorum || state.leader === noNode || state.leader === from) return false;
  return state.electionElapsed < state.settings.electionTicks;
}

export function onVoteRequest(state: RaftState, message: VoteRequest): void {
  const prevote = message.type === "pre-vote";
  const free =
    state.vote === message.from ||
    (state.vote === noNode && state.leader === noNode) ||
    (prevote && message.term > state.term);
  // A log that lost what it acknowledged cannot judge how fresh another is.
  const fresh = !state.repairing && state.log.isUpToDate(message.lastIndex, message.lastTerm);
  const granted = free && fresh;
  if (granted && !prevote) {
    state.vote = message.from;
    state.electionElapsed = 0;
  }
  answerVote(state, message, granted);
}

/** A request from a term gone by: the refusal tells the term of today. */
export function refuseVote(state: RaftState, message: VoteRequest): void {
  answerVote(state, message, false);
}

export function onVoteResponse(state: RaftState, message: VoteResponse): void {
  if (message.type === "vote-resp" && state.role !== "candidate") return;
  if (message.type === "pre-vote-resp") {
    if (state.role !== "precandidate") return;
    if (message.granted && message.term !== state.term + 1) return;
  }
  countVote(state, message.from, message.granted);
}

/** A ready with this term and vote is durable: the candidate may count itself. */
export function onVoteDurable(state: RaftState, term: number, vote: NodeId): void {
  if (state.role !== "candidate" || term !== state.term || vote !== state.id) return;
  countVote(state, state.id, true);
}

function countVote(state: RaftState, from: NodeId, granted: boolean): void {
  if (!state.votes.has(from)) state.votes.set(from, granted);
  const result = voteResult(voters(state), state.votes);
  if (result === "lost") becomeFollower(state, state.term);
  if (result !== "won") return;
  if (state.role === "precandidate") startVote(state, false);
  else becomeLeader(state);
}

function startPrevote(state: RaftState): void {
  becomePrecandidate(state);
  ask(state, "pre-vote", false);
  countVote(state, state.id, true);
}

function startVote(state: RaftState, forced: boolean): void {
  becomeCandidate(state);
  ask(state, "vote", forced);
}

// A real request leaves after the sync: it promises a log that a crash must not shorten, and a vote
// for ourselves. A pre-vote promises nothing.
function ask(state: RaftState, type: VoteRequest["type"], transfer: boolean): void {
  const term = type === "vote" ? state.term : state.term + 1;
  const outbox = type === "vote" ? state.outboxAfterSync : state.outbox;
  const { lastIndex, lastTerm } = state.log;
  for (const to of voters(state)) {
    if (to === state.id) continue;
    outbox.push({ type, from: state.id, to, term, lastIndex, lastTerm, transfer });
  }
}

function answerVote(state: RaftState, request: VoteRequest, granted: boolean): void {
  const type = request.type === "vote" ? "vote-resp" : "pre-vote-resp";
  const term = granted ? request.term : state.term;
  const outbox = type === "vote-resp" ? state.outboxAfterSync : state.outbox;
  outbox.push({ type, from: state.id, to: request.from, term, granted });
}
