// Every test shows a source and the exact text its reader gets.

import { expect, test } from "vitest";
import { isCodedError } from "../../../../src/base/index.ts";
import { type ConfigSources, readConfig, readSources } from "../../../../src/node/config/config.ts";
import { type Fault, formatFaults } from "../../../../src/node/config/fault.ts";
import { named, port } from "../../../../src/node/config/schema.ts";
import { controlCharacters } from "../../../support/terminal.ts";

function faultsOf(sources: ConfigSources): string {
  try {
    readConfig(sources);
  } catch (error) {
    if (isCodedError(error, "CONFIG_INVALID")) return error.message;
    throw error;
  }
  return "no fault";
}

function faultsOfFile(text: string | Uint8Array): string {
  const bytes = typeof text === "string" ? Buffer.from(text) : text;
  return faultsOf({ file: { name: "f.yaml", bytes } });
}

function lines(...text: string[]): string {
  return text.join("\n");
}

test("a misspelt key is shown with line, column, caret and the nearest key", () => {
  expect(faultsOfFile("mqtt:\n  maxPacketsizes: 1MiB\n")).toBe(
    lines(
      'f.yaml:2:3: unknown key "mqtt.maxPacketsizes"; did you mean "maxPacketSize"?',
      "  2 |   maxPacketsizes: 1MiB",
      "    |   ^^^^^^^^^^^^^^",
      "1 fault in the configuration",
    ),
  );
});

test("a key that is at home elsewhere is named with its path", () => {
  expect(faultsOfFile("store:\n  writeBuffer: 1GiB\n")).toContain(
    'unknown key "store.writeBuffer"; did you mean "groups.<group>.writeBuffer"?',
  );
});

test("a key like nothing known lists what is known there", () => {
  expect(faultsOfFile("data:\n  zzzzz: 1\n")).toContain(
    'unknown key "data.zzzzz"; known here: dir',
  );
});

test("a value of the wrong form says got, expected, range and what was probably meant", () => {
  expect(faultsOfFile("mqtt:\n  publishWait: 15 sec\n")).toBe(
    lines(
      'f.yaml:2:16: mqtt.publishWait: got "15 sec", expected a duration such as 500ms, 15s or 7d; ' +
        'allowed 0 to 10m, 0: refused at once; did you mean "15s"?',
      "  2 |   publishWait: 15 sec",
      "    |                ^^^^^^",
      "1 fault in the configuration",
    ),
  );
});

test("a value out of range names the range and the meaning of 0", () => {
  expect(faultsOfFile("mqtt:\n  inflightMax: 70000\n  userPropertiesMax: 99999\n")).toBe(
    lines(
      'f.yaml:2:16: mqtt.inflightMax: got "70000", allowed 1 to 65535',
      "  2 |   inflightMax: 70000",
      "    |                ^^^^^",
      'f.yaml:3:22: mqtt.userPropertiesMax: got "99999", allowed 1 to 10000, 0: no limit',
      "  3 |   userPropertiesMax: 99999",
      "    |                      ^^^^^",
      "2 faults in the configuration",
    ),
  );
});

test("a limit that cannot be lifted refuses 0", () => {
  expect(faultsOfFile("mqtt: {inflightMax: 0}")).toContain('got "0", allowed 1 to 65535');
});

test("a misspelt choice names the choices and the nearest", () => {
  expect(faultsOfFile("log:\n  onDamage: quarantin\n")).toContain(
    'got "quarantin", expected one of quarantine, refuse; did you mean "quarantine"?',
  );
});

test("all faults of all sources come at once, in reading order", () => {
  const text = faultsOf({
    file: { name: "f.yaml", bytes: Buffer.from("mqtt:\n  inflightMax: many\nfoo: 1\n") },
    environment: { FLAGSTONE__MQTT__INFLIGHTMX: "5", FLAGSTONE__STORE__TOPIC_CACHE_MAX: "1" },
    set: ["mqtt.publishWait=soon", "nonsense", "mqtt=1"],
  });
  expect(text.split("\n").filter((line) => !line.startsWith("  "))).toEqual([
    'f.yaml:2:16: mqtt.inflightMax: got "many", expected a whole number; allowed 1 to 65535',
    'f.yaml:3:1: unknown key "foo"',
    'environment FLAGSTONE__MQTT__INFLIGHTMX: unknown key "mqtt.inflightmx"; ' +
      'did you mean "inflightMax"?',
    'environment FLAGSTONE__STORE__TOPIC_CACHE_MAX: store.topicCacheMax: got "1", allowed 100 to ' +
      "10000000",
    "--set nonsense: expected path=value, such as mqtt.publishWait=15s",
    '--set mqtt.publishWait: mqtt.publishWait: got "soon", expected a duration such as 500ms, 15s ' +
      "or 7d; allowed 0 to 10m, 0: refused at once",
    expect.stringContaining("--set mqtt: mqtt: is a group; set one of its keys: maxPacketSize,"),
    "7 faults in the configuration",
  ]);
});

