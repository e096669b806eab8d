// More messages than there are packet ids, through broker, session and store.

import { expect, test } from "vitest";
import { BrokerWorld } from "../support/broker-world.ts";
import { publishing } from "../support/raw-mqtt.ts";

const durable = { properties: { sessionExpiryS: 3600 } };

test("R25: 70,000 messages to one client wrap its ids; nothing is sent again, nothing is left", async () => {
  const world = await BrokerWorld.start();
  const s = await world.connect("s", durable);
  s.subscribe("t", { qos: 1 });
  const p = await world.connect("p");
  await world.advance();
  s.autoAck = true;
  const batch = 1000;
  let received = 0;
  let lastId = 0;
  for (let round = 0; round < 70; round++) {
    const ids = Array.from({ length: batch }, (_, index) => index + 1);
    p.say(...ids.map((id) => publishing("t", `${round}`, { id })));
    await world.clock.runUntil(() => p.lines.length >= batch, 60_000);
    p.take();
    await world.advance(200);
    for (const packet of s.packets.splice(0)) {
      if (packet.type !== "publish") continue;
      received++;
      expect([packet.dup, packet.packetId]).toEqual([false, (lastId % 65_535) + 1]);
      lastId = packet.packetId;
    }
    s.take();
    p.packets.length = 0;
  }
  expect(received).toBe(70_000);
  await world.advance(2000);
  s.disconnect();
  await world.advance(500);
  const again = await world.connect("s", durable);
  await world.advance(2000);
  expect(again.take()).toEqual(["connack 0x00 present"]);
  const rows = [];
  for (const shard of world.store.stateShards) {
    rows.push(...(await world.clock.complete(shard.list("session/", { countMax: 100_000 }))));
  }
  expect(rows.filter((row) => row.key.includes("/out/"))).toEqual([]);
});
