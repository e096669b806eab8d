import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { readConfig } from "../../../../src/node/config/config.ts";
import { configurationSchema, formatSchema } from "../../../../src/node/config/json-schema.ts";
import { keyTable } from "../../../../src/node/config/keys.ts";
import { configurationReference } from "../../../../src/node/config/reference.ts";
import { showConfig } from "../../../../src/node/config/show.ts";
import { fieldsOf } from "../../../../src/node/config/walk.ts";

const root = new URL("../../../../", import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, root), "utf8");

test("docs/reference/configuration.md is what the key table says (else: npm run docs)", () => {
  expect(read("docs/reference/configuration.md")).toBe(configurationReference(keyTable));
});

test("config/flagstone.schema.json is what the key table says (else: npm run docs)", () => {
  expect(read("config/flagstone.schema.json")).toBe(formatSchema(configurationSchema(keyTable)));
});

test("the example file changes nothing as it stands", () => {
  const bytes = Buffer.from(read("config/flagstone.yaml"));
  expect(readConfig({ file: { name: "e", bytes } }).settings).toEqual(readConfig({}).settings);
});

test("every commented line of the example file is the default of its key", () => {
  const text = read("config/flagstone.yaml").replace(/^( *)# (?=( *)\w+:)/gm, "$1");
  const config = readConfig({ file: { name: "e", bytes: Buffer.from(text) } });
  expect(config.settings).toEqual(readConfig({}).settings);
  const written = [...config.effective.values()].filter(({ place }) => place.kind === "file");
  expect(written.length).toBeGreaterThanOrEqual(12);
});

test("the shown configuration reads back as itself", () => {
  const set = [
    "data.dir=/var/lib/my data",
    "mqtt.userPropertiesMax=0",
    "groups.default.writeBuffer=20GiB",
    'databases.messages.layoutOptions.patterns=[sensors/#, "a b/+", $share]',
    "listeners.six.host=::",
    "authentication.chain=[certificate, anonymous]",
    "listeners.six.port=1",
    "log.flushIntervalMs=5",
  ];
  const first = readConfig({ set });
  const text = showConfig(first.effective, { origin: false });
  const again = readConfig({ file: { name: "shown", bytes: Buffer.from(text) } });
  expect(again.settings).toEqual(first.settings);
});

test("the shown configuration says where each value came from", () => {
  const { effective } = readConfig({
    file: { name: "f.yaml", bytes: Buffer.from("mqtt:\n  inflightMax: 7\n") },
    environment: { FLAGSTONE__MQTT__PUBLISH_WAIT: "3s" },
    set: ["data.dir=x"],
  });
  const text = showConfig(effective, { origin: true }).replace(/ +# /g, " # ");
  expect(text).toContain("data:\n  dir: x # --set data.dir\n");
  expect(text).toContain("  inflightMax: 7 # f.yaml:2:16\n");
  expect(text).toContain("publishWait: 3s");
  expect(text).toContain("# environment FLAGSTONE__MQTT__PUBLISH_WAIT\n");
  expect(text).toContain("  receiveMaximum: 1000 # default\n");
});

test("the JSON Schema and the reference name every key", () => {
  const schema = formatSchema(configurationSchema(keyTable));
  const reference = configurationReference(keyTable);
  for (const { key, field } of fieldsOf(keyTable)) {
    expect(schema).toContain(`"${key}": {`);
    expect(reference).toContain(`| \`${key}\` |`);
    expect(field.doc).toMatch(/^[A-Z`].*[.]$/);
  }
});
