// Work of an operator that looks at whole slabs, one slab at a time within the work slots of its
// group: verifying, compacting. It reports after each slab and can be cancelled between two.

import type { OpenDatabase } from "./databases.ts";
import { storeErrors } from "./errors.ts";
import { LostBatch } from "./layout/lost-batch.ts";
import type { LogShard } from "./log-shard.ts";
import type { CompactReport, VerifyFinding, VerifyReport, WorkOptions } from "./operator-api.ts";
import { walkSlab } from "./walk.ts";

/** Findings of one report; the rest are counted by the reader's own counters and the log. */
const findingsMax = 10_000;

type Place = {
  readonly database: OpenDatabase;
  readonly log: LogShard;
  readonly generation: number;
};

/** Checksums of all blocks, and that rows, blocks and counts agree. */
export async function verifySlabs(
  databases: readonly OpenDatabase[],
  options: WorkOptions,
): Promise<VerifyReport> {
  const places = placesOf(databases, options, () => true);
  const findings: VerifyFinding[] = [];
  let blocks = 0;
  let ttvs = 0;
  await eachSlab("verify", places, options, async ({ log, generation }) => {
    const shard = log.number;
    const find = (stream: number, reason: string): void => {
      if (findings.length < findingsMax) findings.push({ shard, generation, stream, reason });
    };
    const slab = await log.generations.slabOf(generation);
    if (slab === undefined) return find(0, "the slab cannot be opened");
    for await (const { stream, batch, from } of walkSlab(slab)) {
      blocks++;
      if (batch instanceof LostBatch) {
        const { firstTimeUs, lastTimeUs, count } = batch.row;
        find(stream, `up to ${count} messages from ${firstTimeUs} to ${lastTimeUs} are unreadable`);
        continue;
      }
      ttvs += batch.count - from;
      const fault = faultOf(batch, slab.afterUs, slab.untilUs);
      if (fault !== undefined) find(stream, fault);
    }
  });
  return { slabs: places.length, blocks, ttvs, findings };
}

/** Makes sealed slabs as small as their store can: logs become tables, compressed and in order. */
export async function compactSlabs(
  databases: readonly OpenDatabase[],
  options: WorkOptions,
): Promise<CompactReport> {
  const places = placesOf(databases, options, (state) => state === "sealed");
  let bytesBefore = 0;
  let bytesAfter = 0;
  await eachSlab("compact", places, options, async ({ log, generation }) => {
    const slab = await log.generations.slabOf(generation);
    if (slab === undefined) return;
    bytesBefore += await log.generations.sizeOf(generation);
    await slab.compact();
    bytesAfter += await log.generations.sizeOf(generation);
  });
  return { slabs: places.length, bytesBefore, bytesAfter };
}

function placesOf(
  databases: readonly OpenDatabase[],
  { shard }: WorkOptions,
  wants: (state: string) => boolean,
): Place[] {
  return databases.flatMap((database) =>
    database.logs
      .filter((log) => shard === undefined || log.number === shard)
      .flatMap((log) =>
        log.generations.readable
          .filter(({ state }) => wants(state))
          .map(({ number }): Place => ({ database, log, generation: number })),
      ),
  );
}

async function eachSlab(
  work: string,
  places: readonly Place[],
  { onProgress, isCancelled }: WorkOptions,
  visit: (place: Place) => Promise<void>,
): Promise<void> {
  for (const [done, place] of places.entries()) {
    if (isCancelled?.() === true) throw storeErrors.workCancelled({ work });
    const what = `${place.database.record.name} shard ${place.log.number} generation ${place.generation}`;
    onProgress?.({ done, total: places.length, unit: "slabs", what });
    // Dropped since the list was made: there is nothing left to look at.
    if (!place.log.generations.readable.some(({ number }) => number === place.generation)) continue;
    await place.database.group.slots.run(() => visit(place));
  }
  onProgress?.({ done: places.length, total: places.length, unit: "slabs", what: "done" });
}

function faultOf(
  batch: { readonly count: number; timeUs(index: number): number },
  afterUs: number,
  untilUs: number,
): string | undefined {
  for (let at = 0; at < batch.count; at++) {
    const timeUs = batch.timeUs(at);
    if (timeUs <= afterUs || timeUs > untilUs) return `time ${timeUs} is not of this generation`;
    if (at > 0 && timeUs <= batch.timeUs(at - 1)) return `time ${timeUs} is out of order`;
  }
  return undefined;
}
