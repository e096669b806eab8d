// `explain` is the store's listStreams(filter, since): which streams a filter reads, and what is left to
// compare in them.

import * as fc from "fast-check";
import { expect, test } from "vitest";
import { ltsSettingsDefault } from "../../src/store/core/lts.ts";
import { residualMatches, type Structure } from "../../src/store/core/structure.ts";
import type { ExplainedStream } from "../../src/store/index.ts";
import { intersects, matches, parseTopicFilter, splitTopic } from "../../src/topic/index.ts";
import { amount } from "../support/amount.ts";
import { append, appendRequest, Reader, type Received } from "../support/store-calls.ts";
import { StoreMachine } from "../support/store-machine.ts";

const word = fc.constantFrom("", "a", "b", "c", "d", "e");
const topic = fc
  .tuple(fc.constantFrom("", "", "$s/"), fc.array(word, { minLength: 1, maxLength: 4 }))
  .map(([root, words]) => root + words.join("/"))
  .filter((text) => text !== "");
const filter = fc
  .tuple(
    fc.constantFrom("", "", "$s/"),
    fc.array(fc.oneof({ weight: 2, arbitrary: word }, fc.constant("+")), { maxLength: 4 }),
    fc.boolean(),
  )
  .map(([root, words, isWide]) => root + (isWide ? [...words, "#"] : words).join("/"))
  .filter((text) => text !== "");
const generations = fc.array(fc.array(topic, { minLength: 1, maxLength: 25 }), {
  minLength: 1,
  maxLength: 3,
});
const settings = fc.record({
  first: fc.integer({ min: 0, max: 6 }),
  below: fc.integer({ min: 0, max: 4 }),
  streamsMax: fc.constantFrom(3, 8, 256),
});

/** A structure as a filter; below the root of `$` topics its first level is one of theirs. */
function openOf(structure: string, topicName: string): string {
  return topicName.startsWith("$") ? structure.replace(/^\+/, "$s") : structure;
}

/** What a structure leaves open of a topic. */
function varyingOf(structure: Structure, words: readonly string[]): readonly string[] {
  return structure[0] === "#" ? words : words.filter((_, level) => structure[level] === "+");
}

function passes({ structure, residual }: ExplainedStream, words: readonly string[]): boolean {
  const left = residual === "all" ? "all" : residual.split("/");
  return residualMatches(left, varyingOf(structure.split("/"), words));
}

test("listStreams(filter) covers exactly the matching topics", async () => {
  const property = fc.asyncProperty(
    generations,
    settings,
    fc.array(filter, { minLength: 1, maxLength: 8 }),
    async (perGeneration, { first, below, streamsMax }, filters) => {
      const thresholds = [first, below] as const;
      const lts = { ...ltsSettingsDefault, thresholds, dollarThresholds: thresholds, streamsMax };
      const m = new StoreMachine({ seed: 1, store: { shards: 1, lts } });
      const { store } = await m.boot();
      for (const [at, topics] of perGeneration.entries()) {
        if (at > 0) await m.clock.complete(store.rotate());
        const stored = topics.map((name) => append(store, appendRequest(name, "v")));
        await m.clock.complete(Promise.all(stored));
      }
      const reader = new Reader(store, ["#", "$s/#"], new Map());
      await m.clock.runUntil(() => reader.subscriber.atTail);
      expect(reader.received).toHaveLength(perGeneration.flat().length);
      const lastUs = reader.received.at(-1)?.timeUs ?? 0;
      for (const text of filters) {
        const { streams } = await m.clock.complete(store.operator.explain(text));
        for (const each of reader.received) {
          const words = splitTopic(each.topic);
          const entries = streams.filter((listed) => isOf(listed, each));
          const isRead = entries.some((listed) => passes(listed, words));
          expect([text, each.topic, isRead]).toEqual([
            ...[text, each.topic],
            matches(parseTopicFilter(text), words),
          ]);
          expect(entries.length).toBeLessThanOrEqual(1);
        }
        // No stream is listed that could not hold a match.
        for (const listed of streams) {
          const member = reader.received.find((each) => isOf(listed, each));
          if (listed.structure === "#") continue;
          const open = openOf(listed.structure, member?.topic ?? "");
          expect([text, open, intersects(parseTopicFilter(open), parseTopicFilter(text))]).toEqual([
            ...[text, open, true],
          ]);
        }
        // Nothing of a generation that ended before `since`.
        const later = await m.clock.complete(store.operator.explain(text, { sinceUs: lastUs }));
        const current = streams.filter(({ generation }) => generation === perGeneration.length);
        expect(later.streams.map(({ stream }) => stream)).toEqual(
          current.map(({ stream }) => stream),
        );
      }
    },
  );
  await fc.assert(property, { numRuns: amount(20, 60) });
});

function isOf({ generation, stream }: ExplainedStream, { ref }: Received): boolean {
  return generation === ref.generation && stream === ref.stream;
}
