// A received snapshot on its way to become the start of a group: its files, then the log, then the
// machine.
//
// Keeps: one at a time, since the next would overwrite what of the one before is not yet in its
// place; nothing is given up before the program is known to read the snapshot; each step may be
// repeated, and is, while the volume has no space. What the core does not want is closed.

import { isCodedError, toError } from "../../base/index.ts";
import type { SnapshotMeta } from "../core/types.ts";
import type { DiskQueue, StepDone } from "./disk-queue.ts";
import { checkMachineVersion, readPieces } from "./group-boot.ts";
import type { MachineRun } from "./machine-run.ts";
import type { OwnSnapshots, OwnSnapshotsHost } from "./own-snapshots.ts";
import type { SnapshotReceiver, StateMachine } from "./ports.ts";

export type InstallHost = OwnSnapshotsHost & {
  /** At the next tick. */
  readonly later: (run: () => void) => void;
};

export type InstallParts = {
  readonly group: number;
  readonly machine: StateMachine;
  readonly run: MachineRun;
  readonly disk: DiskQueue;
  readonly own: OwnSnapshots;
  readonly isEnded: () => boolean;
  /** The machine holds the snapshot. */
  readonly onInstalled: (meta: SnapshotMeta) => void;
};

export class Installing {
  readonly #host: InstallHost;
  readonly #parts: InstallParts;
  #received: SnapshotReceiver | undefined;
  #isUnderWay = false;

  constructor(host: InstallHost, parts: InstallParts) {
    this.#host = host;
    this.#parts = parts;
  }

  /** One is here: received, or on its way into the machine. */
  get isTaken(): boolean {
    return this.#received !== undefined || this.#isUnderWay;
  }

  /** All of it is here; the core decides whether it is wanted. */
  receive(receiver: SnapshotReceiver): void {
    this.#received = receiver;
  }

  /** The core wants what was received. */
  begin(meta: SnapshotMeta, done: StepDone): void {
    const receiver = this.#received;
    this.#received = undefined;
    this.#isUnderWay = true;
    const install = (): Promise<void> => this.#install(meta, receiver);
    this.#parts.disk.install(install, (error) => {
      this.#isUnderWay = false;
      done(error);
    });
  }

  /** The core needed nothing of it, or had it from the log. */
  drop(): void {
    const receiver = this.#received;
    this.#received = undefined;
    if (receiver !== undefined) this.#close(receiver);
  }

  // The snapshot's files are complete, but do not count yet.
  #install(meta: SnapshotMeta, receiver: SnapshotReceiver | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#parts.run.run(async () => {
        try {
          if (receiver?.manifest.meta.index !== meta.index) {
            throw new Error(`the snapshot at ${meta.index} was never received`);
          }
          await this.#untilSpace(() => this.#step(meta, receiver));
          resolve();
        } catch (error) {
          if (receiver !== undefined) this.#close(receiver);
          reject(toError(error));
        }
      });
    });
  }

  async #step(meta: SnapshotMeta, receiver: SnapshotReceiver): Promise<void> {
    const { machine, own, disk } = this.#parts;
    // Before anything is given up for it: what is here now this program can read.
    checkMachineVersion(receiver.manifest, machine);
    await own.rested();
    await disk.cutAbove(meta);
    await receiver.commit();
    await this.#startFrom(meta);
  }

  async #untilSpace(step: () => Promise<void>): Promise<void> {
    const { counters, logger, later } = this.#host;
    for (let attempt = 1; ; attempt++) {
      try {
        await step();
        return;
      } catch (error) {
        if (!isCodedError(error, "DISK_FULL") || this.#parts.isEnded()) throw error;
        counters.installsWithoutSpace++;
        const { group } = this.#parts;
        if (attempt === 1) logger.warn("raft.install_waits", { group, reason: error.message });
        await new Promise<void>((resolve) => later(resolve));
      }
    }
  }

  async #startFrom(meta: SnapshotMeta): Promise<void> {
    const { log, snapshots, counters } = this.#host;
    const { group, machine, run, own, onInstalled } = this.#parts;
    log.release(group, meta.index);
    const reader = await snapshots.latest(group);
    if (reader === undefined) throw new Error("the snapshot received is gone");
    try {
      await machine.install(reader.manifest, readPieces(reader));
    } finally {
      await reader.close();
    }
    run.base = meta;
    own.index = meta.index;
    counters.snapshotsInstalled++;
    onInstalled(meta);
  }

  #close(receiver: SnapshotReceiver): void {
    receiver.close().catch((error: unknown) => this.#host.failHost(toError(error)));
  }
}
