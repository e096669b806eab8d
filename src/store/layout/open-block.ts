// The open block of a stream: committed TTVs in memory, for which the log is the durability.
//
// It takes TTVs in time order, copies their frames into memory of its own, and is a `TtvBatch` at any
// moment. Full at 256 TTVs or 64 KiB of frames; one larger frame fills a block alone. When it is full,
// or at a checkpoint, it is sealed: from then on it never changes, and is read like any other block
// until its bytes are on disk and after.

import { assert, viewOf } from "../../base/index.ts";
import { nextNumber, type Place } from "../core/place.ts";
import { type ResidualPattern, residualMatches } from "../core/structure.ts";
import { sourceOf, type Ttv, type TtvSource } from "../types.ts";
import type { TtvBatch } from "./ttv-view.ts";

export type OpenBlockSettings = {
  /** TTVs after which a block is full. Fewer than 16 cost more than a key per message. */
  readonly ttvsMax: number;
  /** Bytes of frames after which a block is full. */
  readonly bytesMax: number;
};

export const openBlockSettingsDefault: OpenBlockSettings = { ttvsMax: 256, bytesMax: 64 * 1024 };

const ttvsInitial = 16;
const framesInitialBytes = 4096;
/** Typed tables: time 8, expiry 8, start 4, expiry offset 4, ids 2 + 2, flags 1. */
const rowBytes = 29;
/** Estimate of a dictionary entry: map slot, array slot, string head. */
const entryBytes = 96;

/** What a block is likely to hold, so that its memory need not grow: mostly what the last one held. */
export type OpenBlockHint = { readonly ttvs: number; readonly framesBytes: number };

export class OpenBlock implements TtvBatch {
  readonly #settings: OpenBlockSettings;
  readonly #topics = new Map<string, number>();
  readonly #varying: Array<readonly string[]> = [];
  /** Places of all topics, as long as their words are of one table. */
  #places: Place[] | undefined = [];
  readonly #number = nextNumber();
  readonly #publisherIds = new Map<string, number>();
  readonly #publishers: string[] = [];
  #count = 0;
  #sealed = false;
  #dictionaryBytes = 0;
  #frames: Buffer;
  /** Of the same memory. */
  #view: DataView;
  #times: Float64Array;
  #expiries: Float64Array;
  #starts: Uint32Array;
  #expiryOffsets: Uint32Array;
  #topicIds: Uint16Array;
  #publisherIdOf: Uint16Array;
  #flags: Uint8Array;

  constructor(settings: OpenBlockSettings = openBlockSettingsDefault, hint?: OpenBlockHint) {
    this.#settings = settings;
    const { ttvs = 0, framesBytes = 0 } = hint ?? {};
    const rows = Math.max(ttvsInitial, Math.min(ttvs, settings.ttvsMax));
    // A frame that fills a block alone says nothing about the next one.
    const isShared = framesBytes <= settings.bytesMax;
    const bytes = isShared ? Math.max(framesInitialBytes, framesBytes) : framesInitialBytes;
    this.#frames = Buffer.allocUnsafeSlow(bytes);
    this.#view = viewOf(this.#frames);
    this.#times = new Float64Array(rows);
    this.#expiries = new Float64Array(rows);
    this.#starts = new Uint32Array(rows + 1);
    this.#expiryOffsets = new Uint32Array(rows);
    this.#topicIds = new Uint16Array(rows);
    this.#publisherIdOf = new Uint16Array(rows);
    this.#flags = new Uint8Array(rows);
  }

  get count(): number {
    return this.#count;
  }

  get topicCount(): number {
    return this.#varying.length;
  }

  get publisherCount(): number {
    return this.#publishers.length;
  }

  get isSealed(): boolean {
    return this.#sealed;
  }

  get places(): readonly Place[] | undefined {
    return this.#places;
  }

  /** Bytes of frames held. */
  get framesBytes(): number {
    return this.#starts[this.#count] as number;
  }

  /** Memory held, for the write buffer of the group; changes with `append` only. */
  get memoryBytes(): number {
    return this.#frames.length + rowBytes * this.#times.length + this.#dictionaryBytes;
  }

  get isFull(): boolean {
    const { ttvsMax, bytesMax } = this.#settings;
    return this.#count >= ttvsMax || this.framesBytes >= bytesMax;
  }

