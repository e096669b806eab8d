// What only a leader does beside replication: proposals, changes of membership, handing over, the
// check that it still has a quorum, and leaving office once it has removed itself.
//
// A leader that removes itself (or makes itself a learner) goes on taking proposals and does not
// count itself. Once a majority of the new configuration has acknowledged a commit index at or past
// the change it names the voter with the longest log to campaign at once, and steps down.

import { assert } from "../../base/index.ts";
import { entryOverheadBytes } from "./log.ts";
import { changeConfiguration, membersOf } from "./membership.ts";
import { quorumHolds } from "./quorum.ts";
import { sendHeartbeats, tickSnapshots } from "./replication.ts";
import { appendOwn, becomeFollower } from "./roles.ts";
import { countsItself, hasOwnCommit, type RaftState, refused, voters } from "./state.ts";
import {
  type Accepted,
  type Command,
  type MembershipChange,
  type NodeId,
  noNode,
  type Proposed,
  type Refused,
} from "./types.ts";

/** Appends commands in their order, all or none. The position is that of the last. */
export function propose(state: RaftState, commands: readonly Command[]): Proposed | Refused {
  if (state.role !== "leader") return refused(state, "not_leader");
  if (state.transfer) return refused(state, "transferring");
  assert(commands.length > 0, "a proposal has at least one command");
  let bytes = 0;
  for (const command of commands) bytes += entryOverheadBytes + command.data.length;
  const over = state.uncommittedBytes + bytes > state.settings.uncommittedBytesMax;
  if (over && state.uncommittedBytes > 0) return refused(state, "limit");
  for (const { version, data } of commands) {
    const index = state.log.lastIndex + 1;
    appendOwn(state, { kind: "command", index, term: state.term, version, data });
  }
  return { accepted: true, index: state.log.lastIndex, term: state.term };
}

/**
 * Appends one step of membership. Refused while an earlier one is not applied, and before an entry
 * of this term is committed: until then a change of an earlier leader may still come to light.
 */
export function proposeMembership(state: RaftState, change: MembershipChange): Proposed | Refused {
  if (state.role !== "leader") return refused(state, "not_leader");
  if (state.transfer) return refused(state, "transferring");
  if (!hasOwnCommit(state)) return refused(state, "no_own_commit");
  if (state.configurations.newestIndex > state.log.applied) {
    return refused(state, "change_pending");
  }
  const configuration = changeConfiguration(state.configurations.newest, change);
  if (configuration === undefined) return refused(state, "bad_change");
  if (membersOf(configuration).length > state.settings.membersMax) return refused(state, "limit");
  const index = state.log.lastIndex + 1;
  appendOwn(state, { kind: "membership", index, term: state.term, change, configuration });
  return { accepted: true, index, term: state.term };
}

/** Hands leadership to a voter, or gives up after one election timeout. */
export function transfer(state: RaftState, to: NodeId): Accepted | Refused {
  if (state.role !== "leader") return refused(state, "not_leader");
  if (to === state.id || !voters(state).includes(to)) return refused(state, "bad_target");
  if (state.transfer?.to !== to) state.transfer = { to, elapsed: 0, sent: false };
  return { accepted: true };
}

/** Tells the target of a transfer to campaign, once it holds everything. */
export function pushTransfer(state: RaftState): void {
  const { transfer: under } = state;
  if (under === undefined || under.sent) return;
  if (state.peers.get(under.to)?.match !== state.log.lastIndex) return;
  under.sent = true;
  sendTimeoutNow(state, under.to);
}

export function tickLeader(state: RaftState): void {
  const { electionTicks, heartbeatTicks } = state.settings;
  state.electionElapsed++;
  state.heartbeatElapsed++;
  if (state.transfer) {
    state.transfer.elapsed++;
    if (state.transfer.elapsed >= electionTicks) state.transfer = undefined;
  }
  if (state.electionElapsed >= electionTicks) {
    state.electionElapsed = 0;
    if (state.settings.checkQuorum && !hearsQuorum(state)) {
      becomeFollower(state, state.term);
      return;
    }
    for (const peer of state.peers.values()) {
      peer.active = false;
      peer.joining = false;
    }
  }
  tickSnapshots(state);
  if (state.heartbeatElapsed >= heartbeatTicks) sendHeartbeats(state);
}

/** Steps down if the leader is out of the configuration and the others know it for good. */
export function leaveOffice(state: RaftState): void {
  if (state.role !== "leader" || countsItself(state)) return;
  const changeIndex = state.configurations.newestIndex;
  const knows = (node: NodeId): boolean => (state.peers.get(node)?.commitAcked ?? 0) >= changeIndex;
  if (state.log.commit < changeIndex || !quorumHolds(voters(state), knows)) return;
  let heir: NodeId = noNode;
  let longest = -1;
  for (const node of voters(state)) {
    const match = state.peers.get(node)?.match ?? 0;
    if (match > longest) [heir, longest] = [node, match];
  }
  sendTimeoutNow(state, heir);
  becomeFollower(state, state.term);
}

// Until the first check after its entry a newcomer is left out: the quorum is that of the
// configuration before it. Counting it as heard would keep in office a leader that hears nobody.
function hearsQuorum(state: RaftState): boolean {
  const settled = voters(state).filter((node) => state.peers.get(node)?.joining !== true);
  return quorumHolds(
    settled,
    (node) => node === state.id || state.peers.get(node)?.active === true,
  );
}

function sendTimeoutNow(state: RaftState, to: NodeId): void {
  state.outbox.push({ type: "timeout-now", from: state.id, to, term: state.term });
}
