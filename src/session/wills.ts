// Publishing wills. The will of a durable session is marked first (a record under `fire/`, written
// together with what set it off), appended under a writer of its own whose epoch stands in the mark,
// then unmarked, and the writer is closed. A crash in between goes on at the next start, after the
// grace, and the writer tells whether the will has gone out: it is published once.
//
// Several nodes may have the same mark at hand: one that made it and one that finds it left. Whoever
// wants to open the writer takes the mark first, guarded by what it has read, and writes the epoch
// guarded by that; whoever finds no mark any more has nothing to do.
//
// What cannot be published now (no quorum, full disk) is tried again; what the publish path refuses
// for good (rights) is dropped and counted.

import { isCodedError } from "../base/index.ts";
import type { MapEntry, MapWrite, WriterStamp } from "../store/index.ts";
import type { Will } from "./api.ts";
import type { SessionContext } from "./context.ts";
import { decodeFire, encodeFire, type FireRecord } from "./core/records.ts";
import { firePrefix, sessionKeys } from "./keys.ts";
import type { StateWriter } from "./state-writer.ts";
import { deleteKey, eachEntry } from "./stored-session.ts";
import type { Turnstile } from "./turnstile.ts";

/** A will of an expiry-0 session lives in memory only: it is not kept for ever. */
const memoryAttemptsMax = 10;
/** Marks of a client looked for at a CONNECT; more wait for the next one. */
const marksMax = 16;

export type MarkedWill = {
  readonly record: { -readonly [K in keyof FireRecord]: FireRecord[K] };
  /** Undefined: not stored. Names the writer too. */
  readonly key: string | undefined;
  attempts: number;
  /** When this node took the mark, where others may have it too. */
  takenUs?: number;
  /** A writer that was lost. */
  fencedEpoch?: number;
};

export class WillFirer {
  readonly #context: SessionContext;
  readonly #turnstile: Turnstile;
  /** Marked by an earlier run or failed in this one, by client id. */
  readonly #pending = new Map<string, MarkedWill[]>();
  #stopped = false;

  constructor(context: SessionContext, turnstile: Turnstile) {
    this.#context = context;
    this.#turnstile = turnstile;
  }

  /** The mark, to be written with what sets the will off. `epoch` tells two of a client apart. */
  mark(client: { clientId: string; user: string | undefined }, epoch: number, will: Will) {
    const { clientId, user } = client;
    const record: FireRecord = { clientId, user, will, writerEpoch: 0 };
    const key = sessionKeys(client.clientId).fire(epoch);
    const write: MapWrite = { key, value: encodeFire(record) };
    const marked: MarkedWill = { key, record, attempts: 0 };
    return { write, marked };
  }

