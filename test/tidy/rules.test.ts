// Every tidy rule is shown a clean tree and trees with one planted fault each: it must be silent on
// the first and see each of the others, and no rule may see what another rule is for.

import { describe, expect, test } from "vitest";
import { type RuleName, rules } from "./rules.ts";
import { createTree } from "./tree.ts";

const head = "// What this is.\n\n";
const lockEntry = { version: "1.2.3", integrity: "sha512-x" };
const lockOf = (packages: object, dependencies: object = { yaml: "1.2.3" }): string =>
  JSON.stringify({ lockfileVersion: 3, packages: { "": { dependencies }, ...packages } });

/** A small project without a fault. */
const clean: Readonly<Record<string, string>> = {
  "package.json": JSON.stringify({ dependencies: { yaml: "1.2.3" } }),
  "package-lock.json": lockOf({ "node_modules/yaml": lockEntry }),
  "README.md": "# House\n\nSee [the plan](docs/architecture.md#two-floors) and [itself](#house).\n",
  "docs/architecture.md": "# Plan\n\n## Two floors\n\n```\n[not a link](gone.md)\n```\n",
  "src/base/index.ts": '// The face.\nexport * from "./clock.ts";\n',
  "src/base/clock.ts": `${head}export const now = () => Date.now();\n`,
  "src/kv/index.ts": '// The face.\nexport * from "./kv.ts";\n',
  "src/kv/kv.ts": `${head}import { now } from "../base/index.ts";\nexport const at = now;\n`,
  "src/log/index.ts": `${head}import { now } from "../base/index.ts";\nexport const at = now;\n`,
  "src/store/core/lts.ts":
    `${head}import { now } from "../../base/index.ts";\n// await a Promise, setTimeout\n` +
    "export type Input = { process: number };\nexport const f = (i: Input) => [i.process, now];\n",
  "src/store/index.ts": '// The face.\nexport * from "./core/lts.ts";\n',
  "src/node/config/load.ts": `${head}import { parse } from "yaml";\nexport const load = parse;\n`,
  "src/node/index.ts": `${head}export const pid = process.pid;\n`,
  "test/unit/kv/kv.test.ts": 'import { test } from "vitest";\ntest("skip: it runs", () => {});\n',
};

