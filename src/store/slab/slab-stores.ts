// The two key-value stores of a log slab: `blocks`, keyed by last time and so only ever appended
// to, and `index`, small, keyed by stream. They are written, synced, cut back and removed together;
// the order is always blocks first, so that an index row never points to nothing for long.
// How they are opened, and mended when they are damaged, is in slab-pair.ts.

import { type Counters, createCounters } from "../../base/index.ts";
import { type KvCursor, kvErrors } from "../../kv/index.ts";
import { type CopyPage, readPage, type SlabStoreName } from "../copies/copy-source.ts";
import type { DurableKv } from "../durable-kv.ts";
import {
  type BlockRow,
  type BlockWrite,
  encodeBlockKey,
  encodeBlockRow,
} from "../layout/index-row.ts";
import { decodeWindowPart, type Window } from "../layout/window.ts";
import {
  blockRowKey,
  blockRowRange,
  parseBlockRow,
  parseWindowKey,
  slabPrefix,
  topicRow,
  windowRange,
  windowRows,
} from "./rows.ts";
import { readTopics, type SlabPair, type SlabProofs, type TopicWrite } from "./slab-parts.ts";

/** Parts of windows read at once: few windows have more than one. */
const windowPartsAhead = 2;

export const slabCounterHelp = {
  rowSeeks: "look-ups of a stream's next blocks in the index of a slab",
  windowSeeks: "look-ups of all blocks of a checkpoint window in the index of a slab",
};

export type SlabCounters = Counters<typeof slabCounterHelp>;

export class SlabStores {
  readonly path: string;
  readonly counters: SlabCounters;
  readonly #open: () => Promise<SlabPair>;
  #pair: SlabPair | undefined;
  #waking: Promise<SlabPair> | undefined;
  #resting: Promise<unknown> | undefined;
  /** Calls under way: they keep the stores open. */
  #users = 0;
  #wantsRest = false;
  #closed = false;

  private constructor(
    path: string,
    open: () => Promise<SlabPair>,
    parts: { readonly pair: SlabPair; readonly counters: SlabCounters },
  ) {
    this.path = path;
    this.counters = parts.counters;
    this.#open = open;
    this.#pair = parts.pair;
  }

  /** `open` runs again whenever the stores are needed after a rest. */
  static async open(
    path: string,
    open: () => Promise<SlabPair>,
    counters: SlabCounters = createCounters(slabCounterHelp),
  ): Promise<SlabStores> {
    return new SlabStores(path, open, { pair: await open(), counters });
  }

  get isResting(): boolean {
    return this.#pair === undefined;
  }

