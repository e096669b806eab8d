// The two key-value stores of a log slab: `blocks`, keyed by last time and so only ever appended
// to, and `index`, small, keyed by stream. They are written, synced, cut back and removed together;
// the order is always blocks first, so that an index row never points to nothing for long.
// How they are opened, and mended when they are damaged, is in slab-pair.ts.

import { kvErrors } from "../../kv/index.ts";
import {
  type BlockRow,
  type BlockWrite,
  encodeBlockKey,
  encodeBlockRow,
} from "../layout/index-row.ts";
import { blockRowKey, blockRowRange, parseBlockRow, slabPrefix, topicRow } from "./rows.ts";
import { readTopics, type SlabPair, type SlabProofs, type TopicWrite } from "./slab-parts.ts";

export class SlabStores {
  readonly path: string;
  readonly #open: () => Promise<SlabPair>;
  #pair: SlabPair | undefined;
  #waking: Promise<SlabPair> | undefined;
  #resting: Promise<unknown> | undefined;
  /** Calls under way: they keep the stores open. */
  #users = 0;
  #wantsRest = false;
  #closed = false;

  private constructor(path: string, open: () => Promise<SlabPair>, pair: SlabPair) {
    this.path = path;
    this.#open = open;
    this.#pair = pair;
  }

  /** `open` runs again whenever the stores are needed after a rest. */
  static async open(path: string, open: () => Promise<SlabPair>): Promise<SlabStores> {
    return new SlabStores(path, open, await open());
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

  /** Resolves with what an opening may hold against the stores from now on. */
  sync(): Promise<SlabProofs> {
    return this.#use(async ({ blocks, index }) => ({
      blocks: await blocks.sync(),
      index: await index.sync(),
    }));
  }

  /** The first rows of a stream whose last time is above `afterUs`. */
  rowsAfter(stream: number, afterUs: number, countMax: number): Promise<BlockRow[]> {
    return this.#use(async ({ index }) => {
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
    return this.#use(async ({ blocks }) => {
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

  /** Rewrites both stores as tables in order. */
  compact(): Promise<void> {
    return this.#use(async ({ blocks, index }) => {
      await blocks.compact();
      await index.compact();
    });
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

async function cutPairBack({ blocks, index }: SlabPair, checkpointUs: number): Promise<void> {
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
