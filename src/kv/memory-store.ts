// One open store of the memory twin, and what of it stays when its process is gone.
//
// Invariants: writes happen one at a time in the order of the calls; a log is switched before the
// write that finds it full, and waits for the table of the one before, as in LevelDB; a write that
// failed or was cut off is in doubt until the store is opened again.

import { assert, type SimCalls } from "../base/index.ts";
import { type Kv, type KvBatch, type KvCursor, type KvRange, kvErrors } from "./kv.ts";
import { applyAll, type LevelBatch, type LevelModel, type LevelOperation } from "./level-model.ts";
import { MemoryCursor, SortedWalk } from "./memory-cursor.ts";
import { boundsOf } from "./range.ts";
import type { SortedMap } from "./sorted-map.ts";
import { WriteQueue } from "./writes.ts";

/** `sync` is both `Kv.sync` and a batch written with `sync: true`; `flush` happens by itself. */
export type MemoryOperation = "open" | "destroy" | "read" | "write" | "sync" | "flush";

export type MemoryStore = {
  readonly path: string;
  /** Counts the stores made, and those that rotted without a word: proofs from before do not hold. */
  incarnation: number;
  visible: SortedMap;
  readonly model: LevelModel | undefined;
  isOpen: boolean;
  /** Set when a power cut met its removal half way, and by rot. */
  isDamaged: boolean;
  /** Entries are gone without a word: only an open with a proof notices. */
  isHollow: boolean;
  /** The current log is switched above this; drawn anew for each log. */
  logBytesMax: number;
  /** A full log is being turned into a table. */
  isFlushing: boolean;
  readonly whenFlushed: Array<() => void>;
};

/** Keys deleted in one batch of `clear`, as a large range takes LevelDB several. */
const clearKeysMax = 1000;

export type MemoryProcess = {
  readonly calls: SimCalls<MemoryOperation>;
  readonly generation: number;
  readonly switchBytes: () => number;
};

export class MemoryKv implements Kv {
  readonly path: string;
  readonly #store: MemoryStore;
  readonly #host: MemoryProcess;
  readonly #writes: WriteQueue;
  #closing: Promise<void> | undefined;

  constructor(store: MemoryStore, host: MemoryProcess) {
    this.path = store.path;
    this.#store = store;
    this.#host = host;
    this.#writes = new WriteQueue(store.path);
  }

  get(key: Uint8Array): Promise<Buffer | undefined> {
    return this.#read(() => copyOf(this.#store.visible.get(key)));
  }

  getMany(keys: readonly Uint8Array[]): Promise<Array<Buffer | undefined>> {
    return this.#read(() => keys.map((key) => copyOf(this.#store.visible.get(key))));
  }

