// Where the records of each shard lie, and which segments they keep.
//
// Invariants: per shard and segment a bounded number of entries, never one per record; extents of a
// shard are ascending and do not overlap, so that of several records with one index only the latest
// is ever read; a segment's pins are exactly the shards with an extent in it. Only durable records
// are in here. Reading them is left to record-reader.ts, freeing segments to log.ts.

import { assert } from "../base/index.ts";
import type { ShardSpan } from "./format.ts";
import type { Segment } from "./segments.ts";
import type { LogRange } from "./types.ts";

/** A place to start reading from is remembered about every this many bytes of a segment. */
const markDistanceBytes = 1024 * 1024;

export type Mark = { readonly firstIndex: number; readonly offset: number };

/** Consecutive records of one shard in one segment (with holes only where damage was found). */
export type Extent = {
  readonly segment: Segment;
  readonly firstIndex: number;
  lastIndex: number;
  /** Offset of the last flush with records of it. The first one is `marks[0].offset`. */
  toOffset: number;
  readonly marks: Mark[];
};

export type ShardState = {
  readonly shard: number;
  /** Last durable index; that of the release when it is ahead. */
  lastIndex: number;
  /** Last index queued; the next one appended is at most this + 1. Undefined: any may come. */
  queuedIndex: number | undefined;
  lastTerm: number;
  releasedIndex: number;
  /** About the bytes of records above `releasedIndex`. */
  unreleasedBytes: number;
  /** Records queued and not yet synced. */
  pendingRecords: number;
  forgotten: boolean;
  readonly extents: Extent[];
};

export class ShardIndex {
  readonly #shards = new Map<number, ShardState>();

  get(shard: number): ShardState | undefined {
    return this.#shards.get(shard);
  }

  obtain(shard: number): ShardState {
    let state = this.#shards.get(shard);
    if (state === undefined) {
      state = {
        shard,
        lastIndex: 0,
        queuedIndex: undefined,
        lastTerm: 0,
        releasedIndex: 0,
        unreleasedBytes: 0,
        pendingRecords: 0,
        forgotten: false,
        extents: [],
      };
      this.#shards.set(shard, state);
    }
    return state;
  }

  /** Shards with readable records. */
  shards(): number[] {
    const found: number[] = [];
    for (const state of this.#shards.values())
      if (state.extents.length > 0) found.push(state.shard);
    return found;
  }

  states(): IterableIterator<ShardState> {
    return this.#shards.values();
  }

  range(shard: number): LogRange | undefined {
    const state = this.#shards.get(shard);
    const first = state?.extents[0];
    const last = state?.extents.at(-1);
    if (state === undefined || first === undefined || last === undefined) return undefined;
    const firstIndex = Math.max(first.firstIndex, state.releasedIndex + 1);
    return { firstIndex, lastIndex: last.lastIndex };
  }

  /** The flush at `offset` of `segment` is durable and holds `span`. */
  addSpan(segment: Segment, offset: number, span: ShardSpan): void {
    const state = this.obtain(span.shard);
    if (state.forgotten) return;
    // A cut extent is never extended: its flushes hold the discarded records too.
    const isReplacing = span.firstIndex <= state.lastIndex;
    if (isReplacing) this.#cutFrom(state, span.firstIndex);
    state.lastIndex = span.lastIndex;
    state.lastTerm = span.lastTerm;
    if (span.lastIndex <= state.releasedIndex) return;
    const last = state.extents.at(-1);
    if (!isReplacing && last?.segment === segment && span.firstIndex === last.lastIndex + 1) {
      extend(last, offset, span);
      return;
    }
    state.extents.push({
      segment,
      firstIndex: span.firstIndex,
      lastIndex: span.lastIndex,
      toOffset: offset,
      marks: [{ firstIndex: span.firstIndex, offset }],
    });
    segment.pins.set(state.shard, (segment.pins.get(state.shard) ?? 0) + 1);
  }

  release(shard: number, index: number): void {
    const state = this.obtain(shard);
    if (index <= state.releasedIndex) return;
    const range = this.range(shard);
    if (range !== undefined && state.unreleasedBytes > 0) {
      const count = range.lastIndex - range.firstIndex + 1;
      const left = Math.max(0, range.lastIndex - index);
      state.unreleasedBytes = Math.ceil((state.unreleasedBytes * left) / count);
    }
    state.releasedIndex = index;
    if (index > state.lastIndex) state.lastIndex = index;
    if (state.queuedIndex !== undefined && index > state.queuedIndex) state.queuedIndex = index;
    let first = state.extents[0];
    while (first !== undefined && first.lastIndex <= index) {
      state.extents.shift();
      unpin(first.segment, shard);
      first = state.extents[0];
    }
    if (state.extents.length === 0 && state.pendingRecords === 0) state.unreleasedBytes = 0;
  }

  forget(shard: number): void {
    const state = this.#shards.get(shard);
    if (state === undefined) return;
    for (const extent of state.extents) unpin(extent.segment, shard);
    state.extents.length = 0;
    state.unreleasedBytes = 0;
    state.forgotten = true;
    this.settle(state);
  }

  /** Lets go of a forgotten shard once nothing of it is on its way to the disk. */
  settle(state: ShardState): void {
    if (state.forgotten && state.pendingRecords === 0) this.#shards.delete(state.shard);
  }

  // Docs/formats/log.md, "replacement": a later record discards the suffix from its index on.
  #cutFrom(state: ShardState, index: number): void {
    assert(index > state.releasedIndex, "a released record is never replaced");
    let last = state.extents.at(-1);
    while (last !== undefined && last.firstIndex >= index) {
      state.extents.pop();
      unpin(last.segment, state.shard);
      last = state.extents.at(-1);
    }
    if (last !== undefined && last.lastIndex >= index) last.lastIndex = index - 1;
  }
}

function extend(extent: Extent, offset: number, span: ShardSpan): void {
  extent.lastIndex = span.lastIndex;
  extent.toOffset = offset;
  const mark = extent.marks.at(-1);
  if (mark === undefined || offset - mark.offset >= markDistanceBytes) {
    extent.marks.push({ firstIndex: span.firstIndex, offset });
  }
}

function unpin(segment: Segment, shard: number): void {
  const count = segment.pins.get(shard) ?? 0;
  if (count > 1) segment.pins.set(shard, count - 1);
  else segment.pins.delete(shard);
}
