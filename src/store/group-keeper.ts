// Keeps groups within their quotas: measures what they use, and frees space near the brim.
//
// The order of freeing: sealed generations that nobody needs any more (below the consumed floor),
// oldest first; the log, by checkpoints of the shards that pin it; with `onFull: drop_oldest` the
// oldest sealed generation, whoever needs it. Generations that hold little and are needed by nobody
// are ended, so that the next look can drop them. Holds are kept by all of it.
//
// One look at a time. A look that fails is logged and tried again.

import {
  type Cancel,
  type Clock,
  type CodedError,
  type Disk,
  type Logger,
  toError,
} from "../base/index.ts";
import type { WriteAheadLog } from "../log/index.ts";
import type { ShardNumber } from "./api.ts";
import { type Generation, totalOf } from "./core/generations.ts";
import { excessBytes } from "./core/quota.ts";
import { nextSpaceState, type SpaceState, type Watermarks } from "./core/watermarks.ts";
import { storeErrors } from "./errors.ts";
import type { Group } from "./group.ts";
import type { LogShard } from "./log-shard.ts";
import { droppable } from "./retention.ts";
import type { Shard } from "./shard.ts";

/** What is measured: a shard of any layout. */
export type GroupShard = {
  readonly shard: Shard;
  /** Undefined for a map shard. */
  readonly log: LogShard | undefined;
  /** Asks the disk; `sizeBytes` is what it said last. */
  measure(): Promise<number>;
  sizeBytes(): number;
};

/** By shard: nothing at or below it is owed to anybody. */
export type ConsumedFloors = ReadonlyMap<ShardNumber, number>;

export type GroupKeeperParts = {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly disk: Disk;
  readonly dir: string;
  readonly watermarks: Watermarks;
  readonly log: WriteAheadLog;
  readonly groups: readonly Group[];
  readonly shardsOf: (group: Group) => readonly GroupShard[];
  /** Asked near a quota only; undefined while nobody knows what is consumed. */
  readonly consumed: () => (() => Promise<ConsumedFloors>) | undefined;
};

const lookIntervalMs = 1_000;
/** Measured at least this often, and when so much was sealed since. */
const measureIntervalMs = 30_000;
const measureShare = 1 / 64;
/** A log that takes more of the quota than this is shortened. */
const logQuotaShare = 1 / 8;
/** A floor is looked up again after so many times what the last look-up took. */
const floorPause = 4;

export class GroupKeeper {
  readonly #parts: GroupKeeperParts;
  readonly #measuredAtMs = new Map<Group, number>();
  #floors: ConsumedFloors | undefined;
  #floorsAtMs = Number.NEGATIVE_INFINITY;
  #floorsTookMs = 0;
  #space: SpaceState = "roomy";
  #spaceAtMs = 0;
  #freeBytes = 0;
  #cancel: Cancel | undefined;
  #kicked = false;
  #looking = false;
  #closed = false;

  constructor(parts: GroupKeeperParts) {
    this.#parts = parts;
    this.#arm(0);
  }

