// Stored messages by filter and time: a reader of each shard from the first time on, merged in the
// order of (time, shard). A page ends at a limit, at the last time, or where a shard's share was cut
// for its size; what is behind the last item of a page is never skipped.
//
// Bounded: items and bytes of a page, of which each shard may read its part, and time; one message is
// always taken, whatever its size. A reader that is slow ends the query with what is certain so far.

import { type Clock, sleep } from "../base/index.ts";
import type { DeliverableTtv, ShardNumber, Store } from "../store/index.ts";

export type HistoryStore = Pick<Store, "subscribe" | "tail" | "logShards">;

/** The last message of the page before. */
export type HistoryPosition = { readonly timeUs: number; readonly shard: ShardNumber };

export type HistoryQuery<T> = {
  readonly filter: string;
  readonly fromUs: number;
  /** Inclusive. */
  readonly toUs: number;
  readonly after: HistoryPosition | undefined;
  readonly countMax: number;
  /** Of frames as they are stored. */
  readonly bytesMax: number;
  readonly show: (ttv: DeliverableTtv) => T;
};

export type HistoryPage<T> = {
  readonly messages: readonly T[];
  /** Undefined when nothing more is there now. */
  readonly next: HistoryPosition | undefined;
};

type Found<T> = HistoryPosition & { readonly sizeBytes: number; readonly message: T };
type Share<T> = {
  readonly found: ReadonlyArray<Found<T>>;
  /** All of this shard's matches up to here are in `found`. */
  readonly throughUs: number;
};

const waitMsMax = 10_000;
const lookMs = 5;

export async function readHistory<T>(
  store: HistoryStore,
  clock: Clock,
  query: HistoryQuery<T>,
): Promise<HistoryPage<T>> {
  const reads = store.logShards.map((shard) => readShare(store, clock, query, shard));
  const shares = await Promise.all(reads);
  const throughUs = Math.min(query.toUs, ...shares.map((share) => share.throughUs));
  const all = shares
    .flatMap(({ found }) => found)
    .filter(({ timeUs }) => timeUs <= throughUs)
    .sort((a, b) => a.timeUs - b.timeUs || a.shard - b.shard);
  const page = all.slice(0, countWithin(all, query));
  const last = page.at(-1);
  const isCut = all.length > page.length || throughUs < query.toUs;
  const messages = page.map(({ message }) => message);
  if (!isCut) return { messages, next: undefined };
  const next =
    last === undefined || all.length === page.length
      ? { timeUs: throughUs, shard: Number.MAX_SAFE_INTEGER }
      : { timeUs: last.timeUs, shard: last.shard };
  return { messages, next };
}

/** How many of what was found are a page: one at least. */
function countWithin(
  all: ReadonlyArray<Found<unknown>>,
  { countMax, bytesMax }: Pick<HistoryQuery<unknown>, "countMax" | "bytesMax">,
): number {
  let sizeBytes = 0;
  const beyond = all.findIndex((found, index) => {
    sizeBytes += found.sizeBytes;
    return index > 0 && sizeBytes > bytesMax;
  });
  return Math.min(countMax, beyond === -1 ? all.length : beyond);
}

type Position = Pick<HistoryQuery<unknown>, "after" | "fromUs">;

/** Position of a shard from which the page goes on: everything at or below it was answered. */
function startOf({ after, fromUs }: Position, shard: ShardNumber): number {
  if (after === undefined) return Math.max(0, fromUs - 1);
  return shard <= after.shard ? after.timeUs : after.timeUs - 1;
}

async function readShare<T>(
  store: HistoryStore,
  clock: Clock,
  query: HistoryQuery<T>,
  shard: ShardNumber,
): Promise<Share<T>> {
  const positions = store.tail();
  const startUs = startOf(query, shard);
  const tailUs = positions.get(shard) ?? 0;
  if (startUs >= Math.min(tailUs, query.toUs)) return { found: [], throughUs: query.toUs };
  positions.set(shard, startUs);
  const found: Array<Found<T>> = [];
  const shareBytesMax = query.bytesMax / store.logShards.length;
  let shareBytes = 0;
  // Set by the reader, which the compiler does not see through the loop below.
  const at = { end: "open" as "open" | "passed" | "cut" };
  const offer = (ttv: DeliverableTtv): boolean => {
    if (ttv.ref.shard !== shard) return true;
    if (at.end !== "open") return false;
    if (ttv.timeUs > query.toUs) at.end = "passed";
    else if (found.length > query.countMax || shareBytes > shareBytesMax) at.end = "cut";
    if (at.end !== "open") return false;
    const sizeBytes = ttv.frame.length;
    found.push({ shard, timeUs: ttv.timeUs, sizeBytes, message: query.show(ttv) });
    shareBytes += sizeBytes;
    return true;
  };
  const filter = { filter: query.filter, start: positions, durable: false, context: undefined };
  const port = { offer, moved: () => undefined, missed: () => undefined };
  const subscriber = store.subscribe({ filters: [filter], positions, port });
  try {
    const endMs = clock.elapsedMs() + waitMsMax;
    // The reader tells what it has, not that it has no more: that is looked up.
    for (;;) {
      await sleep(clock, lookMs);
      if (at.end === "passed") return { found, throughUs: query.toUs };
      if (at.end === "cut") return { found, throughUs: found.at(-1)?.timeUs ?? startUs };
      if (subscriber.atTail) return { found, throughUs: query.toUs };
      if (clock.elapsedMs() > endMs) return { found, throughUs: subscriber.position(shard) };
    }
  } finally {
    subscriber.close();
  }
}
