// What a reader sees of a run of TTVs of one stream, wherever they are: in an open block, in a sealed
// one that waits to be written, or in one read from disk. No object per TTV: a TTV is an index.
//
// Times grow strictly with the index. Topics and publishers are dictionary entries; a residual is
// matched once per distinct topic, not once per TTV. An open batch may grow behind a reader: `count`
// only rises, and what was read stays as it was. Buffers handed out are views: never write to them.

import type { Place } from "../core/place.ts";
import {
  formatTopic,
  type Residual,
  type ResidualPattern,
  type Structure,
} from "../core/structure.ts";
import type { Ttv } from "../types.ts";

export interface TtvBatch {
  readonly count: number;
  /** Distinct topics; ids are 0 to topicCount - 1. */
  readonly topicCount: number;
  /** Distinct publishers. */
  readonly publisherCount: number;
  timeUs(index: number): number;
  flags(index: number): number;
  topicId(index: number): number;
  publisherId(index: number): number;
  /** 0 for never. */
  expiryUs(index: number): number;
  /** 0 for nowhere. */
  expiryOffset(index: number): number;
  /** Where the frame begins in `frames()`; for `count` it is the end of the last one. */
  frameStart(index: number): number;
  /** All frames back to back, in order. */
  frames(): Buffer;
  frame(index: number): Buffer;
  /** The words that the stream's structure leaves open. */
  varying(topicId: number): readonly string[];
  /** By topic id, where no word of theirs is two objects. Only of batches that are to be written. */
  readonly places?: readonly Place[] | undefined;
  publisher(publisherId: number): string;
  /** The topic, where the batch remembers those that were asked for; `topicAt` is what readers call. */
  topic?(topicId: number, structure: Structure): string;
  /** By topic id: 1 where the pattern matches. `matchTopics` is what readers call. */
  matchVarying(pattern: ResidualPattern): Uint8Array;
}

/** By topic id: 1 where the residual matches. "all" and "none" where no look-up is needed. */
export type TopicMatch = "all" | "none" | Uint8Array;

export function matchTopics(batch: TtvBatch, residual: Residual): TopicMatch {
  if (residual === "all") return "all";
  const match = batch.matchVarying(residual);
  let hits = 0;
  for (const hit of match) hits += hit;
  if (hits === match.length) return "all";
  return hits === 0 ? "none" : match;
}

/**
 * The first index at or after `from` that matches; `count` where there is none. A topic that an open
 * batch met after the match was made does not match: make it again when `topicCount` has risen.
 */
export function nextMatch(batch: TtvBatch, match: TopicMatch, from: number): number {
  if (match === "all") return Math.min(from, batch.count);
  if (match === "none") return batch.count;
  let index = from;
  while (index < batch.count && match[batch.topicId(index)] !== 1) index++;
  return Math.min(index, batch.count);
}

/** The first index whose time is above `timeUs`; `count` where there is none. */
export function indexAfter(batch: TtvBatch, timeUs: number): number {
  let low = 0;
  let high = batch.count;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (batch.timeUs(middle) > timeUs) high = middle;
    else low = middle + 1;
  }
  return low;
}

export function topicAt(batch: TtvBatch, structure: Structure, index: number): string {
  const id = batch.topicId(index);
  return batch.topic?.(id, structure) ?? formatTopic(structure, batch.varying(id));
}

/** Words that vary in all its topics together. */
export function varyingWords(batch: TtvBatch): number {
  let count = 0;
  for (let topic = 0; topic < batch.topicCount; topic++) count += batch.varying(topic).length;
  return count;
}

/** One TTV as an object, for callers that want one; its frame is a view. */
export function ttvAt(batch: TtvBatch, structure: Structure, index: number): Ttv {
  return {
    topic: topicAt(batch, structure, index),
    timeUs: batch.timeUs(index),
    publisher: batch.publisher(batch.publisherId(index)),
    flags: batch.flags(index),
    expiryUs: batch.expiryUs(index),
    expiryOffset: batch.expiryOffset(index),
    frame: batch.frame(index),
  };
}
