import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { expect, test } from "vitest";
import { type StoreEvent, storeChannelName } from "../../../src/store/index.ts";
import { append, appendRequest } from "../../support/store-calls.ts";
import { StoreMachine } from "../../support/store-machine.ts";

test("who subscribes to the store's channel is told checkpoints and what becomes of generations", async () => {
  const m = new StoreMachine({ seed: 4, store: { shards: 1 } });
  const { store } = await m.boot();
  const [shard = 0] = store.logShards;
  const seen: StoreEvent[] = [];
  const take = (message: unknown): void => void seen.push(message as StoreEvent);
  const toldOf = async (work: Promise<unknown>) => {
    seen.length = 0;
    await m.clock.complete(work);
    return seen.filter((event) => event.shard === shard);
  };
  await m.clock.complete(append(store, appendRequest("a", "x")));
  subscribe(storeChannelName, take);
  try {
    const [checkpoint] = await toldOf(store.checkpoint());
    const index = store.operator.shards().find(({ number }) => number === shard)?.checkpointUs;
    expect(checkpoint).toEqual({
      event: "checkpoint",
      shard,
      index: expect.any(Number),
      timeUs: index,
    });
    expect(await toldOf(store.rotate())).toMatchObject([
      { event: "checkpoint" },
      { event: "generation_begun", generation: 2 },
    ]);
    const packed = await toldOf(store.operator.repack({ shard, all: true }));
    expect(packed).toContainEqual({ event: "generation_packed", shard, generation: 1 });
    const untilUs = store.tail().get(shard) ?? 0;
    const dropped = await toldOf(store.operator.dropUntil(untilUs, { force: true }));
    expect(dropped.at(-1)).toEqual({ event: "generations_dropped", shard, generations: [1] });
  } finally {
    unsubscribe(storeChannelName, take);
  }
});
