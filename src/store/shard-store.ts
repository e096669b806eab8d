// The shard store: a small key-value store beside a shard's slabs that holds the shard's one
// recovery number and what belongs to it (docs/formats/shard-store.md).
//
// It is written by checkpoints only, one synced batch each: either all of a checkpoint is there
// or nothing of it. Between checkpoints the same facts live in memory and come back by replay.
// Behind each checkpoint the rows without which a shard cannot be opened are copied to a file beside
// it (`shard-facts.ts`); what becomes of a damaged one is said in `shard-store-open.ts`. A copy that
// cannot be written stays behind. It may be all that is left one day: as long as it is, the log goes
// back to it (`releasableIndex`), and the folders that it names stay (`isCopied`).

import { ByteReader, ByteWriter, crc32, isCodedError } from "../base/index.ts";
import type { KvBatch, KvEntry } from "../kv/index.ts";
import type { CopyPlace } from "./copy-file.ts";
import type { DurableKv } from "./durable-kv.ts";
import { storeErrors } from "./errors.ts";
import { WatchedBatch, writeFacts } from "./shard-facts.ts";

/** Everything at or below it is in synced slabs and in this store. */
export type CheckpointRecord = {
  readonly index: number;
  readonly timeUs: number;
  readonly epoch: number;
  /** Where commit times are missing, ascending. */
  readonly recoveries: readonly RecoveryPoint[];
};

/** Commit times that are missing: the log was damaged. */
export type RecoveryPoint = {
  /** The epoch that began with it. */
  readonly epoch: number;
  /** Last commit time before the loss. */
  readonly fromUs: number;
  /** Last commit time that may have been lost. */
  readonly toUs: number;
  /** No more TTVs than this are missing. */
  readonly countMax: number;
};

/** Recovery points kept; older ones are forgotten, each took a start that found damage. */
export const recoveriesMax = 1_000;

export const firstCheckpoint: CheckpointRecord = { index: 0, timeUs: 0, epoch: 1, recoveries: [] };

/** First byte of a key: what the row is. */
export const rowPrefix = {
  checkpoint: 0x63, // c
  generation: 0x67, // g
  nextGeneration: 0x6e, // n
  dropped: 0x64, // d
  writer: 0x77, // w
  evidence: 0x65, // e
  owner: 0x6f, // o
  lastMatch: 0x6d, // m
  hold: 0x68, // h
  proof: 0x70, // p
  mapFolder: 0x61, // a
} as const;

/** Kinds of rows that are copied. */
export const factPrefixes: readonly number[] = [
  rowPrefix.checkpoint,
  rowPrefix.generation,
  rowPrefix.nextGeneration,
  rowPrefix.dropped,
  rowPrefix.hold,
  rowPrefix.proof,
  rowPrefix.mapFolder,
];

/** What the slab of a map shard has proved to hold; those of log slabs follow by generation. */
export const mapProofKey = Buffer.from([rowPrefix.proof, 0, 0, 0, 0]);

export const checkpointKey = Buffer.from([rowPrefix.checkpoint]);
const formatVersion = 1;

export class ShardStore {
  readonly #kv: DurableKv;
  readonly #shard: number;
  readonly #copy: CopyPlace | undefined;
  /** The rows that are copied; empty without a place for the copy. */
  readonly #facts: Map<string, Buffer>;
  #checkpoint: CheckpointRecord;
  /** Of the checkpoint that the copy has. */
  #copiedIndex: number;
  #isCopied: boolean;
  readonly #whenCopied: Array<() => void> = [];
  #isMended = false;

  private constructor(kv: DurableKv, shard: number, record: CheckpointRecord, parts: CopyParts) {
    this.#kv = kv;
    this.#shard = shard;
    this.#checkpoint = record;
    this.#copy = parts.copy;
    this.#facts = parts.facts;
    const { copy, facts, found } = parts;
    this.#copiedIndex = found?.index ?? 0;
    this.#isCopied = copy === undefined || areEqual(facts, found?.rows ?? new Map());
  }