  /** Closes the stores, when nobody uses them, until somebody does again. */
  rest(): void {
    this.#wantsRest = this.#users > 0;
    const pair = this.#pair;
    if (this.#wantsRest || pair === undefined || this.#closed) return;
    this.#pair = undefined;
    // One that does not close well is opened again all the same, or says why not.
    this.#resting = Promise.allSettled([pair.blocks.close(), pair.index.close()]);
  }

  write(blocks: readonly BlockWrite[], topics: readonly TopicWrite[]): Promise<void> {
    return this.#use(async (pair) => {
      if (blocks.length > 0) {
        await pair.blocks.write((batch) => {
          for (const { row, value } of blocks) {
            batch.put(encodeBlockKey(row.lastTimeUs, row.stream), value);
          }
        });
      }
      await pair.index.write((batch) => {
        for (const { row } of blocks) {
          batch.put(blockRowKey(row.stream, row.lastTimeUs), encodeBlockRow(row));
        }
        for (const { record, timeUs } of topics) {
          const row = topicRow(record, timeUs);
          batch.put(row.key, row.value);
        }
      });
    });
  }

  /** Lists blocks that are written already. */
  writeWindow(window: Window): Promise<void> {
    return this.#use(({ index }) => writeWindows(index, [window]));
  }

  /** The first window that ends above `afterUs`; undefined when there is none. */
  windowAfter(afterUs: number): Promise<Window | undefined> {
    return this.#read(async ({ index }) => {
      this.counters.windowSeeks++;
      return firstWindowAfter(index, afterUs);
    });
  }

  /** Every row of a block or gap, stream by stream. */
  scanRows(visit: (row: BlockRow) => void): Promise<void> {
    return this.#read(({ index }) => scanBlockRows(index, visit));
  }

  /** Resolves with what an opening may hold against the stores from now on. */
  sync(): Promise<SlabProofs> {
    return this.#use(async ({ blocks, index }) => ({
      blocks: await blocks.sync(),
      index: await index.sync(),
    }));
  }

  /** The first rows of a stream whose last time is above `afterUs`. */
  rowsAfter(stream: number, afterUs: number, countMax: number): Promise<BlockRow[]> {
    return this.#read(async ({ index }) => {
      this.counters.rowSeeks++;
      const cursor = await index.cursor(blockRowRange(stream, afterUs));
      try {
        const entries = await cursor.next(countMax);
        return entries.map(([key, value]) => parseBlockRow(key, value));
      } finally {
        await cursor.close();
      }
    });
  }

  readBlock(row: BlockRow): Promise<Buffer | undefined> {
    const key = encodeBlockKey(row.lastTimeUs, row.stream);
    return this.#read(async ({ blocks }) => {
      const found = await blocks.get(key);
      if (found !== undefined) return found;
      // A rotten filter of a table denies keys that are there; a cursor does not ask it.
      const cursor = await blocks.cursor({ gte: key, lte: key });
      try {
        return (await cursor.next(1))[0]?.[1];
      } finally {
        await cursor.close();
      }
    });
  }

  /** Rows without blocks: gaps. */
  writeRows(rows: readonly BlockRow[]): Promise<void> {
    return this.#use(({ index }) => writeBlockRows(index, rows));
  }

  /** Rewrites the small one of the two as tables in order. */
  compactIndex(): Promise<void> {
    return this.#use(({ index }) => index.compact());
  }

  /** Rewrites both stores as tables in order. */
  compact(): Promise<void> {
    return this.#use(async ({ blocks, index }) => {
      await blocks.compact();
      await index.compact();
    });
  }

  /** Rows as they lie, for another replica. */
  page(store: SlabStoreName, after: Uint8Array | undefined): Promise<CopyPage> {
    return this.#use((pair) => readPage(pair[store], after));
  }

  /** Learned records, in an order in which they can be applied. */
  topics(): Promise<TopicWrite[]> {
    return this.#use(({ index }) => readTopics(index));
  }

  /** Removes everything later than the checkpoint: the log brings it back. */
  cutBack(checkpointUs: number): Promise<void> {
    return this.#use((pair) => cutPairBack(pair, checkpointUs));
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#waking?.catch(() => undefined); // told to whoever woke them
    await this.#resting;
    await Promise.all([this.#pair?.blocks.close(), this.#pair?.index.close()]);
  }

  #read<T>(task: (pair: SlabPair) => Promise<T>): Promise<T> {
    return this.#use((pair) =>
      pair.settled === undefined ? task(pair) : pair.settled.then(() => task(pair)),
    );
  }

  async #use<T>(task: (pair: SlabPair) => Promise<T>): Promise<T> {
    if (this.#closed) throw kvErrors.closed({ path: this.path });
    this.#users++;
    this.#wantsRest = false;
    try {
      return await task(this.#pair ?? (await this.#wake()));
    } finally {
      this.#users--;
      if (this.#wantsRest) this.rest();
    }
  }

  #wake(): Promise<SlabPair> {
    this.#waking ??= this.#openAgain().finally(() => {
      this.#waking = undefined;
    });
    return this.#waking;
  }

  async #openAgain(): Promise<SlabPair> {
    await this.#resting;
    const pair = await this.#open();
    this.#pair = pair;
    return pair;
  }
}

