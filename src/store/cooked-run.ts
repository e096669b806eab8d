// A run between its cooking and its `done`: many appends of one publisher as one item of their entry,
// where they stand as the appends they are. Whoever replays the entry sees no difference.
//
// What is applied is what was encoded, as of a single append (cooked-append.ts). One object for all of
// them, and tables of numbers for what differs.

import { ByteSource, type ByteWriter, type CodedError } from "../base/index.ts";
import type { AppendRequest, AppendRun, AppendRunDone } from "./api.ts";
import type { Lts } from "./core/lts.ts";
import { writeLtsRecords } from "./core/lts-codec.ts";
import type { LtsRecord } from "./core/lts-trie.ts";
import type { Place } from "./core/place.ts";
import { flagsOf } from "./deliverable.ts";
import type { LiveOffers } from "./live-offers.ts";
import { logItemKind, namesBytesMax, runBodyFlags, topicBytesMax } from "./log-items.ts";
import type { Item } from "./machine.ts";
import type { Shard } from "./shard.ts";
import type { LogSlab } from "./slab/log-slab.ts";
import type { TtvSource } from "./types.ts";

const nothingLearned: readonly LtsRecord[] = [];

/** Most of one item, so that an entry has room for it beside others; a larger append goes alone. */
const itemAppendsMax = 256;
const itemBytesMax = 128 * 1024;
const utf8BytesMax = 3;

export type CookRunParts = {
  readonly run: AppendRun;
  /** What topics have their places in now. */
  readonly lts: () => Lts;
  readonly isEarly: boolean;
  readonly done: AppendRunDone;
};

/** Cooks all of it, in as many items as it takes. */
export function cookRun(shard: Shard, parts: CookRunParts): void {
  for (let from = 0; from < parts.run.topics.length; ) {
    const item = new CookedRun(parts, from);
    const refusal = shard.refusal ?? shard.sizeError(item.sizeBytes);
    if (refusal === undefined) {
      item.learn();
      shard.cook(item);
    } else {
      item.done(refusal);
    }
    from += item.count;
  }
}

export type CommittedRun = {
  /** The bytes of its entry. */
  readonly entry: ByteSource;
  readonly firstUs: number;
  readonly live: LiveOffers;
};

export class CookedRun implements Item {
  readonly kind = logItemKind.append;
  readonly count: number;
  readonly sizeBytes: number;
  readonly isEarly: boolean;
  readonly lts: Lts;
  readonly #run: AppendRun;
  readonly #flags: number;
  readonly #from: number;
  readonly #done: AppendRunDone;
  /** Undefined before it is learned. */
  readonly #places: Array<Place | undefined> = [];
  #learned: Array<readonly LtsRecord[] | undefined> | undefined;
  /** Where each frame begins and ends in the entry. */
  readonly #spans: Uint32Array;
  #firstUs = 0;

  /** As many of the run as fit one item, from `from` on. */
  constructor({ run, lts: ltsNow, isEarly, done }: CookRunParts, from: number) {
    const lts = ltsNow();
    this.isEarly = isEarly;
    this.lts = lts;
    this.#done = done;
    this.#run = run;
    this.#from = from;
    this.#flags = flagsOf({ form: run.form, qos: run.qos, retain: false });
    const max = Math.min(run.topics.length, from + itemAppendsMax);
    let sizeBytes = 0;
    for (let index = from; index < max; index++) {
      const place = lts.lookup(run.topics[index] as string);
      const bytes = sizeBytesMax(run, index, place !== undefined);
      if (index > from && sizeBytes + bytes > itemBytesMax) break;
      sizeBytes += bytes;
      this.#places.push(place);
    }
    this.sizeBytes = sizeBytes;
    this.count = this.#places.length;
    this.#spans = new Uint32Array(2 * this.count);
  }

  /** Gives a place to each topic that is new. REQUIRES: it is cooked next. */
  learn(): void {
    for (let at = 0; at < this.count; at++) {
      if (this.#places[at] !== undefined) continue;
      const learned: LtsRecord[] = [];
      this.#places[at] = this.lts.place(this.#run.topics[this.#from + at] as string, learned);
      this.#learned ??= [];
      this.#learned[at] = learned;
    }
  }

  /** Puts all of it into the slab, and before those who read there. REQUIRES: its trie is `lts`. */
  applyTo(slab: LogSlab, { entry, firstUs, live }: CommittedRun): void {
    const { topics, publisher } = this.#run;
    const source = new RunSource(entry, publisher, this.#flags);
    for (let at = 0; at < this.count; at++) {
      const place = this.#places[at] as Place;
      source.topic = topics[this.#from + at] as string;
      source.timeUs = firstUs + at;
      source.from = this.#spans[2 * at] as number;
      source.to = this.#spans[2 * at + 1] as number;
      slab.learn(this.#learnedAt(at), source.timeUs);
      slab.append(source, place);
      live.add(source, slab.generation, place.stream);
    }
  }

  #learnedAt(at: number): readonly LtsRecord[] {
    return this.#learned?.[at] ?? nothingLearned;
  }

  encode(writer: ByteWriter, timeUs: number): void {
    this.#firstUs = timeUs;
    const { topics, publisher, bytes, starts } = this.#run;
    const source = new ByteSource(bytes);
    for (let at = 0; at < this.count; at++) {
      const index = this.#from + at;
      const learned = this.#learnedAt(at);
      // Their times follow each other.
      if (at > 0) writer.u8(this.kind).u8(1);
      writer.u8(runBodyFlags(learned));
      if (learned.length > 0) writeLtsRecords(writer, learned);
      writer.varint((this.#places[at] as Place).stream).string(topics[index] as string);
      writer.string(publisher).u8(this.#flags).u8(0).u8(0);
      const from = starts[index] as number;
      const to = starts[index + 1] as number;
      writer.varint(to - from);
      this.#spans[2 * at] = writer.length;
      writer.rawFrom(source, from, to);
      this.#spans[2 * at + 1] = writer.length;
    }
  }

  done(error: CodedError | undefined): void {
    const { count } = this;
    const timeUs = error === undefined ? this.#firstUs : 0;
    this.#done(error, { from: this.#from, count, timeUs });
  }
}

/** One append of a run at a time: for who looks at it during a call. */
class RunSource implements TtvSource {
  topic = "";
  timeUs = 0;
  from = 0;
  to = 0;
  readonly publisher: string;
  readonly flags: number;
  readonly expiryUs = 0;
  readonly expiryOffset = 0;
  readonly bytes: ByteSource;

  constructor(bytes: ByteSource, publisher: string, flags: number) {
    this.bytes = bytes;
    this.publisher = publisher;
    this.flags = flags;
  }
}

function sizeBytesMax(
  { topics, starts, publisher }: AppendRun,
  index: number,
  isPlaced: boolean,
): number {
  const topic = topics[index] as string;
  const frameBytes = (starts[index + 1] as number) - (starts[index] as number);
  const topicBytes = isPlaced ? topic.length * utf8BytesMax : topicBytesMax(topic);
  return frameBytes + topicBytes + namesBytesMax(publisher);
}

/** The same as an append by itself. */
export function requestOf(run: AppendRun, index: number): AppendRequest {
  const { publisher, form, qos, topics, bytes, starts } = run;
  return {
    ...{ topic: topics[index] as string, publisher, form, qos, retain: false },
    ...{ expiryUs: 0, expiryOffset: 0, keep: true, evidence: undefined },
    frame: bytes.subarray(starts[index], starts[index + 1]),
  };
}
