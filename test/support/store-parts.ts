// Pieces of a store for tests that look at one of them: a key-value store or shard store in memory,
// and a map shard or log shard as part of a whole store on a simulated machine.

import { SeededRandom, SimClock, silentLogger } from "../../src/base/index.ts";
import { MemoryDriver } from "../../src/kv/index.ts";
import { DurableKv } from "../../src/store/durable-kv.ts";
import { firstCheckpoint, ShardStore } from "../../src/store/shard-store.ts";

export type Capturing = {
  capture(): (batch: Parameters<Parameters<DurableKv["write"]>[0]>[0]) => void;
  finish(committed: boolean): void;
};

export class KvBench {
  readonly clock = new SimClock();
  readonly driver: MemoryDriver;

  /** With a seed, calls take time and power can be cut. */
  constructor(seed?: number) {
    const random = seed === undefined ? undefined : new SeededRandom(seed);
    this.driver = new MemoryDriver({
      clock: this.clock,
      ...(random === undefined ? {} : { random }),
    });
  }

  openKv(path = "kv"): Promise<DurableKv> {
    const { clock, driver } = this;
    return this.run(DurableKv.open(path, {}, { driver, clock, logger: silentLogger }));
  }

  async openShardStore(path = "store"): Promise<ShardStore> {
    return this.run(ShardStore.open(await this.openKv(path), 1));
  }

  /** What a checkpoint does with a table of rows. */
  async save(store: ShardStore, table: Capturing, index = 1): Promise<void> {
    const addRows = table.capture();
    await this.run(store.commit({ ...firstCheckpoint, index, timeUs: index }, addRows));
    table.finish(true);
  }

  run<T>(work: Promise<T>, withinMs = 600_000): Promise<T> {
    return this.clock.complete(work, withinMs);
  }
}
