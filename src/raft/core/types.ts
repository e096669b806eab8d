// The words of the Raft core: entries, messages, what `ready` hands out, settings and status.
//
// Everything here is plain data. Indexes count from 1 in steps of one, terms from 1; index 0 and
// term 0 mean "nothing yet". Nodes are positive safe integers, 0 is "no node": what a number stands
// for (site, disk, address) is the host's matter. Times are ticks, sizes bytes.

export type NodeId = number;

/** Stands where no node is meant: no leader known, no vote given. */
export const noNode = 0;

/** Voters count in elections and commits, learners only receive. Both sorted, disjoint. */
export type Configuration = {
  readonly voters: readonly NodeId[];
  readonly learners: readonly NodeId[];
};

/**
 * One step of membership, never more than one voter apart from the configuration before it.
 * `add`: a new voter. `learner`: a new learner, or a voter that becomes one. `promote`: a learner
 * becomes a voter. `remove`: gone.
 */
export type MembershipChange = {
  readonly op: "add" | "remove" | "learner" | "promote";
  readonly node: NodeId;
};

export type EntryPosition = { readonly index: number; readonly term: number };

/** A new leader's first entry: commits what earlier terms left behind. */
export type EmptyEntry = EntryPosition & { readonly kind: "empty" };

/** A command of the state machine above. The core does not look inside `data`. */
export type CommandEntry = EntryPosition & {
  readonly kind: "command";
  /** Version of the command's encoding, u16. */
  readonly version: number;
  readonly data: Uint8Array;
};

/** A change and the whole configuration it leads to, so that no history is needed to read it. */
export type MembershipEntry = EntryPosition & {
  readonly kind: "membership";
  readonly change: MembershipChange;
  readonly configuration: Configuration;
};

export type Entry = EmptyEntry | CommandEntry | MembershipEntry;

/**
 * What must survive a crash beside the log, in any order with it. `commit` may be written lazily;
 * it names only entries that were durable before it was handed out.
 */
export type HardState = {
  readonly term: number;
  readonly vote: NodeId;
  readonly commit: number;
};

/** A snapshot as the core knows it; its contents belong to the host. */
export type SnapshotMeta = EntryPosition & {
  readonly configuration: Configuration;
  /** Index of the entry that made `configuration`; 0 for the first one. */
  readonly configurationIndex: number;
};

type Envelope = { readonly from: NodeId; readonly to: NodeId; readonly term: number };

/** `term` of a pre-vote is the term the sender would campaign in. */
export type VoteRequest = Envelope & {
  readonly type: "vote" | "pre-vote";
  readonly lastIndex: number;
  readonly lastTerm: number;
  /** The leader asked for this election: a sticky leader does not stand in its way. */
  readonly transfer: boolean;
};

/** A granted pre-vote carries the term asked for, a refusal the term of the one that refuses. */
export type VoteResponse = Envelope & {
  readonly type: "vote-resp" | "pre-vote-resp";
  readonly granted: boolean;
};

export type AppendRequest = Envelope & {
  readonly type: "append";
  readonly prevIndex: number;
  readonly prevTerm: number;
  readonly commit: number;
  readonly entries: readonly Entry[];
};

export type AppendResponse = Envelope & {
  readonly type: "append-resp";
  readonly rejected: boolean;
  /** Accepted: last index known to agree. Rejected: the `prevIndex` that did not fit. */
  readonly index: number;
  /** Rejected: where the sender should look next, and the term held there. */
  readonly hintIndex: number;
  readonly hintTerm: number;
  /** Commit index of the one that answers. */
  readonly commit: number;
};

/** `round` counts the read rounds of a leader; an answer repeats it. */
export type Heartbeat = Envelope & {
  readonly type: "heartbeat";
  readonly commit: number;
  readonly round: number;
};

export type HeartbeatResponse = Envelope & {
  readonly type: "heartbeat-resp";
  readonly round: number;
};

export type SnapshotMessage = Envelope & {
  readonly type: "snapshot";
  readonly snapshot: SnapshotMeta;
};

export type TimeoutNow = Envelope & { readonly type: "timeout-now" };

export type ReadRequest = Envelope & { readonly type: "read-index"; readonly context: string };

export type ReadResponse = Envelope & {
  readonly type: "read-index-resp";
  readonly context: string;
  readonly index: number;
};

export type Message =
  | VoteRequest
  | VoteResponse
  | AppendRequest
  | AppendResponse
  | Heartbeat
  | HeartbeatResponse
  | SnapshotMessage
  | TimeoutNow
  | ReadRequest
  | ReadResponse;

export type MessageType = Message["type"];

/** A read may be served once the state machine has applied `index`. */
export type ReadState = { readonly context: string; readonly index: number };

/**
 * Work for the host. Rules:
 * - `snapshot`, `entries` and `hardState` become durable in the order of `number`; entries replace
 *   whatever the log holds from the first one's index on; a snapshot replaces the whole log.
 * - `messages` may leave at once. `messagesAfterSync` leave once this ready and all before it are
 *   durable, even when this one has nothing to write.
 * - `committed` are applied in order, after `snapshot`.
 * - The host reports with `advance`; further readies may be taken before that.
 */
