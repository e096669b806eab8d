import fc from "fast-check";
import { expect, test } from "vitest";
import { createCounters, SimClock } from "../../src/base/index.ts";
import type { WriteAheadLog } from "../../src/log/index.ts";
import { excessBytes, nextQuotaState } from "../../src/store/core/quota.ts";
import { Group, groupCounterHelp } from "../../src/store/group.ts";
import { groupSettingsDefault, type QuotaState } from "../../src/store/index.ts";

const quotaBytes = 1_600;
const rank: Readonly<Record<QuotaState, number>> = { open: 0, near: 1, full: 2 };
const states = fc.constantFrom<QuotaState>("open", "near", "full");
const used = fc.nat(2 * quotaBytes);
const next = (state: QuotaState, usedBytes: number): QuotaState =>
  nextQuotaState(state, usedBytes, quotaBytes);

test("the state follows from what is used, but for the two stretches of hysteresis", () => {
  fc.assert(
    fc.property(states, used, (before, usedBytes) => {
      const after = next(before, usedBytes);
      const share = usedBytes / quotaBytes;
      if (share >= 15 / 16) expect(after).toBe("full");
      else if (share >= 7 / 8) expect(after).toBe(before === "full" ? "full" : "near");
      else if (share >= 3 / 4) expect(after).toBe("near");
      else if (share >= 5 / 8) expect(after).toBe(before === "open" ? "open" : "near");
      else expect(after).toBe("open");
      expect(next(after, usedBytes)).toBe(after);
      expect(excessBytes(usedBytes, quotaBytes) > 0).toBe(share > 5 / 8);
    }),
    { numRuns: 2_000 },
  );
});

test("more used never means a lower state", () => {
  fc.assert(
    fc.property(states, used, used, (before, one, other) => {
      const [less, more] = [Math.min(one, other), Math.max(one, other)];
      expect(rank[next(before, less)]).toBeLessThanOrEqual(rank[next(before, more)]);
    }),
    { numRuns: 1_000 },
  );
});

test("who was let in is refused again only after a sixteenth of the quota has come in", () => {
  fc.assert(
    fc.property(fc.array(used, { maxLength: 80 }), (walk) => {
      let state: QuotaState = "open";
      const leftAt: Partial<Record<QuotaState, number>> = {};
      for (const usedBytes of walk) {
        const after = next(state, usedBytes);
        for (const each of ["near", "full"] as const) {
          if (rank[state] >= rank[each] && rank[after] < rank[each]) leftAt[each] = usedBytes;
          const left = leftAt[each];
          if (left === undefined || rank[state] >= rank[each] || rank[after] < rank[each]) continue;
          expect(usedBytes - left).toBeGreaterThan(quotaBytes / 16);
        }
        state = after;
      }
    }),
    { numRuns: 500 },
  );
});

const mib = 1024 * 1024;
const step = fc.record({
  kind: fc.constantFrom("grown", "measured", "log", "memory"),
  bytes: fc.nat(20 * mib),
});

test("a group refuses exactly while it is full, and counts each time that it became so", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const log = { sizeBytes: 0, pendingBytes: 0, full: false, failure: undefined };
      const quota = 64 * mib;
      const counters = createCounters(groupCounterHelp);
      const group = new Group(
        {
          settings: { ...groupSettingsDefault, quotaBytes: quota, writeBufferBytesMax: 2 ** 40 },
          ...{ volumeBytes: 0, pendingBytesMax: 1, clock: new SimClock() },
          log: log as unknown as WriteAheadLog,
          refusal: () => undefined,
          relieve: () => undefined,
          logShare: () => 0.5,
        },
        counters,
      );
      let [measured, since, memory, state] = [0, 0, 0, "open" as QuotaState];
      const times = { near: 0, full: 0 };
      for (const { kind, bytes } of steps) {
        if (kind === "grown") {
          since += bytes;
          group.grown(bytes);
        } else if (kind === "measured") {
          // What came while it was measured counts on.
          const covered = Math.min(since, bytes);
          [measured, since] = [bytes, since - covered];
          group.measured(bytes, covered);
        } else if (kind === "log") {
          log.sizeBytes = bytes;
          group.update();
        } else {
          const delta = bytes % (2 * mib);
          group.gate.addMemory(delta - memory);
          memory = delta;
          group.update();
        }
        const usedBytes = measured + since + Math.round(log.sizeBytes / 2);
        expect(group.physicalBytes).toBe(usedBytes);
        const after = nextQuotaState(state, usedBytes + memory, quota);
        if (after === "full" && state !== "full") times.full++;
        if (after === "near" && state === "open") times.near++;
        state = after;
        expect(group.state).toBe(state);
        expect(group.gate.refusal?.code === "STORE_QUOTA_EXCEEDED").toBe(state === "full");
        expect(counters.quotaFullTimes).toBe(times.full);
        expect(counters.quotaNearTimes).toBe(times.near);
      }
    }),
    { numRuns: 200 },
  );
});
