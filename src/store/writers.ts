// Writers: named appenders whose repeats are answered instead of appended again.
//
// A writer is opened (its epoch = the commit time of the opening) and then appends in sequence,
// beginning at 1. The table keeps the last results of each, at least as many as may be in flight.
// Decided at cooking against proposed state, like evidence; kept by checkpoints.

import { ByteReader, ByteWriter } from "../base/index.ts";
import type { KvBatch } from "../kv/index.ts";
import type { WriterStamp } from "./api.ts";
import { storeErrors } from "./errors.ts";
import { rowPrefix, type ShardStore } from "./shard-store.ts";

type Writer = {
  epoch: number;
  /** Last sequence that was decided. */
  decided: number;
  /** Commit times of the last sequences that were applied. */
  readonly results: Map<number, number>;
  readonly waiters: Map<number, Array<(timeUs: number) => void>>;
};

/** Results kept per writer: what may be in flight at once, and so be repeated. */
export const writerResultsMax = 1_024;
/** Writers per shard; a site needs one per shard, timers one each. */
export const writersMax = 10_000;
const formatVersion = 1;

export class WriterTable {
  readonly #writers = new Map<string, Writer>();
  #dirty = new Set<string>();
  #flushing: Set<string> | undefined;

  async load(store: ShardStore): Promise<void> {
    await store.scan(Buffer.from([rowPrefix.writer]), (key, value) => {
      this.#writers.set(key.toString("utf8", 1), decodeWriter(value));
    });
  }

  /** @throws STORE_LIMIT_REACHED. */
  admitOpen(name: string): void {
    if (!this.#writers.has(name) && this.#writers.size >= writersMax) {
      throw storeErrors.limitReached({ limit: "writers of a shard", max: writersMax });
    }
  }

  applyOpen(name: string, epoch: number): void {
    this.#writers.set(name, { epoch, decided: 0, results: new Map(), waiters: new Map() });
    this.#dirty.add(name);
  }

  /**
   * New, or a repeat: then `onResult` gets the commit time of the original, at once or later.
   * @throws STORE_WRITER_FENCED, STORE_WRITER_GAP.
   */
  decide(stamp: WriterStamp, onResult: (timeUs: number) => void): "new" | "repeat" {
    const writer = this.#writers.get(stamp.name);
    if (writer === undefined || writer.epoch !== stamp.epoch) {
      throw storeErrors.writerFenced({ writer: stamp.name });
    }
    if (stamp.sequence === writer.decided + 1) {
      writer.decided = stamp.sequence;
      return "new";
    }
    const result = writer.results.get(stamp.sequence);
    if (result !== undefined) {
      onResult(result);
      return "repeat";
    }
    if (stamp.sequence > writer.decided || stamp.sequence <= writer.decided - writerResultsMax) {
      throw storeErrors.writerGap({
        writer: stamp.name,
        last: writer.decided,
        got: stamp.sequence,
      });
    }
    const waiters = writer.waiters.get(stamp.sequence) ?? [];
    waiters.push(onResult);
    writer.waiters.set(stamp.sequence, waiters);
    return "repeat";
  }

  applyResult(stamp: WriterStamp, timeUs: number): void {
    const writer = this.#writers.get(stamp.name);
    if (writer === undefined || writer.epoch !== stamp.epoch) return;
    writer.decided = Math.max(writer.decided, stamp.sequence);
    writer.results.set(stamp.sequence, timeUs);
    writer.results.delete(stamp.sequence - writerResultsMax);
    this.#dirty.add(stamp.name);
    const waiters = writer.waiters.get(stamp.sequence);
    if (waiters === undefined) return;
    writer.waiters.delete(stamp.sequence);
    for (const waiter of waiters) waiter(timeUs);
  }

  capture(): (batch: KvBatch) => void {
    this.#flushing = this.#dirty;
    this.#dirty = new Set();
    const rows: Array<[Buffer, Buffer]> = [];
    for (const name of this.#flushing) {
      const writer = this.#writers.get(name);
      if (writer === undefined) continue;
      const key = Buffer.concat([Buffer.from([rowPrefix.writer]), Buffer.from(name)]);
      rows.push([key, encodeWriter(writer)]);
    }
    return (batch) => {
      for (const [key, value] of rows) batch.put(key, value);
    };
  }

  finish(committed: boolean): void {
    if (!committed) for (const name of this.#flushing ?? []) this.#dirty.add(name);
    this.#flushing = undefined;
  }
}

export function writeStamp(writer: ByteWriter, stamp: WriterStamp): void {
  writer.string(stamp.name).u64(stamp.epoch).varint(stamp.sequence);
}

export function readStamp(reader: ByteReader): WriterStamp {
  return { name: reader.string(), epoch: reader.u64(), sequence: reader.varint() };
}

function encodeWriter(writer: Writer): Buffer {
  const out = new ByteWriter();
  out.u8(formatVersion).u64(writer.epoch).varint(writer.results.size);
  for (const [sequence, timeUs] of writer.results) out.varint(sequence).u64(timeUs);
  return Buffer.from(out.finish());
}

function decodeWriter(bytes: Buffer): Writer {
  const reader = new ByteReader(bytes);
  const version = reader.u8();
  if (version > formatVersion) throw storeErrors.formatNewer({ what: "a writer row", version });
  const epoch = reader.u64();
  const results = new Map<number, number>();
  let decided = 0;
  for (let left = reader.varint(); left > 0; left--) {
    const sequence = reader.varint();
    results.set(sequence, reader.u64());
    decided = Math.max(decided, sequence);
  }
  return { epoch, decided, results, waiters: new Map() };
}
