// Learned topics at the size that the limits are made for. Slow for a unit test, hence here.

import { expect, test } from "vitest";
import { SeededRandom } from "../../src/base/index.ts";
import { ltsSettingsDefault } from "../../src/store/core/lts.ts";
import { createLts } from "../../src/store/core/lts-start.ts";

const shuffle = (topics: string[]): string[] => {
  const random = new SeededRandom(7);
  for (let index = topics.length - 1; index > 0; index--) {
    const other = random.below(index + 1);
    [topics[index], topics[other]] = [topics[other]!, topics[index]!];
  }
  return topics;
};

test.each([
  ["in order", 1000],
  ["shuffled", 200],
] as const)(
  "metric topics of %s, %i thousand, take at most 200 streams and 16 MiB",
  (order, hosts) => {
    const topics: string[] = [];
    for (let host = 0; host < hosts; host++) {
      for (const part of ["cpu", "disk", "net", "mem", "proc"]) {
        for (let metric = 0; metric < 10; metric++) {
          for (let unit = 0; unit < 20; unit++) topics.push(`m/h${host}/${part}/${metric}/${unit}`);
        }
      }
    }
    const trie = createLts(ltsSettingsDefault);
    for (const topic of order === "shuffled" ? shuffle(topics) : topics) trie.place(topic, []);
    expect(trie.streamCount).toBeLessThanOrEqual(200);
    expect(trie.sizeBytes).toBeLessThanOrEqual(16 * 1024 * 1024);
    expect(trie.isFull).toBe(false);
    expect(trie.cachedCount).toBeLessThanOrEqual(100_000);
  },
);
