// What an operator and the time do to the store of a simulated history: databases come and go, holds
// are made and let go, generations are dropped, the wall clock jumps. It knows what may be gone, and
// what must still be there after a start.

import type { SeededRandom } from "../../src/base/index.ts";
import type { DatabaseSpec, LocalStore } from "../../src/store/index.ts";
import { dropsByItself, type Features } from "./store-features.ts";
import type { StoreMachine } from "./store-machine.ts";
import type { TtvModel } from "./store-model.ts";

export const upkeepCountsZero = {
  drops: 0,
  databasesMade: 0,
  databasesAltered: 0,
  databasesDropped: 0,
  holdsMade: 0,
  holdsReleased: 0,
  heldChecks: 0,
  clockSteps: 0,
  boots1970: 0,
};
export type UpkeepCounts = typeof upkeepCountsZero;

/** `maybe`: a change was asked for and not answered. */
type Known = "there" | "gone" | "maybe";

const monthsUs = 90 * 86_400_000_000;
const database = "metrics";
const hold = "keep";

export class Upkeep {
  readonly counts: UpkeepCounts = { ...upkeepCountsZero };
  readonly #machine: StoreMachine;
  readonly #random: SeededRandom;
  readonly #features: Features;
  readonly #model: TtvModel;
  readonly #fault: (message: string) => void;
  #database: Known = "gone";
  #hold: Known = "gone";
  /** Kept since the hold was made, by shard; while it is surely there. */
  #held: ReadonlyMap<number, number> | undefined;
  /** Latest time up to which a drop was ever asked for. */
  #askedUs = 0;
  /** How far the wall is off. */
  #offUs = 0;
  #life = 0;

  constructor(
    machine: StoreMachine,
    random: SeededRandom,
    features: Features,
    model: TtvModel,
    fault: (message: string) => void,
  ) {
    this.#machine = machine;
    this.#random = random;
    this.#features = features;
    this.#model = model;
    this.#fault = fault;
  }

