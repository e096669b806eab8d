// Holds of a shard: names that keep generations from being dropped, whoever has read them.
//
// A hold keeps every TTV later than its time. Only a forced drop passes it, and the hold remembers
// how much it lost. Holds are made, moved and released by entries of the shard's log, and saved by
// checkpoints.

import { ByteReader, type ByteWriter, ByteWriter as Writer } from "../base/index.ts";
import type { KvBatch } from "../kv/index.ts";
import { storeErrors } from "./errors.ts";
import { checkRowVersion, readRow } from "./rows.ts";
import { rowPrefix, type ShardStore } from "./shard-store.ts";

export type Hold = {
  readonly name: string;
  /** Everything later is kept. */
  readonly afterUs: number;
  /** Held TTVs that were dropped by force, at most. */
  readonly lostTtvs: number;
};

/** Each is looked at before a drop, and each was made by somebody on purpose. */
export const holdsMax = 1_000;
export const holdNameCharsMax = 256;
const rowVersion = 1;

export class HoldTable {
  readonly #holds = new Map<string, Hold>();
  #dirty = new Set<string>();
  #flushing: Set<string> | undefined;

  async load(store: ShardStore): Promise<void> {
    await store.scan(Buffer.from([rowPrefix.hold]), (key, value) => {
      const name = key.toString("utf8", 1);
      this.#holds.set(name, decodeHold(name, value));
    });
  }

  get list(): Hold[] {
    return [...this.#holds.values()];
  }

  /** Names of the holds that keep something up to this time. */
  keeping(untilUs: number): string[] {
    return this.list.filter((hold) => hold.afterUs < untilUs).map((hold) => hold.name);
  }

  /** @throws STORE_LIMIT_REACHED. */
  checkRoom(name: string): void {
    if (name.length > holdNameCharsMax) {
      const limit = "the length of a hold's name";
      throw storeErrors.limitReached({ limit, max: holdNameCharsMax });
    }
    if (this.#holds.has(name) || this.#holds.size < holdsMax) return;
    throw storeErrors.limitReached({ limit: "the number of holds", max: holdsMax });
  }

  applyHold(name: string, afterUs: number): void {
    const lostTtvs = this.#holds.get(name)?.lostTtvs ?? 0;
    this.#set({ name, afterUs, lostTtvs });
  }

  applyRelease(name: string): void {
    if (this.#holds.delete(name)) this.#dirty.add(name);
  }

  /** A generation up to `untilUs` was dropped by force. */
  applyLoss(untilUs: number, ttvs: number): void {
    for (const hold of this.list) {
      if (hold.afterUs < untilUs) this.#set({ ...hold, lostTtvs: hold.lostTtvs + ttvs });
    }
  }

  capture(): (batch: KvBatch) => void {
    this.#flushing = this.#dirty;
    this.#dirty = new Set();
    const rows = [...this.#flushing].map((name) => {
      const hold = this.#holds.get(name);
      const key = Buffer.concat([Buffer.from([rowPrefix.hold]), Buffer.from(name)]);
      return [key, hold === undefined ? undefined : encodeHold(hold)] as const;
    });
    return (batch) => {
      for (const [key, value] of rows) {
        if (value === undefined) batch.delete(key);
        else batch.put(key, value);
      }
    };
  }

  finish(committed: boolean): void {
    if (!committed) for (const name of this.#flushing ?? []) this.#dirty.add(name);
    this.#flushing = undefined;
  }

  #set(hold: Hold): void {
    this.#holds.set(hold.name, hold);
    this.#dirty.add(hold.name);
  }
}

export function writeHold(writer: ByteWriter, name: string, afterUs: number): void {
  writer.string(name).u64(afterUs);
}

export function encodeHold(hold: Hold): Buffer {
  const writer = new Writer(16).u8(rowVersion).u64(hold.afterUs).varint(hold.lostTtvs);
  return Buffer.from(writer.finish());
}

function decodeHold(name: string, value: Buffer): Hold {
  return readRow("hold", () => {
    const reader = new ByteReader(value);
    checkRowVersion("hold", reader.u8(), rowVersion);
    return { name, afterUs: reader.u64(), lostTtvs: reader.varint() };
  });
}
