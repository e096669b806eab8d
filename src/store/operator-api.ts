// What the store shows an operator and lets one change: databases, groups, shards, generations,
// streams, holds, alarms, and long work with progress. Plain data, made for the call.
//
// Bytes are physical (what lies on the volume) or logical (frames of stored TTVs, before blocks and
// LevelDB). Calls that only look at memory are synchronous; those that ask the disk return a promise.
// A change is durable when its promise resolves.

import type { MapShard, ShardNumber } from "./api.ts";

// ---------------------------------------------------------------- databases

export type LayoutName = "log" | "map";

/** How long a log database keeps what is stored; 0 lifts a limit. */
export type Retention = {
  /** Default 7 days. */
  readonly ageMs: number;
  /** Logical bytes over all shards; 0 = bounded by the quota of the group alone. */
  readonly bytes: number;
};

/** How topics are learned; an absent key keeps its default. */
export type LayoutOptions = {
  /** Exact children of a node before its level varies; by level, the last for all below it. */
  readonly thresholds?: readonly [number, ...number[]];
  /** The same by first level (`metrics`), for the levels below it. */
  readonly rootThresholds?: Readonly<Record<string, readonly [number, ...number[]]>>;
  /** Topic filters whose "+" levels vary from the start. */
  readonly patterns?: readonly string[];
  readonly streamsMax?: number;
  readonly trieBytesMax?: number;
};

export type DatabaseSpec = {
  /** 1 to 64 of a-z, 0-9, `_` and `-`, beginning with a letter. */
  readonly name: string;
  /** Default `log`. */
  readonly layout?: LayoutName;
  /** Fixed at creation, 1 to 256. Default 4. */
  readonly shards?: number;
  /** 1 until there is a cluster. */
  readonly replicationFactor?: number;
  readonly retention?: Partial<Retention>;
  readonly layoutOptions?: LayoutOptions;
  /** Topic filters routed here; the most specific one of all databases wins. Log layout only. */
  readonly topics?: readonly string[];
};

/** What may be changed later; shards and layout may not. */
export type DatabaseChange = Pick<DatabaseSpec, "retention" | "layoutOptions" | "topics">;

export type DatabaseInfo = {
  readonly name: string;
  readonly layout: LayoutName;
  readonly shards: readonly ShardNumber[];
  readonly replicationFactor: number;
  readonly retention: Retention;
  readonly layoutOptions: LayoutOptions;
  readonly topics: readonly string[];
  readonly group: string;
  /** Made by the node itself; cannot be dropped. */
  readonly isBuiltIn: boolean;
  readonly ttvs: number;
  readonly logicalBytes: number;
  readonly physicalBytes: number;
};

// ---------------------------------------------------------------- groups

export type OnFull = "refuse" | "drop_oldest";

/** `near`: consumed generations are dropped. `full`: new TTVs are refused. */
export type QuotaState = "open" | "near" | "full";

export type GroupInfo = {
  readonly name: string;
  readonly databases: readonly string[];
  readonly quotaBytes: number;
  readonly onFull: OnFull;
  /** `interval`: the end of the machine can lose acknowledged messages, one flush of the log. */
  readonly fsync: "always" | "interval";
  readonly state: QuotaState;
  /** Slabs, shard stores and the group's share of the log, as last measured, plus what came since. */
  readonly physicalBytes: number;
  readonly logicalBytes: number;
  readonly logBytes: number;
  readonly writeBufferBytes: number;
  readonly writeBufferBytesMax: number;
  readonly workSlots: number;
  readonly workSlotsUsed: number;
  readonly counters: Readonly<Record<string, number>>;
};

// ---------------------------------------------------------------- shards, generations, streams

export type ShardInfo = {
  readonly number: ShardNumber;
  readonly database: string;
  readonly group: string;
  readonly epoch: number;
  readonly appliedIndex: number;
  readonly appliedUs: number;
  readonly checkpointIndex: number;
  readonly checkpointUs: number;
  /** Log bytes that a start would replay. */
  readonly logBytes: number;
  readonly generations: number;
  readonly ttvs: number;
  readonly logicalBytes: number;
  readonly physicalBytes: number;
  /** Below it nothing is owed to anybody, as last looked up; undefined when nobody asked yet. */
  readonly consumedUs: number | undefined;
  /** Spans of commit time that were lost, dropped or set aside and are remembered. */
  readonly missing: number;
  readonly failure: string | undefined;
};

