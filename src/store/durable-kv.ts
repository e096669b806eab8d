// A key-value store that survives its own failed writes: a failed batch closes the store, which is
// opened again, and the batch is written again, for as long as it takes.
//
// Batches are idempotent (absolute puts and deletes), so writing one twice does no harm; opening
// puts what was written before into synced tables. A failed sync is another matter: what the
// volume kept of it is not known, so it is not repeated and the owner has to give up, unless all
// it lacked was space. While the volume is full or sick the caller's data stays in its memory,
// which the write buffer bounds.
// Damage is another matter again: no waiting mends it. The store is condemned, so that the next start
// mends it from its files, and everything fails from then on.

import { type Clock, type CodedError, isCodedError, type Logger, toError } from "../base/index.ts";
import type { Kv, KvBatch, KvCursor, KvDriver, KvOptions, KvRange } from "../kv/index.ts";
import { storeErrors } from "./errors.ts";

/** First and longest wait between attempts. */
const retryDelayMsMin = 100;
const retryDelayMsMax = 5_000;
/** Rows of one page of a scan. */
const pageRows = 1_000;

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
  /** What the last sync proved, for the next opening. */
  #proof: Uint8Array | undefined;
  /** Set for good when the store turned out to be damaged. */
  #damage: CodedError | undefined;
  #reopening: Promise<void> | undefined;
  #endPause: (() => void) | undefined;
  #closing: Promise<void> | undefined;

  private constructor(path: string, kv: Kv, options: KvOptions, parts: DurableKvParts) {
    this.path = path;
    this.#kv = kv;
    this.#options = options;
    this.#parts = parts;
    this.#proof = options.proof;
  }

  static async open(path: string, options: KvOptions, parts: DurableKvParts): Promise<DurableKv> {
    return new DurableKv(path, await parts.driver.open(path, options), options, parts);
  }

  /** What the last sync proved; undefined when there was none since it was made. */
  get proof(): Uint8Array | undefined {
    return this.#proof;
  }

  async get(key: Uint8Array): Promise<Buffer | undefined> {
    await this.#usable();
    return this.#kv.get(key);
  }

  async cursor(range: KvRange): Promise<KvCursor> {
    await this.#usable();
    return this.#kv.cursor(range);
  }

  /** All rows of a range, in order, page by page. */
  async scan(range: KvRange, visit: (key: Buffer, value: Buffer) => void): Promise<void> {
    const cursor = await this.cursor(range);
    try {
      for (;;) {
        const entries = await cursor.next(pageRows);
        if (entries.length === 0) return;
        for (const [key, value] of entries) visit(key, value);
      }
    } finally {
      await cursor.close();
    }
  }

  /** Waits out failures; rejects with STORE_CLOSED or KV_CORRUPT. `fill` may run several times. */
  async write(fill: (batch: KvBatch) => void, options: { sync?: boolean } = {}): Promise<void> {
    for (let delayMs = retryDelayMsMin; ; delayMs = Math.min(delayMs * 2, retryDelayMsMax)) {
      await this.#usable();
      if (this.#closing !== undefined) throw storeErrors.closed();
      try {
        const batch = this.#kv.batch();
        fill(batch);
        await batch.write(options);
        return;
      } catch (error) {
        // Anything else is a fault of `fill`, which no reopening mends.
        if (!isCodedError(error) || !error.code.startsWith("KV_")) throw error;
        if (isCodedError(error, "KV_CORRUPT")) throw await this.condemn(error);
        this.#failed(error, delayMs);
      }
    }
  }

  /**
   * Makes what was written durable. @throws STORE_SYNC_FAILED when that will never be known,
   * KV_DISK_FULL when it may be tried again, KV_CORRUPT, STORE_CLOSED.
   */
  async sync(): Promise<Uint8Array> {
    await this.#usable();
    if (this.#closing !== undefined) throw storeErrors.closed();
    try {
      this.#proof = await this.#kv.sync();
      return this.#proof;
    } catch (error) {
      if (this.#closing !== undefined) throw storeErrors.closed();
      this.#failed(toError(error), retryDelayMsMin);
      if (isCodedError(error, "KV_DISK_FULL")) throw error;
      throw storeErrors.syncFailed({ slab: this.path, reason: toError(error).message }, error);
    }
  }

  /** Rewrites what is stored as tables in order: deleted rows give their room back. */
  async compact(): Promise<void> {
    await this.#usable();
    if (this.#closing !== undefined) throw storeErrors.closed();
    await this.#kv.compact();
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#endPause?.();
    await this.#reopening;
    await this.#kv.close();
  }

  async #usable(): Promise<void> {
    await this.#reopening;
    if (this.#damage !== undefined) throw this.#damage;
  }

  /** Ends the store for good: the next start mends it. Resolves with the first such error. */
  async condemn(error: CodedError): Promise<CodedError> {
    if (this.#damage !== undefined) return this.#damage;
    this.#damage = error;
    const { driver, logger } = this.#parts;
    logger.error("store.kv_condemned", { path: this.path, reason: error.message });
    await driver.condemn(this.path).catch((fault: unknown) => {
      // On a full volume maybe. The next start may find the damage by itself.
      logger.error("store.condemn_failed", { path: this.path, reason: toError(fault).message });
    });
    return error;
  }

  /** Opens the store again, once for all who met the failure. */
  #failed(error: Error, delayMs: number): void {
    if (this.#closing !== undefined) return;
    const fields = { slab: this.path, reason: error.message };
    this.#parts.logger.error("store.slab_write_failed", fields);
    this.#reopening ??= this.#reopen(delayMs).finally(() => {
      this.#reopening = undefined;
    });
  }

  async #reopen(firstDelayMs: number): Promise<void> {
    const { driver, logger } = this.#parts;
    await this.#kv.close().catch((error: unknown) => {
      // The store is broken already; that closing it fails too changes nothing.
      logger.debug("store.slab_close_failed", { reason: toError(error).message });
    });
    for (let delayMs = firstDelayMs; this.#closing === undefined; ) {
      await this.#pause(delayMs);
      if (this.#closing !== undefined) return;
      try {
        this.#kv = await driver.open(this.path, { ...this.#options, proof: this.#proof });
        logger.info("store.slab_reopened", { slab: this.path });
        return;
      } catch (error) {
        if (isCodedError(error, "KV_CORRUPT")) {
          await this.condemn(error);
          return;
        }
        delayMs = Math.min(delayMs * 2, retryDelayMsMax);
        const fields = { slab: this.path, reason: toError(error).message };
        logger.error("store.slab_reopen_failed", fields);
      }
    }
  }

  #pause(delayMs: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#parts.clock.schedule(delayMs, resolve);
      this.#endPause = () => {
        cancel();
        resolve();
      };
    });
  }
}
