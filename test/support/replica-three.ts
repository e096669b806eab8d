// Three simulated nodes of which one never leads: what is asked of it goes to the others.

import { isCodedError, sleep } from "../../src/base/index.ts";
import type { LocalStore, StoreSettings } from "../../src/store/index.ts";
import {
  createReplicaWorld,
  ReplicaMachine,
  type ReplicaProcess,
  type ReplicaWorld,
} from "./replica-machine.ts";

/** Two lead what there is to lead; the third follows. */
const followerNode = 3;
const watchMs = 20;

export class ReplicaThree {
  readonly world: ReplicaWorld;
  readonly machines: readonly ReplicaMachine[];
  #settings: Partial<StoreSettings> = {};
  #isFormatted = false;

  constructor(name: string) {
    this.world = createReplicaWorld(name, [1, 2, followerNode]);
    this.machines = this.world.voters.map((node) => new ReplicaMachine(node, this.world));
  }

  get follower(): ReplicaMachine {
    return this.machines[followerNode - 1] as ReplicaMachine;
  }

  /** Starts whoever is down, the follower last; resolves with its store. */
  async open(settings: Partial<StoreSettings> = {}): Promise<LocalStore> {
    this.#settings = settings;
    if (!this.#isFormatted) {
      for (const machine of this.machines) await machine.format();
      this.#watch();
    }
    this.#isFormatted = true;
    const down = this.machines.filter(({ process }) => process === undefined);
    const others = down.filter((machine) => machine !== this.follower);
    await Promise.all(others.map((machine) => this.boot(machine)));
    if (down.includes(this.follower)) await this.boot(this.follower);
    const store = this.follower.process?.store as LocalStore;
    // What was acked before it was away.
    for (const { number } of store.operator.shards()) await this.#barrier(store, number);
    return store;
  }

  async #barrier(store: LocalStore, shard: number): Promise<void> {
    for (;;) {
      try {
        return await store.barrier(shard);
      } catch (error) {
        if (!isCodedError(error) || error.kind !== "retry") throw error; // nobody leads it yet
      }
      await sleep(this.world.clock, watchMs);
    }
  }

  async boot(machine: ReplicaMachine): Promise<ReplicaProcess> {
    const process = await machine.boot(this.machines.map(({ member }) => member));
    await machine.open(process, this.#settings);
    return process;
  }

  /** Groups that the follower leads. */
  led(): number[] {
    const groups = this.follower.process?.host.status() ?? [];
    return groups.filter(({ role }) => role === "leader").map(({ group }) => group);
  }

  close(): void {
    for (const machine of this.machines) machine.end("kill");
  }

  /** Whatever the follower is elected for it hands over. */
  #watch(): void {
    this.world.clock.schedule(watchMs, () => {
      for (const group of this.led()) {
        try {
          this.follower.process?.host.group(group)?.transfer(1);
        } catch (error) {
          if (!isCodedError(error)) throw error; // one is under way
        }
      }
      this.#watch();
    });
  }
}
