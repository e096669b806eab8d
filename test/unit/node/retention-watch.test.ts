import { expect, test } from "vitest";
import { SimClock, sleep } from "../../../src/base/index.ts";
import { RetentionWatch } from "../../../src/node/admin/retention-watch.ts";

const dayUs = 24 * 3600 * 1e6;
const dayMs = dayUs / 1000;

function world(count: number) {
  const clock = new SimClock();
  const endUs = clock.wallUs();
  const asked: Array<ReadonlyMap<number, number>> = [];
  const state = { count };
  const watch = new RetentionWatch(
    {
      operator: {
        databases: () => [
          { layout: "log", retention: { ageMs: 10 * dayMs, bytes: 0 }, shards: [1, 2] },
        ],
        generations: (shard: number) => [
          { state: "sealed", toUs: endUs - dayUs },
          { state: "sealed", toUs: endUs },
          { state: "current", toUs: shard === 1 ? undefined : endUs },
        ],
      },
      sessions: {
        behind: async (untilUs: ReadonlyMap<number, number>) => {
          asked.push(untilUs);
          return { count: state.count, clientIds: state.count === 0 ? [] : ["billing"] };
        },
      },
    } as never,
    clock,
  );
  const pass = (ms: number) => clock.complete(sleep(clock, ms), ms + 1000);
  return { clock, watch, asked, state, pass, endUs };
}

test("an alarm comes while a tenth of the retention is left, and goes with its cause", async () => {
  const { watch, asked, state, pass, endUs } = world(4);
  await pass(7.9 * dayMs);
  // Nothing is near its end: nobody looks at sessions.
  expect([asked, watch.alarms()]).toEqual([[], []]);
  await pass(0.2 * dayMs);
  expect(asked.at(-1)).toEqual(
    new Map([
      [1, endUs - dayUs],
      [2, endUs - dayUs],
    ]),
  );
  const [alarm] = watch.alarms();
  expect(alarm).toMatchObject({
    ...{ name: "retention_overtakes", severity: "warning", subject: "durable sessions" },
    message: "retention is about to drop what may wait for 4 sessions (billing and others)",
  });
  await pass(1.2 * dayMs);
  expect(asked.at(-1)).toEqual(
    new Map([
      [1, endUs],
      [2, endUs],
    ]),
  );
  expect(watch.alarms()[0]?.sinceMs).toBe(alarm?.sinceMs);
  state.count = 0;
  await pass(120_000);
  expect(watch.alarms()).toEqual([]);
  watch.close();
  const looks = asked.length;
  await pass(dayMs);
  expect(asked).toHaveLength(looks);
});
