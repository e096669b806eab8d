// Follows the rows under a prefix of a map shard: what is there, and from then on each change, also
// when the rows are exchanged for those of another replica.
//
// Keeps: what is told last of a key is how it stands; a row that was listed before a change of it was
// applied never overrules that change.

import type { Cancel } from "../../base/index.ts";
import type { MapEntry, MapShard, MapWatcher } from "../api.ts";

export interface RowFollower {
  /** A row as it stands now. One that is known may come again, unchanged. */
  put(key: string, value: Buffer): void;
  /** It is not there, and may never have been. */
  gone(key: string): void;
  /** The rows were exchanged: no others are there than these. */
  exchanged(keys: ReadonlySet<string>): void;
}

/** Resolves when everything that is there has been told of. */
export async function followRows(
  shard: Pick<MapShard, "list" | "watch">,
  prefix: string,
  follower: RowFollower,
  { pageMax = 1_000 }: { readonly pageMax?: number } = {},
): Promise<Cancel> {
  const follow = new RowFollow(shard, prefix, follower, pageMax);
  const cancel = shard.watch(prefix, follow);
  await follow.begin();
  return cancel;
}

class RowFollow implements MapWatcher {
  readonly #shard: Pick<MapShard, "list">;
  readonly #prefix: string;
  readonly #follower: RowFollower;
  readonly #pageMax: number;
  /** Keys that were written since the listing that is under way began, and whether they are there. */
  #touched: Map<string, boolean> | undefined;
  #listing: Promise<void> = Promise.resolve();

  constructor(
    shard: Pick<MapShard, "list">,
    prefix: string,
    follower: RowFollower,
    pageMax: number,
  ) {
    this.#shard = shard;
    this.#prefix = prefix;
    this.#follower = follower;
    this.#pageMax = pageMax;
  }

  begin(): Promise<void> {
    this.#listing = this.#list(undefined);
    return this.#listing;
  }

  applied(key: string, value: Buffer | undefined): void {
    this.#touched?.set(key, value !== undefined);
    if (value === undefined) this.#follower.gone(key);
    else this.#follower.put(key, value);
  }

  replaced(): Promise<void> {
    this.#listing = this.#list(new Set());
    return this.#listing;
  }

  async #list(there: Set<string> | undefined): Promise<void> {
    const touched = new Map<string, boolean>();
    this.#touched = touched;
    for (let from: { afterKey?: string } = {}; ; ) {
      const page = await this.#shard.list(this.#prefix, { ...from, countMax: this.#pageMax });
      // The rows were exchanged meanwhile: the listing that began then says what is there.
      if (this.#touched !== touched) return this.#listing;
      for (const { key, value } of page) {
        if (touched.has(key)) continue;
        there?.add(key);
        this.#follower.put(key, value);
      }
      const last: MapEntry | undefined = page.at(-1);
      if (last === undefined || page.length < this.#pageMax) break;
      from = { afterKey: last.key };
    }
    this.#touched = undefined;
    if (there === undefined) return;
    for (const [key, isThere] of touched) if (isThere) there.add(key);
    this.#follower.exchanged(there);
  }
}
