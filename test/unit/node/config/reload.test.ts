import { expect, test } from "vitest";
import type { LogFields } from "../../../../src/base/index.ts";
import type { ConfigChange } from "../../../../src/node/config/changes.ts";
import { type ConfigSources, readConfig } from "../../../../src/node/config/config.ts";
import type { Settings } from "../../../../src/node/config/keys.ts";
import { RunningConfiguration } from "../../../../src/node/config/reload.ts";
import { createLogger } from "../../../../src/node/logger.ts";

function world(atStart: ConfigSources) {
  const events: Array<{ event: string } & LogFields> = [];
  const logger = createLogger({
    level: "info",
    format: "json",
    write: (line) => {
      const { level, time, ...rest } = JSON.parse(line);
      events.push(rest);
    },
  });
  const applied: Settings[] = [];
  let sources = atStart;
  const state = { nowMs: 1 };
  const configuration = new RunningConfiguration(readConfig(atStart), {
    read: () => readConfig(sources),
    apply: (settings) => applied.push(settings),
    logger,
    nowMs: () => state.nowMs,
  });
  const to = (next: ConfigSources): Promise<void> => {
    sources = next;
    return configuration.onSignal();
  };
  const dry = (next: ConfigSources): Promise<ConfigChange[]> => {
    sources = next;
    return configuration.reload(true);
  };
  return { to, dry, configuration, events, applied, state };
}

test("a hot key takes hold, the others wait for a restart, and both are told", async () => {
  const { to, events, applied } = world({});
  await to({ set: ["logger.level=debug", "mqtt.inflightMax=7", "listeners.tcp.port=1"] });
  expect(events).toEqual([
    {
      event: "node.reloaded",
      now: ["logger.level: info -> debug"],
      atNextStart: ["listeners.tcp.port: 1883 -> 1", "mqtt.inflightMax: 1000 -> 7"],
    },
  ]);
  expect(applied.at(-1)?.logger.level).toBe("debug");
});

test("what has taken hold is told once, what waits at every reload, what was taken back never", async () => {
  const { to, events } = world({});
  await to({ set: ["logger.level=warn", "mqtt.inflightMax=7"] });
  await to({ set: ["logger.level=warn", "mqtt.inflightMax=7"] });
  await to({ set: ["logger.level=info"] });
  expect(events.slice(1)).toEqual([
    { event: "node.reloaded", now: [], atNextStart: ["mqtt.inflightMax: 1000 -> 7"] },
    { event: "node.reloaded", now: ["logger.level: warn -> info"], atNextStart: [] },
  ]);
});

test("with a fault in it nothing changes, and the fault is told", async () => {
  const { to, events, applied } = world({});
  await to({ set: ["logger.level=debug", "mqtt.inflightMx=7"] });
  expect(applied).toEqual([]);
  expect(events).toEqual([
    {
      event: "node.reload_refused",
      reason: expect.stringContaining('did you mean "inflightMax"?'),
    },
  ]);
});

test("one that was asked for and refused is told to who asked, and in the log", async () => {
  const { configuration, events } = world({});
  configuration.secureWith(() => Promise.reject(new Error("line 3 of users.txt")));
  await expect(configuration.reload(false)).rejects.toThrow("line 3 of users.txt");
  expect(events).toEqual([{ event: "node.reload_refused", reason: "line 3 of users.txt" }]);
});

test("a dry run tells the difference and changes nothing", async () => {
  const { dry, configuration, events, applied } = world({});
  const changes = await dry({ set: ["logger.level=debug", "mqtt.inflightMax=7"] });
  expect(changes).toEqual([
    { path: "logger.level", from: "info", to: "debug", reload: "hot" },
    { path: "mqtt.inflightMax", from: "1000", to: "7", reload: "restart" },
  ]);
  expect(applied).toEqual([]);
  expect(events).toEqual([]);
  expect(configuration.values().find(({ path }) => path === "logger.level")?.value).toBe("info");
});

test("values in force are told with their origin", async () => {
  const { to, configuration } = world({ set: ["mqtt.inflightMax=7"] });
  await to({ set: ["mqtt.inflightMax=9", "logger.level=debug"] });
  const values = configuration.values();
  expect(values).toContainEqual({
    path: "logger.level",
    value: "debug",
    origin: "--set logger.level",
    reload: "hot",
  });
  expect(values.find(({ path }) => path === "mqtt.inflightMax")?.value).toBe("7");
});

test("users, keys and rules are read with it; what is wrong with them refuses all of it", async () => {
  const { to, configuration, events, applied } = world({});
  configuration.secureWith(() => Promise.reject(new Error("line 3 of users.txt")));
  await to({ set: ["logger.level=debug"] });
  expect(applied).toEqual([]);
  expect(events).toEqual([{ event: "node.reload_refused", reason: "line 3 of users.txt" }]);
  configuration.secureWith(async () => undefined);
  await to({ set: ["logger.level=debug"] });
  expect(applied.at(-1)?.logger.level).toBe("debug");
});

test("reloads at the same time go one after the other: what was read last holds", async () => {
  const { to, applied, configuration } = world({});
  const gates: Array<() => void> = [];
  configuration.secureWith(() => new Promise((resolve) => gates.push(resolve)));
  const first = to({ set: ["logger.level=debug"] });
  const second = to({ set: ["logger.level=error"] });
  // The one that was asked for last would be through first.
  for (let turn = 0; turn < 20 && gates.length < 2; turn++) await Promise.resolve();
  gates.pop()?.();
  for (let turn = 0; turn < 20 && gates.length < 1; turn++) await Promise.resolve();
  while (gates.length > 0) gates.pop()?.();
  await Promise.all([first, second]);
  expect(applied.at(-1)?.logger.level).toBe("error");
  const level = configuration.values().find(({ path }) => path === "logger.level");
  expect(level?.value).toBe("error");
});

test("a reload that was refused is known, with its reason, until one is not", async () => {
  const { to, dry, configuration, state } = world({});
  expect(configuration.refusal()).toBeUndefined();
  await to({ set: ["mqtt.inflightMax=lots"] });
  expect(configuration.refusal()).toMatchObject({ sinceMs: 1 });
  state.nowMs = 2;
  await to({ set: ["mqtt.receiveMaximum=lots"] });
  const refusal = configuration.refusal();
  expect(refusal?.sinceMs).toBe(1);
  expect(refusal?.reason).toContain("mqtt.receiveMaximum");
  // Looking changes nothing, either way.
  await dry({});
  expect(configuration.refusal()).toEqual(refusal);
  await to({});
  expect(configuration.refusal()).toBeUndefined();
  await expect(dry({ set: ["mqtt.inflightMax=lots"] })).rejects.toThrow();
  expect(configuration.refusal()).toBeUndefined();
});

test("users and rules are read again by a reload and not by a dry run; a fault in them changes nothing", async () => {
  const { to, dry, configuration, applied } = world({});
  let reads = 0;
  let fault: Error | undefined;
  configuration.secureWith(async () => {
    reads++;
    if (fault !== undefined) throw fault;
  });
  await dry({ set: ["logger.level=debug"] });
  expect([reads, applied]).toEqual([0, []]);
  fault = new Error("line 3 of the rules");
  await to({ set: ["logger.level=debug"] });
  expect([reads, applied]).toEqual([1, []]);
  expect(configuration.refusal()?.reason).toBe("line 3 of the rules");
  fault = undefined;
  await to({ set: ["logger.level=debug"] });
  expect([reads, applied.length]).toEqual([2, 1]);
});
