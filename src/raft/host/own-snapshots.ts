// The snapshots a group takes of itself, and how far they let the log be cut.
//
// Keeps: one at a time; a snapshot is of applied state and counts when it is durable; the log is
// cut, and released, only below one that counts, never below what is not durable here, and within a
// limit not below what a follower that answers still needs.

import { isCodedError, type Logger, toError } from "../../base/index.ts";
import type { Raft } from "../core/raft.ts";
import type { HostCounters } from "./counters.ts";
import type { GroupStores } from "./group-boot.ts";
import type { SnapshotHead } from "./manifest.ts";
import type { HostSettings } from "./ports.ts";

export type OwnSnapshotsHost = GroupStores & {
  readonly settings: HostSettings;
  readonly counters: HostCounters;
  readonly logger: Logger;
  readonly nowMs: () => number;
  readonly failHost: (error: Error) => void;
};

/** After a failure the next one waits, each time twice as long: it costs a copy of the state. */
const retryMsMin = 1_000;
const retryMsMax = 60_000;

export class OwnSnapshots {
  readonly #group: number;
  readonly #host: OwnSnapshotsHost;
  readonly #raft: Raft;
  readonly #isUp: () => boolean;
  #underWay: Promise<void> | undefined;
  /** What the last one left in the log for followers that lag. */
  #keptBytes = 0;
  #retryMs = 0;
  #notBeforeMs = 0;
  /** Of the newest that counts, received ones included. */
  index: number;

  constructor(
    place: { group: number; index: number; isUp: () => boolean },
    host: OwnSnapshotsHost,
    raft: Raft,
  ) {
    this.#group = place.group;
    this.index = place.index;
    this.#isUp = place.isUp;
    this.#host = host;
    this.#raft = raft;
  }

  /** The last one did not fail a moment ago. */
  get mayBegin(): boolean {
    return this.#host.nowMs() >= this.#notBeforeMs;
  }

  /** Enough was logged since the last one. */
  get isDue(): boolean {
    const { log, settings } = this.#host;
    if (!this.mayBegin) return false;
    return log.bytesSinceRelease(this.#group) - this.#keptBytes > settings.snapshotLogBytes;
  }

  get isUnderWay(): boolean {
    return this.#underWay !== undefined;
  }

  /** Resolves when none is being written. */
  async rested(): Promise<void> {
    await this.#underWay;
  }

  /** REQUIRES: none is under way; `head` is where the machine stands now. */
  begin(head: SnapshotHead, pieces: Iterable<Uint8Array> | AsyncIterable<Uint8Array>): void {
    this.#underWay = this.#write(head, pieces);
  }

  async #write(
    head: SnapshotHead,
    pieces: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
  ): Promise<void> {
    const { snapshots, counters, logger, failHost } = this.#host;
    const { index } = head.meta;
    try {
      await snapshots.write(head, pieces);
      this.index = index;
      this.#retryMs = 0;
      counters.snapshotsTaken++;
      if (this.#isUp() && !("accepted" in this.#raft.takeSnapshot(index))) this.#cut(index);
    } catch (error) {
      // The log stays: nothing is cut on the word of a snapshot that is not there.
      counters.snapshotsFailed++;
      this.#retryMs = Math.min(Math.max(2 * this.#retryMs, retryMsMin), retryMsMax);
      this.#notBeforeMs = this.#host.nowMs() + this.#retryMs;
      logger.warn("raft.snapshot_failed", { group: this.#group, reason: toError(error).message });
      if (isCodedError(error, "DISK_IO_FAILED")) failHost(error);
    } finally {
      this.#underWay = undefined;
    }
  }

  #cut(index: number): void {
    const { log } = this.#host;
    const cut = this.#cutIndex(index);
    // A leader may have applied what others hold while its own record is still on its way.
    const durable = Math.min(cut, this.#raft.persisted);
    if (cut > 0 && this.#raft.compact(cut).accepted) log.release(this.#group, durable);
    this.#keptBytes = log.bytesSinceRelease(this.#group);
  }

  #cutIndex(index: number): number {
    const { settings, log } = this.#host;
    const cut = Math.max(0, index - settings.keptEntries);
    if (log.bytesSinceRelease(this.#group) > settings.keptLogBytes) return cut;
    const needed = this.#raft.status().peers.filter(({ active }) => active);
    return Math.min(cut, ...needed.map(({ match }) => match));
  }
}
