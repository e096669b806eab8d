// What a command loads before its first output. Time says little on a busy machine; modules are counted
// instead, in the source as it is: imports that are erased do not count, those within functions do not
// either.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

const root = new URL("../../../", import.meta.url);

type Loaded = { readonly modules: ReadonlySet<string>; readonly packages: ReadonlySet<string> };

function loadedBy(entries: readonly string[]): Loaded {
  const modules = new Set<string>();
  const packages = new Set<string>();
  const visit = (path: string): void => {
    if (modules.has(path)) return;
    modules.add(path);
    const text = readFileSync(new URL(path, root), "utf8");
    for (const [, specifier = ""] of text.matchAll(
      /^(?:import|export) (?!type )(?:[^;"]*? from )?"([^"]+)";/gm,
    )) {
      if (specifier.startsWith(".")) {
        visit(new URL(specifier, new URL(path, "file:///")).pathname.slice(1));
      } else if (!specifier.startsWith("node:")) packages.add(specifier);
    }
  };
  for (const entry of entries) visit(entry);
  return { modules, packages };
}

const rows = readFileSync(new URL("src/cli/commands/rows.ts", root), "utf8");
const files = [...rows.matchAll(/name: "(\w+)",[^}]*?import\("\.\/([\w-]+\.ts)"\)/g)].map(
  ([, name = "", file = ""]): [string, string] => [name, `src/cli/commands/${file}`],
);
const base = loadedBy(["src/base/index.ts"]).modules.size;

/** Of the floor. */
const basePackages = ["lru-cache", "ws"];
/** What `start` runs is more than all others together: its first output is that of a running node. */
const heavier: Readonly<Record<string, number>> = { pub: 70, sub: 70, config: 70 };

test.each(files.filter(([name]) => name !== "start"))(
  "%s loads the floor, commander and a handful of modules before its first output",
  (name, file) => {
    const { modules, packages } = loadedBy(["src/cli/entry.ts", file]);
    const known = [...basePackages, "commander", ...(name === "config" ? ["valibot", "yaml"] : [])];
    expect([...packages].filter((each) => !known.includes(each))).toEqual([]);
    expect(modules.size).toBeLessThan(base + (heavier[name] ?? 35));
  },
);

test("explain CODE loads the tables of errors, and no room that has one", () => {
  const explain = "src/cli/commands/explain.ts";
  const { modules, packages } = loadedBy(["src/cli/entry.ts", explain, "src/cli/error-tables.ts"]);
  expect([...packages].sort()).toEqual(["commander", ...basePackages]);
  expect(modules.size).toBeLessThan(base + 35);
  for (const room of ["broker", "store", "session", "node"]) {
    expect([...modules].filter((path) => path.startsWith(`src/${room}/`))).toEqual([
      `src/${room}/errors.ts`,
    ]);
  }
});
