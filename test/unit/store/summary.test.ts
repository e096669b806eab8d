import { describe, expect, test } from "vitest";
import { SeededRandom } from "../../../src/base/index.ts";
import type { Residual } from "../../../src/store/core/structure.ts";
import { mayMatch, summarize, summaryBytesMax } from "../../../src/store/layout/summary.ts";
import { matchTopics, type TtvBatch } from "../../../src/store/layout/ttv-view.ts";
import { blockOf, makeTtv } from "./blocks.ts";

/** Blocks of 256 TTVs over `hosts` hosts with 4 units each, as messages would arrive. */
const blocks = (count: number, hosts: number): TtvBatch[] => {
  const random = new SeededRandom(`hosts ${hosts}`);
  return Array.from({ length: count }, () =>
    blockOf(
      Array.from({ length: 256 }, (_, index) =>
        makeTtv({ topic: `m/h${random.below(hosts)}/cpu/${random.below(4)}`, timeUs: index + 1 }),
      ),
    ),
  );
};

/** Blocks read, and of them blocks with a match. */
const readCounts = (batches: TtvBatch[], residual: Residual): [read: number, hit: number] => {
  const read = batches.filter((batch) => mayMatch(summarize(batch), residual));
  return [read.length, read.filter((batch) => matchTopics(batch, residual) !== "none").length];
};

describe("summary", () => {
  test("a filter for one of 10,000 hosts passes over nearly all blocks", () => {
    const batches = blocks(400, 10_000);
    const [read, hit] = readCounts(batches, ["h77", "+"]);
    expect(hit).toBeGreaterThan(0);
    expect(batches.length / read).toBeGreaterThan(8);
  });

  test("a filter for one topic passes over blocks that hold its words apart", () => {
    const batches = blocks(200, 1000);
    const [wide] = readCounts(batches, ["h7", "+"]);
    const [exact, hit] = readCounts(batches, ["h7", "3"]);
    expect(hit).toBeGreaterThan(0);
    expect(exact).toBeLessThan(wide / 2);
  });

  test("a few topics take a few bytes, and the size is bounded", () => {
    const sizeOf = (hosts: number): number => summarize(blocks(1, hosts)[0]!).length;
    expect(sizeOf(1)).toBeLessThanOrEqual(16);
    expect(sizeOf(10)).toBeLessThanOrEqual(64);
    expect(sizeOf(1_000_000)).toBe(summaryBytesMax);
  });

  test("where nothing varies the summary is empty and lets everything pass", () => {
    const summary = summarize(blockOf([makeTtv({ topic: "a/b" })], ["a", "b"]));
    expect(summary.length).toBe(0);
    expect(mayMatch(summary, "all")).toBe(true);
    expect(mayMatch(summary, ["x"])).toBe(true);
  });

  test("the bytes of a summary never change: stored rows hold them", () => {
    const summary = summarize(blockOf([makeTtv({ topic: "m/h1/cpu/0" })]));
    expect(summary.toString("hex")).toBe("002194008102040c");
  });
});