export type GenerationInfo = {
  readonly shard: ShardNumber;
  readonly number: number;
  readonly layout: string;
  readonly state: "current" | "sealing" | "sealed" | "dropping";
  readonly fromUs: number;
  /** First commit time after it; undefined while it is current. */
  readonly toUs: number | undefined;
  readonly ttvs: number;
  readonly logicalBytes: number;
  readonly physicalBytes: number;
  readonly streams: number;
  /** Its slab's folder, relative to the folder of databases. */
  readonly folder: string;
  readonly isOpen: boolean;
  /** Names of the holds that keep it. */
  readonly heldBy: readonly string[];
};

export type StreamInfo = {
  readonly shard: ShardNumber;
  readonly generation: number;
  readonly stream: number;
  /** `metrics/+/cpu`; `#` for the catch-alls. */
  readonly structure: string;
  readonly ttvs: number;
  readonly logicalBytes: number;
};

// ---------------------------------------------------------------- explain

export type ExplainedStream = StreamInfo & {
  /** What is left to compare in each TTV; `all` where the stream matches as a whole. */
  readonly residual: string;
  readonly blocks: number;
  /** Blocks whose summary says that a match is possible. */
  readonly blocksToRead: number;
};

export type Explanation = {
  readonly filter: string;
  readonly databases: readonly string[];
  readonly streams: readonly ExplainedStream[];
  readonly streamsTotal: number;
  readonly blocks: number;
  readonly blocksToRead: number;
  /** False when there was more to look at than the limit allowed: the counts are lower bounds. */
  readonly isComplete: boolean;
  /** Sentences for the operator. */
  readonly advice: readonly string[];
};

export type ExplainOptions = {
  readonly database?: string;
  /** Only what is later. */
  readonly sinceUs?: number;
  /** Index rows looked at, over all streams. Default 100,000. */
  readonly rowsMax?: number;
};

// ---------------------------------------------------------------- holds

/** Keeps what is later than `afterUs` in every shard of a database, whoever has read it. */
export type HoldInfo = {
  readonly name: string;
  readonly database: string;
  /** By shard: TTVs with later times are kept. */
  readonly afterUs: ReadonlyMap<ShardNumber, number>;
  /** Held TTVs that were dropped by force since the hold was made, at most. */
  readonly lostTtvs: number;
};

// ---------------------------------------------------------------- alarms

export type AlarmSeverity = "warning" | "critical";

export type Alarm = {
  /** `quota_full`, `quota_near`, `disk_full`, ...: stable, for rules. */
  readonly name: string;
  /** What it is about: `group default`, `shard 7`. */
  readonly subject: string;
  readonly severity: AlarmSeverity;
  /** Wall clock. */
  readonly sinceMs: number;
  readonly message: string;
  /** What to do. */
  readonly help: string;
};

// ---------------------------------------------------------------- long work

export type WorkProgress = {
  readonly done: number;
  readonly total: number;
  /** `slabs`, `blocks`. */
  readonly unit: string;
  readonly what: string;
};

export type WorkOptions = {
  readonly database?: string;
  readonly shard?: ShardNumber;
  readonly onProgress?: (progress: WorkProgress) => void;
  /** Looked at between two steps; the work ends with STORE_WORK_CANCELLED. */
  readonly isCancelled?: () => boolean;
};

export type VerifyFinding = {
  readonly shard: ShardNumber;
  readonly generation: number;
  readonly stream: number;
  readonly reason: string;
};

export type VerifyReport = {
  readonly slabs: number;
  readonly blocks: number;
  readonly ttvs: number;
  readonly findings: readonly VerifyFinding[];
};

