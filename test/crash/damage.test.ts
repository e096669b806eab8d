// Damage of any file of a data directory: the broker starts, keeps what an intact copy exists of, and
// tells of the rest. A real broker on real files; the matrix is printed.
//
// CI takes a spread over classes of files and kinds of damage; FLAGSTONE_LONG=1 takes every kind for
// one file of each class, FLAGSTONE_DAMAGE=. the same.
// Some cases again: FLAGSTONE_DAMAGE="killed: messages/store/CURRENT: delete", a pattern of titles.

import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { isLong } from "../support/amount.ts";
import { type DamageBase, makeBase } from "./damage-base.ts";
import { classOf, type Damage, damages, filesOf, pairDamages } from "./damage-cases.ts";
import { judge, type Verdict } from "./damage-judge.ts";

const only = process.env.FLAGSTONE_DAMAGE;
/** Cases of CI, about a second each: no divisor of the kinds of damage, so that all have their turn. */
const everyNth = 21;
/** Brokers side by side. */
const lanes = 2;

type Case = {
  readonly title: string;
  readonly base: "stopped" | "killed";
  readonly path: string;
  readonly damage: Damage;
};

let scratch = "";
let made: DamageBase;
beforeAll(async () => {
  scratch = mkdtempSync(join(tmpdir(), "flagstone-damage-"));
  made = await makeBase(scratch);
});
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

function casesOf(base: "stopped" | "killed"): Case[] {
  const byClass = new Map<string, string>();
  for (const path of filesOf(made[base])) byClass.set(classOf(path), path);
  return [...byClass].flatMap(([name, path]) =>
    damages.map((damage) => ({ title: `${base}: ${name}: ${damage.name}`, base, path, damage })),
  );
}

/** A shard's store together with its copy: always all of them. */
function pairCasesOf(base: "stopped" | "killed"): Case[] {
  const copies = filesOf(made[base]).filter((path) => path.endsWith("/store.copy"));
  const byClass = new Map(copies.map((path) => [classOf(path), path]));
  return [...byClass].flatMap(([name, path]) =>
    pairDamages.map((damage) => ({
      title: `${base}: ${name}: ${damage.name}`,
      ...{ base, path, damage },
    })),
  );
}

/** A spread over classes and kinds of damage that fits the budget. */
function sample(cases: readonly Case[]): Case[] {
  if (only !== undefined) return cases.filter(({ title }) => new RegExp(only).test(title));
  return isLong ? [...cases] : cases.filter((_, at) => at % everyNth === 0);
}

async function runCase({ base, path, damage }: Case, lane: number): Promise<Verdict | undefined> {
  const dir = join(scratch, `case-${lane}`);
  rmSync(dir, { recursive: true, force: true });
  cpSync(made[base], dir, { recursive: true });
  if (!damage.apply(join(dir, path), join(made.older, path))) return undefined;
  return judge(dir, made.acked[base]);
}

function lineOf(title: string, verdict: Verdict): string {
  const { isGood, arrived, lost, missed, events, fault } = verdict;
  const what = fault ?? `${arrived} arrived, ${lost} lost, ${missed} told`;
  return `${isGood ? "ok  " : "FAIL"} ${title}: ${what}  [${events.join(" ")}]`;
}

test.each(["stopped", "killed"] as const)(
  "a broker that was %s starts on a directory with any one file damaged, and loses nothing unsaid",
  async (base) => {
    const pairs = pairCasesOf(base).filter(
      ({ title }) => only === undefined || new RegExp(only).test(title),
    );
    const cases = [...sample(casesOf(base)), ...pairs];
    const lines: string[] = [];
    const bad: string[] = [];
    let next = 0;
    const lane = async (number: number): Promise<void> => {
      for (let each = cases[next++]; each !== undefined; each = cases[next++]) {
        const verdict = await runCase(each, number);
        if (verdict === undefined) continue;
        const line = lineOf(each.title, verdict);
        lines.push(line);
        if (!verdict.isGood) bad.push(line);
      }
    };
    await Promise.all(Array.from({ length: lanes }, (_, number) => lane(number)));
    console.log(lines.join("\n"));
    expect(bad.join("\n")).toBe("");
  },
);
