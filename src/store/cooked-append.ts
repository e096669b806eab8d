// An append between its cooking and its `done`: the item of its entry, what is applied once the entry
// is committed, and who is told. One object for all of it, since every message takes one.
//
// What is applied is what was encoded: topic and publisher are the texts that went into the entry, and
// the frame is its bytes in the entry, not those of the caller.

import { ByteSource, type ByteWriter, type CodedError } from "../base/index.ts";
import type { AppendDone, AppendRequest } from "./api.ts";
import type { Lts } from "./core/lts.ts";
import type { LtsRecord } from "./core/lts-trie.ts";
import type { Place } from "./core/place.ts";
import { flagsOf } from "./deliverable.ts";
import { appendBytesMax, logItemKind, writeAppend } from "./log-items.ts";
import type { Item } from "./machine.ts";
import type { TtvSource } from "./types.ts";

/** What all appends have in common that a shard cooked before its process was deposed. */
export type CookingReign = {
  readonly isEarly: boolean;
  readonly refused: (request: AppendRequest, error: CodedError) => void;
};

const noBytes = new ByteSource(new Uint8Array(0));
const nothingLearned: readonly LtsRecord[] = [];

export class CookedAppend implements Item, TtvSource {
  readonly kind = logItemKind.append;
  readonly request: AppendRequest;
  readonly flags: number;
  readonly sizeBytes: number;
  readonly #reign: CookingReign;
  readonly #done: AppendDone;
  /** Undefined where only the evidence is kept. */
  place: Place | undefined = undefined;
  /** What `place` is a place in. */
  lts: Lts | undefined = undefined;
  learned: readonly LtsRecord[] = nothingLearned;
  timeUs = 0;
  bytes: ByteSource = noBytes;
  from = 0;
  to = 0;

  constructor(reign: CookingReign, request: AppendRequest, done: AppendDone) {
    this.#reign = reign;
    this.request = request;
    this.flags = flagsOf(request);
    this.sizeBytes = appendBytesMax(request);
    this.#done = done;
  }

  /** Gives it the place of its topic, learned where it is new. */
  placeIn(lts: Lts): void {
    this.lts = lts;
    const { topic } = this.request;
    this.place = lts.lookup(topic);
    if (this.place !== undefined) return;
    const learned: LtsRecord[] = [];
    this.place = lts.place(topic, learned);
    this.learned = learned;
  }

  get isEarly(): boolean {
    return this.#reign.isEarly;
  }

  get stream(): number {
    return this.place?.stream ?? 0;
  }

  get topic(): string {
    return this.request.topic;
  }

  get publisher(): string {
    return this.request.publisher;
  }

  get expiryUs(): number {
    return this.request.expiryUs;
  }

  get expiryOffset(): number {
    return this.request.expiryOffset;
  }

  encode(writer: ByteWriter, timeUs: number): void {
    this.timeUs = timeUs;
    writeAppend(writer, this);
  }

  /** Its entry is committed: the frame is the end of its bytes there. */
  committed(entry: ByteSource, endsAt: number): void {
    this.bytes = entry;
    this.from = endsAt - this.request.frame.length;
    this.to = endsAt;
  }

  done(error: CodedError | undefined): void {
    if (error === undefined) {
      this.#done(undefined, { kind: "stored", timeUs: this.timeUs });
      return;
    }
    this.#reign.refused(this.request, error);
    this.#done(error, undefined);
  }
}
