// The logical hash of a shard: equal wherever the shard is equal, however its blocks are cut, its
// stores compacted, its slabs laid out or its process restarted. Of a log shard: its generations,
// learned topics, TTVs in order, writers and holds. Of a map shard: its entries in key order and its
// writers.
//
// It is of the state that is applied while it runs: compare shards that are at rest.

import { createHash, type Hash } from "node:crypto";
import type { LogShard } from "./log-shard.ts";
import type { MapShard } from "./map/map-shard.ts";
import { walkSlab } from "./walk.ts";

const pageEntries = 1_000;

export async function hashLogShard(log: LogShard): Promise<string> {
  const hash = createHash("sha256");
  for (const { number, fromUs, toUs } of log.generations.readable) {
    add(hash, "generation", number, fromUs, toUs ?? 0);
    const slab = await log.generations.slabOf(number);
    if (slab === undefined) {
      add(hash, "unreadable");
      continue;
    }
    const records = slab.lts.records().map((record) => JSON.stringify(record));
    for (const record of records.sort()) add(hash, record);
    let stream = -1;
    for await (const walked of walkSlab(slab)) {
      if (walked.stream !== stream) add(hash, "stream", walked.stream);
      stream = walked.stream;
      const { batch } = walked;
      for (let at = walked.from; at < batch.count; at++) {
        const varying = batch.varying(batch.topicId(at)).join("/");
        const publisher = batch.publisher(batch.publisherId(at));
        add(hash, batch.timeUs(at), batch.flags(at), batch.expiryUs(at), batch.expiryOffset(at));
        add(hash, varying, publisher, batch.frame(at).length);
        hash.update(batch.frame(at));
      }
    }
  }
  for (const writer of log.writerStates()) add(hash, writer);
  for (const { name, afterUs, lostTtvs } of sortedByName(log.holds.list)) {
    add(hash, "hold", name, afterUs, lostTtvs);
  }
  return hash.digest("hex");
}

export async function hashMapShard(map: MapShard): Promise<string> {
  const hash = createHash("sha256");
  for (let afterKey: string | undefined; ; ) {
    const from = afterKey === undefined ? {} : { afterKey };
    const page = await map.list("", { ...from, countMax: pageEntries });
    for (const { key, timeUs, value } of page) {
      add(hash, key, timeUs, value.length);
      hash.update(value);
    }
    afterKey = page.at(-1)?.key;
    if (page.length < pageEntries) break;
  }
  for (const writer of map.writerStates()) add(hash, writer);
  return hash.digest("hex");
}

/** Parts with their lengths, so that no two lists of parts look alike. */
function add(hash: Hash, ...parts: ReadonlyArray<string | number>): void {
  for (const part of parts) {
    const text = String(part);
    hash.update(`${text.length}:${text},`);
  }
}

function sortedByName<T extends { readonly name: string }>(list: readonly T[]): T[] {
  return [...list].sort((a, b) => (a.name < b.name ? -1 : 1));
}
