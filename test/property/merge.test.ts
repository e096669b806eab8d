import * as fc from "fast-check";
import { test } from "vitest";
import { Merge } from "../../src/store/pools/merge.ts";

const step = fc.oneof(
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("push"), by: fc.nat(50) }) },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("move"), by: fc.nat(20) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("remove"), by: fc.constant(0) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("clear"), by: fc.constant(0) }) },
);

type Item = { timeUs: number };

/** Undefined where all is as it should be. */
function faultOf(merge: Merge<Item>, model: readonly Item[]): string | undefined {
  const [firstUs = Number.POSITIVE_INFINITY, secondUs = Number.POSITIVE_INFINITY] = model
    .map(({ timeUs }) => timeUs)
    .sort((a, b) => a - b);
  if (merge.firstUs !== firstUs) return `first ${merge.firstUs}, not ${firstUs}`;
  if (merge.secondUs !== secondUs) return `second ${merge.secondUs}, not ${secondUs}`;
  const { first } = merge;
  if (first === undefined) return model.length === 0 ? undefined : "nothing is first";
  return model.includes(first) && first.timeUs === firstUs ? undefined : "another one is first";
}

test("the first of a merge is the earliest, and the second the earliest of all others", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const merge = new Merge<Item>();
      let model: Item[] = [];
      for (const { kind, by } of steps) {
        const first = merge.first;
        if (kind === "push") {
          const item = { timeUs: by };
          model.push(item);
          merge.push(item, by);
        } else if (kind === "clear") {
          model = [];
          merge.clear();
        } else if (first !== undefined && kind === "remove") {
          model = model.filter((item) => item !== first);
          merge.removeFirst();
        } else if (first !== undefined) {
          first.timeUs += by;
          merge.moveFirst(first.timeUs);
        }
        const fault = faultOf(merge, model);
        if (fault !== undefined) throw new Error(fault);
      }
    }),
    { numRuns: 300, endOnFailure: true },
  );
});
