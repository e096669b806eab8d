// When checkpoints are taken: a shard's after so many log bytes or so long a dirty time, one at a
// time over the whole process. What a start had to replay is checkpointed soon after it, so that a
// process that keeps ending early neither replays ever more nor keeps ever more log.
// A checkpoint that fails is tried again; until then the log keeps what it covers. One that takes
// very long, because its volume takes nothing, does not keep the other shards from theirs; and when
// it goes on not coming about, the shard's entries are copied out of the log, which everybody shares.

import { type Cancel, type Clock, type Logger, toError } from "../base/index.ts";
import type { Shard } from "./shard.ts";

export type CheckpointPolicy = {
  /** Log bytes of a shard after which it is taken. Default 64 MiB. */
  readonly bytesMax: number;
  /** Longest time a shard stays dirty. Default 60 s. */
  readonly ageMsMax: number;
};

/** Log bytes of a shard without a checkpoint at which its entries are copied out of the log. */
const stuckBytesMax = 1024 * 1024 * 1024;
/** Time without a checkpoint that is due, after which they are, if it is they that keep the log. */
const stuckMsMax = 5 * 60_000;

const lookIntervalMs = 1_000;
/** Time after which the next shard has its turn while a checkpoint is still under way. */
const turnMsMax = 10_000;

export class Checkpointer {
  readonly #policy: CheckpointPolicy;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #shards = new Set<Shard>();
  /** When a shard was first seen dirty. */
  readonly #dirtySinceMs = new Map<Shard, number>();
  /** When a shard's checkpoint was first due, or its entries were last copied. */
  readonly #dueSinceMs = new Map<Shard, number>();
  #copying = false;
  #cancel: Cancel | undefined;
  #endTurn: (() => void) | undefined;
  #closed = false;

  constructor(policy: CheckpointPolicy, clock: Clock, logger: Logger) {
    this.#policy = policy;
    this.#clock = clock;
    this.#logger = logger;
  }

  /** A shard that begins dirty was replayed: it is due at once. */
  watch(shard: Shard): void {
    this.#shards.add(shard);
    if (shard.isDirty) this.#dirtySinceMs.set(shard, Number.NEGATIVE_INFINITY);
    if (this.#cancel === undefined && !this.#closed) this.#arm();
  }

  /** The shard is about to be closed for good. */
  unwatch(shard: Shard): void {
    this.#shards.delete(shard);
    this.#dirtySinceMs.delete(shard);
    this.#dueSinceMs.delete(shard);
  }

  /** Brings every dirty shard's checkpoint up to now. @throws the first failure, after all. */
  async checkpointAll(): Promise<void> {
    const failures: unknown[] = [];
    for (const shard of this.#shards) {
      if (!shard.isDirty) continue;
      await shard.checkpoint().catch((error: unknown) => failures.push(error));
    }
    if (failures.length > 0) throw failures[0];
  }

  /** No checkpoint begins after this; those under way end with their shards. */
  close(): void {
    this.#closed = true;
    this.#cancel?.();
    this.#endTurn?.();
  }

  #arm(): void {
    this.#cancel = this.#clock.schedule(lookIntervalMs, () => {
      void this.#look().finally(() => {
        if (!this.#closed) this.#arm();
      });
    });
  }

  async #look(): Promise<void> {
    for (const shard of this.#shards) {
      if (this.#closed) return;
      const isDue = this.#isDue(shard);
      if (isDue) this.#copyIfStuck(shard);
      else this.#dueSinceMs.delete(shard);
      if (shard.isCheckpointing || !isDue) continue;
      await this.#turn(this.#attempt(shard));
    }
  }

  async #attempt(shard: Shard): Promise<void> {
    try {
      await shard.checkpoint();
      this.#dirtySinceMs.delete(shard);
      this.#dueSinceMs.delete(shard);
    } catch (error) {
      // The shard logged what failed; the next look tries again.
      this.#logger.debug("store.checkpoint_put_off", { reason: toError(error).message });
    }
  }

  #copyIfStuck(shard: Shard): void {
    const nowMs = this.#clock.elapsedMs();
    const sinceMs = this.#dueSinceMs.get(shard) ?? nowMs;
    this.#dueSinceMs.set(shard, sinceMs);
    const isStuck =
      shard.bytesSinceCheckpoint >= stuckBytesMax ||
      (nowMs - sinceMs >= stuckMsMax && shard.pinsLog);
    if (!isStuck || this.#copying) return;
    this.#copying = true;
    this.#dueSinceMs.set(shard, nowMs);
    void shard
      .copyBacklog()
      .catch((error: unknown) => {
        const fields = { shard: shard.number, reason: toError(error).message };
        this.#logger.error("store.backlog_failed", fields);
      })
      .finally(() => {
        this.#copying = false;
      });
  }

  #turn(attempt: Promise<void>): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#clock.schedule(turnMsMax, resolve);
      this.#endTurn = () => {
        cancel();
        resolve();
      };
      void attempt.then(this.#endTurn);
    });
  }

  #isDue(shard: Shard): boolean {
    if (!shard.isDirty || shard.failure !== undefined) {
      this.#dirtySinceMs.delete(shard);
      return false;
    }
    const nowMs = this.#clock.elapsedMs();
    const sinceMs = this.#dirtySinceMs.get(shard) ?? nowMs;
    this.#dirtySinceMs.set(shard, sinceMs);
    const { bytesMax, ageMsMax } = this.#policy;
    if (shard.isAwaited) return true;
    return shard.bytesSinceCheckpoint >= bytesMax || nowMs - sinceMs >= ageMsMax;
  }
}
