import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { idsIn, idsListed } from "./statements.ts";

const folder = new URL(".", import.meta.url);

/** Ids in the names of tests, each with its files. */
function idsTested(): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const name of readdirSync(folder).filter((entry) => entry.endsWith(".test.ts"))) {
    if (name === "statements.test.ts") continue;
    for (const id of idsIn(readFileSync(new URL(name, folder), "utf8"))) {
      found.set(id, [...(found.get(id) ?? []), name]);
    }
  }
  return found;
}

test("every statement of the list has a test that names it, and every id in a name is listed", () => {
  const tested = idsTested();
  const listed = new Set(idsListed());
  expect([...listed].filter((id) => !tested.has(id))).toEqual([]);
  expect([...tested].filter(([id]) => !listed.has(id))).toEqual([]);
});

test("ids are read singly and as ranges", () => {
  expect(idsIn("[3.1.2-4] a [311:3.1.2-6] and [4.3.3-6..8], not [1] or [3.1-2]")).toEqual([
    ...["3.1.2-4", "311:3.1.2-6"],
    ...["4.3.3-6", "4.3.3-7", "4.3.3-8"],
  ]);
});
