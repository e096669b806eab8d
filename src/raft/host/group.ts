// One group on this node: the core, and its way to disk, machine and peers.
//
// Keeps (docs/architecture.md, Raft): what a ready promises leaves after it and all before it are
// durable; committed entries reach the machine in order, once; a snapshot is taken of applied state
// and counts when it is durable; a group in repair gives no vote before it is caught up; while a
// flush hangs no heartbeat leaves. Leaves to requests.ts what clients ask and are told, and to
// write-watch.ts whether this node writes well enough to lead.

import { isCodedError, toError } from "../../base/index.ts";
import { decodeMessage } from "../codec.ts";
import { Raft } from "../core/raft.ts";
import type {
  Command,
  MembershipChange,
  Message,
  NodeId,
  RaftStatus,
  Ready,
  SnapshotMessage,
  SnapshotMeta,
} from "../core/types.ts";
import { raftErrors } from "../errors.ts";
import { DiskQueue } from "./disk-queue.ts";
import { type Flight, Flights } from "./flights.ts";
import type { GroupBoot, GroupStores } from "./group-boot.ts";
import { Installing } from "./installing.ts";
import { MachineRun } from "./machine-run.ts";
import type { SnapshotHead } from "./manifest.ts";
import { OwnSnapshots } from "./own-snapshots.ts";
import type { SnapshotReceiver, StateMachine } from "./ports.ts";
import { RepairRun } from "./repair.ts";
import { ReplicaRecord } from "./replica-record.ts";
import { type RequestHost, Requests } from "./requests.ts";
import { type Entered, Waiters } from "./waiters.ts";
import { type WatchHost, WriteWatch } from "./write-watch.ts";

/** What a group needs of its host. */
export type GroupHost = GroupStores &
  RequestHost &
  WatchHost & {
    readonly send: (group: Group, message: Message) => void;
    readonly offer: (group: Group, message: SnapshotMessage) => void;
    /** The group has work: it is asked for it at the end of this turn. */
    readonly wake: (group: Group) => void;
    readonly noteBytes: (delta: number) => void;
    /** At the next tick. */
    readonly later: (run: () => void) => void;
    /** An IO error: the node ends. */
    readonly failHost: (error: Error) => void;
  };

export type GroupStatus = RaftStatus & {
  readonly group: number;
  readonly epoch: number;
  readonly incarnation: number;
  readonly state: "up" | "repairing" | "removed" | "failed";
  readonly failure: Error | undefined;
};

export class Group {
  readonly id: number;
  readonly machine: StateMachine;
  readonly #host: GroupHost;
  readonly #raft: Raft;
  readonly #disk: DiskQueue;
  readonly #waiters: Waiters;
  readonly #requests: Requests;
  readonly #watch: WriteWatch;
  readonly #run: MachineRun;
  readonly #incarnations = new Map<NodeId, number>();
  readonly #record: ReplicaRecord;
  readonly #flights = new Flights();
  readonly #snapshots: OwnSnapshots;
  readonly #installing: Installing;
  readonly #repair: RepairRun;
  #ledTerm: number | undefined;
  #failure: Error | undefined;
  #isRemoved = false;