test("a list, a map or nothing where one value belongs is a fault at its place", () => {
  const text = faultsOfFile(
    "mqtt:\n  inflightMax: [1, 2]\n  receiveMaximum:\n  publishWait: {a: 1}\n",
  );
  expect(text).toContain("f.yaml:2:16: mqtt.inflightMax: got a list, expected a whole number");
  expect(text).toContain("f.yaml:3:3: mqtt.receiveMaximum: got nothing, expected a whole number");
  expect(text).toContain("f.yaml:4:16: mqtt.publishWait: got keys below it, expected a duration");
});

test("a single value where keys belong is a fault", () => {
  expect(faultsOfFile("mqtt: 5\n")).toContain('f.yaml:1:7: mqtt: got "5", expected keys below it');
});

test("a file that is a list is refused", () => {
  expect(faultsOfFile("- a\n- b\n")).toContain(
    'expected keys such as "data:" at the top, got a list',
  );
});

test("names of listeners follow one rule", () => {
  expect(faultsOfFile("listeners:\n  My.Lan: {port: 1}\n")).toContain(
    'f.yaml:2:3: listeners: "My.Lan" is not a name: a lower-case letter, then up to 62 of',
  );
});

test("a tab as indentation is named", () => {
  expect(faultsOfFile("mqtt:\n\tinflightMax: 5\n")).toContain(
    "f.yaml:2:1: a tab cannot indent; use spaces",
  );
});

test("a key that stands twice is a fault at the second", () => {
  expect(faultsOfFile("mqtt: {}\nmqtt: {}\n")).toContain(
    "f.yaml:2:1: this key stands twice in the same place",
  );
});

// The parser calls itself for each level, and near the end of its stack V8 may end the process.
test.each([
  ["lists", `mqtt:\n  ${"[".repeat(100_000)}`, 2],
  ["maps", "{".repeat(33), 1],
  ["keys of keys", "a: [".repeat(33), 1],
  ["items of items", "- ".repeat(33), 1],
  ["keys that ask", `# a list\n${"? ".repeat(50_000)}`, 2],
  ["lines", Array.from({ length: 700 }, (_, n) => `${" ".repeat(n)}a:`).join("\n"), 514],
])("nesting without end is refused unparsed: %s", (_, text, line) => {
  expect(faultsOfFile(text)).toBe(
    `f.yaml: line ${line} nests more than 32 levels deep\n1 fault in the configuration`,
  );
});

test("brackets in texts and comments, and a long list in one line, are no nesting", () => {
  const list = Array.from({ length: 100 }, (_, n) => `{a: ${n}}`).join(", ");
  const text = `# ${"[".repeat(99)}\nx: "${"[{".repeat(99)}"\ny: 'a'\nz: [${list}]\n`;
  expect(faultsOfFile(text)).not.toContain("levels");
});

test("faults of syntax at one place are told once", () => {
  expect(faultsOfFile("[[[[")).toMatch(/\n1 fault in the configuration$/);
});

test("text in UTF-16 is refused in a plain sentence", () => {
  const sentence =
    "f.yaml: the file is not UTF-8 but looks like UTF-16 or UTF-32; save it as UTF-8\n1 fault";
  expect(faultsOfFile(Buffer.from("\uFEFFmqtt: {}", "utf16le"))).toContain(sentence);
  expect(faultsOfFile(Buffer.from("mqtt: {}", "utf16le"))).toContain(sentence);
  expect(faultsOfFile(Buffer.from("mqtt: {}", "utf16le").swap16())).toContain(sentence);
});

test("bytes that are not UTF-8 are refused", () => {
  expect(faultsOfFile(Buffer.from([0x61, 0x3a, 0xff, 0x0a]))).toContain("not valid UTF-8");
});

test("a byte order mark is tolerated and does not shift columns", () => {
  expect(faultsOfFile("\uFEFFmqtt: {}\n")).toBe("no fault");
  expect(faultsOfFile("\uFEFFfoo: 1\n")).toContain("f.yaml:1:1: unknown key");
});

test("line ends of Windows are tolerated", () => {
  expect(faultsOfFile("mqtt:\r\n  inflightMax: x\r\n")).toContain(
    lines("  2 |   inflightMax: x", "    |                ^", ""),
  );
});

test("an empty file, only comments, and groups with nothing below are no faults", () => {
  expect(faultsOfFile("")).toBe("no fault");
  expect(faultsOfFile("# nothing\n")).toBe("no fault");
  expect(faultsOfFile("mqtt:\nlisteners:\n")).toBe("no fault");
});

