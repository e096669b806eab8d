// What a program waits for that imports `flagstone` and starts a broker: time differs from machine to
// machine, the modules that are loaded do not.

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const program = fileURLToPath(new URL("programs/modules.mjs", import.meta.url));
const execute = promisify(execFile);

/** Now 461 and 2.35 million: a room or a package that a start does not need would show. */
const modulesMax = 500;
const bytesMax = 2_500_000;

const rooms = ["base", "broker", "kv", "log", "mqtt", "node", "session", "store", "topic"];
const packages = [
  ...["abstract-level", "classic-level", "level-supports", "level-transcoder"],
  ...["lru-cache", "maybe-combine-errors", "module-error", "node-gyp-build", "valibot", "ws"],
];

test("a broker in memory loads no room and no package that it does not need", async () => {
  const { stdout } = await execute(process.execPath, [program]);
  const lines = stdout.trim().split("\n");
  const from = (pattern: RegExp): string[] => {
    const names = lines.map((line) => pattern.exec(line)?.[1]);
    return [...new Set(names.filter((name) => name !== undefined))].sort();
  };
  expect(from(/\/node_modules\/((?:@[^/]+\/)?[^/]+)(?!.*\/node_modules\/)/)).toEqual(packages);
  expect(from(/^(?!.*\/node_modules\/).*\/dist\/([^/]+)\//)).toEqual(rooms);
  const sizeBytes = lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
  console.log(`${lines.length} modules, ${sizeBytes} bytes`);
  expect(lines.length).toBeLessThan(modulesMax);
  expect(sizeBytes).toBeLessThan(bytesMax);
});
