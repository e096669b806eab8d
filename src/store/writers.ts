// Writers: named appenders whose repeats are answered instead of appended again.
//
// A writer is opened (its epoch = the commit time of the opening) and then appends in sequence,
// beginning at 1. The table keeps the last results of each, at least as many as may be in flight.
// Decided at cooking against proposed state, like evidence; kept by checkpoints. What was decided to do
// nothing (verdict.ts) is a result like any other.

import { ByteReader, ByteWriter, type CodedError } from "../base/index.ts";
import type { KvBatch } from "../kv/index.ts";
import type { WriterStamp } from "./api.ts";
import { storeErrors } from "./errors.ts";
import { rowPrefix, type ShardStore } from "./shard-store.ts";

/** Told the commit time of the original, and why it did nothing (0: it did); or why there is none. */
type Waiter = (error: CodedError | undefined, timeUs: number, refusal: number) => void;

type Writer = {
  readonly epoch: number;
  /** A newer opening is proposed: nothing more is taken under this epoch. */
  fenced: boolean;
  /** Last sequence that was decided. */
  decided: number;
  /** Commit times of the last sequences that were applied. */
  readonly results: Map<number, number>;
  /** Of those that did nothing: why. */
  readonly refusals: Map<number, number>;
  readonly waiters: Map<number, Waiter[]>;
};

/** Results kept per writer: what may be in flight at once, and so be repeated. */
export const writerResultsMax = 1_024;
/** Writers per shard; a site needs one per shard, timers one each. */
export const writersMax = 10_000;
/** A writer idle for so long in commit time makes room for new ones when the table is full. */
export const writerIdleUsMax = 24 * 60 * 60 * 1_000_000;
/** 1: there are no refusals, as everywhere but on replicas. */
const formatVersion = 2;

export class WriterTable {
  readonly #writers = new Map<string, Writer>();
  #dirty = new Set<string>();
  #flushing: Set<string> | undefined;

  /** With what the rows of its shard say. */
  static async open(store: ShardStore): Promise<WriterTable> {
    const table = new WriterTable();
    await store.scan(Buffer.from([rowPrefix.writer]), (key, value) => {
      table.#writers.set(key.toString("utf8", 1), decodeWriter(value));
    });
    return table;
  }

  /**
   * An opening is proposed in this turn: whoever opened the writer before is refused from now on.
   * @throws STORE_LIMIT_REACHED.
   */
  decideOpen(name: string, nowUs: number): void {
    const writer = this.#writers.get(name);
    if (writer !== undefined) {
      writer.fenced = true;
    } else if (this.#writers.size >= writersMax && this.#idleSince(nowUs).length === 0) {
      throw storeErrors.limitReached({ limit: "writers of a shard", max: writersMax });
    }
  }

  applyOpen(name: string, epoch: number): void {
    if (this.#writers.size >= writersMax) {
      for (const idle of this.#idleSince(epoch)) {
        this.#writers.delete(idle);
        this.#dirty.add(idle);
      }
    }
    this.#writers.set(name, createWriter(epoch));
    this.#dirty.add(name);
  }

