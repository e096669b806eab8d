// A will goes out once, wherever the process dies between the loss of the connection and the removal
// of the last record of it: one history per moment, over the whole node.

import { expect, test } from "vitest";
import { BrokerMachine } from "../support/broker-machine.ts";
import { SimClient } from "../support/sim-client.ts";

const stepMs = 0.2;
/** Long after everything about the will is done. */
const endMs = 24;
const graceMs = 31_000;

const will = {
  topic: "w",
  payload: Buffer.from("bye"),
  qos: 1,
  retain: true,
  properties: {},
} as const;

type Trigger = "loss" | "takeover";

/** Ends the process so long after what sets the will off; the wills a durable session gets. */
async function wills(
  death: "kill" | "power",
  trigger: Trigger,
  afterMs: number,
): Promise<string[]> {
  const machine = new BrokerMachine(`will ${death} ${trigger}`);
  await machine.start();
  const before = await SimClient.connect(machine, "s");
  const options = { qos: 1, noLocal: false, retainAsPublished: false, retainHandling: 2 } as const;
  const filters = [{ filter: "w", options }];
  before.say({ type: "subscribe", packetId: 1, filters, properties: {} });
  await before.has("suback");
  before.say({ type: "disconnect", reasonCode: 0, properties: {} });
  const client = await SimClient.connect(machine, "c", { will });
  await machine.clock.advance(100);
  if (trigger === "loss") client.drop();
  else await SimClient.begin(machine, "c");
  await machine.clock.advance(afterMs);
  machine.die(death);
  await machine.start();
  await machine.clock.advance(graceMs);
  const after = await SimClient.connect(machine, "s");
  await machine.clock.advance(2000);
  const left = await keysUnder(machine, "fire/");
  expect(left, `after ${afterMs} ms`).toEqual([]);
  machine.die("kill");
  return after.payloads("w");
}

async function keysUnder(machine: BrokerMachine, prefix: string): Promise<string[]> {
  const shards = machine.node!.store.stateShards;
  const pages = shards.map((shard) => shard.list(prefix, { countMax: 10 }));
  const found = await machine.clock.complete(Promise.all(pages));
  return found.flat().map((entry) => entry.key);
}

for (const trigger of ["loss", "takeover"] as const) {
  for (const death of ["kill", "power"] as const) {
    test(`a will set off by a ${trigger} goes out once, whenever the ${death} comes`, async () => {
      for (let afterMs = 0; afterMs <= endMs; afterMs += stepMs) {
        const got = await wills(death, trigger, afterMs);
        expect(got, `${trigger}, ${death} after ${afterMs.toFixed(1)} ms`).toEqual(["bye"]);
      }
    }, 120_000);
  }
}
