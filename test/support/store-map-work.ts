// The keys of a map shard in a simulated history: written, counted up in transactions, and judged
// after each start. A key holds its last acked value or a later one that was in flight; after damage an
// older one, if the start has said so.

import type { SeededRandom, SimClock } from "../../src/base/index.ts";
import type { MapShard } from "../../src/store/index.ts";

export const mapCountsZero = { mapWrites: 0, transactions: 0, conflicts: 0, mapsGoneBack: 0 };

export type MapWorkHooks = {
  readonly nextNumber: () => number;
  readonly onRefused: (code: string) => void;
  /** What a check has found, for the hash of the history. */
  readonly onState: (text: string) => void;
};

type KeyState = {
  acked: string | undefined;
  readonly inFlight: Set<string>;
  readonly ever: Set<string | undefined>;
};

const keys = ["k/1", "k/2", "other/3"];

export class MapWork {
  readonly counts: typeof mapCountsZero = { ...mapCountsZero };
  readonly #clock: SimClock;
  readonly #random: SeededRandom;
  readonly #hooks: MapWorkHooks;
  readonly #states = new Map<string, KeyState>();
  #counterAcked = 0;
  #counterTried = 0;

  constructor(clock: SimClock, random: SeededRandom, hooks: MapWorkHooks) {
    this.#clock = clock;
    this.#random = random;
    this.#hooks = hooks;
    for (const key of keys) {
      this.#states.set(key, { acked: undefined, inFlight: new Set(), ever: new Set([undefined]) });
    }
  }

  write(map: MapShard): void {
    const key = this.#random.pick(keys);
    const state = this.#states.get(key)!;
    const value = `m${this.#hooks.nextNumber()}`;
    state.inFlight.add(value);
    state.ever.add(value);
    this.counts.mapWrites++;
    map.write([{ key, value: Buffer.from(value) }], [], (error) => {
      if (error !== undefined) return this.#hooks.onRefused(error.code);
      settle(state, value);
    });
  }

  increment(map: MapShard): void {
    this.counts.transactions++;
    this.#counterTried++;
    let attempts = 0;
    const done = map.transact(async (tx) => {
      attempts++;
      const entry = await tx.get("counter");
      const value = entry === undefined ? 0 : Number(entry.value.toString());
      tx.put("counter", Buffer.from(String(value + 1)));
    });
    done.then(
      () => {
        this.#counterAcked++;
        if (attempts > 1) this.counts.conflicts++;
      },
      (error: { code?: string }) => this.#hooks.onRefused(error.code ?? String(error)),
    );
  }

  /** `expectDamage` throws where nothing has told of damage. */
  async check(map: MapShard, expectDamage: (fault: string) => void): Promise<void> {
    for (const [key, state] of this.#states) {
      const entry = await this.#clock.complete(map.get(key));
      const value = entry?.value.toString();
      this.#hooks.onState(`${key} ${value}`);
      if (value === state.acked) continue;
      if (value !== undefined && state.inFlight.has(value)) {
        settle(state, value);
        continue;
      }
      const fault = `map ${key} holds ${value}, acked ${state.acked}`;
      if (!state.ever.has(value)) throw new Error(fault);
      expectDamage(fault);
      this.counts.mapsGoneBack++;
      state.acked = value;
    }
    await this.#checkCounter(map, expectDamage);
  }

  async #checkCounter(map: MapShard, expectDamage: (fault: string) => void): Promise<void> {
    const counter = await this.#clock.complete(map.get("counter"));
    const count = counter === undefined ? 0 : Number(counter.value.toString());
    if (count >= this.#counterAcked && count <= this.#counterTried) return;
    const fault = `counter ${count}, acked ${this.#counterAcked}, tried ${this.#counterTried}`;
    if (count > this.#counterTried) throw new Error(fault);
    expectDamage(fault);
    this.#counterAcked = count;
  }
}

function settle(state: KeyState, value: string): void {
  state.acked = value;
  // What was written before it is overwritten: no older value may come back.
  for (const older of [...state.inFlight]) {
    if (Number(older.slice(1)) <= Number(value.slice(1))) state.inFlight.delete(older);
  }
}
