import { mkdir, symlink, utimes, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
// @ts-expect-error: a plain script without types
import { isBuilt, isInstalled, isLink } from "../../../scripts/setup.mjs";
import { withTemporaryFolder } from "../../support/temporary-folder.ts";

async function write(folder: string, name: string, content: unknown, ageSeconds = 0) {
  const path = join(folder, name);
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, JSON.stringify(content));
  const seconds = 1_800_000_000 - ageSeconds;
  await utimes(path, seconds, seconds);
}

const lockOf = (packages: Record<string, object>) => ({ packages: { "": {}, ...packages } });
const yaml = { "node_modules/yaml": { version: "1.0.0" } };

describe("what is installed", () => {
  const cases: Array<[string, object, object | undefined, boolean]> = [
    ["matches the lock", yaml, yaml, true],
    ["is nothing", yaml, undefined, false],
    ["lacks a package", yaml, {}, false],
    ["has another version", yaml, { "node_modules/yaml": { version: "1.0.1" } }, false],
    [
      "lacks a package for another platform",
      { ...yaml, "node_modules/win": { version: "1.0.0", optional: true } },
      yaml,
      true,
    ],
  ];
  test.each(cases)("%s", async (_what, wanted, installed, fresh) => {
    await withTemporaryFolder(async (folder) => {
      await write(folder, "package-lock.json", lockOf(wanted as Record<string, object>));
      if (installed !== undefined) {
        const there = lockOf(installed as Record<string, object>);
        await write(folder, "node_modules/.package-lock.json", there);
      }
      expect(isInstalled(folder)).toBe(fresh);
    });
  });
});

test("a linked folder of packages is told apart, so that nothing is installed through it", async () => {
  await withTemporaryFolder(async (folder) => {
    await mkdir(join(folder, "real"));
    await symlink(join(folder, "real"), join(folder, "node_modules"));
    expect(isLink(join(folder, "node_modules"))).toBe(true);
    expect(isLink(join(folder, "real"))).toBe(false);
    expect(isLink(join(folder, "absent"))).toBe(false);
  });
});

describe("a build is stale", () => {
  async function project(folder: string): Promise<void> {
    for (const name of ["tsconfig.json", "package.json", "package-lock.json", "src/kv/kv.ts"]) {
      await write(folder, name, "", 100);
    }
  }

  test("when there is none", async () => {
    await withTemporaryFolder(async (folder) => {
      await project(folder);
      expect(isBuilt(folder)).toBe(false);
    });
  });

  test("not while it is newer than all sources", async () => {
    await withTemporaryFolder(async (folder) => {
      await project(folder);
      await write(folder, "dist/.tsbuildinfo", "", 50);
      expect(isBuilt(folder)).toBe(true);
    });
  });

  test.each(["src/kv/kv.ts", "package-lock.json"])("once %s is newer", async (name) => {
    await withTemporaryFolder(async (folder) => {
      await project(folder);
      await write(folder, "dist/.tsbuildinfo", "", 50);
      await write(folder, name, "", 10);
      expect(isBuilt(folder)).toBe(false);
      await write(folder, "dist/.built", "", 5);
      expect(isBuilt(folder)).toBe(true);
    });
  });
});