  /**
   * New, or a repeat: then `onResult` gets the commit time of the original, at once or later.
   * @throws STORE_WRITER_FENCED, STORE_WRITER_GAP.
   */
  decide(stamp: WriterStamp, onResult: Waiter): "new" | "repeat" {
    const writer = this.#writers.get(stamp.name);
    if (writer === undefined || writer.fenced || writer.epoch !== stamp.epoch) {
      throw storeErrors.writerFenced({ writer: stamp.name });
    }
    if (stamp.sequence === writer.decided + 1) {
      writer.decided = stamp.sequence;
      return "new";
    }
    const result = writer.results.get(stamp.sequence);
    if (result !== undefined) {
      onResult(undefined, result, writer.refusals.get(stamp.sequence) ?? 0);
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

  /** What was decided under the stamp in this turn is not proposed: it is decided anew. */
  undecide(stamp: WriterStamp): void {
    const writer = this.#writers.get(stamp.name);
    if (writer?.epoch === stamp.epoch && writer.decided === stamp.sequence) writer.decided--;
  }

  applyResult(stamp: WriterStamp, timeUs: number, refusal = 0): void {
    const writer = this.#writers.get(stamp.name);
    if (writer === undefined || writer.epoch !== stamp.epoch) return;
    writer.decided = Math.max(writer.decided, stamp.sequence);
    writer.results.set(stamp.sequence, timeUs);
    if (refusal !== 0) writer.refusals.set(stamp.sequence, refusal);
    writer.results.delete(stamp.sequence - writerResultsMax);
    writer.refusals.delete(stamp.sequence - writerResultsMax);
    this.#dirty.add(stamp.name);
    tellWaiters(writer, stamp.sequence, { error: undefined, timeUs, refusal });
  }

  /** It appends nothing more: its results are forgotten. */
  applyClose(name: string): void {
    if (this.#writers.delete(name)) this.#dirty.add(name);
  }

  /** Commit time of what was applied under a stamp. */
  resultOf(stamp: WriterStamp): number | undefined {
    const writer = this.#writers.get(stamp.name);
    return writer?.epoch === stamp.epoch ? writer.results.get(stamp.sequence) : undefined;
  }

  /** The entry of a stamp will never be applied: those who repeated it are told. */
  refuse(stamp: WriterStamp, error: CodedError): void {
    const writer = this.#writers.get(stamp.name);
    if (writer?.epoch === stamp.epoch) tellWaiters(writer, stamp.sequence, { error, ...nothing });
  }

  /** Forgets what is decided and not applied. */
  depose(reason: CodedError): void {
    for (const writer of this.#writers.values()) {
      writer.fenced = false;
      writer.decided = Math.max(0, ...writer.results.keys());
      for (const sequence of [...writer.waiters.keys()]) {
        tellWaiters(writer, sequence, { error: reason, ...nothing });
      }
    }
  }

  /** What is applied, each writer as text, in order of their names. */
  states(): string[] {
    return [...this.#writers]
      .map(([name, { epoch, results, refusals }]) => {
        const refused = refusals.size === 0 ? [] : [[...refusals]];
        return JSON.stringify([name, epoch, [...results], ...refused]);
      })
      .sort();
  }

  capture(): (batch: KvBatch) => void {
    this.#flushing = this.#dirty;
    this.#dirty = new Set();
    const rows: Array<[Buffer, Buffer | undefined]> = [];
    for (const name of this.#flushing) {
      const writer = this.#writers.get(name);
      const key = Buffer.concat([Buffer.from([rowPrefix.writer]), Buffer.from(name)]);
      rows.push([key, writer === undefined ? undefined : encodeWriter(writer)]);
    }
    return (batch) => {
      for (const [key, value] of rows) {
        if (value === undefined) batch.delete(key);
        else batch.put(key, value);
      }
    };
  }

  finish(committed: boolean): void {
    if (!committed) for (const name of this.#flushing ?? []) this.#dirty.add(name);
    this.#flushing = undefined;
  }

  #idleSince(nowUs: number): string[] {
    const idle: string[] = [];
    for (const [name, writer] of this.#writers) {
      if (lastUseUs(writer) < nowUs - writerIdleUsMax) idle.push(name);
    }
    return idle;
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
  const { epoch, results, refusals } = writer;
  out.u8(refusals.size === 0 ? 1 : formatVersion);
  out.u64(epoch).varint(results.size);
  for (const [sequence, timeUs] of results) out.varint(sequence).u64(timeUs);
  if (refusals.size > 0) out.varint(refusals.size);
  for (const [sequence, refusal] of refusals) out.varint(sequence).varint(refusal);
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
  const refusals = new Map<number, number>();
  for (let left = version === 1 ? 0 : reader.varint(); left > 0; left--) {
    refusals.set(reader.varint(), reader.varint());
  }
  return { ...createWriter(epoch), decided, results, refusals };
}

/** Results are kept in the order of their times. */
function lastUseUs(writer: Writer): number {
  return Math.max(writer.epoch, writer.results.get(writer.decided) ?? 0);
}

function createWriter(epoch: number): Writer {
  const [results, refusals, waiters] = [new Map(), new Map(), new Map()];
  return { epoch, fenced: false, decided: 0, results, refusals, waiters };
}

type Told = {
  readonly error: CodedError | undefined;
  readonly timeUs: number;
  readonly refusal: number;
};

const nothing = { timeUs: 0, refusal: 0 };

function tellWaiters(writer: Writer, sequence: number, { error, timeUs, refusal }: Told): void {
  const waiters = writer.waiters.get(sequence);
  if (waiters === undefined) return;
  writer.waiters.delete(sequence);
  for (const waiter of waiters) waiter(error, timeUs, refusal);
}
