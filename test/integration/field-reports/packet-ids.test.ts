// Faults that users of MQTT brokers have met, against the launched broker (docs/reported-faults.md):
// packet identifiers that wrap.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isLong } from "../../support/amount.ts";
import { LaunchedBroker } from "../../support/launched-broker.ts";
import { puback, subscribe4, subscribe5 } from "../../support/mqtt-bytes.ts";
import { pause, publishNumbered, Receiver, waitUntil } from "../../support/numbered-run.ts";
import type { RawClient } from "../../support/raw-client.ts";

let broker: LaunchedBroker;

beforeAll(async () => {
  broker = await LaunchedBroker.open();
});
afterAll(async () => {
  await broker[Symbol.asyncDispose]();
});

async function subscribed(topic: string, receiveMaximum: number): Promise<RawClient> {
  const { client } = await broker.resume(topic, { level: 5, receiveMaximum });
  client.send(subscribe5(1, [[topic, 1]]));
  await client.expect("suback");
  return client;
}

/** Receives as QoS 1 asks and notes identifiers, but keeps none of the messages. */
class IdWatch {
  count = 0;
  highest = 0;
  dups = 0;
  /** Identifiers that came while they were in use. */
  readonly clashes: number[] = [];
  readonly unacked = new Set<number>();
  readonly #topicBytes: number;

  constructor(client: RawClient, topic: string, isHeld: (count: number) => boolean) {
    this.#topicBytes = topic.length;
    client.handle(({ type, flags, bytes }) => {
      if (type !== 3) return;
      const id = bytes.readUInt16BE(2 + 2 + this.#topicBytes);
      this.count++;
      this.highest = Math.max(this.highest, id);
      if ((flags & 8) !== 0) this.dups++;
      if (this.unacked.has(id)) this.clashes.push(id);
      if (isHeld(this.count)) this.unacked.add(id);
      else client.send(puback(id));
    });
  }

  async until(count: number): Promise<void> {
    const late = (): string => `${this.count} of ${count} arrived`;
    await waitUntil(() => this.count >= count, 120_000, late);
  }
}

describe("R23: one message stays unacked while identifiers wrap", () => {
  // Receive Maximum 65,535 is bounded by the broker's own window.
  test.each(isLong ? [20, 65_535] : [20])(
    "Receive Maximum %i: its identifier is skipped, the connection stays",
    async (receiveMaximum) => {
      const topic = `wrap/${receiveMaximum}`;
      const client = await subscribed(topic, receiveMaximum);
      const watch = new IdWatch(client, topic, (count) => count === 1);
      const { client: p } = await broker.connect("p", { level: 4 });
      const count = 65_535 + 40;
      await publishNumbered(p, { topic, count, window: 1000 });
      await watch.until(count);
      expect(watch.clashes).toEqual([]);
      expect(watch.highest).toBe(65_535);
      expect(watch.dups).toBe(0);
      expect(client.isClosed).toBe(false);
    },
  );

  test("Receive Maximum 1: delivery pauses, and goes on behind the ack", async () => {
    const client = await subscribed("wrap/1", 1);
    const watch = new IdWatch(client, "wrap/1", (count) => count === 1);
    const { client: p } = await broker.connect("p", { level: 4 });
    await publishNumbered(p, { topic: "wrap/1", count: 100 });
    await pause(200);
    expect(watch.count).toBe(1);
    const [held = 0] = watch.unacked;
    watch.unacked.clear();
    client.send(puback(held));
    await watch.until(100);
    expect(watch.clashes).toEqual([]);
  });
});

test.each([true, false])(
  "R25: behind more messages than there are identifiers nothing is resent: broker ended %s",
  async (ended) => {
    const count = isLong ? 70_000 : 3000;
    const topic = `count/${ended}`;
    const { client } = await broker.resume(topic, { level: 4 });
    client.send(subscribe4(1, [[topic, 1]]));
    await client.expect("suback");
    const watch = new IdWatch(client, topic, () => false);
    const { client: p } = await broker.connect("p", { level: 4 });
    await publishNumbered(p, { topic, count, window: 1000 });
    await watch.until(count);
    // Acks are kept at the latest a second after they came.
    await pause(1500);
    await client.close();
    if (ended) await broker.restart("kill");
    const { client: back } = await broker.resume(topic, { level: 4 });
    const receiver = new Receiver();
    receiver.attach(back);
    await pause(500);
    expect(receiver.arrivals).toEqual([]);
    const { client: again } = await broker.connect("p", { level: 4 });
    await publishNumbered(again, { topic, count: 1, first: count + 1 });
    await receiver.until(1);
    expect(receiver.arrivals.map(({ text }) => text)).toEqual([`${count + 1}`]);
  },
);
