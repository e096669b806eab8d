import { expect, test } from "vitest";
import { GatheredGets } from "../../../src/kv/gathered-gets.ts";

const key = (text: string): Buffer => Buffer.from(text);

function lookups(bad: string) {
  const trips: string[][] = [];
  const answer = (found: Buffer): Buffer | undefined => {
    if (found.toString() === bad) throw new Error(`${bad} is damaged`);
    return found.toString() === "absent" ? undefined : Buffer.from(`of ${found}`);
  };
  const getMany = async (keys: Buffer[]): Promise<Array<Buffer | undefined>> => {
    trips.push(keys.map(String));
    return keys.map(answer);
  };
  const get = async (found: Buffer): Promise<Buffer | undefined> => (await getMany([found]))[0];
  return { trips, gets: new GatheredGets({ get, getMany }) };
}

const outcomeOf = (get: Promise<Buffer | undefined>): Promise<string> =>
  get.then(
    (value) => String(value),
    (error: Error) => error.message,
  );

test("look-ups of one turn go together, and those of a later one by themselves", async () => {
  const { trips, gets } = lookups("none");
  const together = ["a", "absent", "b"].map((text) => outcomeOf(gets.get(key(text))));
  expect(await Promise.all(together)).toEqual(["of a", "undefined", "of b"]);
  expect(await outcomeOf(gets.get(key("c")))).toBe("of c");
  expect(trips).toEqual([["a", "absent", "b"], ["c"]]);
});

test("many look-ups are shared out evenly over trips of at most sixteen", async () => {
  const { trips, gets } = lookups("none");
  const texts = Array.from({ length: 36 }, (_, at) => `k${at}`);
  const outcomes = await Promise.all(texts.map((text) => outcomeOf(gets.get(key(text)))));
  expect(outcomes).toEqual(texts.map((text) => `of ${text}`));
  expect(trips.map(({ length }) => length)).toEqual([12, 12, 12]);
});

test("a look-up that fails fails no other of its trip", async () => {
  const { gets } = lookups("bad");
  const outcomes = ["a", "bad", "b"].map((text) => outcomeOf(gets.get(key(text))));
  expect(await Promise.all(outcomes)).toEqual(["of a", "bad is damaged", "of b"]);
});
