import { describe, expect, test } from "vitest";
import {
  type ConfigSources,
  createSettings,
  readConfig,
  readSources,
} from "../../../../src/node/config/config.ts";
import type { Fault } from "../../../../src/node/config/fault.ts";
import { formatFaults } from "../../../../src/node/config/fault.ts";
import { keyTable } from "../../../../src/node/config/keys.ts";
import { describePlace } from "../../../../src/node/config/place.ts";
import { count, named, noLimit, parseValue, secret } from "../../../../src/node/config/schema.ts";
import { fieldsOf } from "../../../../src/node/config/walk.ts";

const yaml = (text: string): NonNullable<ConfigSources["file"]> => ({
  name: "f.yaml",
  bytes: Buffer.from(text),
});

test("no source at all gives the documented defaults", () => {
  const settings = createSettings();
  expect(settings.data.dir).toBe("./data");
  expect(settings.listeners).toMatchObject({ tcp: { host: "127.0.0.1", port: 1883 } });
  expect(settings.log).toMatchObject({
    segmentBytes: 64 * 2 ** 20,
    flushIntervalMs: 0,
    maxItems: 4096,
    idleFlushIntervalMs: 0,
    onDamage: "quarantine",
  });
  expect(settings.mqtt).toMatchObject({
    maxPacketSizeBytes: 8 * 2 ** 20,
    receiveMaximum: 1000,
    inflightMax: 1000,
    topicAliasMaximum: 16,
    topicLevelsMax: 128,
    userPropertiesMax: 64,
    subscriptionsMax: 1000,
    subscriptionBytesMax: 1_048_576,
    sessionExpiryMsMax: 7 * 86_400_000,
    outboundBufferBytesMax: 4 * 2 ** 20,
    publishWaitMs: 15_000,
    subscribeWaitMs: 10_000,
    connectWaitMs: 15_000,
    connectionsMax: 100_000,
    storeQos0: false,
    preAuthBytes: 64 * 1024,
    preAuthTimeMs: 10_000,
    preAuthSocketsPerAddress: 64,
    restartGraceMs: 30_000,
  });
  expect(settings.store).toMatchObject({
    blockCacheBytes: 64 * 2 ** 20,
    checkpointBytes: 64 * 2 ** 20,
    checkpointAgeMs: 60_000,
    topicCacheMax: 100_000,
  });
  expect(settings.groups).toEqual({
    default: {
      ...{ databases: [], quotaBytes: 0, onFull: "refuse", fsync: "always" },
      ...{ writeBufferBytes: 256 * 2 ** 20, workSlots: 2 },
    },
  });
  expect(settings.databases.messages).toMatchObject({
    shards: 4,
    layoutOptions: { rootThreshold: 100, threshold: 10, streamsMax: 256, patterns: [] },
  });
  expect(settings.databases.state).toMatchObject({ layout: "map", shards: 4 });
});

test("a flag wins over --set, --set over the environment, that over the file, that over the default", () => {
  const sources = {
    file: yaml("mqtt: {inflightMax: 1, receiveMaximum: 1, topicLevelsMax: 1, subscriptionsMax: 1}"),
    environment: {
      FLAGSTONE__MQTT__INFLIGHT_MAX: "2",
      FLAGSTONE__MQTT__RECEIVE_MAXIMUM: "2",
      FLAGSTONE__MQTT__TOPIC_LEVELS_MAX: "2",
    },
    set: ["mqtt.inflightMax=3", "mqtt.receiveMaximum=3"],
    flags: [
      {
        path: ["mqtt", "inflightMax"],
        text: "4",
        place: { kind: "flag", label: "--window" } as const,
      },
    ],
  };
  const { settings, effective } = readConfig(sources);
  expect(settings.mqtt).toMatchObject({
    inflightMax: 4,
    receiveMaximum: 3,
    topicLevelsMax: 2,
    subscriptionsMax: 1,
    userPropertiesMax: 64,
  });
  const origin = (key: string) => describePlace(effective.get(`mqtt.${key}`)!.place);
  expect(origin("inflightMax")).toBe("--window");
  expect(origin("receiveMaximum")).toBe("--set mqtt.receiveMaximum");
  expect(origin("topicLevelsMax")).toBe("environment FLAGSTONE__MQTT__TOPIC_LEVELS_MAX");
  expect(origin("subscriptionsMax")).toBe("f.yaml:1:80");
  expect(origin("userPropertiesMax")).toBe("default");
});

