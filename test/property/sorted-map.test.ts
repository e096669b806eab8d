import fc from "fast-check";
import { expect, test } from "vitest";
import { SortedMap, type SortedView } from "../../src/kv/sorted-map.ts";
import { amount } from "../support/amount.ts";

const keyBytes = fc.uint8Array({ minLength: 0, maxLength: 2, max: 40 });
const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ kind: fc.constant("set" as const), key: keyBytes }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("delete" as const), key: keyBytes }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("snapshot" as const), key: keyBytes }) },
);

test("a sorted map agrees with a plain one, and snapshots never change", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 400 }), (steps) => {
      const map = new SortedMap();
      const plain = new Map<string, string>();
      for (let at = 0; at < 1000; at++) {
        const key = Buffer.from([(at * 7) % 41, (at * 13) % 37]);
        map.set(key, Buffer.from("before"));
        plain.set(key.toString("hex"), "before");
      }
      const snapshots: Array<{ view: SortedView; entries: string[] }> = [];
      steps.forEach(({ kind, key }, at) => {
        const name = Buffer.from(key).toString("hex");
        if (kind === "set") {
          map.set(Buffer.from(key), Buffer.from(String(at)));
          plain.set(name, String(at));
        } else if (kind === "delete") {
          map.delete(key);
          plain.delete(name);
        } else {
          snapshots.push({ view: map.snapshot(), entries: sorted(plain) });
        }
        expect(map.get(key)?.toString()).toBe(plain.get(name));
      });
      expect(map.count).toBe(plain.size);
      snapshots.push({ view: map.snapshot(), entries: sorted(plain) });
      for (const { view, entries } of snapshots) {
        expect(forwards(view)).toEqual(entries);
        expect(backwards(view)).toEqual([...entries].reverse());
      }
    }),
    { numRuns: amount(20, 60) },
  );
});

test("100,000 keys in any order stay cheap and in order", () => {
  const map = new SortedMap();
  const count = 100_000;
  for (let at = 0; at < count; at++) {
    const key = Buffer.alloc(4);
    key.writeUInt32BE((at * 7919) % count);
    map.set(key, key);
    if (at % 1000 === 0) map.snapshot();
  }
  expect(map.count).toBe(count);
  const view = map.snapshot();
  let place = view.first;
  for (let at = 0; at < count; at++) {
    if (view.at(place)?.[0].readUInt32BE() !== at) expect.fail(`wrong key at ${at}`);
    place = view.after(place);
  }
  expect(view.at(place)).toBeUndefined();
});

function sorted(plain: ReadonlyMap<string, string>): string[] {
  return [...plain]
    .map(([key, value]) => `${key}=${value}`)
    .sort((one, other) => {
      const [a, b] = [one, other].map((text) => Buffer.from(text.split("=")[0] as string, "hex"));
      return Buffer.compare(a as Buffer, b as Buffer);
    });
}

function forwards(view: SortedView): string[] {
  const entries = [];
  for (let place = view.first; ; place = view.after(place)) {
    const entry = view.at(place);
    if (entry === undefined) return entries;
    entries.push(`${entry[0].toString("hex")}=${entry[1]}`);
  }
}

function backwards(view: SortedView): string[] {
  const entries = [];
  for (let place = view.before(view.end); place !== undefined; place = view.before(place)) {
    const entry = view.at(place);
    if (entry !== undefined) entries.push(`${entry[0].toString("hex")}=${entry[1]}`);
  }
  return entries;
}