  /** False when the block should be sealed before a frame of this size is added. */
  fits(frameBytes: number): boolean {
    if (this.#sealed || this.isFull) return false;
    return this.#count === 0 || this.framesBytes + frameBytes <= this.#settings.bytesMax;
  }

  /**
   * Adds a TTV; its frame is copied. `varying` is what its place says, and is kept.
   * REQUIRES: not sealed; its time is above all times here.
   */
  append(ttv: Ttv, varying: readonly string[]): void {
    this.#places = undefined;
    this.#add(sourceOf(ttv), this.#topicIdFor(ttv.topic, varying));
  }

  /** The same for a frame among other bytes, of a topic whose place is known. */
  appendAt(ttv: TtvSource, place: Place): void {
    const isKnown = place.block === this.#number;
    this.#add(ttv, isKnown ? place.topicId : this.#topicIdAt(ttv.topic, place));
  }

  #add(ttv: TtvSource, topicId: number): void {
    const index = this.#count;
    const { timeUs, from, to } = ttv;
    assert(!this.#sealed, "a sealed block takes no more TTVs");
    assert(index === 0 || timeUs > this.timeUs(index - 1), "times in a block grow strictly");
    if (index === this.#times.length) this.#growTables();
    const start = this.framesBytes;
    const end = start + to - from;
    if (end > this.#frames.length) this.#growFrames(end);
    ttv.bytes.copy(from, to, this.#frames, this.#view, start);
    this.#starts[index + 1] = end;
    this.#times[index] = timeUs;
    this.#flags[index] = ttv.flags;
    this.#expiries[index] = ttv.expiryUs;
    this.#expiryOffsets[index] = ttv.expiryOffset;
    this.#topicIds[index] = topicId;
    this.#publisherIdOf[index] = this.#publisherIdFor(ttv.publisher);
    this.#count = index + 1;
  }

  /** No append after this. Sealing twice is the same. REQUIRES: at least one TTV. */
  seal(): void {
    assert(this.#count > 0, "an empty block is not sealed");
    this.#sealed = true;
  }

  timeUs(index: number): number {
    return this.#times[index] as number;
  }

  flags(index: number): number {
    return this.#flags[index] as number;
  }

  topicId(index: number): number {
    return this.#topicIds[index] as number;
  }

  publisherId(index: number): number {
    return this.#publisherIdOf[index] as number;
  }

  expiryUs(index: number): number {
    return this.#expiries[index] as number;
  }

  expiryOffset(index: number): number {
    return this.#expiryOffsets[index] as number;
  }

  frameStart(index: number): number {
    return this.#starts[index] as number;
  }

  frames(): Buffer {
    return this.#frames.subarray(0, this.framesBytes);
  }

  frame(index: number): Buffer {
    return this.#frames.subarray(this.frameStart(index), this.frameStart(index + 1));
  }

  varying(topicId: number): readonly string[] {
    return this.#varying[topicId] as readonly string[];
  }

  publisher(publisherId: number): string {
    return this.#publishers[publisherId] as string;
  }

  matchVarying(pattern: ResidualPattern): Uint8Array {
    return Uint8Array.from(this.#varying, (words) => (residualMatches(pattern, words) ? 1 : 0));
  }

  #topicIdFor(topic: string, varying: readonly string[]): number {
    const known = this.#topics.get(topic);
    if (known !== undefined) return known;
    const id = this.#addTopic(topic, varying);
    this.#topics.set(topic, id);
    return id;
  }

  /** A topic that was forgotten and placed again meanwhile is listed twice. */
  #topicIdAt(topic: string, place: Place): number {
    if (place.words === undefined) {
      this.#places = undefined;
      return this.#topicIdFor(topic, place.varying);
    }
    const id = this.#addTopic(topic, place.varying);
    place.block = this.#number;
    place.topicId = id;
    if (this.#places?.[0] !== undefined && this.#places[0].table !== place.table) {
      this.#places = undefined;
    }
    this.#places?.push(place);
    return id;
  }

  #addTopic(topic: string, varying: readonly string[]): number {
    this.#dictionaryBytes += entryBytes + 2 * topic.length;
    return this.#varying.push(varying) - 1;
  }

  #publisherIdFor(publisher: string): number {
    const known = this.#publisherIds.get(publisher);
    if (known !== undefined) return known;
    const id = this.#publishers.push(publisher) - 1;
    this.#publisherIds.set(publisher, id);
    this.#dictionaryBytes += entryBytes + 2 * publisher.length;
    return id;
  }

  // Views handed out keep the memory they were made of: it is left behind, never written again.
  #growFrames(needBytes: number): void {
    const roomBytes = this.#count === 0 ? 0 : 2 * this.#frames.length;
    const grown = Buffer.allocUnsafeSlow(Math.max(needBytes, roomBytes));
    this.#frames.copy(grown, 0, 0, this.framesBytes);
    this.#frames = grown;
    this.#view = viewOf(grown);
  }

  #growTables(): void {
    const rows = Math.min(2 * this.#times.length, Math.max(this.#settings.ttvsMax, ttvsInitial));
    const size = Math.max(rows, this.#times.length + 1);
    this.#times = grow(this.#times, new Float64Array(size));
    this.#expiries = grow(this.#expiries, new Float64Array(size));
    this.#starts = grow(this.#starts, new Uint32Array(size + 1));
    this.#expiryOffsets = grow(this.#expiryOffsets, new Uint32Array(size));
    this.#topicIds = grow(this.#topicIds, new Uint16Array(size));
    this.#publisherIdOf = grow(this.#publisherIdOf, new Uint16Array(size));
    this.#flags = grow(this.#flags, new Uint8Array(size));
  }
}

type Table = Float64Array | Uint32Array | Uint16Array | Uint8Array;

function grow<T extends Table>(old: Table, larger: T): T {
  larger.set(old);
  return larger;
}