test("the last of two --set of one key wins", () => {
  const { settings } = readConfig({ set: ["mqtt.inflightMax=3", "mqtt.inflightMax=5"] });
  expect(settings.mqtt.inflightMax).toBe(5);
});

test("case and single underscores of environment names do not count", () => {
  for (const name of ["MQTT__PUBLISHWAIT", "mqtt__publishWait", "MQTT__PUBLISH_WAIT"]) {
    const { settings } = readConfig({ environment: { [`FLAGSTONE__${name}`]: "3s" } });
    expect(settings.mqtt.publishWaitMs).toBe(3000);
  }
});

test("environment names reach entries that the file names, whatever their case", () => {
  const { settings } = readConfig({
    file: yaml("listeners: {inner-lan: {port: 2883}}\n"),
    environment: {
      FLAGSTONE__LISTENERS__INNER_LAN__PORT: "2884",
      FLAGSTONE__LISTENERS__FRESH__PORT: "2885",
      FLAGSTONE__DATABASES__MESSAGES__LAYOUT_OPTIONS__PATTERNS: '[a/#, "b/+"]',
    },
  });
  expect(settings.listeners["inner-lan"]?.port).toBe(2884);
  expect(settings.listeners.fresh?.port).toBe(2885);
  expect(settings.databases.messages!.layoutOptions.patterns).toEqual(["a/#", "b/+"]);
});

test("variables that are not ours are left alone", () => {
  const environment = { FLAGSTONE_PORT: "tcp://10.0.0.1:1883", FLAGSTONE: "x", OTHER__A: "1" };
  expect(readConfig({ environment }).settings).toEqual(readConfig({}).settings);
});

test("a program gets what a launched node gets, but for a door that it did not ask for", () => {
  const { admin, ...rest } = readConfig({}).settings;
  expect(admin.enabled).toBe(true);
  expect(createSettings()).toEqual({ ...rest, admin: { ...admin, enabled: false } });
  expect(createSettings({ admin: { enabled: true } }).admin.enabled).toBe(true);
});

test("naming a listener replaces the built-in one", () => {
  const { settings } = readConfig({ file: yaml("listeners: {inner: {port: 2883}}\n") });
  expect(Object.keys(settings.listeners)).toEqual(["inner"]);
  expect(settings.listeners.inner).toMatchObject({ host: "127.0.0.1", port: 2883 });
});

test("names may be added to built-in ones, where the table says so", () => {
  const table = {
    sets: named(
      {
        doc: "",
        label: "set",
        builtIn: { first: {}, second: { size: "7" } },
        builtInWhenNamed: "kept",
      },
      { size: count({ doc: "", reload: "restart", fallback: "1", min: 1, max: 9 }) },
    ),
  };
  const faults: Fault[] = [];
  const resolved = readSources(table, { file: yaml("sets: {third: , first: {size: 3}}") }, faults);
  expect(faults).toEqual([]);
  expect(resolved.settings).toEqual({
    sets: { first: { size: 3 }, second: { size: 7 }, third: { size: 1 } },
  });
});

test("a key whose name has the unit takes the bare number, others do not", () => {
  const { settings } = readConfig({
    file: yaml("log: {flushIntervalMs: 5, segmentBytes: 16777216}"),
  });
  expect(settings.log.flushIntervalMs).toBe(5);
  expect(settings.log.segmentBytes).toBe(16 * 2 ** 20);
  expect(() => readConfig({ file: yaml("mqtt: {publishWait: 5}") })).toThrow('did you mean "5s"?');
});

test("a unit that is a property of every object is none", () => {
  const got = 'got "5constructor", expected a duration';
  expect(() => readConfig({ set: ["mqtt.publishWait=5constructor"] })).toThrow(got);
  expect(() => readConfig({ set: ["mqtt.publishWait=5constructor"] })).not.toThrow("native code");
});

test("a text that looks like a number keeps its spelling", () => {
  const { settings } = readConfig({
    file: yaml(
      "data: {dir: 1.10}\nauthentication: {chain: [anonymous]}\nlisteners: {tcp: {host: 0x7f}}",
    ),
  });
  expect(settings.data.dir).toBe("1.10");
  expect(settings.listeners.tcp?.host).toBe("0x7f");
});

