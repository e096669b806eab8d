// Faults that users of MQTT brokers have met, against the launched broker (docs/reported-faults.md):
// shared subscriptions whose members come and go.

import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type End, LaunchedBroker } from "../../support/launched-broker.ts";
import {
  puback,
  publish,
  pubrec,
  pubrel,
  subscribe4,
  subscribe5,
} from "../../support/mqtt-bytes.ts";
import { pause, waitUntil } from "../../support/numbered-run.ts";
import type { RawClient } from "../../support/raw-client.ts";

type Level = 4 | 5;
const levels = [4, 5] as const;

let broker: LaunchedBroker;
let serial = 0;
/** A name of its own for each test. */
let name = "";

beforeAll(async () => {
  broker = await LaunchedBroker.open();
});
beforeEach(() => {
  serial++;
  name = `n${serial}`;
});
afterAll(async () => {
  await broker[Symbol.asyncDispose]();
});

async function resume(who: string, level: Level): Promise<RawClient> {
  return (await broker.resume(`${who} ${name}`, { level })).client;
}

async function member(who: string, level: Level, qos: 0 | 1 | 2 = 1): Promise<RawClient> {
  const client = await resume(who, level);
  const filters = [[`$share/g/${name}`, qos]] as const;
  client.send(level === 5 ? subscribe5(1, filters) : subscribe4(1, filters));
  await client.expect("suback");
  return client;
}

/** Numbered payloads, acked. */
async function publishAll(from: number, to: number, qos: 1 | 2 = 1): Promise<void> {
  const { client } = await broker.connect(`p ${name}`, { level: 4 });
  for (let n = from; n <= to; n++) {
    client.send(publish(name, `${n}`, { qos, id: n }));
    if (qos === 1) await client.expectBytes(puback(n));
    else await client.expectBytes(pubrec(n));
    if (qos === 2) client.send(pubrel(n));
    if (qos === 2) await client.expect("pubcomp");
  }
  await client.close();
}

/** Acks and collects so many messages, and what comes behind them. */
async function drain(client: RawClient, count: number): Promise<number[]> {
  const numbers: number[] = [];
  client.handle(({ packet }) => {
    if (packet?.cmd !== "publish") return;
    numbers.push(Number(packet.payload));
    if (packet.qos === 1) client.send(puback(packet.messageId!));
  });
  const late = (): string => `${numbers.length} of ${count} came`;
  await waitUntil(() => numbers.length >= count, 15_000, late);
  await pause(250);
  return numbers;
}

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, n) => from + n);
}

const sorted = (numbers: readonly number[]): number[] => [...numbers].sort((a, b) => a - b);

describe.each(levels)("MQTT level %i", (level) => {
  test("R68: what a dead member had not acked goes to another", async () => {
    const a = await member("a", level);
    const b = await member("b", level);
    await publishAll(1, 10);
    const got = [];
    for (let n = 0; n < 5; n++) got.push(Number((await a.expect("publish")).payload));
    a.drop();
    expect(sorted(await drain(b, 10))).toEqual(range(1, 10));
    expect(got).toHaveLength(5);
  });

  test("R70, R73: members that are away are dealt nothing", async () => {
    const a = await member("a", level);
    const b = await member("b", level);
    const c = await member("c", level);
    c.drop();
    await pause(50);
    await publishAll(1, 12);
    const [first, second] = [await drain(a, 6), await drain(b, 6)];
    expect([first.length, second.length]).toEqual([6, 6]);
    a.drop();
    await pause(50);
    await publishAll(13, 20);
    await waitUntil(
      () => second.length >= 14,
      15_000,
      () => `${second.length} came`,
    );
    expect(second.slice(6)).toEqual(range(13, 20));
  });

  describe.each(["stop", "kill"] as const)("with a %s of the broker", (end: End) => {
    test("R71: the first that returns gets all that came meanwhile", async () => {
      for (const who of ["a", "b", "c", "d"]) (await member(who, level)).drop();
      await publishAll(1, 6);
      await broker.restart(end);
      await publishAll(7, 12);
      expect(await drain(await resume("c", level), 12)).toEqual(range(1, 12));
      expect(await drain(await resume("a", level), 0)).toEqual([]);
    });

    test("R74: the group goes on without SUBSCRIBE, and QoS 0 is not repeated", async () => {
      const a = await member("a", level, 0);
      (await member("b", level, 1)).drop();
      await pause(50);
      await publishAll(1, 5);
      const got = await drain(a, 5);
      expect(got).toEqual(range(1, 5));
      await pause(1500);
      await broker.restart(end);
      const again = await resume("a", level);
      await again.expectNothing();
      await publishAll(6, 8);
      expect(await drain(again, 3)).toEqual(range(6, 8));
    });

    test("R75: what is half delivered at QoS 2 finishes with its member or not at all", async () => {
      const a = await member("a", level, 2);
      await publishAll(1, 1, 2);
      const { messageId } = await a.expect("publish");
      const b = await member("b", level, 2);
      a.send(pubrec(messageId!));
      await a.expectBytes(pubrel(messageId!));
      a.drop();
      await broker.restart(end);
      const later = await resume("b", level);
      b.drop();
      const { client: gone } = await broker.connect(`a ${name}`, { level, clean: true });
      gone.drop();
      await later.expectSilence(500);
    });
  });
});