/** rule -> what is planted -> the files that carry it, and where the fault must be seen. */
const planted: Record<RuleName, Record<string, Record<string, string | null>>> = {
  floors: {
    "a lower floor imports a higher one": {
      "src/base/clock.ts": `${head}import { f } from "../store/index.ts";\nexport const g = f;\n`,
    },
    "two rooms of one floor import each other": {
      "src/log/index.ts": `${head}import type { at } from "../kv/index.ts";\nexport type A = at;\n`,
    },
    "a dynamic import climbs": {
      "src/kv/kv.ts": `${head}export const g = () => import("../node/index.ts");\n`,
    },
    "a room without a floor": { "src/attic/index.ts": `${head}export const a = 1;\n` },
    "a file beside the rooms": { "src/main.ts": `${head}export const a = 1;\n` },
    "src leans on test": {
      "src/kv/kv.ts": `${head}export * from "../../test/unit/kv/kv.test.ts";\n`,
    },
    "the browser reaches for the store": {
      "src/ui/app.ts": `${head}import { f } from "../store/index.ts";\nexport const g = f;\n`,
    },
  },
  doors: {
    "a room is entered through a window": {
      "src/store/shard.ts": `${head}import { at } from "../kv/kv.ts";\nexport const g = at;\n`,
    },
  },
  barrels: { "a barrel inside a room": { "src/store/core/index.ts": head } },
  resolves: {
    "an import of a file that is not there": {
      "src/kv/kv.ts": `${head}export * from "./gone.ts";\n`,
    },
    "an import without its extension": {
      "src/kv/kv.ts": `${head}export * from "./index";\n`,
    },
  },
  cycles: {
    "two files import each other": {
      "src/store/a.ts": `${head}import { b } from "./b.ts";\nexport const a = () => b;\n`,
      "src/store/b.ts": `${head}import type { a } from "./a.ts";\nexport const b = {} as typeof a;\n`,
    },
    "a file imports itself through its room's face": {
      "src/kv/kv.ts": `${head}import { at as x } from "./index.ts";\nexport const at = x;\n`,
    },
    "three files in a ring": {
      "src/store/a.ts": `${head}export * from "./b.ts";\n`,
      "src/store/b.ts": `${head}export * from "./c.ts";\n`,
      "src/store/c.ts": `${head}export * from "./a.ts";\n`,
    },
  },
  homes: {
    "a package is used away from its home": {
      "src/kv/kv.ts": `${head}import { parse } from "yaml";\nexport const load = parse;\n`,
    },
    "a package has two homes": {
      "package.json": JSON.stringify({ dependencies: { yaml: "1.2.3", ws: "1.0.0" } }),
      "src/kv/a.ts": `${head}import ws from "ws";\nexport const a = ws;\n`,
      "src/kv/b.ts": `${head}import ws from "ws/lib";\nexport const b = ws;\n`,
    },
    "a package that is not installed with us": {
      "src/kv/a.ts": `${head}import ws from "ws";\nexport const a = ws;\n`,
    },
  },
  core: {
    "a built-in module": {
      "src/store/core/a.ts": `${head}import { inspect } from "node:util";\nexport { inspect };\n`,
    },
    "a third-party package": {
      "src/store/core/a.ts": `${head}import { LRUCache } from "lru-cache";\nexport { LRUCache };\n`,
    },
    "an async function": { "src/store/core/a.ts": `${head}export async function f() {}\n` },
    "a promise type": {
      "src/store/core/a.ts": `${head}export type F = () => Promise<void>;\n`,
    },
    "a timer": { "src/store/core/a.ts": `${head}export const f = () => setImmediate(f);\n` },
    "a microtask": { "src/store/core/a.ts": `${head}export const f = () => queueMicrotask(f);\n` },
    "a clock": { "src/store/core/a.ts": `${head}export const f = () => new Date(0);\n` },
    "a drawn number": { "src/store/core/a.ts": `${head}export const f = () => Math.random();\n` },
    "the system's clock from below": {
      "src/store/core/a.ts": `${head}import { systemClock } from "../../base/index.ts";\n`,
    },
  },
  globals: {
    "the wall clock": { "src/kv/kv.ts": `${head}export const at = Date.now();\n` },
    "a new date": { "src/kv/kv.ts": `${head}export const at = new Date();\n` },
    "a timer": { "src/kv/kv.ts": `${head}export const f = () => setTimeout(f, 1);\n` },
    "a timer handed on": { "src/kv/kv.ts": `${head}export const f = [setInterval];\n` },
    "an immediate": { "src/kv/kv.ts": `${head}export const f = () => setImmediate(f);\n` },
    "a drawn number": { "src/kv/kv.ts": `${head}export const f = () => Math.random();\n` },
    "a random id": {
      "src/kv/kv.ts": `${head}import { randomUUID } from "node:crypto";\nexport { randomUUID };\n`,
    },
    "the environment": { "src/kv/kv.ts": `${head}export const e = process.env;\n` },
    "the process by another name": { "src/kv/kv.ts": `${head}const p = process;\nexport { p };\n` },
    "the console": { "src/kv/kv.ts": `${head}export const f = () => console.log(1);\n` },
    "the console in a template": {
      "src/kv/kv.ts": `${head}export const f = () => \`\${console.log(1)}\`;\n`,
    },
    "the process as a module": {
      "src/kv/kv.ts": `${head}import { pid } from "node:process";\nexport const p = pid;\n`,
    },
    "the global object": { "src/kv/kv.ts": `${head}export const g = globalThis;\n` },
  },
  "test-time": {
    "a sleep": {
      "test/unit/kv/kv.test.ts": "await new Promise((done) => setTimeout(done, 10));\n",
    },
    "an unseeded draw": { "test/property/kv.test.ts": "const seed = Math.random();\n" },
    "the wall clock": { "test/sim/kv.test.ts": "const at = Date.now();\n" },
  },
  sizes: {
    "a file of 601 lines": { "src/kv/kv.ts": head + "export {};\n".repeat(599) },
    "a test of 601 lines": { "test/unit/kv/kv.test.ts": head + "export {};\n".repeat(599) },
    "a line of 105 columns": { "src/kv/kv.ts": `${head}// ${"x".repeat(102)}\n` },
  },
  headers: {
    "a file without a header": { "src/kv/kv.ts": "export const a = 1;\n" },
    "a script without a header": { "scripts/a.mjs": "#!/usr/bin/env node\nexport const a = 1;\n" },
    "a header as long as a page": { "src/kv/kv.ts": "// why\n".repeat(15) },
  },
  declarations: {
    "a default export": { "src/kv/kv.ts": `${head}export default 1;\n` },
    "an enum": { "src/kv/kv.ts": `${head}export enum Color { Red }\n` },
    "a constant enum": { "src/kv/kv.ts": `${head}const enum Color { Red }\n` },
    "a namespace": { "src/kv/kv.ts": `${head}export namespace N { }\n` },
  },
  skipped: {
    "test.skip": { "test/unit/a.test.ts": 'test.skip("a", () => {});\n' },
    "describe.only": { "test/unit/a.test.ts": 'describe.only("a", () => {});\n' },
    "test.todo": { "test/unit/a.test.ts": 'test.todo("a");\n' },
    "a chain": { "test/unit/a.test.ts": 'test.concurrent.skip("a", () => {});\n' },
    "a condition": { "test/unit/a.test.ts": 'it.skipIf(slow)("a", () => {});\n' },
    "test.fails": { "test/unit/a.test.ts": 'test.fails("a", () => {});\n' },
    "an option": { "test/unit/a.test.ts": 'test("a", { skip: true }, () => {});\n' },
    "the context": { "test/unit/a.test.ts": 'test("a", (ctx) => ctx.skip());\n' },
    "the old spelling": { "test/unit/a.test.ts": 'xit("a", () => {});\n' },
  },
  markers: {
    "unfinished work": { "src/kv/kv.ts": `${head}// ${"TO"}DO: later\n` },
    "a known fault": { "src/kv/kv.ts": `${head}/* ${"FIX"}ME */\n` },
  },
  versions: {
    "a range": {
      "package.json": JSON.stringify({ dependencies: { yaml: "^1.2.3" } }),
      "package-lock.json": lockOf({ "node_modules/yaml": lockEntry }, { yaml: "^1.2.3" }),
    },
    "a lock that was not renewed": {
      "package.json": JSON.stringify({ dependencies: { yaml: "1.2.4" } }),
    },
  },
  lock: {
    "a host": {
      "package-lock.json": lockOf({
        "node_modules/yaml": { ...lockEntry, resolved: "https://registry.example/yaml.tgz" },
      }),
    },
    "a package without a hash": {
      "package-lock.json": lockOf({ "node_modules/yaml": { version: "1.2.3" } }),
    },
    "an older lock format": { "package-lock.json": '{"lockfileVersion": 2}' },
  },
  links: {
    "a link to a page that is gone": { "docs/testing.md": "[page](gone.md)\n" },
    "a link above the project": { "docs/testing.md": "[page](../../other.md)\n" },
    "a link to a heading that is gone": { "docs/testing.md": "[page](architecture.md#attic)\n" },
  },
  mentions: {
    "a comment names a page that is not there": {
      "src/kv/kv.ts": `${head}// The bytes: docs/formats/gone.md.\n`,
    },
    "a page names a document of another place": { "docs/testing.md": "As PLAN.md says.\n" },
  },
  foreign: {
    "a path of one machine": { "src/kv/kv.ts": `${head}// see ${"/wo"}${"rk"}/main\n` },
    "a folder beside the repository": { "docs/testing.md": `see ${"../sha"}${"red"}/x\n` },
    "a home directory": { "docs/testing.md": `cd ${"/ho"}me/ann/x\n` },
    "a tool's name": { "docs/testing.md": `written by ${"Cla"}ude\n` },
    "a way of working": { "docs/testing.md": `ask the ${"coord"}inator\n` },
  },
};

