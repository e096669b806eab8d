// Publishes that go into the store by the read give what the same publishes give one by one, also while
// the store refuses, fails or answers late.

import fc from "fast-check";
import { expect, test, vi } from "vitest";
import { PublishPath } from "../../src/broker/publish-path.ts";
import type { Qos } from "../../src/mqtt/index.ts";
import { storeErrors } from "../../src/store/index.ts";
import { BrokerWorld } from "../support/broker-world.ts";
import { publishing, type RawMqtt, subscribing } from "../support/raw-mqtt.ts";

type Fault = "none" | "refuses" | "fails" | "refuses_for_good";

/** One write of one publisher, and what the store does meanwhile. */
type Step = {
  readonly from: 0 | 1;
  readonly sent: ReadonlyArray<{
    readonly topic: string;
    readonly qos: Qos;
    readonly retain: boolean;
  }>;
  readonly fault: Fault;
};

const sent = fc
  .tuple(
    fc.record({
      topic: fc.constantFrom("s/1", "s/1", "s/2", "live", "nobody"),
      qos: fc.constantFrom<Qos>(0, 1, 1, 1, 1, 2),
      retain: fc.constantFrom(false, false, false, false, true),
    }),
    fc.integer({ min: 1, max: 8 }),
  )
  .map(([one, times]) => Array.from({ length: times }, () => one));
const step: fc.Arbitrary<Step> = fc.record({
  from: fc.constantFrom<0 | 1>(0, 1),
  sent: fc.array(sent, { minLength: 1, maxLength: 5 }).map((parts) => parts.flat()),
  fault: fc.constantFrom<Fault>("none", "none", "none", "refuses", "fails", "refuses_for_good"),
});

async function play(steps: readonly Step[]): Promise<Record<string, readonly string[]>> {
  const world = await BrokerWorld.start({ settings: { storeQos0: false, publishWaitMs: 500 } });
  const clients: Record<string, RawMqtt> = {
    durable: await world.connect("durable", { properties: { sessionExpiryS: 1000 } }),
    clean: await world.connect("clean", { level: 4, cleanStart: true }),
    p0: await world.connect("p0", { level: 4, cleanStart: true }),
    p1: await world.connect("p1", { properties: { sessionExpiryS: 100 } }),
  };
  for (const client of Object.values(clients)) client.autoAck = true;
  clients.durable?.say(subscribing(["s/+"], { qos: 1 }));
  clients.clean?.say(subscribing(["s/1", "live"], { qos: 1 }));
  await world.advance();
  let packetId = 1;
  const error = storeErrors.bufferFull({ limitBytes: 1 });
  for (const [number, { from, sent, fault }] of steps.entries()) {
    if (fault === "fails") world.store.failAppends = error;
    else if (fault !== "none") world.store.refusal = error;
    const packets = sent.map(({ topic, qos, retain }, index) =>
      publishing(topic, `${number}.${index}`, { qos, retain, id: qos === 0 ? 0 : packetId++ }),
    );
    (clients[`p${from}`] as RawMqtt).say(...packets);
    await world.advance(fault === "refuses_for_good" ? 1500 : 50);
    world.store.failAppends = undefined;
    world.store.recover();
    await world.advance(300);
  }
  const heard = Object.entries(clients).map(([name, client]) => {
    const told = [...client.take(), `closed ${client.isClosed}`];
    const isPublish = (line: string): boolean => line.startsWith("publish ");
    const publishes = told.filter((line) => isPublish(line)).map(withoutId);
    return [name, [...publishes, ...told.filter((line) => !isPublish(line))]] as const;
  });
  await world.clock.complete(world.broker.close());
  return Object.fromEntries(heard);
}

/** Which message finds a connection first, by its publisher or by its reader, is a matter of turns. */
const withoutId = (line: string): string => line.replace(/ #\d+/, "");

test("publishes are answered and delivered alike, by the read and one by one", {
  timeout: 120_000,
}, async () => {
  let batches = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 6 }), async (steps) => {
      const writing = vi.spyOn(PublishPath.prototype, "recordBatch");
      const fast = await play(steps);
      batches += writing.mock.calls.filter(([batch]) => batch.topics.length > 1).length;
      writing.mockRestore();
      const asking = vi.spyOn(PublishPath.prototype, "takesBatches", "get").mockReturnValue(false);
      const slow = await play(steps);
      asking.mockRestore();
      expect(fast).toEqual(slow);
    }),
    { numRuns: Number(process.env.FLAGSTONE_FAST_PATH_RUNS ?? 12) },
  );
  expect(batches).toBeGreaterThan(0);
});
