// Reported faults (docs/reported-faults.md) that need a clock of the test's own or a look inside.

import { describe, expect, test } from "vitest";
import { BrokerWorld } from "../../support/broker-world.ts";
import { publishing } from "../../support/raw-mqtt.ts";

const quarterUs = 90 * 86_400_000_000;
const will = {
  ...{ topic: "will", payload: Buffer.from("gone"), qos: 1 as const, retain: false },
  properties: { willDelayS: 20 },
};

describe.each([quarterUs, -quarterUs])("R39: the wall clock steps by %i us", (stepUs) => {
  test("nobody is disconnected, keep alives and delayed wills go by elapsed time", async () => {
    const world = await BrokerWorld.start();
    const watcher = await world.connect("watcher");
    watcher.subscribe("#", { qos: 1 });
    const pinging = await world.connect("pinging", { keepAliveS: 60 });
    const silent = await world.connect("silent", { keepAliveS: 60 });
    const properties = { sessionExpiryS: 3600 };
    const mortal = await world.connect("mortal", { properties, will });
    await world.advance();
    watcher.take();
    mortal.drop();
    await world.advance(10_000);
    world.clock.stepWall(stepUs);
    await world.advance(9000);
    expect([pinging.isClosed, silent.isClosed, watcher.take()]).toEqual([false, false, []]);
    await world.advance(2000);
    expect(watcher.take()).toEqual(["publish will gone q1 #1"]);
    pinging.say({ type: "pingreq" });
    await world.advance(68_000);
    expect([pinging.isClosed, silent.isClosed]).toEqual([false, false]);
    await world.advance(3000);
    expect([pinging.isClosed, silent.isClosed]).toEqual([false, true]);
  });

  test("messages of before and after are queued and delivered in publish order", async () => {
    const world = await BrokerWorld.start();
    const durable = { properties: { sessionExpiryS: 3600 }, cleanStart: false };
    const s = await world.connect("s", durable);
    s.subscribe("t", { qos: 1 });
    await world.advance();
    s.drop();
    const p = await world.connect("p");
    for (let n = 1; n <= 6; n++) {
      p.say(publishing("t", `${n}`, { qos: 1, id: n }));
      await world.advance(500);
      if (n === 2 || n === 4) world.clock.stepWall(n === 2 ? stepUs : -stepUs);
    }
    await world.restart();
    const back = await world.connect("s", durable);
    await world.advance(200);
    const texts = back.lines.filter((line) => line.startsWith("publish")).map((line) => line[10]);
    expect(texts).toEqual(["1", "2", "3", "4", "5", "6"]);
  });
});

test("R41: what churns leaves nothing in any table", async () => {
  const world = await BrokerWorld.start();
  for (let round = 0; round < 100; round++) {
    const clientId = round % 2 === 0 ? `c${round}` : "twin";
    const client = await world.dial();
    client.connect(clientId, round % 3 === 0 ? { properties: { sessionExpiryS: 60 } } : {});
    client.subscribe("t/#", { qos: 1 });
    // Some go before they have an answer.
    if (round % 5 !== 0) await world.advance(1);
    if (round % 4 !== 0) client.drop();
    else client.disconnect();
  }
  await world.advance(120_000);
  expect(world.broker.counts()).toEqual({ connections: 0, liveFilters: 0 });
  expect(world.broker.sessions.counts()).toEqual({ durable: 0, connected: 0 });
});
