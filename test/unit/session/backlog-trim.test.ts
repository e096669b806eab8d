// `backlogMax`: the newest messages are kept at resume, the others are counted.

import { describe, expect, test } from "vitest";
import { World } from "../../support/session-world.ts";

async function away(backlogMax: number, wake: "now" | "soon" = "now"): Promise<World> {
  return World.start({ settings: { backlogMax }, store: { wake } });
}

for (const wake of ["now", "soon"] as const) {
  describe(`a store that offers ${wake}`, () => {
    test("R79: of 128 messages the newest 4 come, over all shards, and 124 are counted", async () => {
      const world = await away(4, wake);
      const s = await world.client("s").connect();
      s.autoAck = true;
      await s.subscribe("t/#");
      await s.disconnect();
      for (let n = 1; n <= 128; n++) await world.publish(`p${n % 5}`, `t/${n % 3}`, `m${n}`);
      s.take();
      await s.connect();
      await world.advance(50);
      expect(
        s
          .take()
          .map((line) => line.split(" ").at(-1))
          .sort(),
      ).toEqual(["m125", "m126", "m127", "m128"].sort());
      expect(world.sessions.counters.backlogDropped).toBe(124);
      await s.disconnect();
      await s.connect();
      await world.advance(50);
      expect(s.take()).toEqual([]);
      expect(world.sessions.counters.backlogDropped).toBe(124);
    });

    test("a backlog at the limit is kept whole, and live messages are no backlog", async () => {
      const world = await away(4, wake);
      const s = await world.client("s").connect();
      await s.subscribe("t");
      for (let n = 1; n <= 10; n++) await world.publish("p", "t", `live${n}`);
      expect(s.take()).toHaveLength(11);
      for (let n = 1; n <= 10; n++) s.puback(n);
      await s.disconnect();
      for (let n = 1; n <= 4; n++) await world.publish("p", "t", `m${n}`);
      await s.connect();
      await world.advance(50);
      expect(s.take()).toHaveLength(4);
      expect(world.sessions.counters.backlogDropped).toBe(0);
    });
  });
}

test("what is expired and what No Local keeps back takes no place among the newest", async () => {
  const world = await away(2);
  const s = await world.client("s").connect();
  await s.subscribe("t", { noLocal: true });
  await s.disconnect();
  await world.publish("p", "t", "one");
  await world.publish("p", "t", "two");
  await world.publish("s", "t", "own");
  await world.publish("p", "t", "brief", { expiryS: 1 });
  await world.advance(2000);
  s.take();
  await s.connect();
  await world.advance(50);
  expect(s.take()).toEqual(["publish 1 q1 t one", "publish 2 q1 t two"]);
});

test("a connection that ends during the pass drops nothing; the next one does", async () => {
  const world = await away(1, "soon");
  const s = await world.client("s").connect();
  await s.subscribe("t");
  await s.disconnect();
  for (let n = 1; n <= 5; n++) await world.publish("p", "t", `m${n}`);
  const connecting = s.connectLater();
  await world.clock.complete(connecting);
  await s.drop();
  s.take();
  await world.crash();
  await s.connect();
  await world.advance(50);
  expect(s.take().map((line) => line.split(" ").at(-1))).toEqual(["m5"]);
});
