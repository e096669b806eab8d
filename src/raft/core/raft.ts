// The face of the core: one Raft node as a synchronous, deterministic machine. Ticks, messages and
// requests go in; `ready` hands out what to store, send and apply; `advance` reports it done.
// (Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm"; Ongaro's thesis.)
//
// Keeps: nothing happens outside a call; equal inputs and draws give equal outputs.
// Leaves to the host: clocks, disks, sockets, the contents of snapshots, who may connect.

import { assert, type Random, unreachable } from "../../base/index.ts";
import {
  campaign,
  campaignForLeader,
  onVoteRequest,
  onVoteResponse,
  refuseVote,
  sticksToLeader,
} from "./election.ts";
import { answerDeposed, onAppend, onHeartbeat, onSnapshot } from "./follower.ts";
import { propose, proposeMembership, tickLeader, transfer } from "./leader.ts";
import { becomeProbe, createProgress, type Progress } from "./progress.ts";
import { onReadRequest, onReadResponse, readIndex } from "./reads.ts";
import { noteProgress, takeReady } from "./ready.ts";
import { onAppendResponse, onHeartbeatResponse } from "./replication.ts";
import { becomeFollower } from "./roles.ts";
import { createState, isPeer, mayCampaign, type RaftState, refused } from "./state.ts";
import {
  type Accepted,
  type Command,
  type Configuration,
  type Entry,
  type MembershipChange,
  type Message,
  type NodeId,
  noNode,
  type PeerStatus,
  type Progressed,
  type Proposed,
  type RaftBoot,
  type RaftSettings,
  type RaftStatus,
  type Ready,
  type Refused,
  type Role,
  type SnapshotMeta,
} from "./types.ts";

export class Raft {
  readonly #state: RaftState;

  /**
   * Wakes a node up as a follower.
   * REQUIRES: `boot` is what an earlier incarnation made durable, or an agreed first configuration.
   */
  constructor(id: NodeId, settings: RaftSettings, random: Pick<Random, "below">, boot: RaftBoot) {
    assert(Number.isSafeInteger(id) && id > noNode, `node id ${id} is not a positive integer`);
    this.#state = createState(id, settings, random, boot);
  }

  /** One unit of time has passed. */
  tick(): void {
    const state = this.#state;
    if (state.role === "leader") {
      tickLeader(state);
      return;
    }
    state.electionElapsed++;
    if (state.electionElapsed < state.electionTimeout || !mayCampaign(state)) return;
    state.electionElapsed = 0;
    campaign(state);
  }

