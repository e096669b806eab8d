import { describe, expect, test } from "vitest";
import { brokerSettingsDefault } from "../../../src/broker/index.ts";
import { defaultLogSettings } from "../../../src/log/index.ts";
import { createSettings, readConfig } from "../../../src/node/config/config.ts";
import { keyTable, type Settings } from "../../../src/node/config/keys.ts";
import { type Field, parseValue } from "../../../src/node/config/schema.ts";
import { fieldsOf } from "../../../src/node/config/walk.ts";
import {
  adminSettings,
  brokerSettings,
  dataPaths,
  logSettings,
  sessionSettings,
  storeSettings,
} from "../../../src/node/room-settings.ts";
import { sessionSettingsDefault } from "../../../src/session/index.ts";
import { storeSettingsDefault } from "../../../src/store/index.ts";

const paths = dataPaths("data");
const large = { freeBytes: 2 ** 40, totalBytes: 2 ** 40, type: "ext4" };

function roomsOf(settings: Settings): unknown {
  return {
    log: logSettings(settings, large),
    store: storeSettings(settings, paths),
    sessions: sessionSettings(settings),
    broker: brokerSettings(settings),
    admin: adminSettings(settings),
  };
}

describe("the defaults of the key table are those of the rooms", () => {
  const settings = createSettings();

  test("log", () => {
    expect(logSettings(settings, large)).toEqual({
      ...defaultLogSettings,
      recordBytesMax: 9 * 2 ** 20,
    });
  });

  test("store", () => {
    expect(storeSettings(settings, paths)).toEqual({
      ...storeSettingsDefault,
      dir: "data/db",
      quarantineDir: "data/quarantine",
      stateShards: 4,
    });
  });

  test("sessions", () => {
    expect(sessionSettings(settings)).toEqual(sessionSettingsDefault);
  });

  test("broker", () => {
    expect(brokerSettings(settings)).toEqual(brokerSettingsDefault);
  });
});

/** Another value that the key takes, as text. */
function otherText(path: string, field: Field): string {
  if (path.endsWith("rootThresholds")) return "[a=7/5]";
  if (field.kind === "flag") return field.fallback === "true" ? "false" : "true";
  if (field.kind === "list") return "[a/+]";
  const texts = field.choices ?? ["7", "500ms", "3s", "2KiB", "128KiB", "128MiB", "5000", "0"];
  const other = texts.find(
    (text) => text !== field.fallback && parseValue(field, text).issue === undefined,
  );
  expect(other).toBeDefined();
  return other as string;
}

/** Keys that the node itself obeys. */
const ownKeys = /^((data|listeners|authentication|authorization|logger|cluster)\.|admin\.enabled$)/;

test.each(
  [...fieldsOf(keyTable)].filter(({ path }) => !ownKeys.test(path)).map((row) => [row.path, row]),
)("%s reaches a room", (path, row) => {
  const { field } = row as { field: Field };
  // The layout of a built-in database is fixed.
  const database = path === "databases.<database>.layout" ? "metrics" : "messages";
  const key = path
    .replace("<database>", database)
    .replace("<group>", "default")
    .replace("<device>", "a");
  const changed = readConfig({ set: [`${key}=${otherText(path, field)}`] }).settings;
  const before = createSettings(path.startsWith("devices.") ? { devices: { a: {} } } : {});
  expect(roomsOf(changed)).not.toEqual(roomsOf(before));
});

test("limits that 0 lifts stay comparable numbers", () => {
  const { settings } = readConfig({
    set: ["mqtt.keepAliveMax=0", "mqtt.sessionExpiryMax=0", "mqtt.userPropertiesMax=0"],
  });
  expect(brokerSettings(settings)).toMatchObject({
    sessionExpiryMaxS: Number.POSITIVE_INFINITY,
    mqtt: { keepAliveMaxS: 0, userPropertiesMax: Number.POSITIVE_INFINITY },
  });
});

test("segments of a small volume are smaller, and as they were asked for when they fit", () => {
  const of = (totalBytes: number, segmentBytes = "64MiB"): number => {
    const settings = createSettings({ log: { segmentBytes } });
    return logSettings(settings, { ...large, totalBytes }).segmentBytes;
  };
  expect(of(300 * 2 ** 20)).toBe(9 * 2 ** 20);
  expect(of(2 ** 20)).toBe(2 ** 20);
  expect(of(2 ** 31)).toBe(64 * 2 ** 20);
  expect(of(2 ** 20, "128KiB")).toBe(128 * 2 ** 10);
});

test("thresholds by first level reach messages and databases of one's own", () => {
  const set = [
    "databases.messages.layoutOptions.rootThresholds=[metrics=1000/10, a=b=5]",
    "databases.other.layoutOptions.rootThresholds=[x=7]",
  ];
  const { lts, databases } = storeSettings(readConfig({ set }).settings, paths);
  expect(lts.rootThresholds).toEqual(
    new Map([
      ["metrics", [1000, 10]],
      ["a=b", [5]],
    ]),
  );
  expect(databases[0]?.layoutOptions?.rootThresholds).toEqual({ x: [7] });
  for (const bad of ["metrics", "=5", "a/b=5", "+=5", "a=0", "a=5/", "a=100001", "a=x"]) {
    const wrong = [`databases.messages.layoutOptions.rootThresholds=[${bad}]`];
    expect(() => readConfig({ set: wrong })).toThrow("is not a level and its thresholds");
  }
});

const takenOf = (parsed: ReturnType<typeof parseValue>): unknown =>
  "value" in parsed ? parsed.value : undefined;
const limits = [...fieldsOf(keyTable)].filter(({ field }) => field.range !== undefined);

test.each(
  limits.filter(({ path }) => !/^listeners\.|^devices\./.test(path)).map((row) => [row.path, row]),
)(
  "R119: %s means one thing at 0, and takes its default and both ends of its range",
  (_path, row) => {
    const { field } = row as { field: Field };
    const [min = "", max = ""] = (field.range ?? "").split(" to ");
    for (const text of [min, max, String(field.fallback ?? min)]) {
      if (!/^[\d.]/.test(text)) continue;
      const value = takenOf(parseValue(field, text));
      expect([text, value !== undefined]).toEqual([text, true]);
      // What is shown is what holds.
      expect(takenOf(parseValue(field, field.format(value)))).toEqual(value);
    }
    const zero = parseValue(field, "0");
    const isTaken = "value" in zero;
    // 0 is taken where the table says what it means, or where it is the lower end like any other value.
    const isLowerEnd = /^0(\D|$)/.test(min);
    expect(isTaken).toBe(field.zero !== undefined || isLowerEnd);
    if (field.zero === "no limit") expect(takenOf(zero)).toBe(Number.POSITIVE_INFINITY);
  },
);
