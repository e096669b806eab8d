import { describe, expect, test } from "vitest";
import {
  createWall,
  SeededRandom,
  SimClock,
  settle,
  sleep,
  systemClock,
} from "../../../src/base/index.ts";

describe("wall time", () => {
  const start = 1_700_000_000_000;

  test("rounding of the millisecond clock does not make the time go back", () => {
    let nowMs = 0;
    const wall = createWall({ timeOrigin: start, now: () => nowMs }, () =>
      Math.floor(start + nowMs),
    );
    let last = wall();
    for (let step = 0; step < 1000; step++) {
      nowMs += 0.173;
      const next = wall();
      expect(next).toBeGreaterThan(last);
      last = next;
    }
    expect(last).toBe(Math.floor((start + nowMs) * 1000));
  });

  test("a step of the wall clock is followed in both directions, once", () => {
    let [nowMs, stepMs] = [0, 0];
    const wall = createWall({ timeOrigin: start, now: () => nowMs }, () =>
      Math.floor(start + nowMs + stepMs),
    );
    const before = wall();
    stepMs = 5000;
    expect(wall() - before).toBe(5_000_000);
    nowMs = 0.9; // the rounding is another one now, the step is not
    expect(wall() - before).toBe(5_000_900);
    stepMs = -5000;
    expect(Math.abs(wall() - before + 5_000_000 - 900)).toBeLessThanOrEqual(1000);
  });

  test("the system's wall is near Date.now and in whole microseconds", () => {
    const us = systemClock.wallUs();
    expect(Number.isSafeInteger(us)).toBe(true);
    expect(Math.abs(us / 1000 - Date.now())).toBeLessThan(1000);
  });
});

describe("system timers", () => {
  test("a task runs after its delay, a cancelled one never", async () => {
    const events: string[] = [];
    const cancel = systemClock.schedule(1, () => events.push("cancelled"));
    cancel();
    const startMs = systemClock.elapsedMs();
    await new Promise<void>((resolve) => {
      const keepAlive = setInterval(() => undefined, 1000);
      systemClock.schedule(5, () => {
        clearInterval(keepAlive);
        resolve();
      });
    });
    expect(systemClock.elapsedMs() - startMs).toBeGreaterThanOrEqual(5);
    expect(events).toEqual([]);
    await new Promise<void>((resolve) => systemClock.soon(resolve));
  });

  test("no task runs before its delay has passed", async () => {
    const keepAlive = setInterval(() => undefined, 1000);
    const waits = Array.from({ length: 400 }, async (_, at) => {
      const delayMs = 1 + at * 0.13;
      const startMs = systemClock.elapsedMs();
      await sleep(systemClock, delayMs);
      return systemClock.elapsedMs() - startMs - delayMs;
    });
    const lateMs = await Promise.all(waits);
    clearInterval(keepAlive);
    expect(Math.min(...lateMs)).toBeGreaterThanOrEqual(0);
  });

  test("a delay beyond what node's timers take does not fire at once", async () => {
    let hasFired = false;
    const cancel = systemClock.schedule(2 ** 32, () => {
      hasFired = true;
    });
    await settle();
    await settle();
    expect(hasFired).toBe(false);
    cancel();
  });
});

describe("simulated clock", () => {
  test("tasks run by due time, then in the order they were scheduled", async () => {
    const clock = new SimClock();
    const events: string[] = [];
    clock.schedule(2, () => events.push(`late at ${clock.elapsedMs()}`));
    clock.schedule(1, () => events.push(`one at ${clock.elapsedMs()}`));
    clock.schedule(1, () => events.push("two"));
    clock.soon(() => events.push("soon"));
    await clock.advance(1.5);
    expect(events).toEqual(["soon", "one at 1", "two"]);
    expect(clock.elapsedMs()).toBe(1.5);
    await clock.advance(1);
    expect(events.at(-1)).toBe("late at 2");
  });

  test("promise callbacks run between tasks", async () => {
    const clock = new SimClock();
    const events: string[] = [];
    void sleep(clock, 1)
      .then(() => events.push("first"))
      .then(() => events.push("its consequence"));
    void sleep(clock, 1).then(() => events.push("second"));
    await clock.advance(1);
    expect(events).toEqual(["first", "its consequence", "second"]);
  });

  test("with randomness ties are drawn, the same for the same seed", async () => {
    const order = async (seed: number): Promise<string> => {
      const clock = new SimClock({ random: new SeededRandom(seed) });
      const events: number[] = [];
      for (let at = 0; at < 8; at++) clock.schedule(1, () => events.push(at));
      await clock.advance(1);
      return events.join("");
    };
    expect(await order(1)).toBe(await order(1));
    const orders = new Set<string>();
    for (let seed = 0; seed < 10; seed++) orders.add(await order(seed));
    expect(orders.size).toBeGreaterThan(5);
  });

  test("the wall moves with the time, and alone when it is stepped", async () => {
    const clock = new SimClock({ wallUs: 1_000_000 });
    await clock.advance(1.5);
    expect(clock.wallUs()).toBe(1_001_500);
    clock.stepWall(-500);
    expect([clock.wallUs(), clock.elapsedMs()]).toEqual([1_001_000, 1.5]);
  });

  test("a cancelled task is gone at once", async () => {
    const clock = new SimClock();
    const events: string[] = [];
    const cancel = clock.schedule(1000, () => events.push("cancelled"));
    clock.schedule(1, () => events.push("stays"));
    cancel();
    cancel();
    expect(clock.pendingCount).toBe(1);
    await expect(clock.runUntil(() => false)).rejects.toThrow(/stands still/);
    expect([clock.elapsedMs(), events.join()]).toEqual([1, "stays"]);
  });

  test("runUntil stops at the moment it holds, or says what is wrong", async () => {
    const clock = new SimClock();
    let count = 0;
    const tick = (): void => {
      count++;
      clock.schedule(10, tick);
    };
    tick();
    await clock.runUntil(() => count === 4);
    expect(clock.elapsedMs()).toBe(30);
    await expect(clock.runUntil(() => false, 100)).rejects.toThrow(/within 100 ms/);
    clock.clear();
    await expect(clock.runUntil(() => false)).rejects.toThrow(/stands still/);
  });

  test("complete gives the value or the error of a promise", async () => {
    const clock = new SimClock();
    expect(await clock.complete(sleep(clock, 5).then(() => "value"))).toBe("value");
    const failing = sleep(clock, 5).then(() => Promise.reject(new Error("broken")));
    await expect(clock.complete(failing)).rejects.toThrow("broken");
  });

  test("what a process had planned dies with it, and with it alone", async () => {
    const clock = new SimClock();
    const [one, other] = [clock.createProcess(), clock.createProcess()];
    const events: string[] = [];
    one.schedule(1, () => events.push("one"));
    one.soon(() => events.push("one soon"));
    other.schedule(1, () => events.push("other"));
    other.schedule(1, () => events.push("cancelled"))();
    one.kill();
    one.schedule(1, () => events.push("one late"));
    one.soon(() => events.push("one late"));
    await clock.advance(2);
    expect(events).toEqual(["other"]);
    expect([other.elapsedMs(), other.wallUs()]).toEqual([2, clock.wallUs()]);
  });
});
