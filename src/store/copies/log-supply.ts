// What a log shard gives to a replica that lacks it.
//
// Keeps: a slab is given under the name that the asker read in the shard store; once it was packed
// anew or dropped, it is gone. Each hash is taken once for as long as its folder stays.

import { createHash } from "node:crypto";
import type { KvEntry } from "../../kv/index.ts";
import { LostBatch } from "../layout/lost-batch.ts";
import type { ShardStore } from "../shard-store.ts";
import type { Generations } from "../slab/generations.ts";
import type { LogSlab } from "../slab/log-slab.ts";
import { folderName, type SlabName } from "../slab/slab-name.ts";
import { walkSlab } from "../walk.ts";
import { type CopyPage, type CopySource, gone, type SlabStoreName } from "./copy-source.ts";

export class LogSupply implements CopySource {
  readonly id = "own";
  readonly #store: ShardStore;
  readonly #generations: () => Generations;
  /** By folder. */
  readonly #hashes = new Map<string, Promise<string>>();

  constructor(store: ShardStore, generations: () => Generations) {
    this.#store = store;
    this.#generations = generations;
  }

  facts(): Promise<readonly KvEntry[]> {
    return this.#store.listRows();
  }

  async slab(
    name: SlabName,
    store: SlabStoreName,
    after: Uint8Array | undefined,
  ): Promise<CopyPage> {
    const slab = await this.#slabOf(name);
    const page = await slab?.page(store, after);
    return page === undefined || !this.#isNamed(name) ? gone(folderName(name)) : page;
  }

  map(): Promise<CopyPage> {
    return gone("a map");
  }

  async hash(number: number): Promise<string> {
    const row = this.#generations().list.find((each) => each.number === number);
    if (row === undefined) return gone(`generation ${number}`);
    const folder = folderName(row);
    const known = this.#hashes.get(folder);
    if (known !== undefined) return known;
    const hashing = this.#hash(row);
    this.#forgetOthers();
    this.#hashes.set(folder, hashing);
    hashing.catch(() => this.#hashes.delete(folder));
    return hashing;
  }

  async #hash(name: SlabName): Promise<string> {
    const slab = await this.#slabOf(name);
    return slab === undefined ? gone(folderName(name)) : hashLasting(slab);
  }

  async #slabOf(name: SlabName): Promise<LogSlab | undefined> {
    return this.#isNamed(name) ? this.#generations().slabOf(name.number) : undefined;
  }

  #isNamed({ number, pack }: SlabName): boolean {
    return this.#generations().readable.some(
      (each) => each.number === number && each.pack === pack,
    );
  }

  #forgetOthers(): void {
    const folders = new Set(this.#generations().list.map(folderName));
    for (const folder of this.#hashes.keys()) {
      if (!folders.has(folder)) this.#hashes.delete(folder);
    }
  }
}

/** Of what never expires: each replica takes away what has expired when it likes. */
export async function hashLasting(slab: LogSlab): Promise<string> {
  const hash = createHash("sha256");
  for await (const { stream, batch, from } of walkSlab(slab)) {
    if (batch instanceof LostBatch) {
      if (batch.reason === "damaged") hash.update(`damaged ${stream} ${batch.row.lastTimeUs};`);
      continue;
    }
    for (let at = from; at < batch.count; at++) {
      if (batch.expiryUs(at) > 0) continue;
      const varying = batch.varying(batch.topicId(at));
      const publisher = batch.publisher(batch.publisherId(at));
      const frame = batch.frame(at);
      const facts = [stream, batch.timeUs(at), batch.flags(at), frame.length, publisher, varying];
      hash.update(JSON.stringify(facts)).update(frame);
    }
  }
  return hash.digest("hex");
}