// Some planted faults are faults by a second rule as well, and rightly so.
const alsoSeenBy: Record<string, RuleName[]> = {
  "a lower floor imports a higher one": ["cycles"],
  "the browser reaches for the store": ["doors"],
  "a package has two homes": ["versions"],
  "a third-party package": ["homes"],
  "a timer": ["core", "globals"],
  "a drawn number": ["core", "globals"],
  "a microtask": ["globals"],
  "an older lock format": ["versions"],
};

describe("on a clean tree", () => {
  for (const name of Object.keys(rules) as RuleName[]) {
    test(`${name} is silent`, () => {
      expect(rules[name](createTree(clean))).toEqual([]);
    });
  }
});

for (const [name, faults] of Object.entries(planted) as Array<
  [RuleName, Record<string, Record<string, string>>]
>) {
  describe(`${name} sees`, () => {
    for (const [what, files] of Object.entries(faults)) {
      test(what, () => {
        const tree = createTree({ ...clean, ...files });
        const seen = rules[name](tree);
        expect(seen.length).toBeGreaterThan(0);
        expect(seen.every((fault) => fault.rule === name)).toBe(true);
        expect(Object.keys(files)).toContain(seen[0]?.path);
        expect(seen[0]?.line).toBeGreaterThan(0);
      });

      test(`${what}, and no other rule does`, () => {
        const tree = createTree({ ...clean, ...files });
        const allowed = new Set<RuleName>([name, ...(alsoSeenBy[what] ?? [])]);
        const others = (Object.keys(rules) as RuleName[]).filter((other) => !allowed.has(other));
        expect(others.flatMap((other) => rules[other](tree))).toEqual([]);
      });
    }
  });
}

