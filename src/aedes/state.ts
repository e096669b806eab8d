// The part of the store that one Aedes persistence owns: its shard of `state`, with writes that
// resolve when they are durable, and the numbers that order queues and name bodies.
//
// Numbers grow and are never given twice, over restarts too: a bound above them is written before
// they come near it, in the same entry as what they are used for.

import type { MapEntry, MapShard, MapWrite, Store } from "../store/index.ts";
import { aedesErrors } from "./errors.ts";
import { type AedesKeys, aedesKeys } from "./keys.ts";
import { decodeNumber, encodeNumber } from "./records.ts";

/** Numbers taken ahead: few enough that gaps never matter, enough to write the bound rarely. */
const reservedAhead = 100_000;

/** A page in memory may hold as many of the largest packets. */
const pageMax = 16;

export class AedesState {
  readonly keys: AedesKeys;
  readonly #shard: MapShard;
  readonly #underWay = new Set<Promise<void>>();
  #nextNumber: number | undefined;
  /** Bound that is durable. */
  #reserved = 0;
  #isClosed = false;

  constructor(store: Pick<Store, "state">, name: string) {
    this.keys = aedesKeys(name);
    this.#shard = store.state(this.keys.root);
  }

  get isOpen(): boolean {
    return this.#nextNumber !== undefined;
  }

  /** Before anything is written. */
  async open(): Promise<void> {
    const bound = await this.#shard.get(this.keys.numbers);
    this.#reserved = bound === undefined ? 0 : decodeNumber(bound.key, bound.value);
    this.#nextNumber ??= this.#reserved + 1;
  }

  /** Refuses what comes; resolves when what was taken has ended. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.allSettled(this.#underWay);
  }

  get(key: string): Promise<MapEntry | undefined> {
    if (this.#isClosed) return Promise.reject(aedesErrors.closed());
    return this.#shard.get(key);
  }

  /** Entries under a prefix in key order, page by page, as they are when their page is read. */
  async *entries(prefix: string): AsyncGenerator<MapEntry> {
    let from: { afterKey?: string } = {};
    for (;;) {
      if (this.#isClosed) throw aedesErrors.closed();
      const page = await this.#shard.list(prefix, { ...from, countMax: pageMax });
      yield* page;
      const last = page.at(-1);
      if (page.length < pageMax || last === undefined) return;
      from = { afterKey: last.key };
    }
  }

  /** Entries under a prefix whose other levels match an MQTT filter. */
  async *matching(prefix: string, filter: string): AsyncGenerator<MapEntry> {
    let from: { afterKey?: string } = {};
    for (;;) {
      if (this.#isClosed) throw aedesErrors.closed();
      const page = await this.#shard.match(prefix, filter, { ...from, countMax: pageMax });
      yield* page.entries;
      if (page.nextAfterKey === undefined) return;
      from = { afterKey: page.nextAfterKey };
    }
  }

  /** One entry of the log: all or nothing. Resolves when it is durable. */
  write(writes: readonly MapWrite[]): Promise<void> {
    if (this.#isClosed) return Promise.reject(aedesErrors.closed());
    const { numbers } = this.keys;
    const bound = writes.find(({ key }) => key === numbers)?.value;
    const done = new Promise<void>((resolve, reject) => {
      this.#shard.write(writes, [], (error) => {
        if (error !== undefined) {
          reject(error);
          return;
        }
        if (bound !== undefined) {
          this.#reserved = Math.max(this.#reserved, decodeNumber(numbers, Buffer.from(bound)));
        }
        resolve();
      });
    });
    this.#underWay.add(done);
    const ended = (): boolean => this.#underWay.delete(done);
    done.then(ended, ended);
    return done;
  }

  /** A number above all before it. It counts only with `writes`, which may get the bound added. */
  takeNumber(writes: MapWrite[]): number {
    if (this.#nextNumber === undefined) throw aedesErrors.notSetUp();
    const number = this.#nextNumber++;
    const { numbers } = this.keys;
    const isNear = number + reservedAhead / 2 >= this.#reserved;
    if (isNear && !writes.some(({ key }) => key === numbers)) {
      writes.push({ key: numbers, value: encodeNumber(number + reservedAhead) });
    }
    return number;
  }
}
