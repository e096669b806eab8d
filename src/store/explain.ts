// What a filter costs to read: the streams it touches in each generation, and the blocks of them that
// their summaries cannot rule out. Reads index rows, never blocks, up to a limit.

import { parseTopicFilter } from "../topic/index.ts";
import type { PlannedStream } from "./core/lts.ts";
import type { OpenDatabase } from "./databases.ts";
import { mayMatch } from "./layout/summary.ts";
import type { LogShard } from "./log-shard.ts";
import type { ExplainedStream, ExplainOptions, Explanation } from "./operator-api.ts";
import type { LogSlab } from "./slab/log-slab.ts";

const rowsMaxDefault = 100_000;
const pageRows = 512;
/** Above this share of blocks read in vain a layout option would help. */
const wideShare = 0.5;
const blocksWorthAdvice = 64;

type Budget = { rows: number };

/** @throws TOPIC codes for a bad filter. */
export async function explainFilter(
  databases: readonly OpenDatabase[],
  text: string,
  options: ExplainOptions,
): Promise<Explanation> {
  const filter = parseTopicFilter(text);
  const budget: Budget = { rows: options.rowsMax ?? rowsMaxDefault };
  const streams: ExplainedStream[] = [];
  let streamsTotal = 0;
  for (const { logs } of databases) {
    for (const log of logs) {
      for (const { number, toUs } of log.generations.readable) {
        if (toUs !== undefined && toUs - 1 <= (options.sinceUs ?? 0)) continue;
        const slab = await log.generations.slabOf(number);
        if (slab === undefined) continue;
        const endWalk = slab.beginWalk();
        try {
          streamsTotal += slab.lts.streamCount;
          for (const planned of slab.plan(filter)) {
            streams.push(
              await explainStream(log, slab, planned, { sinceUs: options.sinceUs ?? 0, budget }),
            );
          }
        } finally {
          endWalk();
        }
      }
    }
  }
  const blocks = streams.reduce((sum, each) => sum + each.blocks, 0);
  const blocksToRead = streams.reduce((sum, each) => sum + each.blocksToRead, 0);
  return {
    filter: text,
    databases: databases.filter(({ logs }) => logs.length > 0).map(({ record }) => record.name),
    ...{ streams, streamsTotal, blocks, blocksToRead, isComplete: budget.rows > 0 },
    advice: adviceFor(streams, blocks, blocksToRead),
  };
}

async function explainStream(
  log: LogShard,
  slab: LogSlab,
  { stream, structure, residual }: PlannedStream,
  { sinceUs, budget }: { sinceUs: number; budget: Budget },
): Promise<ExplainedStream> {
  let blocks = 0;
  let blocksToRead = 0;
  for (let afterUs = Math.max(sinceUs, slab.afterUs); budget.rows > 0; ) {
    const rows = await slab.rows(stream, afterUs, Math.min(pageRows, budget.rows));
    if (rows.length === 0) break;
    budget.rows -= rows.length;
    blocks += rows.length;
    for (const row of rows) if (mayMatch(row.summary, residual)) blocksToRead++;
    afterUs = rows.at(-1)?.lastTimeUs ?? Number.POSITIVE_INFINITY;
  }
  const counts = log.generations.list.find(({ number }) => number === slab.generation)?.streams;
  const amount = counts?.get(stream);
  return {
    ...{ shard: log.number, generation: slab.generation, stream, structure: structure.join("/") },
    ...{ ttvs: amount?.ttvs ?? 0, logicalBytes: amount?.sizeBytes ?? 0 },
    residual: residual === "all" ? "all" : residual.join("/"),
    ...{ blocks, blocksToRead },
  };
}

function adviceFor(
  streams: readonly ExplainedStream[],
  blocks: number,
  blocksToRead: number,
): string[] {
  if (streams.length === 0)
    return ["Nothing that is stored can match: no topic of this form is known."];
  const advice: string[] = [];
  const catchAll = streams.filter(({ structure }) => structure === "#");
  if (catchAll.length > 0) {
    advice.push(
      `${catchAll.length} of ${streams.length} streams are catch-alls, where topics of all forms share blocks: declare patterns for what is read often (layoutOptions.patterns), or raise streamsMax.`,
    );
  }
  if (blocks >= blocksWorthAdvice && blocksToRead > blocks * wideShare) {
    const partial = streams.some(({ residual }) => residual !== "all");
    if (partial) {
      advice.push(
        `${blocksToRead} of ${blocks} blocks may hold a match: give the levels that this filter names exact edges of their own (a higher threshold), so that they become streams.`,
      );
    }
  }
  if (advice.length === 0) advice.push("The learned structure fits this filter.");
  return advice;
}