  batch(): KvBatch {
    this.#refuseClosed();
    return new MemoryBatch((batch, sync) => this.#writes.run(() => this.#write(batch, sync)));
  }

  cursor(range: KvRange): KvCursor {
    this.#refuseClosed();
    const walk = new SortedWalk(this.#store.visible.snapshot(), range);
    return new MemoryCursor(walk, this.#writes, (effect) => this.#read(effect));
  }

  clear(range: KvRange): Promise<void> {
    return this.#writes.run(async () => {
      const walk = new SortedWalk(this.#store.visible.snapshot(), { ...range, reverse: false });
      for (;;) {
        const entries = walk.take(clearKeysMax);
        if (entries.length === 0) return;
        const operations = entries.map(([key]) => ({ key, value: undefined }));
        await this.#write({ operations, sizeBytes: sizeOf(operations) }, false);
      }
    });
  }

  sync(): Promise<Buffer> {
    return this.#writes.runBeside(() => {
      const { model } = this.#store;
      const ticket = model?.beginSync();
      return this.#call("sync", () => {
        if (ticket !== undefined) model?.finishSync(ticket);
        return proofOf(this.#store);
      });
    });
  }

  /** There are no tables: what was deleted is gone. */
  compact(): Promise<void> {
    return this.#read(() => undefined);
  }

  approximateBytes(range: KvRange): Promise<number> {
    const { gte, lt } = boundsOf(range);
    return this.#read(() => {
      const view = this.#store.visible.snapshot();
      let sizeBytes = 0;
      let place = gte === undefined ? view.first : view.atOrAfter(gte);
      for (;;) {
        const entry = view.at(place);
        if (entry === undefined) return sizeBytes;
        if (lt !== undefined && Buffer.compare(entry[0], lt) >= 0) return sizeBytes;
        sizeBytes += entry[0].length + entry[1].length;
        place = view.after(place);
      }
    });
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await this.#writes.close();
    if (this.#store.isFlushing) await this.#flushed();
    await this.#call("read", () => {
      this.#store.isOpen = false;
    });
  }

  async #write(batch: LevelBatch, sync: boolean): Promise<void> {
    if (batch.operations.length === 0) return;
    if (this.#host.generation !== this.#host.calls.generation) return neverEnding();
    const store = this.#store;
    const { model } = store;
    if (model !== undefined && model.currentLogBytes >= store.logBytesMax) {
      await this.#switchLog(model);
    }
    const effect = (): void => {
      model?.append(batch);
      if (sync) model?.syncCurrent();
      applyAll(store.visible, [batch]);
    };
    const inDoubt = (): void => model?.doubt(batch);
    const { calls, generation } = this.#host;
    await calls.promise<void>(generation, {
      operation: sync ? "sync" : "write",
      path: this.path,
      effect,
      cut: inDoubt,
      damage: inDoubt,
    });
  }

  // As LevelDB does before a write: one old log at a time, a second switch waits for its table.
  async #switchLog(model: LevelModel): Promise<void> {
    const store = this.#store;
    if (store.isFlushing) await this.#flushed();
    if (this.#writes.failure !== undefined) throw this.#writes.failure;
    model.switchLog();
    store.isFlushing = true;
    store.logBytesMax = this.#host.switchBytes();
    const done = (): void => {
      store.isFlushing = false;
      for (const resolve of store.whenFlushed.splice(0)) resolve();
    };
    this.#call("flush", () => model.finishFlush()).then(done, (error) => {
      this.#writes.fail(error); // a background error is sticky
      done();
    });
  }

  #flushed(): Promise<void> {
    return new Promise((resolve) => this.#store.whenFlushed.push(resolve));
  }

  async #read<T>(effect: () => T): Promise<T> {
    this.#refuseClosed();
    return this.#call("read", effect);
  }

  #call<T>(operation: MemoryOperation, effect: () => T): Promise<T> {
    const { calls, generation } = this.#host;
    return calls.promise<T>(generation, { operation, path: this.path, effect });
  }

  #refuseClosed(): void {
    if (this.#writes.isClosed) throw kvErrors.closed({ path: this.path });
  }
}

/** A store that was made anew under the same path, or has lost entries, is another one. */
export function proofOf(store: MemoryStore): Buffer {
  return Buffer.from([store.incarnation & 0xff]);
}

/** What the dead wait for: code of a process that was killed may run on to its next call. */
function neverEnding(): Promise<never> {
  return new Promise(() => undefined);
}

class MemoryBatch implements KvBatch {
  readonly #operations: LevelOperation[] = [];
  readonly #write: (batch: LevelBatch, sync: boolean) => Promise<void>;
  #isUsed = false;
  sizeBytes = 0;

  constructor(write: (batch: LevelBatch, sync: boolean) => Promise<void>) {
    this.#write = write;
  }

  get count(): number {
    return this.#operations.length;
  }

  put(key: Uint8Array, value: Uint8Array): this {
    return this.#add({ key: Buffer.from(key), value: Buffer.from(value) });
  }

  delete(key: Uint8Array): this {
    return this.#add({ key: Buffer.from(key), value: undefined });
  }

  write(options: { readonly sync?: boolean } = {}): Promise<void> {
    assert(!this.#isUsed, "a batch is written once");
    this.#isUsed = true;
    const batch = { operations: this.#operations, sizeBytes: this.sizeBytes };
    return this.#write(batch, options.sync === true);
  }

  #add(operation: LevelOperation): this {
    assert(!this.#isUsed, "a batch is written once");
    this.#operations.push(operation);
    this.sizeBytes += sizeOf([operation]);
    return this;
  }
}

function copyOf(value: Buffer | undefined): Buffer | undefined {
  return value === undefined ? undefined : Buffer.from(value);
}

function sizeOf(operations: readonly LevelOperation[]): number {
  let sizeBytes = 0;
  for (const { key, value } of operations) sizeBytes += key.length + (value?.length ?? 0);
  return sizeBytes;
}
