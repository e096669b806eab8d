// Upkeep of generations: ends the current one in time, drops the oldest when retention says so. All
// of it by entries of the shard's log, so that every replica and every replay does the same.
//
// One step per shard at a time; a step that fails is logged and tried again at the next look. What
// a hold keeps stays, and what is later than it stays with it.

import { type Cancel, type Clock, type Logger, toError } from "../base/index.ts";
import { type Generation, totalOf } from "./core/generations.ts";
import { dropWaitMs, isRotationDue } from "./core/retention.ts";
import type { LogShard } from "./log-shard.ts";
import type { Retention } from "./operator-api.ts";
import { layoutName } from "./slab/layouts.ts";

/** A log database as retention sees it; read anew at each look. */
export type RetainedDatabase = {
  readonly name: string;
  readonly logs: readonly LogShard[];
  readonly retention: Retention;
  /** Logical bytes at which the generation of one shard ends. */
  readonly generationBytesMax: number;
};

export const retentionCounterHelp = {
  rotationsDue: "generations that ended by age or size",
  generationsExpired: "generations dropped by age or by the bytes of their database",
  retentionFailures: "rotations and drops that failed and were tried again",
};

const lookIntervalMs = 1_000;

export type RetentionParts = {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly databases: () => readonly RetainedDatabase[];
  readonly counters: Record<keyof typeof retentionCounterHelp, number>;
};

export class RetentionKeeper {
  readonly #parts: RetentionParts;
  /** Shards with a step under way. */
  readonly #busy = new Set<LogShard>();
  /** Monotonic time of the last drop by age; at first of the start. */
  readonly #droppedAtMs = new Map<LogShard, number>();
  readonly #startedMs: number;
  #cancel: Cancel | undefined;
  #closed = false;

  constructor(parts: RetentionParts) {
    this.#parts = parts;
    this.#startedMs = parts.clock.elapsedMs();
    this.#arm();
  }

  close(): void {
    this.#closed = true;
    this.#cancel?.();
  }

  /** A shard has grown: its generation may be full before the next look. */
  grown(log: LogShard, database: RetainedDatabase): void {
    const { sizeBytes } = totalOf(log.generations.currentRow);
    if (sizeBytes >= database.generationBytesMax)
      this.#parts.clock.soon(() => this.#look(log, database));
  }

  #arm(): void {
    this.#cancel = this.#parts.clock.schedule(lookIntervalMs, () => {
      for (const database of this.#parts.databases()) this.#lookAt(database);
      if (!this.#closed) this.#arm();
    });
  }

  #lookAt(database: RetainedDatabase): void {
    for (const log of database.logs) this.#look(log, database);
    this.#dropOverBytes(database);
  }

  #look(log: LogShard, { retention, generationBytesMax }: RetainedDatabase): void {
    if (this.#isResting(log)) return;
    const nowUs = this.#parts.clock.wallUs();
    const limits = { ageMs: retention.ageMs, bytesMax: generationBytesMax };
    const { currentRow } = log.generations;
    // A build that lays slabs out anew begins with a generation of its own.
    if (currentRow.layout !== layoutName || isRotationDue(currentRow, nowUs, limits)) {
      this.#parts.counters.rotationsDue++;
      this.#step(log, () => log.rotate());
      return;
    }
    const oldest = droppable(log);
    if (oldest === undefined || retention.ageMs === 0) return;
    if ((oldest.toUs as number) > nowUs - retention.ageMs * 1_000) return;
    const nowMs = this.#parts.clock.elapsedMs();
    const lastMs = this.#droppedAtMs.get(log);
    const waitMs = dropWaitMs(oldest, retention.ageMs, lastMs === undefined);
    if (nowMs - (lastMs ?? this.#startedMs) < waitMs) return;
    this.#droppedAtMs.set(log, nowMs);
    this.#expire(log, oldest, "age");
  }

  /** One generation at a look: the oldest of all shards. */
  #dropOverBytes({ logs, retention }: RetainedDatabase): void {
    if (retention.bytes === 0) return;
    let sizeBytes = 0;
    let oldest: { log: LogShard; generation: Generation } | undefined;
    for (const log of logs) {
      for (const each of log.generations.readable) sizeBytes += totalOf(each).sizeBytes;
      const generation = this.#isResting(log) ? undefined : droppable(log);
      if (generation === undefined) continue;
      const endUs = generation.toUs as number;
      if (oldest === undefined || endUs < (oldest.generation.toUs as number)) {
        oldest = { log, generation };
      }
    }
    if (sizeBytes <= retention.bytes || oldest === undefined) return;
    this.#expire(oldest.log, oldest.generation, "bytes");
  }

  #expire(log: LogShard, generation: Generation, by: "age" | "bytes"): void {
    const { number } = generation;
    this.#parts.counters.generationsExpired++;
    const { ttvs } = totalOf(generation);
    this.#parts.logger.info("store.generation_expired", { shard: log.number, number, by, ttvs });
    this.#step(log, () => log.drop([number]));
  }

  #isResting(log: LogShard): boolean {
    return this.#closed || this.#busy.has(log) || log.shard.refusal !== undefined;
  }

  #step(log: LogShard, work: () => Promise<void>): void {
    this.#busy.add(log);
    work()
      .catch((error: unknown) => {
        if (this.#closed) return;
        this.#parts.counters.retentionFailures++;
        const fields = { shard: log.number, reason: toError(error).message };
        this.#parts.logger.warn("store.retention_failed", fields);
      })
      .finally(() => this.#busy.delete(log));
  }
}

/** The oldest generation, if it is sealed and no hold keeps anything of it. */
export function droppable(log: LogShard): Generation | undefined {
  const { oldest } = log.generations;
  if (oldest.state !== "sealed" || oldest.toUs === undefined) return undefined;
  return log.holds.keeping(oldest.toUs - 1).length === 0 ? oldest : undefined;
}
