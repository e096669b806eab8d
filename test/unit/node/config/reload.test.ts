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
  const configuration = new RunningConfiguration(readConfig(atStart), {
    read: () => readConfig(sources),
    apply: (settings) => applied.push(settings),
    logger,
  });
  const to = (next: ConfigSources): void => {
    sources = next;
    configuration.onSignal();
  };
  const dry = (next: ConfigSources): ConfigChange[] => {
    sources = next;
    return configuration.reload(true);
  };
  return { to, dry, configuration, events, applied };
}

test("a hot key takes hold, the others wait for a restart, and both are told", () => {
  const { to, events, applied } = world({});
  to({ set: ["logger.level=debug", "mqtt.inflightMax=7", "listeners.six.port=1"] });
  expect(events).toEqual([
    {
      event: "node.reloaded",
      now: ["logger.level: info -> debug"],
      atNextStart: [
        "listeners.tcp.host: 127.0.0.1 -> none",
        "listeners.tcp.port: 1883 -> none",
        "mqtt.inflightMax: 1000 -> 7",
        "listeners.six.host: none -> 127.0.0.1",
        "listeners.six.port: none -> 1",
      ],
    },
  ]);
  expect(applied.at(-1)?.logger.level).toBe("debug");
});

test("what has taken hold is told once, what waits at every reload, what was taken back never", () => {
  const { to, events } = world({});
  to({ set: ["logger.level=warn", "mqtt.inflightMax=7"] });
  to({ set: ["logger.level=warn", "mqtt.inflightMax=7"] });
  to({ set: ["logger.level=info"] });
  expect(events.slice(1)).toEqual([
    { event: "node.reloaded", now: [], atNextStart: ["mqtt.inflightMax: 1000 -> 7"] },
    { event: "node.reloaded", now: ["logger.level: warn -> info"], atNextStart: [] },
  ]);
});

test("with a fault in it nothing changes, and the fault is told", () => {
  const { to, events, applied } = world({});
  to({ set: ["logger.level=debug", "mqtt.inflightMx=7"] });
  expect(applied).toEqual([]);
  expect(events).toEqual([
    {
      event: "node.reload_refused",
      reason: expect.stringContaining('did you mean "inflightMax"?'),
    },
  ]);
});

test("a dry run tells the difference and changes nothing", () => {
  const { dry, configuration, events, applied } = world({});
  const changes = dry({ set: ["logger.level=debug", "mqtt.inflightMax=7"] });
  expect(changes).toEqual([
    { path: "logger.level", from: "info", to: "debug", reload: "hot" },
    { path: "mqtt.inflightMax", from: "1000", to: "7", reload: "restart" },
  ]);
  expect(applied).toEqual([]);
  expect(events).toEqual([]);
  expect(configuration.values().find(({ path }) => path === "logger.level")?.value).toBe("info");
});

test("values in force are told with their origin", () => {
  const { to, configuration } = world({ set: ["mqtt.inflightMax=7"] });
  to({ set: ["mqtt.inflightMax=9", "logger.level=debug"] });
  const values = configuration.values();
  expect(values).toContainEqual({
    path: "logger.level",
    value: "debug",
    origin: "--set logger.level",
    reload: "hot",
  });
  expect(values.find(({ path }) => path === "mqtt.inflightMax")?.value).toBe("7");
});
