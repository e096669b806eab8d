// The version of the package, read once from its package.json: two folders up, in the source tree
// as in the build.

import { readFileSync } from "node:fs";

export const version: string = readVersion();

function readVersion(): string {
  const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}
