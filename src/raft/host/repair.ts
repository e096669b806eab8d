// The repair of a replica that lost what it had synced: how far it has to come, and how it ends. It
// has to come to a read index asked for after the loss: once that is in the machine and on the disk
// here, all that was acknowledged before the loss is back.
//
// Keeps: only an answer to a question of this life counts; a repair that nobody helps is told to
// the operator once, since a majority in repair stays down; the mark is taken away, durably, only
// when the old damage says nothing at the next start.

import type { Logger } from "../../base/index.ts";
import type { Raft } from "../core/raft.ts";
import { noNode } from "../core/types.ts";
import type { HostCounters } from "./counters.ts";
import type { DiskQueue } from "./disk-queue.ts";
import type { OwnSnapshots } from "./own-snapshots.ts";
import type { HostSettings } from "./ports.ts";
import type { ReplicaRecord } from "./replica-record.ts";

/** A repair that no leader helps for so long is told. */
const aloneElections = 10;

export class Repair {
  readonly #context: string;
  readonly #aloneTicksMax: number;
  readonly #onAlone: () => void;
  #toIndex: number | undefined;
  #ticksAlone = 0;

  constructor(context: string, electionTicks: number, onAlone: () => void) {
    this.#context = context;
    this.#aloneTicksMax = aloneElections * electionTicks;
    this.#onAlone = onAlone;
  }

  /** Asks until an answer came. */
  tick(raft: Raft): void {
    if (this.#toIndex !== undefined) return;
    if (raft.leader !== noNode) raft.readIndex(this.#context);
    else if (++this.#ticksAlone === this.#aloneTicksMax) this.#onAlone();
  }

  /** Whether the answer was to us. */
  takes(context: string, index: number): boolean {
    if (context !== this.#context) return false;
    this.#toIndex ??= index;
    return true;
  }

  /** Undefined until it is known. */
  get toIndex(): number | undefined {
    return this.#toIndex;
  }

  isDone(appliedIndex: number, persistedIndex: number): boolean {
    const to = this.#toIndex;
    return to !== undefined && appliedIndex >= to && persistedIndex >= to;
  }
}

export type RepairHost = {
  readonly settings: HostSettings;
  readonly counters: HostCounters;
  readonly logger: Logger;
  readonly random: { below(limit: number): number };
  readonly failHost: (error: Error) => void;
};

export type RepairParts = {
  readonly group: number;
  readonly raft: Raft;
  readonly disk: DiskQueue;
  readonly record: ReplicaRecord;
  readonly snapshots: OwnSnapshots;
  readonly isUp: () => boolean;
  readonly appliedIndex: () => number;
  /** Begins a snapshot of what is applied, when the machine stands still. */
  readonly takeSnapshot: () => void;
};

/** The repair of one group, from its start to the end of its mark. */
export class RepairRun {
  readonly #host: RepairHost;
  readonly #parts: RepairParts;
  #repair: Repair | undefined;

  constructor(host: RepairHost, parts: RepairParts) {
    this.#host = host;
    this.#parts = parts;
  }

  begin(): void {
    const { random, counters, logger, settings } = this.#host;
    const { group, record } = this.#parts;
    const { incarnation, node } = record.meta;
    const context = `repair.${incarnation}.${random.below(2 ** 32)}`;
    this.#repair = new Repair(context, settings.raft.electionTicks, () => {
      counters.repairsAlone++;
      logger.error("raft.repair_waits", { group, node });
    });
  }

  tick(): void {
    this.#repair?.tick(this.#parts.raft);
    this.proceed();
  }

  /** Whether the answer to a read was to ours. */
  takes(context: string, index: number): boolean {
    return this.#repair?.takes(context, index) === true;
  }

  /**
   * More was applied, or became durable, than before. Old damage must say nothing at the next start,
   * or a majority might be in repair for nothing: it is covered by a snapshot and followed by a
   * later record before the mark is taken away.
   */
  proceed(): void {
    const { raft, disk, snapshots, isUp, appliedIndex, takeSnapshot } = this.#parts;
    const repair = this.#repair;
    if (!isUp() || !repair?.isDone(appliedIndex(), raft.persisted)) return;
    if (snapshots.index < (repair.toIndex ?? 0)) {
      if (snapshots.mayBegin) takeSnapshot();
      return;
    }
    this.#repair = undefined;
    disk.mark(raft.term, (error) => {
      if (error !== undefined) this.#host.failHost(error);
      else this.#unmark();
    });
  }

  #unmark(): void {
    const { group, raft, record, isUp, appliedIndex } = this.#parts;
    record.save({ repairing: false }, (error) => {
      if (error !== undefined) this.#host.failHost(error);
      if (error !== undefined || !isUp()) return;
      raft.setRepairing(false);
      this.#host.counters.groupsRepaired++;
      this.#host.logger.info("raft.repair_ended", { group, index: appliedIndex() });
    });
  }
}
