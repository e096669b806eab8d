// Rates of the block codec and of the learned topics, one JSON line a scenario. In process, no disk.
//
//   npx rolldown bench/block.ts -p node -o dist/bench/block.mjs && node dist/bench/block.mjs

import { SeededRandom } from "../src/base/index.ts";
import { ltsSettingsDefault } from "../src/store/core/lts.ts";
import { createLts } from "../src/store/core/lts-start.ts";
import { decodeBlock, encodeBlock } from "../src/store/layout/block.ts";
import { OpenBlock } from "../src/store/layout/open-block.ts";
import { mayMatch, summarize } from "../src/store/layout/summary.ts";
import { matchTopics, nextMatch } from "../src/store/layout/ttv-view.ts";
import { packFlags, type Ttv } from "../src/store/types.ts";

const blockTtvs = 256;
const frameBytes = 120;
const secondsPerScenario = 0.5;
const random = new SeededRandom("bench");
const frame = Buffer.alloc(frameBytes, 7);
const structure = ["m", "+", "cpu", "+"];

let consumed = 0;

function ttvsOver(hosts: number): Ttv[] {
  return Array.from({ length: blockTtvs }, (_, index) => ({
    ...{ topic: `m/h${random.below(hosts)}/cpu/${random.below(4)}`, publisher: `p${index % 4}` },
    ...{ timeUs: 1_767_225_600_000_000 + index * 40, flags: packFlags(5, 1), frame },
    ...{ expiryUs: 0, expiryOffset: 0 },
  }));
}

type Placed = { readonly ttv: Ttv; readonly varying: readonly string[] };

function placed(ttvs: readonly Ttv[]): Placed[] {
  return ttvs.map((ttv) => {
    const words = ttv.topic.split("/");
    return { ttv, varying: [words[1] as string, words[3] as string] };
  });
}

function openBlock(all: readonly Placed[]): OpenBlock {
  const block = new OpenBlock();
  for (const { ttv, varying } of all) block.append(ttv, varying);
  return block;
}

/** Runs `task` for half a second, three times; prints the best rate of items per second. */
function measure(scenario: string, itemsPerRun: number, task: () => void): void {
  let best = 0;
  for (let round = 0; round < 3; round++) {
    const start = performance.now();
    let runs = 0;
    while (performance.now() - start < secondsPerScenario * 1000) {
      for (let each = 0; each < 10; each++) task();
      runs += 10;
    }
    best = Math.max(best, (runs * itemsPerRun) / ((performance.now() - start) / 1000));
  }
  print({ scenario, perSecond: Math.round(best), nsEach: Number((1e9 / best).toFixed(1)) });
}

function print(line: Record<string, unknown>): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

for (const hosts of [1, 10_000]) {
  const ttvs = placed(ttvsOver(hosts));
  const open = openBlock(ttvs);
  const bytes = encodeBlock(open);
  const name = `hosts=${hosts}`;
  print({
    scenario: `size ${name}`,
    blockBytes: bytes.length,
    summaryBytes: summarize(open).length,
  });
  measure(`append ${name}`, blockTtvs, () => {
    consumed += openBlock(ttvs).count;
  });
  measure(`encode ${name}`, blockTtvs, () => {
    consumed += encodeBlock(open).length;
  });
  measure(`summarize ${name}`, blockTtvs, () => {
    consumed += summarize(open).length;
  });
  measure(`decode ${name}`, blockTtvs, () => {
    consumed += decodeBlock(bytes, 2).count;
  });
  measure(`decode and scan for one host ${name}`, blockTtvs, () => {
    const view = decodeBlock(bytes, 2);
    const match = matchTopics(view, ["h1", "+"]);
    for (let index = nextMatch(view, match, 0); index < view.count; ) {
      consumed += view.frameStart(index + 1) - view.frameStart(index);
      index = nextMatch(view, match, index + 1);
    }
  });
}

for (const hosts of [100, 10_000]) {
  const summaries = Array.from({ length: 500 }, () =>
    summarize(openBlock(placed(ttvsOver(hosts)))),
  );
  for (const residual of [
    ["h7", "+"],
    ["h7", "3"],
  ]) {
    const read = summaries.filter((summary) => mayMatch(summary, residual)).length;
    const scenario = `blocks read of 500, ${residual.join("/")}, hosts=${hosts}`;
    print({ scenario, read, summaryBytes: summaries[0]?.length });
  }
}

const topics = Array.from({ length: 50_000 }, (_, index) => {
  const host = index % 500;
  return `metrics/host${host}/cpu/socket/${index % 16}/core/${index % 64}/${index}`;
});
const lts = createLts(ltsSettingsDefault);
for (const topic of topics) lts.place(topic, []);
measure("place of a known topic", topics.length, () => {
  for (const topic of topics) consumed += lts.place(topic, []).stream;
});
print({
  scenario: structure.join("/"),
  streams: lts.streamCount,
  trieBytes: lts.sizeBytes,
  consumed,
});
