import fc from "fast-check";
import { expect, test } from "vitest";
import { CommitClock, StoreTime } from "../../src/store/commit-clock.ts";

const shardCount = 3;
const shard = fc.nat(shardCount - 1);
const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant("next" as const), shard, more: fc.nat(5) }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant("several" as const), shard, more: fc.nat(5_000) }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("run" as const),
      ms: fc.double({ min: 0, max: 15_000, noNaN: true }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant("wall" as const),
      us: fc.integer({ min: -9e12, max: 9e12 }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("wall" as const),
      us: fc.integer({ min: -2e6, max: 2e6 }),
    }),
  },
  // Another process leads it for a while, by a clock of its own.
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("claim" as const),
      shard,
      aheadUs: fc.integer({ min: -1e7, max: 1e7 }),
    }),
  },
);

test("of a store's times none is below one given before, by whichever shard, and each shard's grow", () => {
  const say = (): void => undefined;
  const quiet = { debug: say, info: say, warn: say, error: say };
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      let [wallUs, elapsedMs] = [1_767_225_600_000_000, 0];
      const run = (ms: number): void => {
        wallUs += ms * 1000;
        elapsedMs += ms;
      };
      const store = new StoreTime({ wallUs: () => wallUs, elapsedMs: () => elapsedMs }, quiet);
      const clocks = Array.from({ length: shardCount }, () => new CommitClock(store));
      const lastUs = clocks.map(() => 0);
      let highestUs = 0;
      const gave = (of: number, timeUs: number): void => {
        expect(timeUs).toBeGreaterThanOrEqual(highestUs);
        expect(timeUs).toBeGreaterThan(lastUs[of]!);
        expect(Number.isSafeInteger(timeUs)).toBe(true);
        highestUs = timeUs;
        lastUs[of] = timeUs;
      };
      for (const each of clocks) each.claim();
      for (const now of steps) {
        if (now.do === "run") run(now.ms);
        if (now.do === "wall") wallUs += now.us;
        if (now.do === "next") {
          gave(now.shard, clocks[now.shard]!.next());
          for (let n = 0; n < now.more; n++) gave(now.shard, clocks[now.shard]!.following());
        }
        if (now.do === "several") {
          const firstUs = clocks[now.shard]!.next();
          gave(now.shard, firstUs);
          clocks[now.shard]!.through(firstUs + now.more);
          if (now.more > 0) gave(now.shard, firstUs + now.more);
        }
        if (now.do === "claim") {
          const timeUs = Math.max(lastUs[now.shard]! + 1, highestUs + now.aheadUs);
          lastUs[now.shard] = timeUs;
          clocks[now.shard]!.learn(timeUs);
          clocks[now.shard]!.claim();
          highestUs = Math.max(highestUs, timeUs);
        }
      }
      // One clock: shards that are asked at one moment answer alike.
      run(1_000);
      expect(clocks[1]!.next() - clocks[0]!.next()).toBe(0);
    }),
    { numRuns: 1_000, endOnFailure: true },
  );
});
