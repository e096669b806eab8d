// Shared libraries that a test loads before libc into a process. Each is compiled once for each
// version of its source, into .cache/ of the project; gcc is the only thing that needs.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

const cacheFolder = fileURLToPath(new URL("../../.cache/", import.meta.url));

/** Compiles `source` unless that is done; the path of the library. */
export function compilePreload(source: string): string {
  const version = createHash("sha256").update(readFileSync(source)).digest("hex").slice(0, 16);
  const target = join(cacheFolder, `${basename(source, ".c")}-${version}.so`);
  if (existsSync(target)) return target;
  mkdirSync(cacheFolder, { recursive: true });
  // Under a name of its own until it is whole: test files run side by side.
  const unfinished = `${target}.${process.pid}`;
  const options = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"];
  try {
    execFileSync("gcc", [...options, "-o", unfinished, source, "-ldl", "-lpthread"], {
      stdio: ["ignore", "ignore", "pipe"],
    });
  } catch (error) {
    const said = (error as { stderr?: Buffer }).stderr?.toString() ?? String(error);
    throw new Error(`cannot build ${source} with gcc (Debian: apt-get install gcc): ${said}`);
  }
  renameSync(unfinished, target);
  return target;
}