  /** Before a process is started. */
  beforeStart(): void {
    this.#life++;
    if (!this.#features.clock || !this.#random.chance(0.3)) return;
    this.counts.boots1970++;
    const { clock } = this.#machine;
    this.#step(-clock.wallUs() + 1_000_000);
  }

  /** After a start, before the checks: what was answered must have come about. */
  afterStart(store: LocalStore): void {
    this.#held = undefined;
    const names = store.operator.databases().map(({ name }) => name);
    this.#database = this.#judge("database", this.#database, names.includes(database));
    const holds = store.operator.holds().filter(({ name }) => name === hold);
    this.#hold = this.#judge("hold", this.#hold, holds.length > 0);
    this.learn(store);
    this.#held = this.#hold === "there" ? holds[0]?.afterUs : undefined;
    if (this.#features.quota === "none") return;
    // Its sessions have read what was there a moment ago.
    store.useConsumed(async () => {
      const floors = store.tail();
      for (const [shard, timeUs] of floors) this.#mayGo(shard, timeUs);
      return floors;
    });
  }

  /** What went without being asked for, and what was not allowed to go. */
  learn(store: LocalStore): void {
    const logs = store.operator.databases().filter(({ layout }) => layout === "log");
    for (const shard of logs.flatMap(({ shards }) => shards)) {
      const kept = store.operator.generations(shard).find(({ state }) => state !== "dropping");
      if (kept === undefined) continue;
      const untilUs = kept.fromUs - 1;
      const heldUs = this.#held?.get(shard);
      if (heldUs !== undefined && this.#hold === "there") {
        this.counts.heldChecks++;
        // All that the hold keeps lies in generations; one that begins behind it shows a drop.
        if (untilUs > Math.max(heldUs, this.#model.droppedUntil(shard))) {
          this.#fault(`shard ${shard}: held from ${heldUs}, dropped up to ${untilUs}`);
        }
      }
      if (dropsByItself(this.#features)) this.#model.dropped(shard, untilUs);
    }
  }

  drop(store: LocalStore, untilUs: number): void {
    this.#askedUs = Math.max(this.#askedUs, untilUs);
    for (const shard of store.logShards) this.#mayGo(shard, untilUs);
    this.#note(store.dropUntil(untilUs), () => this.counts.drops++);
  }

  /** Some of the things that this history has. */
  operate(store: LocalStore): void {
    const { databases, holds, clock } = this.#features;
    const actions: Array<() => void> = [];
    if (databases) actions.push(() => this.#changeDatabases(store));
    if (holds) actions.push(() => this.#changeHolds(store));
    if (clock) actions.push(() => this.#stepClock());
    for (const act of actions) if (this.#random.chance(0.6)) act();
  }

  #changeDatabases({ operator, logShards }: LocalStore): void {
    if (this.#database === "maybe") return;
    if (this.#database === "gone") {
      const shards = this.#random.between(1, 2);
      const spec: DatabaseSpec = { name: database, shards, topics: ["m/#"] };
      this.#database = "maybe";
      this.#note(operator.createDatabase(spec), () => {
        this.#database = "there";
        this.counts.databasesMade++;
      });
      return;
    }
    if (this.#random.chance(0.3)) {
      const change = { layoutOptions: { thresholds: [this.#random.between(1, 5)] as const } };
      this.#note(operator.alterDatabase(database, change), () => this.counts.databasesAltered++);
      return;
    }
    const own = operator.databases().find(({ name }) => name === database)?.shards ?? [];
    for (const shard of own) {
      if (logShards.includes(shard)) this.#model.dropped(shard, Number.MAX_SAFE_INTEGER);
    }
    this.#database = "maybe";
    this.#note(operator.dropDatabase(database), () => {
      this.#database = "gone";
      this.counts.databasesDropped++;
    });
  }

  #changeHolds(store: LocalStore): void {
    if (this.#hold === "maybe") return;
    const { operator } = store;
    if (this.#hold === "gone") {
      const afterUs = store.tail();
      const options = this.#random.chance(0.5) ? { afterUs } : {};
      this.#hold = "maybe";
      this.#note(operator.hold(hold, options), (info) => {
        // What went before it was made it does not keep.
        this.learn(store);
        this.#hold = "there";
        this.#held = info.afterUs;
        this.counts.holdsMade++;
      });
      return;
    }
    this.#hold = "maybe";
    this.#held = undefined;
    // What was asked for while it was held may go from here on.
    for (const shard of store.logShards) this.#model.dropped(shard, this.#askedUs);
    this.#note(operator.releaseHold(hold), () => {
      this.#hold = "gone";
      this.counts.holdsReleased++;
    });
  }

  #stepClock(): void {
    this.counts.clockSteps++;
    if (this.#offUs !== 0) return this.#step(-this.#offUs);
    this.#step(this.#random.chance(0.5) ? monthsUs : -monthsUs);
  }

  #step(deltaUs: number): void {
    this.#offUs += deltaUs;
    this.#machine.clock.stepWall(deltaUs);
  }

  /** A drop up to there is allowed, but for what is surely held. */
  #mayGo(shard: number, untilUs: number): void {
    const heldUs = this.#hold === "there" ? this.#held?.get(shard) : undefined;
    this.#model.dropped(shard, Math.min(untilUs, heldUs ?? untilUs));
  }

  /** What a process is still told counts; a call that fails leaves things open. */
  #note<T>(work: Promise<T>, onDone: (value: T) => void): void {
    const life = this.#life;
    work.then(
      (value) => {
        if (life === this.#life) onDone(value);
      },
      () => undefined,
    );
  }

  #judge(what: string, known: Known, isThere: boolean): Known {
    if (known !== "maybe" && isThere !== (known === "there")) {
      this.#fault(`the ${what} is ${isThere ? "back" : "lost"}: it was ${known}`);
    }
    return isThere ? "there" : "gone";
  }
}
