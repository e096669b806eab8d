// docs/reference/configuration.md out of the key table.

import { environmentName } from "./environment.ts";
import { type Entries, type Entry, type Field, type Named, parseValue } from "./schema.ts";

export function configurationReference(table: Entries): string {
  const parts = [intro];
  for (const [key, entry] of Object.entries(table)) parts.push(section(key, entry));
  return `${parts.join("\n\n")}\n`;
}

const intro = `# Configuration

<!-- Made by \`npm run docs\` from the key table; do not edit by hand. -->

No file is needed: every key has a default. What is given counts in this order: a flag of the
command line (\`--port\`, then \`--set path=value\`), the environment, the file of \`--config\`, the
default. \`flagstone config show --origin\` prints every value that holds and where it came from;
\`flagstone config check\` names every fault at once, with file, line and column. An unknown key is
a fault wherever it stands.

- **File**: YAML, UTF-8. \`config/flagstone.yaml\` is an example, \`config/flagstone.schema.json\`
  lets an editor check and complete it.
- **Environment**: \`FLAGSTONE__\` and the path with levels parted by two underscores. Case and
  single underscores do not count: \`FLAGSTONE__MQTT__PUBLISH_WAIT=15s\` is
  \`mqtt.publishWait\`. A secret can be read from a file: \`..._FILE=/run/secrets/name\`.
- **Flag**: \`--set mqtt.publishWait=15s\`, as often as needed; the last one of a key wins.

**Values** carry their unit: durations \`500ms\`, \`15s\`, \`10m\`, \`24h\`, \`7d\` or
\`1h30m\`; sizes \`10B\`, \`64KiB\`, \`256MiB\`, \`2GiB\`, \`1TiB\`. A key that ends in \`Ms\`
or \`Bytes\` also takes the bare number. Lists in the environment or a flag: one item, or \`[a, b]\`.

**0** has one meaning a key. Where a limit can be lifted, 0 lifts it ("no limit"); where it cannot,
0 is refused; where 0 is an amount like any other, the row says what it does.

**hot** keys take hold when SIGHUP makes a running node read its configuration again, **restart**
keys at the next start. With a fault in it, nothing changes.`;

function section(path: string, entry: Entry): string {
  if (entry.node === "field") return table(path, { [path]: entry });
  const below = entry.node === "named" ? `.<${entry.label}>` : "";
  const fields: Record<string, Field> = {};
  const deeper: string[] = [];
  for (const [key, inner] of Object.entries(entry.entries)) {
    if (inner.node === "field") fields[key] = inner;
    else deeper.push(section(`${path}${below}.${key}`, inner));
  }
  const head = [`## ${path}${below}`, entry.doc];
  if (entry.node === "named") head.push(builtIn(entry));
  const own = Object.keys(fields).length === 0 ? [] : [table(`${path}${below}`, fields)];
  return [...head, ...own, ...deeper].join("\n\n");
}

function builtIn(entry: Named): string {
  const names = Object.entries(entry.builtIn).map(([name, values]) => {
    const facts = Object.entries(values).map(([key, raw]) => {
      const field = entry.entries[key];
      return field?.node === "field" ? `${key} ${showRaw(field, raw)}` : "";
    });
    return facts.length === 0 ? `\`${name}\`` : `\`${name}\` (${facts.join(", ")})`;
  });
  const rule =
    entry.builtInWhenNamed === "kept"
      ? "Always there"
      : `There while no ${entry.label} is named otherwise`;
  return `${rule}: ${names.join(", ")}.`;
}

function table(path: string, fields: Readonly<Record<string, Field>>): string {
  const rows = Object.entries(fields).map(([key, field]) => row(field, key));
  const example = Object.keys(fields)[0];
  const sample = path.includes("<") ? path.replace(/<\w+>/, "NAME") : path;
  const name = example === undefined ? "" : environmentName(`${sample}.${example}`);
  return [
    "| key | default | allowed | change | meaning |",
    "|---|---|---|---|---|",
    ...rows,
    "",
    `Environment: \`${name}\` and so on.`,
  ].join("\n");
}

function row(field: Field, key: string): string {
  const fallback = field.fallback === undefined ? "*required*" : showRaw(field, field.fallback);
  return `| \`${key}\` | ${fallback} | ${allowed(field)} | ${field.reload} | ${field.doc} |`;
}

function allowed(field: Field): string {
  const choices = field.choices?.map((name) => `\`${name}\``).join(", ");
  const kinds: Partial<Record<Field["kind"], string>> = {
    flag: "`true`, `false`",
    text: field.expected,
    secret: "a secret text",
    list: field.expected,
  };
  const form = choices ?? kinds[field.kind] ?? field.range ?? field.expected;
  return field.zero === undefined ? form : `${form}; 0: ${field.zero}`;
}

function showRaw(field: Field, raw: string | readonly string[]): string {
  if (typeof raw === "string") return `\`${raw}\``;
  const parsed = parseValue(field, raw);
  return `\`${parsed.issue === undefined ? field.format(parsed.value) : raw.join(", ")}\``;
}
