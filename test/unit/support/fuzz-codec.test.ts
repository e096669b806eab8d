import { isDeepStrictEqual } from "node:util";
import { expect, test } from "vitest";
import { isSame } from "../../support/fuzz-codec.ts";

const values: readonly unknown[] = [
  ...[undefined, null, 0, 1, "", "a", true, false],
  ...[Buffer.alloc(0), Buffer.from("a"), Buffer.from("b"), Buffer.from("ab")],
  ...[[], [1], [1, 2], [2, 1], [[1]], [undefined]],
  ...[{}, { a: 1 }, { a: 2 }, { b: 1 }, { a: undefined }, { a: 1, b: 2 }, { a: { b: [1] } }],
  ...[{ 0: 1 }, { a: Buffer.from("a") }, { a: [Buffer.from("a")] }, { a: [Buffer.from("b")] }],
];

test("packets are the same exactly when their fields are, however deep", () => {
  for (const one of values) {
    for (const other of values) {
      expect(isSame(one, other), JSON.stringify([one, other])).toBe(isDeepStrictEqual(one, other));
    }
    const copy = structuredClone(one);
    const again = one instanceof Uint8Array ? Buffer.from(one) : copy;
    if (!JSON.stringify(one)?.includes("Buffer")) expect(isSame(one, again)).toBe(true);
  }
  expect(isSame({ a: [Buffer.from("x")] }, { a: [Buffer.from("x")] })).toBe(true);
});
