// A walk over a snapshot of the memory twin, with the port's bounds and seek rules.
//
// `#next` is where the walk stands: the place of the next entry forwards; backwards the place after
// it, so that the end of the range is an ordinary place. Entries are copied for the caller.

import { asBuffer } from "../base/index.ts";
import { type KvCursor, type KvEntry, type KvRange, kvErrors } from "./kv.ts";
import { boundsOf, type KvBounds } from "./range.ts";
import type { Place, SortedView } from "./sorted-map.ts";
import type { WriteQueue } from "./writes.ts";

/** As the LevelDB driver's high-water mark. */
const cursorBytes = 1024 * 1024;

export class MemoryCursor implements KvCursor {
  readonly #walk: SortedWalk;
  readonly #store: WriteQueue;
  readonly #read: <T>(effect: () => T) => Promise<T>;
  #isClosed = false;

  constructor(walk: SortedWalk, store: WriteQueue, read: <T>(effect: () => T) => Promise<T>) {
    this.#walk = walk;
    this.#store = store;
    this.#read = read;
  }

  async next(countMax: number): Promise<KvEntry[]> {
    this.#refuseClosed();
    return this.#read(() => this.#walk.take(countMax));
  }

  seek(key: Uint8Array): void {
    this.#refuseClosed();
    this.#walk.seek(asBuffer(key));
  }

  async close(): Promise<void> {
    this.#isClosed = true;
  }

  #refuseClosed(): void {
    if (this.#isClosed || this.#store.isClosed) throw kvErrors.closed({ path: this.#store.path });
  }
}

export class SortedWalk {
  readonly #view: SortedView;
  readonly #bounds: KvBounds;
  readonly #isReverse: boolean;
  #next: Place;

  constructor(view: SortedView, range: KvRange) {
    this.#view = view;
    this.#bounds = boundsOf(range);
    this.#isReverse = range.reverse === true;
    const { gte, lt } = this.#bounds;
    if (this.#isReverse) this.#next = lt === undefined ? view.end : view.atOrAfter(lt);
    else this.#next = gte === undefined ? view.first : view.atOrAfter(gte);
  }

  take(countMax: number): KvEntry[] {
    const entries: KvEntry[] = [];
    let sizeBytes = 0;
    while (entries.length < countMax && sizeBytes < cursorBytes) {
      const entry = this.#isReverse ? this.#stepBack() : this.#stepOn();
      if (entry === undefined) break;
      entries.push([Buffer.from(entry[0]), Buffer.from(entry[1])]);
      sizeBytes += entry[0].length + entry[1].length;
    }
    return entries;
  }

  seek(key: Uint8Array): void {
    const { gte, lt } = this.#bounds;
    if (this.#isReverse) {
      const isBeyond = lt !== undefined && Buffer.compare(key, lt) >= 0;
      const place = this.#view.atOrAfter(isBeyond ? lt : key);
      const found = this.#view.at(place);
      const isHit = !isBeyond && found !== undefined && Buffer.compare(found[0], key) === 0;
      this.#next = isHit ? this.#view.after(place) : place;
    } else {
      const isBelow = gte !== undefined && Buffer.compare(key, gte) < 0;
      this.#next = this.#view.atOrAfter(isBelow ? gte : key);
    }
  }

  #stepOn(): KvEntry | undefined {
    const entry = this.#view.at(this.#next);
    if (entry === undefined || !this.#holds(entry[0])) return undefined;
    this.#next = this.#view.after(this.#next);
    return entry;
  }

  #stepBack(): KvEntry | undefined {
    const place = this.#view.before(this.#next);
    const entry = place === undefined ? undefined : this.#view.at(place);
    if (place === undefined || entry === undefined || !this.#holds(entry[0])) return undefined;
    this.#next = place;
    return entry;
  }

  #holds(key: Buffer): boolean {
    const { gte, lt } = this.#bounds;
    if (gte !== undefined && Buffer.compare(key, gte) < 0) return false;
    return lt === undefined || Buffer.compare(key, lt) < 0;
  }
}
