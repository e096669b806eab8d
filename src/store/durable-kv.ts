// A key-value store that survives its own failed writes: a failed batch closes the store, which is
// opened again, and the batch is written again, for as long as it takes.
//
// Batches are idempotent (absolute puts and deletes), so writing one twice does no harm. While
// the volume is full or sick the caller's data stays in its memory, which the write buffer bounds.

import { type Clock, type Logger, sleep, toError } from "../base/index.ts";
import type { Kv, KvBatch, KvCursor, KvDriver, KvOptions, KvRange } from "../kv/index.ts";
import { storeErrors } from "./errors.ts";

/** First and longest wait between attempts. */
const retryDelayMsMin = 100;
const retryDelayMsMax = 5_000;

export type DurableKvParts = {
  readonly driver: KvDriver;
  readonly clock: Clock;
  readonly logger: Logger;
};

export class DurableKv {
  readonly path: string;
  readonly #parts: DurableKvParts;
  readonly #options: KvOptions;
  #kv: Kv;
  #reopening: Promise<void> | undefined;
  #closed = false;

  private constructor(path: string, kv: Kv, options: KvOptions, parts: DurableKvParts) {
    this.path = path;
    this.#kv = kv;
    this.#options = options;
    this.#parts = parts;
  }

  static async open(path: string, options: KvOptions, parts: DurableKvParts): Promise<DurableKv> {
    return new DurableKv(path, await parts.driver.open(path, options), options, parts);
  }

  /** The store as it is open now; do not keep it over an await. */
  get current(): Kv {
    return this.#kv;
  }

  get(key: Uint8Array): Promise<Buffer | undefined> {
    return this.#reading((kv) => kv.get(key));
  }

  cursor(range: KvRange): KvCursor {
    return this.#kv.cursor(range);
  }

  /** Waits out failures; rejects only with STORE_CLOSED. `fill` may run several times. */
  async write(fill: (batch: KvBatch) => void): Promise<void> {
    await this.#untilDone(async (kv) => {
      const batch = kv.batch();
      fill(batch);
      await batch.write();
    });
  }

  async clear(range: KvRange): Promise<void> {
    await this.#untilDone((kv) => kv.clear(range));
  }

  /** Makes what was written durable. A failed sync is not repeated: the checkpoint fails. */
  sync(): Promise<void> {
    return this.#kv.sync();
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#reopening?.catch(() => undefined);
    await this.#kv.close();
  }

  async #untilDone(action: (kv: Kv) => Promise<void>): Promise<void> {
    for (let delayMs = retryDelayMsMin; ; delayMs = Math.min(delayMs * 2, retryDelayMsMax)) {
      if (this.#closed) throw storeErrors.closed();
      await this.#reopening;
      try {
        await action(this.#kv);
        return;
      } catch (error) {
        if (this.#closed) throw storeErrors.closed();
        this.#parts.logger.error("store.slab_write_failed", {
          slab: this.path,
          reason: toError(error).message,
        });
        this.#reopening ??= this.#reopen(delayMs).finally(() => {
          this.#reopening = undefined;
        });
      }
    }
  }

  async #reading<T>(action: (kv: Kv) => Promise<T>): Promise<T> {
    await this.#reopening;
    return action(this.#kv);
  }

  async #reopen(firstDelayMs: number): Promise<void> {
    await this.#kv.close().catch((error: unknown) => {
      // The store is broken already; that closing it fails too changes nothing.
      this.#parts.logger.debug("store.slab_close_failed", { reason: toError(error).message });
    });
    for (let delayMs = firstDelayMs; !this.#closed; ) {
      await sleep(this.#parts.clock, delayMs);
      try {
        this.#kv = await this.#parts.driver.open(this.path, this.#options);
        this.#parts.logger.info("store.slab_reopened", { slab: this.path });
        return;
      } catch (error) {
        delayMs = Math.min(delayMs * 2, retryDelayMsMax);
        this.#parts.logger.error("store.slab_reopen_failed", {
          slab: this.path,
          reason: toError(error).message,
        });
      }
    }
  }
}
