import { expect, test } from "vitest";
import { SimClock } from "../../../src/base/index.ts";
import { nodeChecks } from "../../../src/node/admin/checks.ts";
import type { Viewed } from "../../../src/node/admin/view.ts";

const gib = 2 ** 30;

type Look = {
  readonly space?: object;
  readonly log?: object;
  readonly refusal?: Error;
  readonly alarms?: readonly object[];
  readonly wallMs?: number;
};

async function checked({ space, log, refusal, alarms = [], wallMs = Date.UTC(2026, 1, 1) }: Look) {
  const clock = new SimClock();
  const roomy = { freeBytes: 50 * gib, totalBytes: 100 * gib, type: "ext4", ...space };
  const view = {
    clock: { ...clock, wallUs: () => wallMs * 1000 },
    dataDir: { path: "data" },
    disk: { space: async () => roomy },
    alarms: () => alarms,
    ready: {
      log: { failure: undefined, full: false, damage: [], sizeBytes: 7, ...log },
      store: { refusal },
      listeners: [{ name: "tcp", port: 1883 }],
      broker: {},
    },
  } as unknown as Viewed;
  const checks = await nodeChecks(view);
  return Object.fromEntries(checks.map(({ name, state, message }) => [name, [state, message]]));
}

test("of a healthy node every check is ok", async () => {
  const states = Object.values(await checked({})).map(([state]) => state);
  expect(states).toEqual(["ok", "ok", "ok", "ok", "ok", "ok"]);
});

test("a log that failed is a failure, a full or damaged one a warning", async () => {
  const failed = await checked({ log: { failure: new Error("EIO at 7") } });
  expect(failed.log).toEqual(["failed", "EIO at 7"]);
  expect((await checked({ log: { full: true } })).log?.[0]).toBe("warning");
  const damaged = await checked({ log: { damage: [{}, {}] } });
  expect(damaged.log).toEqual(["warning", "2 damaged places were set aside at the start"]);
});

test("a volume that runs out, or is memory, is a warning", async () => {
  const cases: ReadonlyArray<readonly [object, string]> = [
    [{ freeBytes: gib }, "warning"],
    // A tenth of it, or two gigabytes, is enough.
    [{ freeBytes: gib, totalBytes: 5 * gib }, "ok"],
    [{ freeBytes: 3 * gib }, "ok"],
    [{ type: "tmpfs" }, "warning"],
  ];
  for (const [space, state] of cases) {
    expect((await checked({ space })).disk?.[0], JSON.stringify(space)).toBe(state);
  }
});

test("a store that refuses, a clock that was never set and alarms are warnings that say why", async () => {
  const alarms = Array.from({ length: 7 }, (_, n) => ({
    name: "quota_near",
    subject: `group ${n}`,
  }));
  const found = await checked({ refusal: new Error("quota"), alarms, wallMs: 0 });
  expect(found.store).toEqual(["warning", "quota"]);
  expect(found.clock?.[0]).toBe("warning");
  expect(found.alarms?.[0]).toBe("warning");
  expect(found.alarms?.[1]).toContain("quota_near (group 0), ");
  expect(found.alarms?.[1]).toContain(", 2 more");
});
