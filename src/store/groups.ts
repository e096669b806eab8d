// The groups of a node, who belongs to which, and what follows from their quotas for others.

import type { Clock, Disk, Logger } from "../base/index.ts";
import type { WriteAheadLog } from "../log/index.ts";
import type { CheckpointPolicy } from "./checkpointer.ts";
import { generationsPerRetention } from "./core/retention.ts";
import type { OpenDatabase } from "./databases.ts";
import { Group, type groupCounterHelp, groupSettingsDefault } from "./group.ts";
import { type ConsumedFloors, GroupKeeper, type GroupShard } from "./group-keeper.ts";
import type { Retention } from "./operator-api.ts";
import type { StoreSettings } from "./settings.ts";

export type GroupsParts = {
  readonly log: WriteAheadLog;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly disk: Disk;
  readonly volumeBytes: number;
  readonly counters: Record<keyof typeof groupCounterHelp, number>;
  readonly databases: () => readonly OpenDatabase[];
  readonly consumed: () => (() => Promise<ConsumedFloors>) | undefined;
};

/** A checkpoint holds no more log than this part of the smallest quota. */
const checkpointQuotaShare = 1 / 32;
const checkpointBytesMin = 256 * 1024;
/** A generation of a shard is not smaller than this: each is a directory with open files. */
const generationBytesMin = 256 * 1024;

export class Groups {
  readonly #parts: GroupsParts;
  readonly #groups = new Map<string, Group>();
  readonly #groupOf = new Map<string, Group>();
  readonly #default: Group;
  readonly #keeperParts: ConstructorParameters<typeof GroupKeeper>[0];
  #keeper: GroupKeeper | undefined;

  constructor(settings: StoreSettings, parts: GroupsParts) {
    this.#parts = parts;
    const named = settings.groups.some(({ name }) => name === groupSettingsDefault.name);
    const all = named ? settings.groups : [groupSettingsDefault, ...settings.groups];
    for (const each of all) {
      const group: Group = new Group(
        {
          ...{ settings: each, pendingBytesMax: settings.pendingBytesMax },
          ...{ volumeBytes: parts.volumeBytes, log: parts.log, clock: parts.clock },
          refusal: () => this.#keeper?.refusal,
          relieve: () => {
            for (const { log } of this.shardsOf(group)) log?.relieve();
          },
          logShare: () => this.#logShare(group),
        },
        parts.counters,
      );
      this.#groups.set(each.name, group);
      for (const database of each.databases) this.#groupOf.set(database, group);
    }
    this.#default = this.#groups.get(groupSettingsDefault.name) as Group;
    this.#keeperParts = {
      ...{ clock: parts.clock, logger: parts.logger, disk: parts.disk, log: parts.log },
      ...{ dir: settings.dir, watermarks: settings.watermarks, groups: this.list },
      shardsOf: (group) => this.shardsOf(group),
      consumed: parts.consumed,
    };
  }

  get list(): readonly Group[] {
    return [...this.#groups.values()];
  }

  get keeper(): GroupKeeper | undefined {
    return this.#keeper;
  }

  of(database: string): Group {
    return this.#groupOf.get(database) ?? this.#default;
  }

  databasesOf(group: Group): readonly OpenDatabase[] {
    return this.#parts.databases().filter((database) => database.group === group);
  }

  shardsOf(group: Group): readonly GroupShard[] {
    return this.databasesOf(group).flatMap(({ shards }) => shards);
  }

  start(): void {
    this.#keeper = new GroupKeeper(this.#keeperParts);
  }

  close(): void {
    this.#keeper?.close();
    for (const group of this.list) group.gate.close();
  }

  /** A block of the group was sealed. */
  grown(group: Group): void {
    if (this.#keeper?.isDue(group) === true) this.#keeper.kick();
  }

  /** Where a generation of one shard ends, so that quota and retention can go in eighths. */
  generationBytes(group: Group, retention: Retention): number {
    const shards = this.shardsOf(group).filter(({ log }) => log !== undefined).length;
    const bounds = [group.quotaBytes, ...(retention.bytes > 0 ? [retention.bytes] : [])];
    const share = Math.min(...bounds) / generationsPerRetention / Math.max(1, shards);
    return Math.max(generationBytesMin, share);
  }

  checkpointPolicy(policy: CheckpointPolicy): CheckpointPolicy {
    const quotaBytes = Math.min(...this.list.map((group) => group.quotaBytes));
    const ownBytes = Math.max(checkpointBytesMin, quotaBytes * checkpointQuotaShare);
    return { ...policy, bytesMax: Math.min(policy.bytesMax, ownBytes) };
  }

  /** By what the shards keep in the log; free segments go the same way. */
  #logShare(group: Group): number {
    const { log } = this.#parts;
    let own = 0;
    let all = 0;
    for (const database of this.#parts.databases()) {
      for (const { shard } of database.shards) {
        const sizeBytes = log.bytesSinceRelease(shard.number);
        all += sizeBytes;
        if (database.group === group) own += sizeBytes;
      }
    }
    if (all === 0) return group === this.#default ? 1 : 0;
    return own / all;
  }
}