  /** `found`: what the copy says. @throws STORE_SLAB_CORRUPT, STORE_FORMAT_NEWER. */
  static async open(
    kv: DurableKv,
    shard: number,
    copy?: CopyPlace,
    found?: CopiedRows,
  ): Promise<ShardStore> {
    const row = await kv.get(checkpointKey);
    const checkpoint = row === undefined ? firstCheckpoint : decodeCheckpoint(row, kv.path);
    const facts = copy === undefined ? new Map<string, Buffer>() : await readFactRows(kv);
    return new ShardStore(kv, shard, checkpoint, { copy, facts, found });
  }

  /** It has no checkpoint: there was none yet, or everything is lost. */
  get isBlank(): boolean {
    return this.#checkpoint.index === 0;
  }

  /** Entries were lost that no copy had; a checkpoint ends what that may mislead. */
  get isMended(): boolean {
    return this.#isMended;
  }

  markMended(): void {
    this.#isMended = true;
  }

  get checkpoint(): CheckpointRecord {
    return this.#checkpoint;
  }

  /** The copy says what the store says. */
  get isCopied(): boolean {
    return this.#isCopied;
  }

  /** Runs once the copy says what the store says: now, or behind the checkpoint that brings it up. */
  whenCopied(run: () => void): void {
    if (this.#isCopied) run();
    else this.#whenCopied.push(run);
  }

  /** Entries up to here are needed no more, whichever of store and copy is lost. */
  get releasableIndex(): number {
    const { index } = this.#checkpoint;
    return this.#copy === undefined ? index : Math.min(index, this.#copiedIndex);
  }

  /** Commits a checkpoint with the rows that changed since the last one; waits out failures. */
  async commit(checkpoint: CheckpointRecord, addRows: (batch: KvBatch) => void): Promise<void> {
    let changes: Array<readonly [key: string, value: Buffer | undefined]> = [];
    const fill = (batch: KvBatch): void => {
      changes = [];
      const watched = new WatchedBatch(batch, (key, value) => changes.push([key, value]));
      addRows(watched);
      watched.put(checkpointKey, encodeCheckpoint(checkpoint));
    };
    await this.#kv.write(fill, { sync: true });
    this.#checkpoint = checkpoint;
    this.#isCopied = this.#copy === undefined;
    for (const [key, value] of changes) {
      if (!factPrefixes.includes(key.charCodeAt(0))) continue;
      if (value === undefined) this.#facts.delete(key);
      else this.#facts.set(key, value);
    }
    await this.writeCopy();
  }

  /** Writes the copy as of the last checkpoint. @throws STORE_SYNC_FAILED. */
  async writeCopy(): Promise<void> {
    const copy = this.#copy;
    if (copy === undefined) return;
    const { index } = this.#checkpoint;
    let proof: Uint8Array;
    try {
      proof = await this.#kv.sync();
    } catch (error) {
      // All it lacked was space: the older copy stands, the checkpoint as well.
      if (isCodedError(error, "KV_DISK_FULL")) return;
      throw error;
    }
    const isWritten = await writeFacts(copy, { proof: Buffer.from(proof), rows: this.#facts });
    if (!isWritten) return;
    this.#copiedIndex = index;
    this.#isCopied = true;
    for (const run of this.#whenCopied.splice(0)) run();
  }

  /** In one batch, all rows give way to these: another replica's state takes the place of this one. */
  async replace(checkpoint: CheckpointRecord, rows: readonly KvEntry[]): Promise<void> {
    const old: Buffer[] = [];
    await this.#kv.scan({}, (key) => void old.push(key));
    const fill = (batch: KvBatch): void => {
      for (const key of old) batch.delete(key);
      for (const [key, value] of rows) batch.put(key, value);
      batch.put(checkpointKey, encodeCheckpoint(checkpoint));
    };
    await this.#kv.write(fill, { sync: true });
    this.#checkpoint = checkpoint;
    this.#isCopied = this.#copy === undefined;
    this.#facts.clear();
    for (const [key, value] of await readFactRows(this.#kv)) this.#facts.set(key, value);
    await this.writeCopy();
  }

  /** All rows, as of one checkpoint. */
  async listRows(): Promise<KvEntry[]> {
    const rows: KvEntry[] = [];
    await this.#kv.scan({}, (key, value) => void rows.push([key, value]));
    return rows;
  }

  /** Deleted rows give their room back. */
  compact(): Promise<void> {
    return this.#kv.compact();
  }

  get(key: Uint8Array): Promise<Buffer | undefined> {
    return this.#kv.get(key);
  }

  /** All rows whose key begins with `prefix`, in order. */
  scan(prefix: Buffer, visit: (key: Buffer, value: Buffer) => void): Promise<void> {
    return this.#kv.scan({ gte: prefix, lt: prefixEnd(prefix) }, visit);
  }

  close(): Promise<void> {
    return this.#kv.close();
  }

  get shard(): number {
    return this.#shard;
  }
}

type CopyParts = {
  readonly copy: CopyPlace | undefined;
  readonly facts: Map<string, Buffer>;
  readonly found: CopiedRows | undefined;
};

/** Of the last checkpoint that was copied, whose index is this. */
export type CopiedRows = { readonly index: number; readonly rows: ReadonlyMap<string, Buffer> };

function areEqual(a: ReadonlyMap<string, Buffer>, b: ReadonlyMap<string, Buffer>): boolean {
  if (a.size !== b.size) return false;
  for (const [key, value] of a) if (b.get(key)?.equals(value) !== true) return false;
  return true;
}

async function readFactRows(kv: DurableKv): Promise<Map<string, Buffer>> {
  const rows = new Map<string, Buffer>();
  for (const first of factPrefixes) {
    const prefix = Buffer.from([first]);
    await kv.scan({ gte: prefix, lt: prefixEnd(prefix) }, (key, value) => {
      rows.set(key.toString("latin1"), value);
    });
  }
  return rows;
}

/** The first key after all that begin with `prefix`. REQUIRES: not all bytes 0xff. */
export function prefixEnd(prefix: Uint8Array): Buffer {
  const end = Buffer.from(prefix);
  for (let at = end.length - 1; at >= 0; at--) {
    const byte = end[at] as number;
    if (byte === 0xff) continue;
    end[at] = byte + 1;
    return end.subarray(0, at + 1);
  }
  throw storeErrors.limitReached({ limit: "key prefix", max: "less than all 0xff" });
}

export function encodeCheckpoint(record: CheckpointRecord): Buffer {
  const writer = new ByteWriter(64);
  writer.u8(formatVersion).u64(record.index).u64(record.timeUs).u32(record.epoch);
  writer.varint(record.recoveries.length);
  for (const point of record.recoveries) {
    writer.u32(point.epoch).u64(point.fromUs).u64(point.toUs).varint(point.countMax);
  }
  writer.u32(crc32(writer.finish()));
  return Buffer.from(writer.finish());
}

export function decodeCheckpoint(bytes: Buffer, path: string): CheckpointRecord {
  const body = bytes.subarray(0, Math.max(0, bytes.length - 4));
  if (bytes.length < 5 || crc32(body) !== bytes.readUInt32BE(bytes.length - 4)) {
    throw storeErrors.slabCorrupt({ slab: path, reason: "the checkpoint record is damaged" });
  }
  const reader = new ByteReader(body);
  const version = reader.u8();
  if (version > formatVersion) {
    throw storeErrors.formatNewer({ what: `the shard store ${path}`, version });
  }
  const index = reader.u64();
  const timeUs = reader.u64();
  const epoch = reader.u32();
  const recoveries: RecoveryPoint[] = [];
  for (let left = reader.varint(); left > 0; left--) {
    recoveries.push({
      epoch: reader.u32(),
      fromUs: reader.u64(),
      toUs: reader.u64(),
      countMax: reader.varint(),
    });
  }
  return { index, timeUs, epoch, recoveries };
}