  /** What the volume allows. */
  get refusal(): CodedError | undefined {
    if (this.#space === "roomy") return undefined;
    return storeErrors.volumeLow({ dir: this.#parts.dir, freeBytes: this.#freeBytes });
  }

  get space(): {
    readonly state: SpaceState;
    readonly sinceMs: number;
    readonly freeBytes: number;
  } {
    return { state: this.#space, sinceMs: this.#spaceAtMs, freeBytes: this.#freeBytes };
  }

  /** As last looked up. */
  floorOf(shard: ShardNumber): number | undefined {
    return this.#floors?.get(shard);
  }

  /** A group has changed its state or grown much: does not wait for the next look. */
  kick(): void {
    if (this.#kicked || this.#closed) return;
    this.#kicked = true;
    if (this.#looking) return;
    this.#cancel?.();
    this.#arm(0);
  }

  isDue(group: Group): boolean {
    return group.sinceBytes > group.quotaBytes * measureShare;
  }

  close(): void {
    this.#closed = true;
    this.#cancel?.();
  }

  #arm(delayMs: number): void {
    if (this.#closed) return;
    this.#cancel = this.#parts.clock.schedule(delayMs, () => {
      this.#kicked = false;
      this.#looking = true;
      void this.#look().finally(() => {
        this.#looking = false;
        this.#arm(this.#kicked ? 1 : lookIntervalMs);
      });
    });
  }

  async #look(): Promise<void> {
    try {
      await this.#lookAtVolume();
      for (const group of this.#parts.groups) {
        await this.#measure(group);
        if (group.state !== "open") await this.#free(group);
      }
    } catch (error) {
      if (this.#closed) return;
      this.#parts.logger.warn("store.quota_look_failed", { reason: toError(error).message });
    }
  }

  async #lookAtVolume(): Promise<void> {
    const { disk, dir, watermarks, clock, logger } = this.#parts;
    const space = await disk.space(dir);
    this.#freeBytes = space.freeBytes;
    const state = nextSpaceState(this.#space, space, watermarks);
    if (state === this.#space) return;
    const fields = { dir, freeBytes: space.freeBytes, totalBytes: space.totalBytes, state };
    if (state === "roomy") logger.info("store.volume_roomy_again", fields);
    else logger.error("store.volume_low", fields);
    this.#space = state;
    this.#spaceAtMs = Math.round(clock.wallUs() / 1_000);
  }

  async #measure(group: Group): Promise<void> {
    const nowMs = this.#parts.clock.elapsedMs();
    const lastMs = this.#measuredAtMs.get(group) ?? Number.NEGATIVE_INFINITY;
    const isOld = nowMs - lastMs >= measureIntervalMs || group.state !== "open";
    if (!isOld && !this.isDue(group)) return group.update();
    this.#measuredAtMs.set(group, nowMs);
    const sinceBytes = group.sinceBytes;
    let sizeBytes = 0;
    for (const shard of this.#parts.shardsOf(group)) {
      if (this.#closed) return;
      sizeBytes += await shard.measure();
    }
    const before = group.state;
    group.measured(sizeBytes, sinceBytes);
    this.#tell(group, before);
  }

  #tell(group: Group, before: Group["state"]): void {
    if (group.state === before) return;
    const { physicalBytes, quotaBytes, logBytes } = group;
    const fields = { group: group.name, physicalBytes, quotaBytes, logBytes };
    if (group.state === "full") this.#parts.logger.error("store.quota_full", fields);
    else this.#parts.logger.info(`store.quota_${group.state}`, fields);
  }

  // -------------------------------------------------------------- freeing

  async #free(group: Group): Promise<void> {
    const shards = this.#parts.shardsOf(group);
    await this.#shortenLog(group, shards);
    const excess = excessBytes(group.physicalBytes, group.quotaBytes);
    if (excess === 0) return;
    const logs = shards.flatMap(({ log }) =>
      log?.shard.refusal === undefined && log ? [log] : [],
    );
    const floors = await this.#lookUpFloors();
    if (floors !== undefined) {
      const isConsumed = (log: LogShard, untilUs: number): boolean =>
        untilUs <= (floors.get(log.number) ?? 0);
      const freed = await this.#drop(group, logs, excess, isConsumed, "consumed");
      if (freed > 0) return this.#measureSoon(group);
      await this.#endConsumed(logs, isConsumed);
    }
    if (group.onFull !== "drop_oldest" || group.state !== "full") return;
    const freed = await this.#drop(group, logs, 1, () => true, "sacrificed");
    if (freed === 0) await this.#endConsumed(logs, () => true);
    this.#measureSoon(group);
  }

  #measureSoon(group: Group): void {
    this.#measuredAtMs.delete(group);
    this.kick();
  }

  async #shortenLog(group: Group, shards: readonly GroupShard[]): Promise<void> {
    const { log } = this.#parts;
    if (group.logBytes <= group.quotaBytes * logQuotaShare) return;
    const pin = log.pinnedBy();
    const pinning = shards.find(({ shard }) => shard.number === pin?.shard)?.shard;
    if (pinning === undefined || !pinning.isDirty || pinning.failure !== undefined) return;
    await pinning.checkpoint();
  }

  /** Oldest first over all shards; resolves with the bytes that went. */
  async #drop(
    group: Group,
    logs: readonly LogShard[],
    wantedBytes: number,
    mayGo: (log: LogShard, untilUs: number) => boolean,
    why: "consumed" | "sacrificed",
  ): Promise<number> {
    let freed = 0;
    while (freed < wantedBytes && !this.#closed) {
      const oldest = oldestOf(logs, mayGo);
      if (oldest === undefined) break;
      const { log, generation } = oldest;
      const { ttvs } = totalOf(generation);
      const sizeBytes = log.generations.physicalOf(generation.number);
      const fields = { group: group.name, shard: log.number, number: generation.number, ttvs };
      this.#parts.logger.info(`store.generation_${why}`, { ...fields, sizeBytes });
      await log.drop([generation.number]);
      group.counters[why === "consumed" ? "generationsConsumed" : "generationsSacrificed"]++;
      freed += Math.max(1, sizeBytes);
    }
    return freed;
  }

  async #endConsumed(
    logs: readonly LogShard[],
    mayGo: (log: LogShard, untilUs: number) => boolean,
  ): Promise<void> {
    const idle = logs.filter((log) => {
      const { firstUs } = log.generations.currentRow;
      return firstUs > 0 && log.generations.oldest.state === "current" && mayGo(log, log.appliedUs);
    });
    for (const log of idle) await log.rotate();
  }

  async #lookUpFloors(): Promise<ConsumedFloors | undefined> {
    const look = this.#parts.consumed();
    if (look === undefined) return undefined;
    const { clock } = this.#parts;
    const startMs = clock.elapsedMs();
    if (startMs - this.#floorsAtMs < this.#floorsTookMs * floorPause) return this.#floors;
    this.#floors = await look();
    this.#floorsAtMs = clock.elapsedMs();
    this.#floorsTookMs = this.#floorsAtMs - startMs;
    return this.#floors;
  }
}

function oldestOf(
  logs: readonly LogShard[],
  mayGo: (log: LogShard, untilUs: number) => boolean,
): { log: LogShard; generation: Generation } | undefined {
  let found: { log: LogShard; generation: Generation } | undefined;
  for (const log of logs) {
    const generation = droppable(log);
    if (generation?.toUs === undefined || !mayGo(log, generation.toUs - 1)) continue;
    if (found !== undefined && generation.toUs >= (found.generation.toUs ?? 0)) continue;
    found = { log, generation };
  }
  return found;
}
