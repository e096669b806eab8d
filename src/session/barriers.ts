// Waits until what was acked before, at any node of a cluster, is applied here. On a single node there
// is nothing to wait for, and none of it runs.

import { type Clock, isCodedError, sleep } from "../base/index.ts";
import type { Store } from "../store/index.ts";

export type BarrierParts = {
  readonly store: Pick<Store, "logShards" | "stateShards" | "barrier">;
  readonly clock: Clock;
  /** Nobody waits any more. */
  readonly isOver: () => boolean;
};

/** Pause before a shard is asked again of which no quorum has answered. */
const retryMs = 100;

/** Of what clients publish: where a filter may begin. */
export function reachLogs(parts: BarrierParts): Promise<void> {
  return reach(parts, parts.store.logShards);
}

/** Of what sessions and retained messages say. */
export function reachStates(parts: BarrierParts): Promise<void> {
  return reach(
    parts,
    parts.store.stateShards.map(({ number }) => number),
  );
}

async function reach(parts: BarrierParts, shards: readonly number[]): Promise<void> {
  await Promise.all(shards.map((shard) => reachOne(parts, shard)));
}

async function reachOne({ store, clock, isOver }: BarrierParts, shard: number): Promise<void> {
  while (!isOver()) {
    try {
      return await store.barrier(shard);
    } catch (error) {
      if (!isCodedError(error) || error.kind !== "retry") throw error;
      await sleep(clock, retryMs);
    }
  }
}
