// Work of an operator that looks at whole slabs and stores, one at a time within the work slots of
// its group: verifying, compacting, packing anew. It reports after each and can be cancelled between
// two.

import type { Clock } from "../base/index.ts";
import type { WriteAheadLog } from "../log/index.ts";
import type { OpenDatabase } from "./databases.ts";
import { storeErrors } from "./errors.ts";
import { LostBatch } from "./layout/lost-batch.ts";
import type { LogShard } from "./log-shard.ts";
import type {
  CompactReport,
  RepackOptions,
  RepackReport,
  VerifyFinding,
  VerifyReport,
  WorkOptions,
} from "./operator-api.ts";
import type { OpenLogShard, OpenMapShard } from "./shard-opener.ts";
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
        if (batch.reason === "expired") continue;
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

/** Packs those sealed slabs anew that gain by it. A slab that is dropped meanwhile is left alone. */
export async function repackSlabs(
  databases: readonly OpenDatabase[],
  options: RepackOptions,
  clock: Clock,
): Promise<RepackReport> {
  const places = placesOf(databases, options, (state) => state === "sealed");
  const pace = createPace(options, clock);
  const sums = { blocksBefore: 0, blocksAfter: 0, bytesBefore: 0, bytesAfter: 0, ttvsExpired: 0 };
  let packed = 0;
  let withoutRoom = 0;
  await eachSlab("repack", places, options, async ({ database, log, generation }) => {
    const nowUs = clock.wallUs();
    if (options.all !== true && !(await log.gainsByRepack(generation, nowUs))) return;
    const bytesBefore = await log.generations.sizeOf(generation);
    if (!database.group.hasRoomFor(bytesBefore)) {
      withoutRoom++;
      return;
    }
    const counts = await log.repack(generation, { nowUs, pace });
    if (counts === undefined) return;
    packed++;
    sums.blocksBefore += counts.blocksBefore;
    sums.blocksAfter += counts.blocksAfter;
    sums.ttvsExpired += counts.ttvsExpired;
    sums.bytesBefore += bytesBefore;
    sums.bytesAfter += await log.generations.sizeOf(generation);
  });
  return { slabs: places.length, packed, withoutRoom, ...sums };
}

const bytesPerSecondDefault = 32 * 1024 * 1024;
/** Shorter pauses cost more than they spread. */
const pauseMsMin = 20;

/** Waits so that no more is read than the options allow, and ends the work when it is cancelled. */
function createPace(
  { bytesPerSecondMax = bytesPerSecondDefault, isCancelled }: RepackOptions,
  clock: Clock,
): (sizeBytes: number) => Promise<void> {
  const beginMs = clock.elapsedMs();
  let readBytes = 0;
  return async (sizeBytes) => {
    if (isCancelled?.() === true) throw storeErrors.workCancelled({ work: "repack" });
    readBytes += sizeBytes;
    const waitMs = beginMs + (readBytes / bytesPerSecondMax) * 1_000 - clock.elapsedMs();
    if (waitMs < pauseMsMin) return;
    await new Promise<void>((resolve) => clock.schedule(waitMs, resolve));
  };
}

/**
 * Makes all stores but the current slabs as small as they can be: logs become tables, compressed and
 * in order, without what was deleted. What the log and copies still have of that goes first.
 */
export async function compactStores(
  databases: readonly OpenDatabase[],
  options: WorkOptions,
  log: WriteAheadLog,
): Promise<CompactReport> {
  const logBytes = log.sizeBytes;
  const slabs = placesOf(databases, options, (state) => state === "sealed");
  const shards = databases.flatMap((database) =>
    database.shards
      .filter(({ shard }) => options.shard === undefined || shard.number === options.shard)
      .map((shard) => ({ ...shard, database })),
  );
  const measured = async (): Promise<number> => {
    let sizeBytes = 0;
    for (const { measure } of shards) sizeBytes += await measure();
    return sizeBytes;
  };
  const steps = shards.flatMap((place): Step[] => [
    {
      database: place.database,
      what: `${place.database.record.name} shard ${place.shard.number}`,
      run: () => compactShard(place),
    },
    ...slabs.filter((slab) => slab.log === place.log).map((slab) => slabStep(slab, compactSlab)),
  ]);
  const bytesBefore = await measured();
  await eachStep("compact", "stores", steps, options);
  await log.trim();
  return {
    ...{ slabs: slabs.length, shards: shards.length, bytesBefore, bytesAfter: await measured() },
    logBytesFreed: Math.max(0, logBytes - log.sizeBytes),
  };
}

async function compactShard(open: OpenMapShard | OpenLogShard): Promise<void> {
  const { shard, store } = open;
  const map = "map" in open ? open.map : undefined;
  map?.renewCopy();
  await shard.checkpoint();
  await map?.compact();
  await store.compact();
}

async function compactSlab({ log, generation }: Place): Promise<void> {
  const slab = await log.generations.slabOf(generation);
  if (slab === undefined) return;
  const endWalk = slab.beginWalk();
  try {
    await slab.compact();
  } finally {
    endWalk();
  }
  log.generations.rewritten(generation);
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

type Step = {
  readonly database: OpenDatabase;
  readonly what: string;
  readonly run: () => Promise<void>;
};

function slabStep(place: Place, visit: (place: Place) => Promise<void>): Step {
  const { database, log, generation } = place;
  return {
    database,
    what: `${database.record.name} shard ${log.number} generation ${generation}`,
    run: async () => {
      // Dropped since the list was made: there is nothing left to look at.
      const isThere = log.generations.readable.some(({ number }) => number === generation);
      if (isThere) await visit(place);
    },
  };
}

async function eachStep(
  work: string,
  unit: string,
  steps: readonly Step[],
  { onProgress, isCancelled }: WorkOptions,
): Promise<void> {
  for (const [done, { database, what, run }] of steps.entries()) {
    if (isCancelled?.() === true) throw storeErrors.workCancelled({ work });
    onProgress?.({ done, total: steps.length, unit, what });
    await database.group.slots.run(run);
  }
  onProgress?.({ done: steps.length, total: steps.length, unit, what: "done" });
}

function eachSlab(
  work: string,
  places: readonly Place[],
  options: WorkOptions,
  visit: (place: Place) => Promise<void>,
): Promise<void> {
  return eachStep(
    work,
    "slabs",
    places.map((place) => slabStep(place, visit)),
    options,
  );
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
