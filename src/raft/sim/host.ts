// One simulated node: the core, a disk, a state machine, and the rules of a host, each of which a
// known-bad host breaks (flaws.ts).
//
// Keeps: what a ready promises leaves after its sync; writes reach the disk in order; reads wait
// until their index is applied. Every step is told to the checker.

import { assertPresent } from "../../base/index.ts";
import { Raft } from "../core/raft.ts";
import type {
  Entry,
  MembershipChange,
  Message,
  NodeId,
  Ready,
  SnapshotMeta,
} from "../core/types.ts";
import type { SimContext } from "./context.ts";
import { type DiskWrite, SimDisk } from "./disk.ts";
import type { OpenOperation } from "./history.ts";
import {
  applyEntry,
  emptyMachine,
  encodeCommand,
  type MachineState,
  registerCount,
} from "./machine.ts";
import type { Parcel } from "./network.ts";
import { HostObserver } from "./observer.ts";

type PendingWrite = { readonly term: number; readonly operation: OpenOperation };
type PendingRead = { readonly index: number; readonly operation: OpenOperation };

/** Names the reads by which a node in repair learns what it has to reach. */
const repairContext = "repair";

const never = Number.POSITIVE_INFINITY;

const calmSyncMsMax = 20;

export class SimHost {
  readonly id: NodeId;
  disk: SimDisk;
  raft: Raft | undefined;
  machine: MachineState = emptyMachine;
  /** Its disk is lost or it was removed: it does not come back. */
  gone = false;
  /** No sync ends before this time. */
  hungUntil = 0;
  /** Of the log: a new one begins when synced entries are lost. */
  incarnation = 0;
  /** Synced entries were lost, and not all of them are known to be back. */
  repairing = false;
  /** After healing the disk is a quick one. */
  calm = false;
  readonly #context: SimContext;
  readonly #observer: HostObserver;
  #lives = 0;
  #repairTo = never;
  #paused = false;
  #backlog: Array<() => void> = [];
  #syncing = false;
  #turnPlanned = false;
  readonly #received = new Map<number, MachineState>();
  #writes = new Map<number, PendingWrite>();
  #asked = new Map<string, OpenOperation>();
  #reads: PendingRead[] = [];

  constructor(id: NodeId, context: SimContext) {
    this.id = id;
    this.#context = context;
    this.#observer = new HostObserver(id, context);
    this.disk = new SimDisk(context.firstConfiguration, emptyMachine);
  }

  get isUp(): boolean {
    return this.raft !== undefined;
  }

  get isPaused(): boolean {
    return this.#paused;
  }

  start(): void {
    const { disk } = this;
    const context = this.#context;
    this.#lives++;
    this.machine = disk.contents;
    const apart = context.flaw === "applied_index_apart_from_data";
    const entries = disk.logAboveSnapshot();
    const last = entries.at(-1)?.index ?? disk.snapshot.index;
    const applied = apart ? Math.min(disk.hardState.commit, last) : disk.snapshot.index;
    this.raft = new Raft(this.id, context.swarm.settings, context.timeouts, {
      hardState: disk.hardState,
      snapshot: disk.snapshot,
      entries,
      applied: Math.max(applied, disk.snapshot.index),
      repairing: this.repairing,
    });
    context.note(() => `node ${this.id} starts`);
    this.#observer.started(this.raft, disk.snapshot, entries);
    this.turn();
  }

  crash(): void {
    const { coverage, flaw, random } = this.#context;
    if (this.raft === undefined) return;
    if (this.raft.status().configurationIndex > this.raft.commit) coverage.memberCrash++;
    const fate = this.disk.crash(random.disk, flaw);
    this.#context.note(() => `node ${this.id} crashes, its writes are ${fate}`);
    if (fate === "clean") coverage.crashesClean++;
    else if (fate === "kept") coverage.crashesKept++;
    else if (fate === "torn") coverage.crashesTorn++;
    else coverage.crashesLost++;
    this.raft = undefined;
    this.#lives++;
    this.#paused = false;
    this.#backlog = [];
    this.#syncing = false;
    this.#turnPlanned = false;
    this.#received.clear();
    this.#writes.clear();
    this.#asked.clear();
    this.#reads = [];
    this.#repairTo = never;
  }

