// More messages to one session than there are packet ids (R23, R25).

import { expect, test } from "vitest";
import { World } from "../support/session-world.ts";

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, index) => from + index);
}

test("R23: one id stays unacked while the others wrap", async () => {
  const world = await World.start({ store: { commitMs: 0.1 } });
  const s = await world.client("s").connect({ receiveMaximum: 20 });
  await s.subscribe("t");
  await world.publish("p", "t", "held");
  expect(s.take().at(-1)).toBe("publish 1 q1 t held");
  let taken = 0;
  let last = 1;
  s.onPublish = (_message, { packetId }) => {
    expect(packetId).not.toBe(1);
    expect(packetId).toBe(last === 65_535 ? 2 : last + 1);
    last = packetId;
    taken++;
  };
  s.autoAck = true;
  for (let batch = 0; batch < 66; batch++) {
    const all = range(1, 1000).map(() => world.publishLater("p", "t", "x"));
    await world.clock.complete(Promise.all(all));
    await world.advance(20);
    s.take();
    prune(world);
  }
  expect(taken).toBe(66_000);
  expect(s.connected).toBe(true);
});

test("R25: 70,000 messages leave nothing to resend and no record", async () => {
  const world = await World.start({ store: { commitMs: 0.1 } });
  const s = await world.client("s").connect();
  await s.subscribe("t");
  s.autoAck = true;
  for (let batch = 0; batch < 70; batch++) {
    const all = range(1, 1000).map(() => world.publishLater("p", "t", "x"));
    await world.clock.complete(Promise.all(all));
    await world.advance(20);
    prune(world);
  }
  expect(s.take().filter((line) => line.startsWith("publish"))).toHaveLength(70_000);
  await s.drop();
  await s.connect();
  await world.advance(100);
  expect(s.take()).toEqual([]);
  const keys = world.store.stateShards.flatMap((shard) => shard.keys());
  expect(keys.filter((key) => key.includes("/out/"))).toEqual([]);
});

/** The fake store searches its arrays: what everybody has got is taken out. */
function prune(world: World): void {
  for (const rows of world.store.data.logs.values()) rows.length = 0;
}
