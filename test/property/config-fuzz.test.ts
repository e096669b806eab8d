// Options of databases, which are nested, named by the user and come from file, environment and flags:
// whatever they hold is taken as a whole or refused with what and where, and never a fault of ours.

import fc from "fast-check";
import { expect, test } from "vitest";
import { isCodedError } from "../../src/base/index.ts";
import { type Config, type ConfigSources, readConfig } from "../../src/node/config/config.ts";
import { showConfig } from "../../src/node/config/show.ts";
import { dataPaths, storeSettings } from "../../src/node/room-settings.ts";
import { amount } from "../support/amount.ts";

const names = fc.constantFrom(
  "messages",
  "state",
  "metrics",
  "a-b",
  "__proto__",
  "constructor",
  "",
);
const counts = fc.constantFrom<unknown>(0, 1, 3, 10, 256, 16_384, 100_001, -1, 1.5, 1e21, "7", "x");
const sizes = fc.constantFrom<unknown>(
  "0",
  0,
  "64KiB",
  "1MiB",
  "1.5GiB",
  "9TiB",
  "5",
  "-1B",
  "1kb",
);
const times = fc.constantFrom<unknown>("0", 0, "8s", "7d", "1h30m", "99999999d", "5", "-1s", "1.5");
const texts = fc.constantFrom<unknown>("#", "a/+", "a/#/b", "m=1/2", "m=0", "=1", "$share/g/a", "");
const lists = fc.oneof(fc.array(texts, { maxLength: 4 }), texts, fc.constant({ a: ["#"] }));
const odd = fc.oneof(
  fc.jsonValue({ maxDepth: 3 }),
  fc.constantFrom<unknown>(null, true, [], {}, "__proto__", "\u0000", "\ud800", "é\u202e", "#"),
);

/** Mostly of the kind that belongs there. */
const value = (right: fc.Arbitrary<unknown>) =>
  fc.oneof({ weight: 5, arbitrary: right }, { weight: 1, arbitrary: odd });

const layoutOptions = fc.record(
  {
    rootThreshold: value(counts),
    threshold: value(counts),
    rootThresholds: value(lists),
    streamsMax: value(counts),
    trieBytesMax: value(sizes),
    patterns: value(lists),
    pattern: value(lists),
  },
  { requiredKeys: [] },
);
const database = fc.record(
  {
    layout: value(fc.constantFrom("log", "map", "Log", "")),
    shards: value(counts),
    topics: value(lists),
    retention: value(
      fc.record({ age: value(times), size: value(sizes), ages: odd }, { requiredKeys: [] }),
    ),
    layoutOptions: value(layoutOptions),
  },
  { requiredKeys: [] },
);
const databases = fc.dictionary(fc.oneof(names, fc.string()), value(database), { maxKeys: 3 });

/** The settings, or the text of what is wrong with them. */
function read(sources: ConfigSources): Config | string {
  try {
    return readConfig(sources);
  } catch (error) {
    if (isCodedError(error, "CONFIG_INVALID")) return error.message;
    throw error;
  }
}

const file = (text: string) => ({ name: "f.yaml", bytes: Buffer.from(text) });

test("nested options of databases in a file are taken as a whole, or refused by their place", () => {
  let taken = 0;
  fc.assert(
    fc.property(databases, (each) => {
      const found = read({ file: file(JSON.stringify({ databases: each }, null, 1)) });
      if (typeof found === "string") {
        expect(found).toMatch(/^f\.yaml:\d+:\d+: /);
        expect(found).toMatch(/\d+ faults? in the configuration$/);
        return;
      }
      taken++;
      // What is taken is understood by the rooms, and is the same when it is shown and read again.
      storeSettings(found.settings, dataPaths("data"));
      const again = read({ file: file(showConfig(found.effective, { origin: false })) });
      expect(typeof again === "string" ? again : again.settings).toEqual(found.settings);
    }),
    { numRuns: amount(200, 600) },
  );
  expect(taken).toBeGreaterThan(20);
});

test("the same from flags and from the environment", () => {
  const path = fc.constantFrom(
    ...["layout", "shards", "topics", "retention.age", "retention.size", "layoutOptions.patterns"],
    ...["layoutOptions.rootThresholds", "layoutOptions.streamsMax", "layoutOptions", "x", "", "."],
  );
  const given = fc.oneof(counts, sizes, times, texts, fc.string()).map(String);
  fc.assert(
    fc.property(names, path, given, (name, key, text) => {
      const bySet = read({ set: [`databases.${name}.${key}=${text}`] });
      const variable = `FLAGSTONE__DATABASES__${name}__${key.replaceAll(".", "__")}`.toUpperCase();
      const byEnvironment = read({ environment: { [variable]: text } });
      for (const found of [bySet, byEnvironment]) {
        if (typeof found === "string") {
          expect(found).toMatch(/(^|\n)(--set databases|environment FLAGSTONE__DATABASES)/);
        } else storeSettings(found.settings, dataPaths("data"));
      }
    }),
    { numRuns: amount(200, 500) },
  );
});
