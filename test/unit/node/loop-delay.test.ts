import { expect, test } from "vitest";
import { familiesOf } from "../../../src/admin/metrics.ts";
import { LoopDelay, type LoopTimer } from "../../../src/node/admin/loop-delay.ts";

function delays() {
  let nowMs = 1000;
  let call: (() => void) | undefined;
  let everyMs = 0;
  const timer: LoopTimer = {
    nowMs: () => nowMs,
    every: (ms, task) => {
      everyMs = ms;
      call = task;
      return () => {
        call = undefined;
      };
    },
  };
  const delay = new LoopDelay(timer);
  /** The timer's next call, so late. */
  const late = (lateMs: number): void => {
    nowMs += everyMs + lateMs;
    call?.();
  };
  return { delay, late };
}

test("the delay of the event loop is a histogram of how late each call of a timer came", () => {
  const { delay, late } = delays();
  for (const lateMs of [0, 0.5, 1.5, 30, 30, 7000]) late(lateMs);
  const { boundsMs, counts, count, sumMs } = delay.histogram;
  const seen = Object.fromEntries(boundsMs.map((bound, index) => [bound, counts[index]]));
  expect(seen).toMatchObject({ 1: 2, 2: 1, 20: 0, 50: 2, 5000: 0 });
  expect([count, sumMs]).toEqual([6, 7062]);
});

test("a call that comes early counts as one in time", () => {
  const { delay, late } = delays();
  late(-3);
  expect([delay.histogram.counts[0], delay.histogram.sumMs]).toEqual([1, 0]);
});

test("behind its close nothing is counted", () => {
  const { delay, late } = delays();
  delay.close();
  late(5);
  expect(delay.histogram.count).toBe(0);
});

test("a scrape has it by buckets in seconds, as Prometheus computes quantiles from", () => {
  const { delay, late } = delays();
  for (const lateMs of [0, 30, 7000]) late(lateMs);
  const source = { kind: "histogram", name: "n", help: "h", histogram: delay.histogram } as const;
  const samples = familiesOf([source])[0]?.samples() ?? [];
  const below = Object.fromEntries(samples.map(({ labels, value }) => [labels?.le, value]));
  expect(below).toMatchObject({ "0.001": 1, "0.02": 1, "0.05": 2, "5": 2, "+Inf": 3 });
});