export type Ready = {
  readonly number: number;
  readonly hardState: HardState | undefined;
  /** False if nothing but a newer commit index is to be stored: that may wait for a later write. */
  readonly mustSync: boolean;
  readonly entries: readonly Entry[];
  readonly snapshot: SnapshotMeta | undefined;
  readonly messages: readonly Message[];
  readonly messagesAfterSync: readonly Message[];
  readonly committed: readonly Entry[];
  readonly readStates: readonly ReadState[];
  /** Contexts of local reads that will not be answered, since leadership was lost. */
  readonly readsLost: readonly string[];
};

/** What the host has done since. */
export type Progressed = {
  /** Every ready up to this number is durable. */
  readonly persisted?: number;
  /** Highest index in the state machine. */
  readonly applied?: number;
};

export type Role = "follower" | "precandidate" | "candidate" | "leader";

export type RefusalReason =
  | "not_leader"
  | "transferring"
  | "limit"
  | "change_pending"
  | "no_own_commit"
  | "bad_change"
  | "not_voter"
  | "repairing"
  | "bad_target"
  | "bad_index";

export type Refused = {
  readonly accepted: false;
  readonly reason: RefusalReason;
  /** Who may know better; `noNode` if unknown. */
  readonly leader: NodeId;
};

export type Accepted = { readonly accepted: true };
export type Proposed = { readonly accepted: true; readonly index: number; readonly term: number };

export type Command = { readonly version: number; readonly data: Uint8Array };

export type RaftSettings = {
  /** Shortest election timeout; each draw is in [electionTicks, 2 * electionTicks - 1]. */
  readonly electionTicks: number;
  readonly heartbeatTicks: number;
  readonly preVote: boolean;
  /** The leader steps down without a quorum, and voters stick to a leader they hear. */
  readonly checkQuorum: boolean;
  /** Appends under way to one peer; at the brim only empty ones after a heartbeat answer. */
  readonly inflightMessagesMax: number;
  readonly inflightBytesMax: number;
  /** One append; a larger single entry travels alone. */
  readonly appendEntriesMax: number;
  readonly appendBytesMax: number;
  /** Proposed and not committed; at the brim proposals are refused, one is always admitted. */
  readonly uncommittedBytesMax: number;
  /** Committed entries handed out by one `ready`. */
  readonly applyBytesMax: number;
  /** How long a peer is waited for after a snapshot without a sign of progress. */
  readonly snapshotTicks: number;
  /** Reads waiting at a leader; at the brim they are refused. */
  readonly readsMax: number;
  /** Voters and learners of one configuration. */
  readonly membersMax: number;
};

/** Ticks of 100 ms: heartbeat 200 ms, election 2 to 4 s. */
export const defaultRaftSettings: RaftSettings = {
  electionTicks: 20,
  heartbeatTicks: 2,
  preVote: true,
  checkQuorum: true,
  inflightMessagesMax: 256,
  inflightBytesMax: 16 * 1024 * 1024,
  appendEntriesMax: 1024,
  appendBytesMax: 1024 * 1024,
  uncommittedBytesMax: 64 * 1024 * 1024,
  applyBytesMax: 4 * 1024 * 1024,
  snapshotTicks: 40,
  readsMax: 10_000,
  membersMax: 64,
};

/** What a node wakes up with. */
export type RaftBoot = {
  readonly hardState: HardState;
  /** Index 0 and term 0 for a log that was never cut. */
  readonly snapshot: SnapshotMeta;
  /** Durable entries, from `snapshot.index + 1` on without a gap. */
  readonly entries: readonly Entry[];
  /** Highest index in the durable state machine, at least `snapshot.index`. */
  readonly applied: number;
  /** Synced parts of the log are lost: see `Raft.setRepairing`. Default false. */
  readonly repairing?: boolean;
};

export type PeerStatus = {
  readonly node: NodeId;
  readonly state: "probe" | "replicate" | "snapshot";
  readonly match: number;
  readonly next: number;
  /** Heard from since the last check of the quorum. */
  readonly active: boolean;
  readonly inflightMessages: number;
  readonly inflightBytes: number;
};

export type RaftStatus = {
  readonly id: NodeId;
  readonly role: Role;
  readonly term: number;
  readonly leader: NodeId;
  readonly vote: NodeId;
  readonly commit: number;
  readonly applied: number;
  readonly lastIndex: number;
  readonly lastTerm: number;
  readonly persisted: number;
  /** Last index cut from the log. */
  readonly startIndex: number;
  /** Newest in the log, in force whether committed or not. */
  readonly configuration: Configuration;
  readonly configurationIndex: number;
  readonly transferTo: NodeId;
  readonly repairing: boolean;
  readonly uncommittedBytes: number;
  readonly readsWaiting: number;
  readonly peers: readonly PeerStatus[];
};