test("0 lifts every limit that can be lifted", () => {
  const { settings } = readConfig({
    set: ["mqtt.userPropertiesMax=0", "mqtt.sessionExpiryMax=0"],
  });
  expect(settings.mqtt.userPropertiesMax).toBe(noLimit);
  expect(settings.mqtt.sessionExpiryMsMax).toBe(noLimit);
});

test("an embedder's object is checked like a file and its faults name the path", () => {
  expect(createSettings({ mqtt: { inflightMax: 5 } }).mqtt.inflightMax).toBe(5);
  expect(
    createSettings({ databases: { messages: { layoutOptions: { patterns: ["a/#"] } } } }).databases
      .messages!.layoutOptions.patterns,
  ).toEqual(["a/#"]);
  expect(() => createSettings({ mqtt: { inflightMx: 5 } })).toThrow(
    'settings.mqtt.inflightMx: unknown key "mqtt.inflightMx"; did you mean "inflightMax"?',
  );
});

describe("every key of the table", () => {
  const fields = [...fieldsOf(keyTable)];

  test.each(fields.map(({ path, field }) => [path, field] as const))(
    "%s: its default is valid and prints as it is written",
    (_path, field) => {
      if (field.fallback === undefined) return;
      const parsed = parseValue(field, field.fallback);
      expect(parsed.issue).toBeUndefined();
      if (parsed.issue === undefined && typeof field.fallback === "string") {
        expect(field.format(parsed.value)).toBe(field.fallback);
      }
    },
  );

  test.each(
    fields.filter(({ field }) => field.kind !== "list").map((row) => [row.path, row] as const),
  )("%s: 0 does what its row says", (_path, { field }) => {
    const numeric = ["duration", "size", "count", "port"].includes(field.kind);
    if (!numeric) return;
    const parsed = parseValue(field, "0");
    if (field.zero === undefined) expect(parsed.issue).toBe("range");
    else if (field.zero !== "no limit") expect(parsed).toEqual({ value: 0 });
    else expect(parsed).toEqual({ value: noLimit });
  });
});

describe("a secret", () => {
  const table = { auth: { node: "group", doc: "", entries: { token: secretField() } } } as const;

  function secretField() {
    return secret({ doc: "", reload: "hot", fallback: "none", pattern: /^[a-z]+$/ });
  }

  test("comes from the file that _FILE names, without its last line end", () => {
    const faults: Fault[] = [];
    const resolved = readSources(
      table,
      {
        environment: { FLAGSTONE__AUTH__TOKEN_FILE: "/run/token" },
        readSecret: (path) => (path === "/run/token" ? { text: "abc\n" } : { reason: "gone" }),
      },
      faults,
    );
    expect(faults).toEqual([]);
    expect(resolved.settings).toEqual({ auth: { token: "abc" } });
  });

  test("that does not fit never appears in a fault's own words", () => {
    const faults: Fault[] = [];
    readSources(table, { environment: { FLAGSTONE__AUTH__TOKEN: "S3CRET!" } }, faults);
    expect(formatFaults(faults)).toContain("got a secret, expected a secret text");
    expect(formatFaults(faults)).not.toContain("S3CRET");
  });

  test("in a file that does not fit is not shown by the source line either", () => {
    const faults: Fault[] = [];
    readSources(table, { file: yaml("auth: {token: S3CRET!}\n") }, faults);
    expect(formatFaults(faults)).not.toContain("S3CRET");
  });

  test("whose file is missing is a fault with the reason", () => {
    const faults: Fault[] = [];
    const sources = {
      environment: { FLAGSTONE__AUTH__TOKEN_FILE: "/run/token" },
      readSecret: () => ({ reason: "no such file" }),
    };
    readSources(table, sources, faults);
    expect(formatFaults(faults)).toContain("auth.token: cannot read the file: no such file");
  });

  test("is masked wherever it is printed", () => {
    expect(secretField().format("abc")).toBe("********");
  });
});

test("a key that is no secret cannot be read from a file", () => {
  expect(() => readConfig({ environment: { FLAGSTONE__DATA__DIR_FILE: "/x" } })).toThrow(
    "environment FLAGSTONE__DATA__DIR_FILE: data.dir: only secrets can be read from a file",
  );
});