describe("what the rules leave alone", () => {
  const silent = (name: RuleName, files: Record<string, string>): void => {
    expect(rules[name](createTree({ ...clean, ...files }))).toEqual([]);
  };

  test("a method, a key or a parameter named like a global is not the global", () => {
    silent("globals", {
      "src/kv/kv.ts": `${head}export const f = (process: number) => ({ console: process });\n`,
    });
    silent("globals", {
      "src/kv/kv.ts": `${head}export const f = (c) => c.setTimeout(c.now());\n`,
    });
    silent("globals", { "src/kv/kv.ts": `${head}export const f = (us) => new Date(us / 1000);\n` });
  });

  test("a reader may skip bytes in a test", () => {
    silent("skipped", { "test/unit/a.test.ts": "reader.skip(4);\nconst only = 1;\n" });
  });

  test("the browser may read the contract of the admin API", () => {
    const files = {
      "src/admin/contract.ts": `${head}export type Page = number;\n`,
      "src/ui/app.ts": `${head}import type { Page } from "../admin/contract.ts";\nexport type A = Page;\n`,
    };
    silent("floors", files);
    silent("doors", files);
  });

  test("a long string that the formatter cannot break", () => {
    silent("sizes", { "src/kv/kv.ts": `${head}export const help = "${"x".repeat(120)}";\n` });
  });

  test("code in a string is not code", () => {
    silent("declarations", {
      "src/kv/kv.ts": `${head}export const s = "export default enum A {";\n`,
    });
  });

  test("a link out to the web and a link in fenced code", () => {
    silent("links", { "docs/testing.md": "[web](https://example.org)\n```\n[no](no.md)\n```\n" });
  });
});
