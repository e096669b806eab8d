// Learned topics at the size that the limits are made for. Slow for a unit test, hence here.

import { expect, test } from "vitest";
import { SeededRandom } from "../../src/base/index.ts";
import { ltsSettingsDefault } from "../../src/store/core/lts.ts";
import { createLts } from "../../src/store/core/lts-start.ts";
import { amount } from "../support/amount.ts";

const shuffle = (topics: string[]): string[] => {
  const random = new SeededRandom(7);
  for (let index = topics.length - 1; index > 0; index--) {
    const other = random.below(index + 1);
    [topics[index], topics[other]] = [topics[other]!, topics[index]!];
  }
  return topics;
};

test.each([
  ["in order", amount(100, 1000)],
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

/** All of them are run by hand and by `npm run test:long`; figures are in docs/testing.md. */
const hostileTopics = amount(40_000, 100_000, 10_000_000);

/** Whoever makes them wants as many streams, and as much memory, as can be had. */
function hostileTopic(random: SeededRandom, number: number): string {
  const kind = random.below(4);
  if (kind === 0) return `${number}/${number}/${number}`;
  if (kind === 1) return `r/${"x".repeat(random.below(60))}${number}/${random.below(20)}/y`;
  const levels = Array.from({ length: random.between(1, 20) }, () => random.below(12).toString(36));
  return kind === 2 ? levels.join("/") : `$${levels.join("/")}`;
}

test(`${hostileTopics} hostile topics stay under the caps, and each finds its stream again`, () => {
  const random = new SeededRandom(11);
  const { bytesMax, streamsMax } = ltsSettingsDefault;
  const trie = createLts(ltsSettingsDefault);
  const kept = new Map<string, number>();
  for (let number = 0; number < hostileTopics; number++) {
    const topic = hostileTopic(random, number);
    const { stream } = trie.place(topic, []);
    if (number % 1_009 === 0) kept.set(topic, stream);
  }
  expect(trie.streamCount).toBeLessThanOrEqual(streamsMax);
  expect(trie.sizeBytes).toBeLessThanOrEqual(bytesMax);
  expect(trie.cachedCount).toBeLessThanOrEqual(100_000);
  for (const [topic, stream] of kept) expect(trie.lookup(topic)?.stream).toBe(stream);
  console.info(`${hostileTopics} hostile: ${trie.streamCount} streams, ${trie.sizeBytes} bytes`);
});
