// A group: what its databases share on this node. Disk quota, write buffer, work slots.
//
// What is used is measured (slabs and shard stores as the volume counts them), plus what was sealed
// since, plus the group's share of the log. Over the quota new TTVs are refused; progress is always
// admitted, so that readers can free space. Nothing is refused when it is applied.

import type { Clock, CodedError } from "../base/index.ts";
import type { WriteAheadLog } from "../log/index.ts";
import { nextQuotaState } from "./core/quota.ts";
import { storeErrors } from "./errors.ts";
import type { OnFull, QuotaState } from "./operator-api.ts";
import { WorkSlots } from "./work-slots.ts";
import { WriteGate } from "./write-gate.ts";

export type GroupSettings = {
  readonly name: string;
  /** Databases of this group; what no group names belongs to `default`. */
  readonly databases: readonly string[];
  /** Physical bytes; 0 = 80 % of the volume, at least 1 GiB. */
  readonly quotaBytes: number;
  readonly onFull: OnFull;
  /** Memory of blocks that are not on disk yet; at its brim appends wait. */
  readonly writeBufferBytesMax: number;
  readonly workSlots: number;
  /** When appends to its log databases are acknowledged. Default `always`. */
  readonly fsync?: Fsync;
};

/**
 * `always`: when they are on stable storage. `interval`: when the operating system has them, while
 * they are being synced; the end of the machine can lose what was acknowledged since the last sync.
 */
export type Fsync = "always" | "interval";

export const groupSettingsDefault: GroupSettings = {
  name: "default",
  databases: [],
  quotaBytes: 0,
  onFull: "refuse",
  writeBufferBytesMax: 256 * 1024 * 1024,
  workSlots: 2,
  fsync: "always",
};

export const groupCounterHelp = {
  quotaRefusals: "appends refused because their group was over its quota",
  quotaNearTimes: "times a group came near its quota",
  quotaFullTimes: "times a group reached its quota",
  generationsConsumed: "generations dropped near the quota because nobody needed them any more",
  generationsSacrificed: "generations dropped by `onFull: drop_oldest`, whoever needed them",
};

const quotaVolumeShare = 0.8;
const quotaBytesMin = 1024 * 1024 * 1024;
/** Blocks in memory are on the disk soon: no more of them than this part of the quota. */
const bufferQuotaShare = 1 / 16;

export type GroupParts = {
  readonly settings: GroupSettings;
  readonly volumeBytes: number;
  readonly pendingBytesMax: number;
  readonly log: WriteAheadLog;
  readonly clock: Clock;
  /** Why nothing may be stored now that is not the group's matter: the volume. */
  readonly refusal: () => CodedError | undefined;
  /** Seals what is open in the shards of the group. */
  readonly relieve: () => void;
  /** The group's share of the log's bytes, 0 to 1. */
  readonly logShare: () => number;
};

export class Group {
  readonly name: string;
  readonly quotaBytes: number;
  readonly onFull: OnFull;
  readonly gate: WriteGate;
  readonly slots: WorkSlots;
  readonly counters: Record<keyof typeof groupCounterHelp, number>;
  readonly writeBufferBytesMax: number;
  readonly fsync: Fsync;
  readonly #parts: GroupParts;
  #state: QuotaState = "open";
  #measuredBytes = 0;
  #sinceBytes = 0;
  #changedAtMs = 0;

  constructor(parts: GroupParts, counters: Record<keyof typeof groupCounterHelp, number>) {
    const { settings, volumeBytes, pendingBytesMax, log, clock, relieve } = parts;
    this.#parts = parts;
    this.counters = counters;
    this.name = settings.name;
    this.onFull = settings.onFull;
    this.fsync = settings.fsync ?? "always";
    this.quotaBytes =
      settings.quotaBytes > 0
        ? settings.quotaBytes
        : Math.max(volumeBytes * quotaVolumeShare, quotaBytesMin);
    this.writeBufferBytesMax = Math.min(
      settings.writeBufferBytesMax,
      Math.max(this.quotaBytes * bufferQuotaShare, 1024 * 1024),
    );
    this.slots = new WorkSlots(settings.workSlots);
    const buffers = { writeBufferBytesMax: this.writeBufferBytesMax, pendingBytesMax };
    const more = (): CodedError | undefined => parts.refusal() ?? this.#quotaRefusal();
    this.gate = new WriteGate({ settings: buffers, log, clock, relieve, more });
  }

  get state(): QuotaState {
    return this.#state;
  }

  /** Wall time of the last change of `state`. */
  get changedAtMs(): number {
    return this.#changedAtMs;
  }

  get logBytes(): number {
    return Math.round(this.#parts.log.sizeBytes * this.#parts.logShare());
  }

  get physicalBytes(): number {
    return this.#measuredBytes + this.#sinceBytes + this.logBytes;
  }

  /** Whether so much more fits into the quota and the volume for a while. */
  hasRoomFor(sizeBytes: number): boolean {
    if (this.#state === "full" || this.#parts.refusal() !== undefined) return false;
    return this.physicalBytes + sizeBytes <= this.quotaBytes;
  }

  /** Bytes of blocks sealed since the last measurement. */
  get sinceBytes(): number {
    return this.#sinceBytes;
  }

  /** A block was sealed: it will be on the disk soon. */
  grown(sizeBytes: number): void {
    this.#sinceBytes += sizeBytes;
    this.update();
  }

  /** `sinceBytes` as it was when the measurement began. */
  measured(sizeBytes: number, sinceBytes: number): void {
    this.#measuredBytes = sizeBytes;
    this.#sinceBytes = Math.max(0, this.#sinceBytes - sinceBytes);
    this.update();
  }

  update(): void {
    // Blocks in memory are on the disk soon; those just sealed count twice for a moment.
    const usedBytes = this.physicalBytes + this.gate.memoryBytes;
    const state = nextQuotaState(this.#state, usedBytes, this.quotaBytes);
    if (state === this.#state) return;
    if (state === "full") this.counters.quotaFullTimes++;
    if (state === "near" && this.#state === "open") this.counters.quotaNearTimes++;
    this.#state = state;
    this.#changedAtMs = Math.round(this.#parts.clock.wallUs() / 1_000);
  }

  #quotaRefusal(): CodedError | undefined {
    if (this.#state !== "full") return undefined;
    return storeErrors.quotaExceeded({ group: this.name, quotaBytes: this.quotaBytes });
  }
}