  constructor(boot: GroupBoot, machine: StateMachine, host: GroupHost) {
    this.id = boot.meta.group;
    this.machine = machine;
    this.#host = host;
    this.#record = new ReplicaRecord(boot.meta, host, () => this.#failure !== undefined);
    this.#isRemoved = boot.meta.removed;
    this.#raft = new Raft(boot.meta.node, host.settings.raft, host.random, boot.raft);
    const lastIndex = boot.raft.entries.at(-1)?.index ?? boot.base.index;
    // What lies behind damage is replaced by what comes: the log knows where it really ends.
    const logEnd = host.log.range(this.id)?.lastIndex ?? 0;
    const { epoch } = boot.meta;
    this.#disk = new DiskQueue(host.log, this.id, epoch, Math.max(lastIndex, logEnd));
    this.#waiters = new Waiters(this.id, host.settings, host.noteBytes);
    this.#requests = this.#createRequests();
    const writing = { raft: this.#raft, flights: this.#flights };
    this.#watch = new WriteWatch({ group: this.id, node: this.node }, host, writing);
    this.#run = new MachineRun(machine, boot.position, {
      onEntry: (index, term, result) => this.#waiters.applied(index, term, result),
      onBatch: () => this.#onApplied(),
      onFailure: (error) => this.fail(error),
    });
    const place = { group: this.id, index: boot.base.index, isUp: () => this.isUp };
    this.#snapshots = new OwnSnapshots(place, host, this.#raft);
    this.#installing = this.#createInstalling();
    this.#repair = this.#createRepair();
    if (boot.meta.repairing) this.#repair.begin();
    if (boot.damage !== undefined) {
      host.counters.groupsRepairing++;
      host.logger.error("raft.repair_begun", { group: this.id, reason: boot.damage });
    }
  }

  get node(): NodeId {
    return this.#record.meta.node;
  }

  get epoch(): number {
    return this.#record.meta.epoch;
  }

  get incarnation(): number {
    return this.#record.meta.incarnation;
  }

  get isUp(): boolean {
    return this.#failure === undefined && !this.#isRemoved;
  }

  get role(): RaftStatus["role"] {
    return this.#raft.role;
  }

  get leader(): NodeId {
    return this.#raft.leader;
  }

  get commit(): number {
    return this.#raft.commit;
  }

  get appliedIndex(): number {
    return this.#run.base.index;
  }

  /** Of the log, committed or not. */
  get lastIndex(): number {
    return this.#raft.lastIndex;
  }

  status(): GroupStatus {
    const { epoch, incarnation, repairing } = this.#record.meta;
    const up = repairing ? "repairing" : "up";
    const state = this.#failure ? "failed" : this.#isRemoved ? "removed" : up;
    const { id: group } = this;
    const failure = this.#failure;
    return { ...this.#raft.status(), group, epoch, incarnation, state, failure };
  }

  /**
   * Resolves with the results of the machine once the commands are applied here.
   * @throws (rejects) RAFT_NOT_LEADER, RAFT_LIMIT_REACHED, RAFT_DISK_FULL, RAFT_PROPOSAL_DROPPED,
   *   RAFT_PROPOSAL_UNKNOWN, RAFT_GROUP_FAILED.
   */
  propose(commands: readonly Command[]): Promise<unknown[]> {
    return this.#requests.propose(commands);
  }

  /**
   * The same, for those who count themselves: `index` and `term` are of the last command.
   * @throws what `propose` does when nothing was proposed; `applied` rejects with the rest.
   */
  enter(commands: readonly Command[]): Entered {
    return this.#requests.enter(commands);
  }

  /** Resolves once the change is applied here. @throws as `propose`, and RAFT_REQUEST_DECLINED. */
  changeMembership(change: MembershipChange): Promise<void> {
    return this.#requests.changeMembership(change);
  }

  /**
   * Resolves with an index, applied here, that covers everything acknowledged before the call.
   * Proved by a majority after the call, never by a clock.
   * @throws (rejects) RAFT_NOT_LEADER, RAFT_READ_TIMEOUT, RAFT_LIMIT_REACHED, RAFT_GROUP_FAILED.
   */
  read(): Promise<number> {
    return this.#requests.read();
  }

  /** Begins to hand leadership over. @throws RAFT_NOT_LEADER, RAFT_REQUEST_DECLINED. */
  transfer(to: NodeId): void {
    this.#requests.transfer(to);
  }

  /** Stands for election now. */
  campaign(): void {
    this.#requests.campaign();
  }

  /** Takes a snapshot of what is applied and cuts the log. Resolves when it is durable. */
  async checkpoint(): Promise<void> {
    this.#checkUp();
    await this.#snapshots.rested();
    // The machine must stand still.
    await this.#run.rested();
    this.#checkUp();
    this.#autoSnapshot();
    await this.#snapshots.rested();
  }

  /**
   * The machine holds, durably, everything up to `index`: the snapshot says so, made of what
   * `capture` gives now, and the log is cut. False where none can be taken now.
   */
  snapshotAt(index: number): boolean {
    if (!this.isUp || this.#snapshots.isUnderWay) return false;
    const meta = this.#raft.snapshotMeta(Math.min(index, this.appliedIndex));
    if (meta === undefined) return false;
    this.#snapshots.begin(this.#headOf(meta), this.machine.capture());
    return true;
  }

  /** A message, from which life of the sender's log. */
  receive(
    bytes: Uint8Array,
    sender: { readonly incarnation: number; owns(node: NodeId): boolean },
  ) {
    const { counters } = this.#host;
    let message: Message;
    try {
      message = decodeMessage(bytes);
    } catch (error) {
      // Counted, and sent again by its sender.
      if (!isCodedError(error)) throw error;
      counters.refusedBody++;
      return;
    }
    if (message.to !== this.node || !sender.owns(message.from) || message.type === "snapshot") {
      counters.lettersMisaddressed++;
      return;
    }
    if (!this.isOfThisLife(message.from, sender.incarnation)) return;
    // A leader that writes to us has taken us in again.
    if (message.type === "append" || message.type === "heartbeat") this.#noteTakenIn();
    this.#step(message);
  }

  /** Whether what the node says is of the newest known life of its log; counted if not. */
  isOfThisLife(from: NodeId, incarnation: number): boolean {
    const isCurrent = this.#isCurrent(from, incarnation);
    if (!isCurrent) this.#host.counters.lettersOldIncarnation++;
    return isCurrent;
  }

  /** All of a snapshot is here; the core decides whether it is wanted. */
  receiveSnapshot(message: SnapshotMessage, receiver: SnapshotReceiver): void {
    this.#installing.receive(receiver);
    this.#step(message);
  }

  /** Tells the leader how far this log goes: the answer to the snapshot before may be lost. */
  answerOffer(message: SnapshotMessage): void {
    this.#step(message);
  }

  wantsSnapshot(index: number): boolean {
    return this.isUp && index > this.#raft.commit && !this.#installing.isTaken;
  }

  tick(isAfterStall: boolean): void {
    if (!this.isUp) return;
    this.#waiters.tick();
    this.#disk.pump();
    const leads = this.#raft.role === "leader";
    if (leads) this.#watch.stepDownIfHung();
    // A node that cannot write cannot lead; one that slept first listens for its leader.
    const rests = !leads && (isAfterStall || this.#watch.hangsFor(1));
    if (!rests) this.#raft.tick();
    if (leads) this.#watch.yieldWithoutSpace();
    this.#repair.tick();
    if (this.#snapshots.isDue) this.#autoSnapshot();
    this.#host.wake(this);
  }

  /** What was sent to the node may be lost. */
  noteUnreachable(node: NodeId): void {
    if (this.isUp) this.#raft.noteUnreachable(node);
  }

  noteSnapshotProgress(node: NodeId): void {
    if (this.isUp) this.#raft.noteSnapshotProgress(node);
  }

  /** Whether a leader here can tell the node that it is a member no more. */
  hasRemoved(node: NodeId): boolean {
    if (this.#raft.role !== "leader") return false;
    const { voters, learners } = this.#raft.configuration;
    if (voters.includes(node) || learners.includes(node)) return false;
    const { configurationIndex, commit } = this.#raft.status();
    return configurationIndex <= commit;
  }

  /**
   * The leader's configuration has us no more, or the group went on without us in a later epoch.
   * Durable: a node that is started again does not stand for election first. False if it is known.
   */
  noteRemoved(why: string): boolean {
    if (!this.isUp) return false;
    this.#isRemoved = true;
    this.#host.logger.warn("raft.removed", { group: this.id, node: this.node, why });
    this.#waiters.end(this.#requests.notLeader(removedReason));
    this.#saveRemoved();
    return true;
  }

  /** Does what the core has to do. Called once a turn. */
  turn(): void {
    if (!this.isUp) return;
    try {
      for (;;) {
        const ready = this.#raft.ready();
        if (ready === undefined) break;
        this.#take(ready);
      }
      this.#noteRole();
    } catch (error) {
      this.fail(toError(error));
    }
  }

  fail(error: Error): void {
    if (this.#failure !== undefined) return;
    const failure = raftErrors.groupFailed({ group: this.id, reason: error.message }, error);
    this.#failure = failure;
    this.#host.counters.groupsFailed++;
    this.#host.logger.error("raft.group_failed", { group: this.id, reason: error.message });
    this.#run.end();
    this.#waiters.end(failure);
    this.machine.ended?.(failure);
  }

  /** Ends without a word, as the node stops. */
  async close(error: Error): Promise<void> {
    if (this.#failure === undefined) this.machine.ended?.(error);
    this.#failure ??= error;
    this.#run.end();
    this.#waiters.end(error);
    await this.#snapshots.rested();
  }

  #noteRole(): void {
    const term = this.#raft.role === "leader" && !this.#isRemoved ? this.#raft.term : undefined;
    if (term !== this.#ledTerm) this.machine.led?.(term);
    this.#ledTerm = term;
  }

  #step(message: Message): void {
    if (!this.isUp) return;
    try {
      this.#raft.step(message);
    } catch (error) {
      // Only a broken rule throws here: this group ends, the node goes on.
      this.fail(toError(error));
    }
    this.#host.wake(this);
  }

  #noteTakenIn(): void {
    if (!this.#isRemoved) return;
    this.#isRemoved = false;
    this.#saveRemoved();
  }

  #saveRemoved(): void {
    this.#record.save({ removed: this.#isRemoved }, (error) => {
      if (error !== undefined) this.#host.failHost(error);
    });
  }

  #isCurrent(from: NodeId, incarnation: number): boolean {
    const known = this.#incarnations.get(from);
    if (known !== undefined && incarnation < known) return false;
    if (known !== undefined && incarnation > known) this.#raft.resetPeer(from);
    this.#incarnations.set(from, incarnation);
    return true;
  }

  #checkUp(): void {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#isRemoved) throw this.#requests.notLeader(removedReason);
  }

  #take(ready: Ready): void {
    for (const message of ready.messages) this.#send(message);
    const { number, hardState, snapshot, entries, messagesAfterSync } = ready;
    const flight = this.#flights.begin(number, messagesAfterSync, this.#host.nowMs());
    const landed = (error: Error | undefined): void => {
      if (error === undefined) this.#land(flight);
      else if (isIoError(error)) this.#host.failHost(error);
      else this.fail(error);
    };
    if (hardState !== undefined && this.#record.isPromise(hardState)) {
      flight.waits++;
      const { configurationIndex } = this.#raft.status();
      this.#record.save({ hardState, configurationIndex }, landed);
    }
    if (snapshot === undefined) {
      this.#installing.drop();
    } else {
      flight.waits++;
      this.#installing.begin(snapshot, landed);
    }
    if (entries.length > 0) {
      flight.waits++;
      this.#disk.append(entries, landed);
    }
    this.#land(flight);
    if (ready.committed.length > 0) this.#run.apply(ready.committed);
    for (const { context, index } of ready.readStates) this.#confirmed(context, index);
    for (const context of ready.readsLost) this.#waiters.readLost(context, this.#raft.leader);
    this.#waiters.serve(this.appliedIndex);
    this.#repair.proceed();
  }

  // A write ended: whatever waited for it and is next in order leaves.
  #land(flight: Flight): void {
    const landed = this.#flights.land(flight);
    if (this.#failure !== undefined) return;
    for (const { number, messages } of landed) {
      this.#raft.advance({ persisted: number });
      for (const message of messages) this.#send(message);
    }
    if (landed.length > 0) this.#host.wake(this);
  }

  #send(message: Message): void {
    // Heartbeats of a leader that cannot write would keep the others from electing one that can.
    if (message.type === "heartbeat" && this.#watch.hangsFor(1)) return;
    if (message.type === "snapshot") this.#host.offer(this, message);
    else this.#host.send(this, message);
  }

  #onApplied(): void {
    if (this.#failure !== undefined) return;
    this.#raft.advance({ applied: this.appliedIndex });
    this.#waiters.serve(this.appliedIndex);
    this.#repair.proceed();
    this.#host.wake(this);
  }

  #createRequests(): Requests {
    return new Requests(this.#host, {
      group: this.id,
      node: this.node,
      raft: this.#raft,
      waiters: this.#waiters,
      checkUp: () => this.#checkUp(),
      wake: () => this.#host.wake(this),
    });
  }

  #createInstalling(): Installing {
    return new Installing(this.#host, {
      group: this.id,
      machine: this.machine,
      run: this.#run,
      disk: this.#disk,
      own: this.#snapshots,
      isEnded: () => this.#failure !== undefined,
      onInstalled: ({ index }) => {
        this.#waiters.passedOver(index);
        this.#raft.advance({ applied: index });
      },
    });
  }

  #autoSnapshot(): void {
    if (this.#snapshots.isUnderWay || this.#run.isBusy || !this.isUp) return;
    if (this.appliedIndex <= this.#snapshots.index) return;
    if (this.machine.wantSnapshot !== undefined) return this.machine.wantSnapshot();
    this.#snapshots.begin(this.#headOf(this.#run.base), this.machine.capture());
  }

  #headOf(meta: SnapshotMeta): SnapshotHead {
    const { id: group, epoch, machine } = this;
    return { group, epoch, meta, machineVersion: machine.captureVersion ?? machine.version };
  }

  #confirmed(context: string, index: number): void {
    if (!this.#repair.takes(context, index)) this.#waiters.confirmed(context, index);
  }

  #createRepair(): RepairRun {
    return new RepairRun(this.#host, {
      group: this.id,
      raft: this.#raft,
      disk: this.#disk,
      record: this.#record,
      snapshots: this.#snapshots,
      isUp: () => this.isUp,
      appliedIndex: () => this.appliedIndex,
      takeSnapshot: () => this.#autoSnapshot(),
    });
  }
}

const removedReason = "this node was removed from the group";

/** Of the volume: ends the node. Anything else is the group's own. */
function isIoError(error: Error): boolean {
  return isCodedError(error) && /^(DISK|LOG)_/.test(error.code);
}