export type CompactReport = {
  /** Sealed ones. */
  readonly slabs: number;
  readonly shards: number;
  /** All that the shards take on the volume. */
  readonly bytesBefore: number;
  readonly bytesAfter: number;
  /** Of the log, which all shards share: what they held of it, and segments kept for later use. */
  readonly logBytesFreed: number;
};

export type RepackOptions = WorkOptions & {
  /** Every sealed slab, also one that would gain little. */
  readonly all?: boolean;
  /** Bytes of blocks read in a second, over the whole work. Default 32 MiB. */
  readonly bytesPerSecondMax?: number;
};

export type RepackReport = {
  /** Sealed slabs that were looked at. */
  readonly slabs: number;
  readonly packed: number;
  /** Slabs that would have gained, but for which the group or volume has no room now. */
  readonly withoutRoom: number;
  readonly blocksBefore: number;
  readonly blocksAfter: number;
  /** Of the packed slabs, on the volume. */
  readonly bytesBefore: number;
  readonly bytesAfter: number;
  readonly ttvsExpired: number;
};

// ---------------------------------------------------------------- the face

export type DropOptions = {
  readonly database?: string;
  /** Also what holds keep; the holders are told. */
  readonly force?: boolean;
};

export interface StoreOperator {
  databases(): DatabaseInfo[];
  /** @throws STORE_DATABASE_EXISTS, STORE_DATABASE_INVALID. */
  createDatabase(spec: DatabaseSpec): Promise<DatabaseInfo>;
  /** @throws STORE_DATABASE_NOT_FOUND, STORE_DATABASE_INVALID. */
  alterDatabase(name: string, change: DatabaseChange): Promise<DatabaseInfo>;
  /** Its data go in the background. @throws STORE_DATABASE_NOT_FOUND, STORE_DATABASE_BUILT_IN. */
  dropDatabase(name: string): Promise<void>;
  /** The shard of a map database made by `createDatabase`. */
  mapShard(database: string, ownerKey: string): MapShard;

  groups(): GroupInfo[];
  shards(database?: string): ShardInfo[];
  /** Of a log shard, oldest first. @throws STORE_SHARD_NOT_FOUND. */
  generations(shard: ShardNumber): GenerationInfo[];
  /** @throws STORE_SHARD_NOT_FOUND, STORE_GENERATION_UNKNOWN. */
  streams(shard: ShardNumber, generation: number): Promise<StreamInfo[]>;
  explain(filter: string, options?: ExplainOptions): Promise<Explanation>;

  /** Ends the current generation of every shard of a database (default `messages`). */
  rotate(database?: string): Promise<void>;
  /**
   * Drops sealed generations that end at or before `untilUs`; returns how many. Held ones stay,
   * unless forced.
   */
  dropUntil(untilUs: number, options?: DropOptions): Promise<number>;

  holds(): HoldInfo[];
  /** Makes or moves a hold. Shards that are absent are held from their oldest TTV. */
  hold(
    name: string,
    options?: { readonly database?: string; readonly afterUs?: ReadonlyMap<ShardNumber, number> },
  ): Promise<HoldInfo>;
  /** @throws STORE_HOLD_NOT_FOUND. */
  releaseHold(name: string, database?: string): Promise<void>;

  alarms(): Alarm[];

  /** Reads every block of the sealed slabs and what the current ones hold on disk. */
  verify(options?: WorkOptions): Promise<VerifyReport>;
  /**
   * Packs sealed slabs anew, each into a folder of its own: small blocks become full ones, expired
   * TTVs go, older layouts become the newest. Readers go on meanwhile. Leaves out slabs that would
   * gain little. What is cancelled or killed loses the slab it was at; the others stand.
   */
  repack(options?: RepackOptions): Promise<RepackReport>;
  /**
   * Takes a checkpoint of each shard, rewrites its stores as they are, so that what was deleted gives
   * its room back, and shortens the log. The current slab stays as it is, and so do expired TTVs.
   */
  compact(options?: WorkOptions): Promise<CompactReport>;
  /** Of ordered TTVs, topics and writers, or of a map: equal wherever a shard is equal. */
  logicalHash(shard: ShardNumber): Promise<string>;
}
