import { expect, test } from "vitest";
import { EventStreams } from "../../../src/admin/events.ts";
import { SimClock, sleep } from "../../../src/base/index.ts";
import type { Alarm } from "../../../src/store/index.ts";

function world() {
  const clock = new SimClock();
  const alarms: Alarm[] = [];
  const source = {
    status: async () => ({ clients: 1 }) as never,
    alarms: () => alarms,
    tasks: () => [],
  };
  const streams = new EventStreams(source, clock);
  const pass = (ms: number): Promise<void> => clock.complete(sleep(clock, ms), 10 * ms + 60_000);
  return { clock, alarms, streams, pass };
}

/** Collects what comes, without waiting for it. */
function collect(stream: ReadableStream<Uint8Array>): { text: string; ended: boolean } {
  const seen = { text: "", ended: false };
  const read = async (): Promise<void> => {
    for await (const bytes of stream) seen.text += Buffer.from(bytes).toString();
    seen.ended = true;
  };
  read().catch(() => undefined);
  return seen;
}

/** Keys of their own, two streams each. */
let opened = 0;
const may = (mayRead: () => boolean) => ({ keyId: `key ${opened++ >> 1}`, mayRead });
const always = (): boolean => true;
const count = (text: string, event: string): number => text.split(`event: ${event}\n`).length - 1;

test("a reader gets the status each second, alarms and tasks when they change", async () => {
  const { streams, pass, alarms } = world();
  const seen = collect(streams.open(may(always)));
  await pass(3500);
  expect(seen.text.startsWith("event: hello\n")).toBe(true);
  expect(count(seen.text, "status")).toBe(4);
  expect(count(seen.text, "alarms")).toBe(1);
  alarms.push({ name: "disk_full" } as Alarm);
  await pass(1000);
  expect(count(seen.text, "alarms")).toBe(2);
  expect(seen.text).toContain('data: [{"name":"disk_full"}]\n\n');
});

test("one that does not read is let go, and holds up nobody", async () => {
  const { streams, pass } = world();
  const stuck = streams.open(may(always));
  const seen = collect(streams.open(may(always)));
  await pass(60_000);
  expect(streams.readerCount).toBe(1);
  expect(count(seen.text, "status")).toBeGreaterThan(50);
  await stuck.cancel();
});

test("one whose key is revoked is let go at once, and the others read on", async () => {
  const { streams, pass } = world();
  const key = { holds: true };
  const revoked = collect(streams.open(may(() => key.holds)));
  const other = collect(streams.open(may(always)));
  await pass(100);
  key.holds = false;
  streams.recheck();
  await pass(0);
  expect([revoked.ended, other.ended]).toEqual([true, false]);
  expect(streams.readerCount).toBe(1);
});

test("no more readers than there is room for; who leaves makes room", async () => {
  const { streams } = world();
  const all = Array.from({ length: 32 }, () => streams.open(may(always)));
  expect(() => streams.open(may(always))).toThrow("at their limit of 32");
  await all[0]?.cancel();
  streams.open(may(always));
});

test("one key does not take every place", async () => {
  const { streams } = world();
  const own = { keyId: "a", mayRead: always };
  const all = Array.from({ length: 16 }, () => streams.open(own));
  expect(() => streams.open(own)).toThrow("of this key are at their limit of 16");
  streams.open({ keyId: "b", mayRead: always });
  await all[0]?.cancel();
  streams.open(own);
});

test("closing ends all readers", async () => {
  const { streams, pass } = world();
  const seen = collect(streams.open(may(always)));
  await pass(100);
  streams.close();
  await pass(100);
  expect(seen.ended).toBe(true);
  expect(() => streams.open(may(always))).toThrow();
});