test("merge keys, custom tags and second documents are refused, not ignored", () => {
  expect(faultsOfFile("mqtt:\n  <<: {inflightMax: 5}\n")).toContain("merge keys");
  expect(faultsOfFile("mqtt: !include other.yaml\n")).toContain("custom tags (!name)");
  expect(faultsOfFile("mqtt: {}\n---\nmqtt: {}\n")).toContain("a second document");
  expect(faultsOfFile("mqtt: *nobody\n")).toContain("names no anchor above it");
});

test("an alias bomb is refused instead of filling memory", () => {
  const levels = Array.from({ length: 30 }, (_, index) =>
    index === 0
      ? "a0: &a0 [x, x, x, x, x, x, x, x, x]"
      : `a${index}: &a${index} [${Array(9)
          .fill(`*a${index - 1}`)
          .join(", ")}]`,
  );
  expect(faultsOfFile(levels.join("\n"))).toContain("more than 100 uses of aliases");
});

test("an alias that holds itself ends", () => {
  expect(faultsOfFile("mqtt: &m\n  inner: *m\n")).toContain('unknown key "mqtt.inner"');
});

test("a file larger than the limit is refused unread", () => {
  expect(faultsOfFile(Buffer.alloc(1024 * 1024 + 1, 0x23))).toContain("larger than 1MiB");
});

test("control characters of a file cannot reach the reader's terminal", () => {
  const text = faultsOfFile('"\\e]0;x\\x07": 1\nmqtt: {inflightMax: "\u009b31m"}\n');
  expect(controlCharacters(text)).toEqual([]);
});

test("a long line is cut around its fault", () => {
  const text = faultsOfFile(`mqtt: {${" ".repeat(400)}foo: 1}\n`);
  const [, source = "", caret = ""] = text.split("\n");
  expect(source.length).toBeLessThan(120);
  expect(source.slice(caret.indexOf("^"), caret.indexOf("^") + 3)).toBe("foo");
});

test("names of object prototypes are unknown keys like any other", () => {
  expect(faultsOfFile("constructor: 1\n__proto__: {a: 1}\n")).toMatch(
    /unknown key "constructor"[\s\S]*unknown key "__proto__"/,
  );
  expect(faultsOf({ set: ["toString.length=1"] })).toContain('unknown key "toString"');
});

test("a key that must be given is missing at the name it belongs to", () => {
  const faults: Fault[] = [];
  const must = { port: port({ doc: "A port.", reload: "restart" }) };
  const doc = { doc: "Doors.", label: "door", builtIn: {}, builtInWhenNamed: "kept" } as const;
  const bytes = Buffer.from("doors:\n  inner:\n");
  readSources({ doors: named(doc, must) }, { file: { name: "f.yaml", bytes } }, faults);
  expect(formatFaults(faults)).toContain(
    "f.yaml:2:3: doors.inner.port: is missing, expected a port number",
  );
});

test("a wrong value is not reported as missing too", () => {
  expect(faultsOfFile("listeners:\n  inner:\n    port: x\n")).toMatch(/1 fault in/);
});

test("rules between keys are faults at the value that was written", () => {
  const text = faultsOfFile(
    lines(
      "listeners: {a: {port: 1883}, b: {port: 1883}}",
      "databases: {messages: {layoutOptions: {patterns: [a/+/b, a+, '#/b']}}}",
    ),
  );
  expect(text).toContain(
    "f.yaml:1:40: listeners.b.port: 127.0.0.1:1883 is taken by listeners.a.port",
  );
  expect(text).toContain('patterns: "a+" is not a topic filter: wildcard not alone');
  expect(text).toContain('patterns: "#/b" is not a topic filter: hash not last');
  expect(text).toContain("3 faults");
});

test("unknown file keys keep the faults of their neighbours in sight", () => {
  expect(faultsOfFile("data: {dri: x}\nmqtt: {inflightMax: -1}\n")).toMatch(
    /did you mean "dir"\?[\s\S]*got "-1"[\s\S]*2 faults/,
  );
});

test.each([
  ["a misspelt key", "  secrt: hunter2hunter2", "  secrt: **************"],
  [
    "a key that is there twice",
    "  secret: hunter2\n    secret: 'hunter2'",
    "    secret: *********",
  ],
  [
    "a line that is broken",
    '  {"secret": "hunter2", bearer: hunter2',
    '  {"secret": *********, bearer: *******',
  ],
])("%s does not show the secret on its line", (_name, text, shown) => {
  const told = faultsOfFile(`authentication:\n  jwt:\n  ${text}\n`);
  expect(told).toContain(shown);
  expect(told).not.toContain("hunter2");
});

test("a URL that only looks as if it named a user is good", () => {
  const url = "https://auth.example/login?as=a@b";
  expect(faultsOfFile(`authentication:\n  http: {url: "${url}"}\n`)).toBe("no fault");
});
