// The two key-value stores of a log slab: `blocks`, keyed by last time and so only ever appended
// to, and `index`, small, keyed by stream. They are written, synced, cut back and removed together;
// the order is always blocks first, so that an index row never points to nothing for long.

import { joinPath } from "../../base/index.ts";
import type { LtsRecord } from "../core/lts-trie.ts";
import { DurableKv, type DurableKvParts } from "../durable-kv.ts";
import {
  type BlockRow,
  type BlockWrite,
  encodeBlockKey,
  encodeBlockRow,
} from "../layout/index-row.ts";
import { prefixEnd } from "../shard-store.ts";
import {
  blockRowKey,
  blockRowRange,
  parseBlockRow,
  parseTopicRow,
  slabPrefix,
  topicRow,
} from "./rows.ts";

export type TopicWrite = { readonly record: LtsRecord; readonly timeUs: number };

/** Folders of the two stores in a slab's folder. */
export const storeNames = ["blocks", "index"] as const;
const blocksWriteBufferBytes = 16 * 1024 * 1024;
const indexWriteBufferBytes = 2 * 1024 * 1024;

export class SlabStores {
  readonly path: string;
  readonly #blocks: DurableKv;
  readonly #index: DurableKv;

  private constructor(path: string, blocks: DurableKv, index: DurableKv) {
    this.path = path;
    this.#blocks = blocks;
    this.#index = index;
  }

  static async open(path: string, parts: DurableKvParts): Promise<SlabStores> {
    const [blocks, index] = storeNames.map((name) => joinPath(path, name)) as [string, string];
    const opened = await Promise.allSettled([
      DurableKv.open(blocks, { writeBufferBytes: blocksWriteBufferBytes }, parts),
      DurableKv.open(index, { writeBufferBytes: indexWriteBufferBytes }, parts),
    ]);
    const stores = opened.map((each) => (each.status === "fulfilled" ? each.value : undefined));
    const [first, second] = stores;
    if (first !== undefined && second !== undefined) return new SlabStores(path, first, second);
    for (const store of stores) await store?.close();
    throw opened.find((each) => each.status === "rejected")?.reason;
  }

  async write(blocks: readonly BlockWrite[], topics: readonly TopicWrite[]): Promise<void> {
    if (blocks.length > 0) {
      await this.#blocks.write((batch) => {
        for (const { row, value } of blocks) {
          batch.put(encodeBlockKey(row.lastTimeUs, row.stream), value);
        }
      });
    }
    await this.#index.write((batch) => {
      for (const { row } of blocks) {
        batch.put(blockRowKey(row.stream, row.lastTimeUs), encodeBlockRow(row));
      }
      for (const { record, timeUs } of topics) {
        const row = topicRow(record, timeUs);
        batch.put(row.key, row.value);
      }
    });
  }

  async sync(): Promise<void> {
    await this.#blocks.sync();
    await this.#index.sync();
  }

  /** The first rows of a stream whose last time is above `afterUs`. */
  async rowsAfter(stream: number, afterUs: number, countMax: number): Promise<BlockRow[]> {
    const cursor = await this.#index.cursor(blockRowRange(stream, afterUs));
    try {
      const entries = await cursor.next(countMax);
      return entries.map(([key, value]) => parseBlockRow(key, value));
    } finally {
      await cursor.close();
    }
  }

  readBlock(row: BlockRow): Promise<Buffer | undefined> {
    return this.#blocks.get(encodeBlockKey(row.lastTimeUs, row.stream));
  }

  /** Learned records, in an order in which they can be applied. */
  async topics(): Promise<TopicWrite[]> {
    const found: TopicWrite[] = [];
    const prefix = Buffer.from([slabPrefix.topic]);
    await this.#index.scan({ gte: prefix, lt: prefixEnd(prefix) }, (key, value) => {
      found.push(parseTopicRow(key, value));
    });
    return found;
  }

  /** Removes everything later than the checkpoint: the log brings it back. */
  async cutBack(checkpointUs: number): Promise<void> {
    const topics = await this.topics();
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
      await this.#index.scan(blockRowRange(stream, checkpointUs), collect);
    }
    const beyond = { gte: blockRowKey(streamMax + 1, 0), lt: Buffer.from([slabPrefix.block + 1]) };
    await this.#index.scan(beyond, collect);
    if (rows.length > 0) {
      await this.#index.write((batch) => {
        for (const key of rows) batch.delete(key);
      });
    }
    const blocks: Buffer[] = [];
    await this.#blocks.scan({ gt: encodeBlockKey(checkpointUs, 0xffff_ffff) }, (key) => {
      blocks.push(key);
    });
    if (blocks.length === 0) return;
    await this.#blocks.write((batch) => {
      for (const key of blocks) batch.delete(key);
    });
  }

  async close(): Promise<void> {
    await Promise.all([this.#blocks.close(), this.#index.close()]);
  }
}
