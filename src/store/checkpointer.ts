// When checkpoints are taken: a shard's after so many log bytes or so long a dirty time, one at a
// time over the whole process. What a start had to replay is checkpointed soon after it, so that a
// process that keeps ending early neither replays ever more nor keeps ever more log.
// A checkpoint that fails is tried again; until then the log keeps what it covers, and that it
// fails is logged and counted by the shard.

import { type Cancel, type Clock, type Logger, toError } from "../base/index.ts";
import type { Shard } from "./shard.ts";

export type CheckpointPolicy = {
  /** Log bytes of a shard after which it is taken. Default 64 MiB. */
  readonly bytesMax: number;
  /** Longest time a shard stays dirty. Default 60 s. */
  readonly ageMsMax: number;
};

const lookIntervalMs = 1_000;

export class Checkpointer {
  readonly #policy: CheckpointPolicy;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #shards = new Set<Shard>();
  /** When a shard was first seen dirty. */
  readonly #dirtySinceMs = new Map<Shard, number>();
  #cancel: Cancel | undefined;
  #running: Promise<void> | undefined;
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

  /** Brings every dirty shard's checkpoint up to now. */
  async checkpointAll(): Promise<void> {
    await this.#running;
    for (const shard of this.#shards) if (shard.isDirty) await shard.checkpoint();
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#cancel?.();
    await this.#running;
  }

  #arm(): void {
    this.#cancel = this.#clock.schedule(lookIntervalMs, () => {
      this.#running = this.#look().finally(() => {
        this.#running = undefined;
        if (!this.#closed) this.#arm();
      });
    });
  }

  async #look(): Promise<void> {
    for (const shard of this.#shards) {
      if (this.#closed) return;
      if (!this.#isDue(shard)) continue;
      try {
        await shard.checkpoint();
        this.#dirtySinceMs.delete(shard);
      } catch (error) {
        // The shard logged what failed; the next look tries again.
        this.#logger.debug("store.checkpoint_put_off", { reason: toError(error).message });
      }
    }
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
    return shard.bytesSinceCheckpoint >= bytesMax || nowMs - sinceMs >= ageMsMax;
  }
}