  wipe(): void {
    this.crash();
    this.gone = this.#context.flaw !== "wiped_disk_returns";
    // What it held once counts as held: the loss of one disk is what the others are for.
    if (!this.gone) this.disk = new SimDisk(this.#context.firstConfiguration, emptyMachine);
  }

  /** A crash after which synced entries cannot be read any more. */
  rot(): void {
    this.crash();
    this.incarnation++;
    this.repairing = this.#context.flaw !== "rot_unnoticed";
    this.disk.rot(this.#context.random.disk);
    this.#context.coverage.logsRotted++;
  }

  pause(): void {
    if (!this.isUp) return;
    this.#paused = true;
    this.#context.note(() => `node ${this.id} stands still`);
  }

  resume(): void {
    this.#paused = false;
    this.#context.note(() => `node ${this.id} goes on`);
    this.#observer.woke();
    for (const run of this.#backlog.splice(0)) run();
  }

  tick(): void {
    // What was missed in a pause is not made up for: one tick at the next beat.
    if (this.raft === undefined || this.#paused) return;
    this.raft.tick();
    // Whoever is in repair asks, until an answer is applied, how far it has to come.
    if (this.repairing) this.raft.readIndex(repairContext);
    this.turn();
    if (this.raft) this.#observer.ticked(this.raft);
  }

  receive(parcel: Parcel): void {
    this.#whenAwake(() => {
      const { message, contents, incarnation } = parcel;
      if (incarnation !== this.#context.incarnationOf(message.from)) return;
      if (message.type === "snapshot" && contents) {
        this.#received.set(message.snapshot.index, contents);
      }
      this.#judgeBefore(message);
      this.raft?.step(message);
      this.#turnSoon();
    });
  }

  // What a leader committed was so under the configuration of then: a later term may take a change
  // back that was in force and not committed.
  #judgeBefore(message: Message): void {
    const { raft } = this;
    if (raft?.role !== "leader" || message.term <= raft.term) return;
    if (raft.commit > this.#observer.commit) this.turn();
  }

  /** A client's command; the operations of a batch share their fate. */
  propose(keys: readonly number[], paddingBytes: number): void {
    const { raft } = this;
    if (raft === undefined || this.#paused) return;
    const { history, coverage, flaw } = this.#context;
    const operations = keys.map((key) => history.beginWrite(key));
    const result = raft.propose(
      operations.map(({ key, value }) => ({
        version: 1,
        data: encodeCommand(key, value, paddingBytes),
      })),
    );
    if (!result.accepted) {
      for (const operation of operations) operation.void = true;
      if (result.reason === "limit") coverage.proposalsLimited++;
    } else {
      const { term } = result;
      let index = result.index - operations.length;
      for (const operation of operations) {
        index++;
        this.#dropWrite(index);
        this.#writes.set(index, { term, operation });
        if (flaw === "client_acked_at_proposal") this.#acknowledge(index);
      }
    }
    this.#turnSoon();
  }

  read(key: number): void {
    const { raft } = this;
    if (raft === undefined || this.#paused) return;
    const { history, flaw } = this.#context;
    const operation = history.beginRead(key);
    if (flaw === "read_without_round") {
      history.end(operation, this.machine.values[key] ?? 0);
      return;
    }
    const context = `${this.id}.${operation.begin}`;
    if (raft.readIndex(context).accepted) this.#asked.set(context, operation);
    else operation.void = true;
    this.#turnSoon();
  }

  proposeMembership(change: MembershipChange): void {
    // What is committed by now was so under the configuration of now.
    this.turn();
    this.request((raft) => {
      if (raft.proposeMembership(change).accepted) this.#observer.membershipProposed(raft);
    });
  }

  transfer(to: NodeId): void {
    this.request((raft) => {
      const before = raft.transferTo;
      if (raft.transfer(to).accepted && before !== to) this.#observer.transferRequested();
    });
  }

  /** Any other request to the core, if the node can take one. */
  request(ask: (raft: Raft) => void): void {
    if (this.raft === undefined || this.#paused) return;
    ask(this.raft);
    this.#turnSoon();
  }

  /** Lets the core do what it has to do. */
  turn(): void {
    const { raft } = this;
    if (raft === undefined || this.#paused) return;
    for (;;) {
      const ready = raft.ready();
      if (ready === undefined) break;
      this.#take(raft, ready);
    }
    this.#observer.observe(raft);
    this.#serveReads();
    this.#endRepair(raft);
    this.#snapshot(raft);
  }

  #endRepair(raft: Raft): void {
    if (!this.repairing || this.machine.index < this.#repairTo) return;
    if (raft.persisted < this.#repairTo) return;
    this.repairing = false;
    this.#repairTo = never;
    this.#context.coverage.logsRepaired++;
    raft.setRepairing(false);
  }

  #turnSoon(): void {
    const { swarm, queue, random } = this.#context;
    if (!swarm.faults.has("lazyready")) {
      this.turn();
      return;
    }
    if (this.#turnPlanned) return;
    this.#turnPlanned = true;
    const life = this.#lives;
    queue.after(random.schedule.below(8), () => {
      if (life !== this.#lives) return;
      this.#turnPlanned = false;
      this.turn();
    });
  }

  #take(raft: Raft, ready: Ready): void {
    const { coverage, flaw } = this.#context;
    this.#observer.took(ready, this.disk.pending);
    for (const message of ready.messages) this.#emit(message);
    const early = flaw === "ack_before_sync";
    if (early) for (const message of ready.messagesAfterSync) this.#emit(message);
    const { lazyCommit } = this.#context.swarm;
    const idle = lazyCommit ? !ready.mustSync : !ready.mustSync && !ready.hardState;
    if (idle && this.disk.pending.length === 0) {
      if (!early) for (const message of ready.messagesAfterSync) this.#emit(message);
      raft.advance({ persisted: ready.number });
    } else {
      if (this.disk.pending.length > 0) coverage.readiesOverlapped++;
      const contents = ready.snapshot && this.#contentsOf(ready.snapshot);
      this.disk.pending.push({ ready, contents });
      if (flaw === "report_before_sync") raft.advance({ persisted: ready.number });
      this.#startSync();
    }
    this.#observer.observe(raft);
    for (const entry of ready.committed) this.#apply(raft, entry);
    for (const { context, index } of ready.readStates) {
      if (context === repairContext && this.repairing) this.#repairTo = index;
      const operation = this.#asked.get(context);
      this.#asked.delete(context);
      if (operation) this.#reads.push({ index, operation });
    }
    for (const context of ready.readsLost) {
      coverage.readsLost++;
      const operation = this.#asked.get(context);
      if (operation) operation.void = true;
      this.#asked.delete(context);
    }
  }

  #contentsOf(snapshot: SnapshotMeta): MachineState {
    return assertPresent(this.#received.get(snapshot.index), "a snapshot without contents");
  }

  #startSync(): void {
    const { queue, random, swarm } = this.#context;
    if (this.#syncing || this.disk.pending.length === 0) return;
    this.#syncing = true;
    const count = this.disk.pending.length;
    const life = this.#lives;
    const hung = Math.max(0, this.hungUntil - queue.now);
    const syncMsMax = this.calm ? Math.min(swarm.syncMsMax, calmSyncMsMax) : swarm.syncMsMax;
    queue.after(hung + random.disk.below(syncMsMax + 1), () => {
      this.#whenAwake(() => {
        if (life === this.#lives) this.#endSync(count);
      });
    });
  }

  #endSync(count: number): void {
    this.#syncing = false;
    for (let done = 0; done < count; done++) {
      const write = this.disk.complete(this.#context.flaw);
      if (write === undefined) continue;
      this.#observer.synced(write);
      this.#synced(write);
    }
    this.#startSync();
    this.#turnSoon();
  }

  #synced(write: DiskWrite): void {
    const { flaw, coverage } = this.#context;
    const { ready, contents } = write;
    const { raft } = this;
    if (raft === undefined) return;
    if (contents) {
      coverage.snapshotsInstalled++;
      this.machine = contents;
      // Whatever waited below the snapshot: its fate is not known.
      this.#writes.clear();
      raft.advance({ applied: contents.index });
    }
    if (flaw !== "report_before_sync") raft.advance({ persisted: ready.number });
    if (flaw === "ack_before_sync") return;
    for (const message of ready.messagesAfterSync) this.#emit(message);
  }

  #apply(raft: Raft, entry: Entry): void {
    this.machine = applyEntry(this.machine, entry);
    this.#observer.applied(entry, this.machine.hash);
    raft.advance({ applied: entry.index });
    const write = this.#writes.get(entry.index);
    if (write === undefined) return;
    if (write.term === entry.term) this.#acknowledge(entry.index);
    else this.#dropWrite(entry.index);
  }

  #acknowledge(index: number): void {
    const write = this.#writes.get(index);
    if (write === undefined) return;
    this.#context.history.end(write.operation, write.operation.value);
    this.#context.history.acknowledged(index, write.term);
    this.#writes.delete(index);
  }

  // Another entry took its place: it never happened.
  #dropWrite(index: number): void {
    const write = this.#writes.get(index);
    if (write) write.operation.void = true;
    this.#writes.delete(index);
  }

  #serveReads(): void {
    if (this.#reads.length === 0) return;
    const { history, coverage, flaw } = this.#context;
    const hasty = flaw === "read_before_applied";
    const due = ({ index }: PendingRead): boolean => hasty || index <= this.machine.index;
    for (const { operation } of this.#reads.filter(due)) {
      if (this.raft?.role === "leader") coverage.readsServed++;
      else coverage.readsForwarded++;
      history.end(operation, this.machine.values[operation.key % registerCount] ?? 0);
    }
    this.#reads = this.#reads.filter((read) => !due(read));
  }

  #snapshot(raft: Raft): void {
    const { swarm, coverage } = this.#context;
    const { index } = this.machine;
    if (!swarm.faults.has("snapshot") || raft.persisted < index) return;
    if (index - this.disk.snapshot.index < swarm.snapshotEntries) return;
    const snapshot = raft.takeSnapshot(index);
    if ("accepted" in snapshot) return;
    const cutIndex = Math.max(0, index - swarm.trailEntries);
    raft.compact(cutIndex);
    this.disk.keepSnapshot(snapshot, this.machine, cutIndex);
    coverage.snapshotsTaken++;
  }

  #emit(message: Message): void {
    const { network, coverage } = this.#context;
    this.#observer.emitted(message, this.disk, this.raft?.role ?? "follower");
    const isSnapshot = message.type === "snapshot";
    if (isSnapshot) coverage.snapshotsSent++;
    const contents = isSnapshot ? this.disk.contents : undefined;
    network.send({ message, contents, incarnation: this.incarnation });
  }

  #whenAwake(run: () => void): void {
    if (this.raft === undefined) return;
    if (this.#paused) this.#backlog.push(run);
    else run();
  }
}
