// What a log slab consists of, and what is known of it from elsewhere.

import type { Generation } from "../core/generations.ts";
import type { LtsRecord } from "../core/lts-trie.ts";
import type { Structure } from "../core/structure.ts";
import type { DurableKv } from "../durable-kv.ts";
import { prefixEnd } from "../shard-store.ts";
import type { Ttv } from "../types.ts";
import { parseTopicRow, slabPrefix } from "./rows.ts";

export type SlabPair = {
  readonly blocks: DurableKv;
  readonly index: DurableKv;
  /** Set where some of it is lost: reads wait for it, since they lead readers past what is gone. */
  readonly settled?: Promise<void> | undefined;
};

/** What a sync proved of each of them. */
export type SlabProofs = { readonly blocks: Uint8Array; readonly index: Uint8Array };

export type TopicWrite = { readonly record: LtsRecord; readonly timeUs: number };

/** What is known of a slab from elsewhere. */
export type SlabExpected = {
  /** Undefined: nothing was proved since it was made. */
  readonly proofs: SlabProofs | undefined;
  /** How many TTVs each stream has. */
  readonly generation: Generation;
  /** Everything up to here is in the slab. */
  readonly untilUs: number;
  /** TTVs up to there that the log still has, in order. */
  readonly logged?: ((visit: VisitLogged) => Promise<void>) | undefined;
  /**
   * It was damaged and has been mended: its proofs are void. Reads wait for what comes back: that who
   * is to be told is on the medium.
   */
  readonly onMended: (lost: readonly LostStream[]) => SlabPair["settled"];
};

/** A stream with TTVs that are gone. */
export type LostStream = {
  readonly structure: Structure;
  readonly dollar: boolean;
  /** Where a reader on its way is told of the last of them. */
  readonly untilUs: number;
};

export type VisitLogged = (stream: number, ttv: Ttv) => void;

/** Learned records, in an order in which they can be applied. */
export async function readTopics(index: DurableKv): Promise<TopicWrite[]> {
  const found: TopicWrite[] = [];
  const prefix = Buffer.from([slabPrefix.topic]);
  await index.scan({ gte: prefix, lt: prefixEnd(prefix) }, (key, value) => {
    found.push(parseTopicRow(key, value));
  });
  return found;
}