  /** Takes a message of another member. Old, foreign and repeated ones do no harm. */
  step(message: Message): void {
    const state = this.#state;
    if (message.to !== state.id || message.from === state.id) return;
    if (message.term < state.term) {
      this.#answerPast(message);
      return;
    }
    if (message.term > state.term && !this.#enterTerm(message)) return;
    this.#handle(message);
  }

  /** Stands for election, with a pre-vote if the settings say so. */
  campaign(): Accepted | Refused {
    return campaign(this.#state);
  }

  /** Appends commands, all or none; returns the position of the last. */
  propose(commands: readonly Command[]): Proposed | Refused {
    return propose(this.#state, commands);
  }

  proposeMembership(change: MembershipChange): Proposed | Refused {
    return proposeMembership(this.#state, change);
  }

  /** Hands leadership over; gives up after one election timeout. */
  transfer(to: NodeId): Accepted | Refused {
    return transfer(this.#state, to);
  }

  /** Asks for a `ReadState` with this context. */
  readIndex(context: string): Accepted | Refused {
    return readIndex(this.#state, context);
  }

  /** What is to be done now; undefined if nothing. */
  ready(): Ready | undefined {
    return takeReady(this.#state);
  }

  /** Reports what became durable and what was applied. */
  advance(progressed: Progressed): void {
    noteProgress(this.#state, progressed);
  }

  /** Leaves office, for a host that cannot serve: a disk that hangs, a shutdown. */
  stepDown(): void {
    const state = this.#state;
    if (state.role === "leader") becomeFollower(state, state.term);
  }

  /**
   * A node whose log lost entries it had acknowledged takes what the leader sends and acknowledges
   * that, but gives no vote and does not campaign: a candidate that lacks what was lost might win
   * by it. Over once a `ReadState` asked for after the loss is applied. The host persists the mark,
   * sees to it that messages from before the loss are dropped, and has all others `resetPeer`.
   */
  setRepairing(repairing: boolean): void {
    if (repairing) this.stepDown();
    this.#state.repairing = repairing;
  }

  /** The peer's log lost entries it had acknowledged: forgets what is known of it. */
  resetPeer(node: NodeId): void {
    const { peers, log } = this.#state;
    const known = peers.get(node);
    if (known === undefined) return;
    const peer = createProgress(node, log.lastIndex + 1);
    peer.active = known.active;
    peers.set(node, peer);
  }

  /**
   * The host holds a durable snapshot at `index`; the log up to there may be cut with `compact`.
   * Returns what the snapshot must be stored with.
   */
  takeSnapshot(index: number): SnapshotMeta | Refused {
    const state = this.#state;
    const meta = this.snapshotMeta(index);
    if (meta === undefined) return refused(state, "bad_index");
    state.snapshot = meta;
    return meta;
  }

  /** What a snapshot at `index` is stored with; undefined where none can be taken. */
  snapshotMeta(index: number): SnapshotMeta | undefined {
    const { log, snapshot, configurations } = this.#state;
    const term = log.termAt(index);
    if (term === undefined || index > log.applied || index <= snapshot.index) return undefined;
    const { configuration, index: configurationIndex } = configurations.at(index);
    return { index, term, configuration, configurationIndex };
  }

  /** Cuts the log up to `index`, at most up to the latest snapshot. */
  compact(index: number): Accepted | Refused {
    const { log, configurations, snapshot } = this.#state;
    if (index <= log.startIndex || index > snapshot.index) return refused(this.#state, "bad_index");
    log.compactTo(index);
    configurations.compactTo(index);
    return { accepted: true };
  }

  /**
   * A snapshot on its way to a peer moves: waits for it anew. A host that still holds the entries
   * on its disk may send those as appends of its own instead: once the peer has acknowledged what
   * the log here was cut at, it goes on from the log.
   */
  noteSnapshotProgress(node: NodeId): void {
    const peer = this.#state.peers.get(node);
    if (peer) peer.snapshotElapsed = 0;
  }

  /** A snapshot did not arrive, or a connection broke: looks anew where the logs agree. */
  noteUnreachable(node: NodeId): void {
    const peer = this.#state.peers.get(node);
    if (peer) becomeProbe(peer, peer.match + 1);
  }

  get role(): Role {
    return this.#state.role;
  }

  get term(): number {
    return this.#state.term;
  }

  /** `noNode` if unknown. */
  get leader(): NodeId {
    return this.#state.leader;
  }

  get commit(): number {
    return this.#state.log.commit;
  }

  get lastIndex(): number {
    return this.#state.log.lastIndex;
  }

  /** Highest index durable here. */
  get persisted(): number {
    return this.#state.log.persisted;
  }

  /** Whom leadership is being handed to; `noNode` if nobody. */
  get transferTo(): NodeId {
    return this.#state.transfer?.to ?? noNode;
  }

  /** The newest in the log: in force whether committed or not. */
  get configuration(): Configuration {
    return this.#state.configurations.newest;
  }

  /** The log above the last cut, for tools and tests. */
  entries(): readonly Entry[] {
    return this.#state.log.tail(this.#state.log.startIndex + 1);
  }

  status(): RaftStatus {
    const state = this.#state;
    const { log, configurations } = state;
    return {
      id: state.id,
      role: state.role,
      term: state.term,
      leader: state.leader,
      vote: state.vote,
      commit: log.commit,
      applied: log.applied,
      lastIndex: log.lastIndex,
      lastTerm: log.lastTerm,
      persisted: log.persisted,
      startIndex: log.startIndex,
      configuration: configurations.newest,
      configurationIndex: configurations.newestIndex,
      transferTo: this.transferTo,
      repairing: state.repairing,
      uncommittedBytes: state.uncommittedBytes,
      readsWaiting: state.reads.length,
      peers: [...state.peers.values()].map(peerStatus),
    };
  }

  // Whether the message is to be handled after what its later term meant for us.
  #enterTerm(message: Message): boolean {
    const state = this.#state;
    switch (message.type) {
      case "vote":
      case "pre-vote":
        if (!message.transfer && sticksToLeader(state, message.from)) return false;
        if (message.type === "vote") becomeFollower(state, message.term);
        return true;
      case "append":
      case "heartbeat":
      case "snapshot":
      case "timeout-now":
        becomeFollower(state, message.term);
        return true;
      default:
        // A grant names a term that has not begun. Answers of a node we removed change nothing:
        // it would depose us for ever.
        if (message.type === "pre-vote-resp" && message.granted) return true;
        if (!isPeer(state, message.from)) return false;
        becomeFollower(state, message.term);
        return true;
    }
  }

  #answerPast(message: Message): void {
    const state = this.#state;
    switch (message.type) {
      case "vote":
      case "pre-vote":
        refuseVote(state, message);
        break;
      case "append":
      case "heartbeat":
      case "snapshot":
        answerDeposed(state, message.from);
        break;
      default:
        break;
    }
  }

  #handle(message: Message): void {
    const state = this.#state;
    const leads = state.role === "leader";
    switch (message.type) {
      case "vote":
      case "pre-vote":
        onVoteRequest(state, message);
        break;
      case "vote-resp":
      case "pre-vote-resp":
        onVoteResponse(state, message);
        break;
      // Two leaders in a term cannot be; a forged message must not unseat the one we are.
      case "append":
        if (!leads) onAppend(state, message);
        break;
      case "heartbeat":
        if (!leads) onHeartbeat(state, message);
        break;
      case "snapshot":
        if (!leads) onSnapshot(state, message);
        break;
      case "append-resp":
        if (leads) onAppendResponse(state, message);
        break;
      case "heartbeat-resp":
        if (leads) onHeartbeatResponse(state, message);
        break;
      case "timeout-now":
        campaignForLeader(state);
        break;
      case "read-index":
        onReadRequest(state, message);
        break;
      case "read-index-resp":
        onReadResponse(state, message);
        break;
      default:
        unreachable(message);
    }
  }
}

function peerStatus(peer: Progress): PeerStatus {
  const { node, state, match, next, active } = peer;
  const { length: inflightMessages } = peer.flights;
  return { node, state, match, next, active, inflightMessages, inflightBytes: peer.flightBytes };
}
