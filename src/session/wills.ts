// Publishing wills. The will of a durable session is marked first (a record under `fire/`, written
// together with what set it off), published, then unmarked: a crash in between publishes it at the
// next start, after the grace. So a will is published at least once and, but for such a crash, once.
//
// What cannot be published now (no quorum, full disk) is tried again; what the publish path refuses
// for good (rights) is dropped and counted.

import { isCodedError } from "../base/index.ts";
import type { MapEntry, MapWrite } from "../store/index.ts";
import type { Will } from "./api.ts";
import type { SessionContext } from "./context.ts";
import { decodeFire, encodeFire, type FireRecord } from "./core/records.ts";
import { firePrefix, sessionKeys } from "./keys.ts";
import { deleteKey, listAll } from "./stored-session.ts";
import type { Turnstile } from "./turnstile.ts";

/** A will of an expiry-0 session lives in memory only: it is not kept for ever. */
const memoryAttemptsMax = 10;

export type MarkedWill = {
  readonly record: FireRecord;
  /** Undefined: not stored. */
  readonly key: string | undefined;
};

export class WillFirer {
  readonly #context: SessionContext;
  readonly #turnstile: Turnstile;
  /** Marked by an earlier run, by client id. */
  readonly #pending = new Map<string, MarkedWill[]>();
  #stopped = false;

  constructor(context: SessionContext, turnstile: Turnstile) {
    this.#context = context;
    this.#turnstile = turnstile;
  }

  /** The mark, to be written with what sets the will off. `epoch` tells two of a client apart. */
  mark(client: { clientId: string; user: string | undefined }, epoch: number, will: Will) {
    const record: FireRecord = { clientId: client.clientId, user: client.user, will };
    const key = sessionKeys(client.clientId).fire(epoch);
    const write: MapWrite = { key, value: encodeFire(record) };
    const marked: MarkedWill = { key, record };
    return { write, marked };
  }

  /** Reads what a crash has left marked. */
  async load(): Promise<void> {
    for (const shard of this.#context.store.stateShards) {
      for (const entry of await listAll(shard, firePrefix)) this.#keep(entry);
    }
  }

  #keep(entry: MapEntry): void {
    try {
      const record = decodeFire(entry.value);
      const marked = this.#pending.get(record.clientId) ?? [];
      marked.push({ key: entry.key, record });
      this.#pending.set(record.clientId, marked);
    } catch (error) {
      this.#context.counters.recordsCorrupt++;
      this.#context.logger.error("session.record_corrupt", { key: entry.key, error });
    }
  }

  /** The grace is over: publishes everything left marked. */
  async firePending(): Promise<void> {
    for (const clientId of [...this.#pending.keys()]) {
      await this.#turnstile.run(clientId, () => this.finishPending(clientId));
    }
  }

  /** A CONNECT waits for what is left of its client. REQUIRES: the client's turn. */
  async finishPending(clientId: string): Promise<void> {
    const pending = this.#pending.get(clientId);
    if (pending === undefined) return;
    this.#pending.delete(clientId);
    for (const marked of pending) await this.publish(marked);
  }

  /** REQUIRES: the client's turn. Never rejects. */
  async publish(marked: MarkedWill, attempt = 1): Promise<void> {
    const context = this.#context;
    const { record } = marked;
    try {
      await context.wills.publishWill(record.will, record.clientId, record.user);
      context.counters.willsPublished++;
    } catch (error) {
      if (!this.#isFinal(error, marked, attempt)) {
        this.#retry(marked, attempt, error);
        return;
      }
      context.counters.willsDropped++;
      context.logger.warn("session.will_dropped", { clientId: record.clientId, error });
    }
    await this.#unmark(marked);
  }

  stop(): void {
    this.#stopped = true;
  }

  #isFinal(error: unknown, marked: MarkedWill, attempt: number): boolean {
    if (isCodedError(error) && error.kind === "invalid") return true;
    return marked.key === undefined && attempt >= memoryAttemptsMax;
  }

  #retry(marked: MarkedWill, attempt: number, error: unknown): void {
    const { clock, settings, counters, logger } = this.#context;
    const { clientId } = marked.record;
    counters.willsFailed++;
    logger.warn("session.will_failed", { clientId, attempt, error });
    const delayMs = settings.retryDelayMs * 2 ** Math.min(attempt, 16);
    clock.schedule(Math.min(delayMs, settings.retryDelayMsMax), () => {
      if (this.#stopped) return;
      this.#turnstile.run(clientId, () => this.publish(marked, attempt + 1)).catch(() => undefined);
    });
  }

  async #unmark(marked: MarkedWill): Promise<void> {
    const { key, record } = marked;
    if (key === undefined) return;
    const { store, logger } = this.#context;
    const { writer } = this.#context.checkpointer(store.state(record.clientId));
    try {
      await writer.write(() => ({ writes: [deleteKey(key)], guards: [] }));
    } catch (error) {
      // It stays marked and may be published again at the next start.
      logger.warn("session.will_unmark_failed", { clientId: record.clientId, error });
    }
  }
}
