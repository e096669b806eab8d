// Starts and stops something again and again, and says what the process holds after half of the
// cycles and at the end: `node --expose-gc cycles.mjs WHAT COUNT`, in a folder of its own.

import { readdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { createBroker } from "flagstone";
import { openPersistence } from "flagstone/aedes";
import { openLocalStore } from "flagstone/store";
import mqtt from "mqtt";

/** A client, a loop, a message, a value: what a program does with a broker. */
async function use(broker) {
  const client = await mqtt.connectAsync(broker.url, { protocolVersion: 5, reconnectPeriod: 0 });
  const messages = await broker.subscribe("a/#", { name: "reader" });
  await client.publishAsync("a/b", "text", { qos: 1, retain: true });
  await messages.next();
  await broker.transact("app", async (tx) => tx.put("key", Buffer.from("value")));
  for await (const _ of broker.history("a/#", { countMax: 1 }));
  await client.endAsync();
}

const cycles = {
  memory: async () => {
    const broker = await createBroker({ memory: true });
    await use(broker);
    await broker.close();
  },
  manual: async () => {
    const broker = await createBroker({ memory: true, clock: "manual" });
    await use(broker);
    await broker.crash();
    await broker.clock.advance(1000);
    await broker.close();
  },
  disk: async () => {
    const broker = await createBroker({ dir: "broker" });
    await use(broker);
    await broker.close();
  },
  refused: async () => {
    const broker = await createBroker({ memory: true });
    const second = await createBroker({ memory: true, port: broker.port }).catch(
      ({ code }) => code,
    );
    if (second !== "NODE_LISTEN_FAILED") throw new Error(`not refused: ${second}`);
    await broker.close();
  },
  store: async () => {
    const { close } = await openLocalStore({ dir: "store" });
    await close();
  },
  aedes: async () => {
    const persistence = await openPersistence({ dir: "aedes" });
    await persistence.setup({ id: "one" });
    await persistence.storeRetained({ topic: "a", payload: Buffer.from("x") });
    await persistence.destroy();
  },
};

async function holds() {
  // What closes a little later, and what was finalized by the first collection.
  for (let count = 0; count < 3; count++) {
    await sleep(50);
    globalThis.gc();
  }
  const { heapUsed, external, arrayBuffers, rss } = process.memoryUsage();
  return {
    heapBytes: heapUsed,
    externalBytes: external + arrayBuffers,
    rssBytes: rss,
    descriptors: readdirSync("/proc/self/fd").length,
    resources: process.getActiveResourcesInfo().length,
    listeners: process.eventNames().reduce((sum, name) => sum + process.listenerCount(name), 0),
  };
}

const [, , what, countText] = process.argv;
const count = Number(countText);
const warm = Math.ceil(count / 2);
let before;
for (let cycle = 1; cycle <= count; cycle++) {
  await cycles[what]();
  // A stopped broker leaves some 11 MB for the collector, which sees no hurry: what malloc once took
  // for dozens of them it keeps.
  if (cycle % 5 === 0) globalThis.gc();
  if (cycle === warm) before = await holds();
}
console.log(JSON.stringify({ cycles: count - warm, before, after: await holds() }));