  /** Reads what a crash has left marked. */
  async load(): Promise<void> {
    // Where there are others, some of what is marked is their work under way.
    if (this.#context.owner !== undefined) return;
    for (const shard of this.#context.store.stateShards) {
      await eachEntry(shard, firePrefix, (entry) => this.#keep(entry));
    }
  }

  #keep({ key, value }: MapEntry): void {
    try {
      const record = decodeFire(value);
      const known = this.#pending.get(record.clientId);
      if (known?.some((marked) => marked.key === key)) return;
      this.#add({ key, record, attempts: 0 });
    } catch (error) {
      this.#context.counters.recordsCorrupt++;
      this.#context.logger.error("session.record_corrupt", { key, error });
    }
  }

  /** The grace is over: publishes everything left marked. */
  async firePending(): Promise<void> {
    for (const clientId of [...this.#pending.keys()]) {
      await this.#turnstile.run(clientId, () => this.finishPending(clientId));
    }
  }

  /**
   * A CONNECT waits for what is left of its client: one attempt, so that a will that cannot be
   * published now does not keep its client away. REQUIRES: the client's turn.
   */
  async finishPending(clientId: string): Promise<void> {
    if (this.#context.owner !== undefined) await this.#findMarks(clientId);
    const pending = this.#pending.get(clientId);
    if (pending === undefined) return;
    this.#pending.delete(clientId);
    for (const marked of pending) await this.publish(marked);
  }

  /** Where another node may have left them: a client has few, mostly none. */
  async #findMarks(clientId: string): Promise<void> {
    const shard = this.#context.store.state(clientId);
    const prefix = sessionKeys(clientId).firePrefix;
    for (const entry of await shard.list(prefix, { countMax: marksMax })) this.#keep(entry);
  }

  /** Marks that whoever made them has not got rid of in a while. */
  async adopt(entries: readonly MapEntry[]): Promise<void> {
    for (const entry of entries) this.#keep(entry);
    await this.firePending();
  }

  /** REQUIRES: the client's turn. Never rejects. */
  async publish(marked: MarkedWill): Promise<void> {
    const { wills, counters, logger } = this.#context;
    const { will, clientId, user } = marked.record;
    marked.attempts++;
    try {
      if (!(await this.#isLeft(marked))) return;
      await wills.publishWill(will, clientId, user, await this.#stampOf(marked));
      counters.willsPublished++;
    } catch (error) {
      if (!isFinal(error, marked)) {
        this.#retry(marked, error);
        return;
      }
      counters.willsDropped++;
      logger.warn("session.will_dropped", { clientId, error });
    }
    await this.#unmark(marked);
  }

  stop(): void {
    this.#stopped = true;
  }

  /** Takes the mark as it stands where other nodes may have it too. False: the will has gone out. */
  async #isLeft(marked: MarkedWill): Promise<boolean> {
    const { key, record } = marked;
    const { owner, store } = this.#context;
    if (key === undefined || owner === undefined) return true;
    const entry = await store.state(record.clientId).get(key);
    if (entry === undefined) return false;
    const { writerEpoch } = decodeFire(entry.value);
    // One that was closed or opened anew is of no use any more.
    record.writerEpoch = writerEpoch === marked.fencedEpoch ? 0 : writerEpoch;
    if (record.writerEpoch === 0) marked.takenUs = await this.#rewrite(marked, entry.timeUs);
    return true;
  }

  /** The writer is opened once and its epoch is durable in the mark before anything is appended. */
  async #stampOf(marked: MarkedWill): Promise<WriterStamp | undefined> {
    const { key, record } = marked;
    if (key === undefined) return undefined;
    if (record.writerEpoch === 0) {
      const { clientId, will } = record;
      record.writerEpoch = await this.#context.store.openWriter(key, clientId, will.topic);
      try {
        await this.#rewrite(marked, marked.takenUs);
      } catch (error) {
        record.writerEpoch = 0;
        throw error;
      }
    }
    return { name: key, epoch: record.writerEpoch, sequence: 1 };
  }

  #rewrite({ key = "", record }: MarkedWill, knownUs: number | undefined): Promise<number> {
    const writes = [{ key, value: encodeFire(record) }];
    const guards = knownUs === undefined ? [] : [{ key, timeUs: knownUs }];
    return this.#writer(record.clientId).write(() => ({ writes, guards }));
  }

  #retry(marked: MarkedWill, error: unknown): void {
    const { clock, settings, counters, logger } = this.#context;
    const { record, attempts } = marked;
    const { clientId } = record;
    counters.willsFailed++;
    logger.warn("session.will_failed", { clientId, attempt: attempts, error });
    // Its writer was forgotten: whether the will went out is not known, and it is owed.
    if (isCodedError(error, "STORE_WRITER_FENCED")) {
      marked.fencedEpoch = record.writerEpoch;
      record.writerEpoch = 0;
    }
    this.#add(marked);
    const delayMs = settings.retryDelayMs * 2 ** Math.min(attempts, 16);
    clock.schedule(Math.min(delayMs, settings.retryDelayMsMax), () => {
      if (this.#stopped) return;
      this.#turnstile.run(clientId, () => this.finishPending(clientId)).catch(() => undefined);
    });
  }

  async #unmark({ key, record }: MarkedWill): Promise<void> {
    if (key === undefined) return;
    const { store, logger, counters } = this.#context;
    const { clientId, writerEpoch, will } = record;
    try {
      await this.#writer(clientId).write(() => ({ writes: [deleteKey(key)], guards: [] }));
    } catch (error) {
      // The next start finds the mark, and the writer says that the will has gone out.
      logger.warn("session.will_unmark_failed", { clientId, error });
      return;
    }
    if (writerEpoch === 0) return;
    // Nobody waits for it: what is left goes when the table of writers is full.
    store.closeWriter(key, clientId, will.topic).catch(() => {
      counters.willWritersLeft++;
    });
  }

  #add(marked: MarkedWill): void {
    const { clientId } = marked.record;
    const pending = this.#pending.get(clientId);
    if (pending === undefined) this.#pending.set(clientId, [marked]);
    else pending.push(marked);
  }

  #writer(clientId: string): StateWriter {
    const { store } = this.#context;
    return this.#context.checkpointer(store.state(clientId)).writer;
  }
}

function isFinal(error: unknown, { key, attempts }: MarkedWill): boolean {
  if (isCodedError(error) && error.kind === "invalid") return true;
  return key === undefined && attempts >= memoryAttemptsMax;
}