export async function firstWindowAfter(
  index: DurableKv,
  afterUs: number,
): Promise<Window | undefined> {
  const cursor = await index.cursor(windowRange(afterUs));
  try {
    return await readWindow(cursor);
  } finally {
    await cursor.close();
  }
}

/** See `SlabStores.cutBack`. */
export async function cutPairBack(
  { blocks, index }: SlabPair,
  checkpointUs: number,
): Promise<void> {
  const topics = await readTopics(index);
  const late = topics.filter((topic) => topic.timeUs > checkpointUs);
  const rows: Buffer[] = late.map(({ record, timeUs }) => topicRow(record, timeUs).key);
  let streamMax = 0;
  for (const { record } of topics) {
    if (record.kind === "stream") streamMax = Math.max(streamMax, record.stream);
  }
  const collect = (key: Buffer): void => {
    rows.push(key);
  };
  // Every number, known or not: after a power cut a block's row may be there without its
  // stream's. A seek each, whatever the slab holds.
  for (let stream = 1; stream <= streamMax; stream++) {
    await index.scan(blockRowRange(stream, checkpointUs), collect);
  }
  const beyond = { gte: blockRowKey(streamMax + 1, 0), lt: Buffer.from([slabPrefix.block + 1]) };
  await index.scan(beyond, collect);
  await index.scan(windowRange(checkpointUs), collect);
  if (rows.length > 0) {
    await index.write((batch) => {
      for (const key of rows) batch.delete(key);
    });
  }
  const keys: Buffer[] = [];
  await blocks.scan({ gt: encodeBlockKey(checkpointUs, 0xffff_ffff) }, (key) => {
    keys.push(key);
  });
  if (keys.length === 0) return;
  await blocks.write((batch) => {
    for (const key of keys) batch.delete(key);
  });
}

/** Rows of one batch. */
const batchRowsMax = 500;

export async function writeBlockRows(index: DurableKv, rows: readonly BlockRow[]): Promise<void> {
  for (let at = 0; at < rows.length; at += batchRowsMax) {
    await index.write((batch) => {
      for (const row of rows.slice(at, at + batchRowsMax)) {
        batch.put(blockRowKey(row.stream, row.lastTimeUs), encodeBlockRow(row));
      }
    });
  }
}

export async function writeWindows(index: DurableKv, windows: Iterable<Window>): Promise<void> {
  for (const window of windows) {
    await index.write((batch) => {
      for (const [key, value] of windowRows(window)) batch.put(key, value);
    });
  }
}

/** In place of all windows that are there. */
export async function replaceWindows(index: DurableKv, windows: Iterable<Window>): Promise<void> {
  const keys: Buffer[] = [];
  await index.scan(windowRange(0), (key) => {
    keys.push(key);
  });
  for (let at = 0; at < keys.length; at += batchRowsMax) {
    await index.write((batch) => {
      for (const key of keys.slice(at, at + batchRowsMax)) batch.delete(key);
    });
  }
  await writeWindows(index, windows);
}

export function scanBlockRows(index: DurableKv, visit: (row: BlockRow) => void): Promise<void> {
  const range = { gte: Buffer.from([slabPrefix.block]), lt: Buffer.from([slabPrefix.block + 1]) };
  return index.scan(range, (key, value) => visit(parseBlockRow(key, value)));
}

/** A window is never written in part: its parts are one batch. */
async function readWindow(cursor: KvCursor): Promise<Window | undefined> {
  let untilUs: number | undefined;
  const rows: BlockRow[] = [];
  for (;;) {
    const entries = await cursor.next(windowPartsAhead);
    for (const [key, value] of entries) {
      const part = parseWindowKey(key);
      untilUs ??= part.untilUs;
      if (part.untilUs !== untilUs) return { untilUs, rows };
      for (const row of decodeWindowPart(untilUs, value)) rows.push(row);
    }
    if (entries.length === 0) return untilUs === undefined ? undefined : { untilUs, rows };
  }
}
