// Writes of one `state` shard: everything wanted in a turn, of all sessions, goes in one write; while
// it is under way the next one gathers. One write at a time, so absolute values never go back.
//
// An operation builds its writes only when its turn has come, so that they hold the latest state. It
// is guarded by its session's claim; when a guard fails in a shared write, each operation is tried
// alone, so that a session that lost its claim does not hold up the others. An operation larger than
// a write is split in order: its writes must be safe to be cut off after any of them.

import type { Clock, CodedError } from "../base/index.ts";
import { isCodedError } from "../base/index.ts";
import type { MapGuard, MapShard, MapWrite } from "../store/index.ts";
import type { SessionCounters } from "./settings.ts";

export type BuiltWrites = {
  readonly writes: readonly MapWrite[];
  readonly guards: readonly MapGuard[];
};

export type StateOperation = {
  /** Undefined: nothing to write after all; `done` is called with time 0. */
  build(): BuiltWrites | undefined;
  done(error: CodedError | undefined, timeUs: number): void;
};

/** One entry of the store's log takes this much from many writers (DESIGN: transaction limit). */
const writeOperationsMax = 1000;
const writeBytesMax = 1024 * 1024;

type Built = { readonly operation: StateOperation; readonly built: BuiltWrites };

export class StateWriter {
  readonly #shard: MapShard;
  readonly #clock: Clock;
  readonly #counters: SessionCounters;
  #queue: StateOperation[] = [];
  #scheduled = false;
  #writing = false;
  #idleWaiters: Array<() => void> = [];
  #failing = false;

  constructor(shard: MapShard, clock: Clock, counters: SessionCounters) {
    this.#shard = shard;
    this.#clock = clock;
    this.#counters = counters;
  }

  get shard(): MapShard {
    return this.#shard;
  }

  /** The last write failed, for another reason than a guard. */
  get failing(): boolean {
    return this.#failing;
  }

  submit(operation: StateOperation): void {
    this.#queue.push(operation);
    if (this.#writing || this.#scheduled) return;
    this.#scheduled = true;
    this.#clock.soon(() => {
      this.#scheduled = false;
      if (!this.#writing) this.#writeNext();
    });
  }

  /** Writes once; rejects with the store's error. */
  write(build: () => BuiltWrites): Promise<number> {
    return new Promise((resolve, reject) => {
      this.submit({
        build,
        done: (error, timeUs) => (error === undefined ? resolve(timeUs) : reject(error)),
      });
    });
  }

  /** Resolves when nothing is queued or under way. */
  idle(): Promise<void> {
    if (!this.#writing && this.#queue.length === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#idleWaiters.push(resolve);
    });
  }

  #writeNext(): void {
    const batch = this.#takeBatch();
    if (batch.length === 0) {
      for (const resolve of this.#idleWaiters.splice(0)) resolve();
      return;
    }
    this.#writing = true;
    const last = batch[batch.length - 1] as Built;
    // The last one may have brought it over the limit: it goes after the others.
    if (batch.length > 1 && isOverLimit(batch)) {
      this.#writeShared(batch.slice(0, -1), () => this.#writeAlone(last, () => this.#writeOn()));
    } else {
      this.#writeShared(batch, () => this.#writeOn());
    }
  }

  #writeOn(): void {
    this.#writing = false;
    this.#writeNext();
  }

  #takeBatch(): Built[] {
    const batch: Built[] = [];
    let operations = 0;
    let bytes = 0;
    while (this.#queue.length > 0) {
      const operation = this.#queue[0] as StateOperation;
      // Built only when it is sure to be written now: building settles what it holds.
      if (operations >= writeOperationsMax || bytes >= writeBytesMax) break;
      this.#queue.shift();
      const built = operation.build();
      if (built === undefined || built.writes.length === 0) {
        operation.done(undefined, 0);
        continue;
      }
      batch.push({ operation, built });
      operations += built.writes.length;
      bytes += sizeOf(built.writes);
    }
    return batch;
  }

  #writeShared(batch: readonly Built[], then: () => void): void {
    if (batch.length === 1) {
      this.#writeAlone(batch[0] as Built, then);
      return;
    }
    const writes = batch.flatMap(({ built }) => built.writes);
    const guards = batch.flatMap(({ built }) => built.guards);
    this.#write(writes, guards, (error, timeUs) => {
      if (isCodedError(error, "STORE_GUARD_FAILED")) {
        this.#writeOneByOne(batch, 0, then);
        return;
      }
      for (const { operation } of batch) operation.done(error, timeUs);
      then();
    });
  }

  #writeOneByOne(batch: readonly Built[], index: number, then: () => void): void {
    const next = batch[index];
    if (next === undefined) then();
    else this.#writeAlone(next, () => this.#writeOneByOne(batch, index + 1, then));
  }

  #writeAlone({ operation, built }: Built, then: () => void): void {
    const parts = splitWrites(built.writes);
    const step = (index: number): void => {
      this.#write(parts[index] as MapWrite[], built.guards, (error, timeUs) => {
        if (error === undefined && index + 1 < parts.length) {
          step(index + 1);
          return;
        }
        operation.done(error, timeUs);
        then();
      });
    };
    step(0);
  }

  #write(
    writes: readonly MapWrite[],
    guards: readonly MapGuard[],
    done: (error: CodedError | undefined, timeUs: number) => void,
  ): void {
    this.#counters.checkpointWrites++;
    this.#counters.checkpointKeys += writes.length;
    this.#shard.write(writes, guards, (error, timeUs) => {
      this.#failing = error !== undefined && !isCodedError(error, "STORE_GUARD_FAILED");
      done(error, timeUs);
    });
  }
}

function splitWrites(writes: readonly MapWrite[]): MapWrite[][] {
  const parts: MapWrite[][] = [];
  let part: MapWrite[] = [];
  let bytes = 0;
  for (const write of writes) {
    const size = write.value?.length ?? 0;
    if (part.length >= writeOperationsMax || (part.length > 0 && bytes + size > writeBytesMax)) {
      parts.push(part);
      part = [];
      bytes = 0;
    }
    part.push(write);
    bytes += size;
  }
  parts.push(part);
  return parts;
}

function isOverLimit(batch: readonly Built[]): boolean {
  let operations = 0;
  let bytes = 0;
  for (const { built } of batch) {
    operations += built.writes.length;
    bytes += sizeOf(built.writes);
  }
  return operations > writeOperationsMax || bytes > writeBytesMax;
}

function sizeOf(writes: readonly MapWrite[]): number {
  let bytes = 0;
  for (const write of writes) bytes += write.key.length + (write.value?.length ?? 0);
  return bytes;
}
