// What most bytes of a busy client are: plain PUBLISHes and PUBACKs, taken many at a time, before
// they are looked at one by one. It decides nothing: what the owner does not want as a run, and what is
// not plain, goes the way of every packet.

import type { DecodeContext } from "../codec/decode-context.ts";
import {
  isPlainPublish,
  PubackRun,
  type PublishRun,
  type RunReader,
} from "../codec/publish-run.ts";
import type { KnownTopic } from "../codec/topic-table.ts";
import type { ServerEvents } from "./server-types.ts";

export interface PlainOwner {
  readonly context: DecodeContext;
  /** Whether runs of this QoS may be acked at once, as far as the connection's own rules go. */
  mayTakeRun(qos: 0 | 1): boolean;
  /** Whole packets have come. */
  heard(): void;
  /** One packet as if by itself; false ends the chunk. */
  onFrame(bytes: Buffer, start: number, bodyStart: number, end: number): boolean;
}

const puback = 0x40;
const pubackBytes = 4;
/** Shared by all connections: a run lives as long as a call. */
const pubacks = new PubackRun();

export class PlainPackets {
  readonly #reader: RunReader;
  readonly #events: ServerEvents;
  readonly #owner: PlainOwner;
  #last: KnownTopic | undefined;

  constructor(reader: RunReader, events: ServerEvents, owner: PlainOwner) {
    this.#reader = reader;
    this.#events = events;
    this.#owner = owner;
  }

  /** Returns where it stopped: `offset` when the next packet is not one of these. */
  take(bytes: Buffer, offset: number, sizeBytesMax: number): number {
    const first = bytes[offset] as number;
    if (first === puback) return this.#takeAcks(bytes, offset);
    return isPlainPublish(first) ? this.#takeRun(bytes, offset, sizeBytesMax) : offset;
  }

  #takeAcks(bytes: Buffer, offset: number): number {
    if (this.#events.onPubacks === undefined) return offset;
    pubacks.read(bytes, offset);
    if (pubacks.count === 0) return offset;
    this.#owner.heard();
    // Read before the call: within it another connection may read acks of its own.
    const { end } = pubacks;
    if (this.#events.onPubacks(pubacks.packetIds, pubacks.count)) return end;
    for (let at = offset; at < end; at += pubackBytes) {
      if (!this.#owner.onFrame(bytes, at, at + 2, at + pubackBytes)) return at + pubackBytes;
    }
    return end;
  }

  #takeRun(bytes: Buffer, offset: number, sizeBytesMax: number): number {
    const events = this.#events;
    const qos = bytes[offset] === 0x30 ? 0 : 1;
    if (events.onPublishRun === undefined || !this.#owner.mayTakeRun(qos)) return offset;
    if (events.takesRuns?.(qos) === false) return offset;
    const run = this.#reader.read(bytes, offset, sizeBytesMax, this.#owner.context, this.#last);
    if (run === undefined) return offset;
    this.#last = run.topic;
    this.#owner.heard();
    const { end } = run;
    if (events.onPublishRun(run)) return end;
    return this.#eachOf(run);
  }

  #eachOf(run: PublishRun): number {
    const { bytes, count, starts } = run;
    for (let index = 0; index < count; index++) {
      const start = starts[index] as number;
      const end = starts[index + 1] as number;
      if (!this.#owner.onFrame(bytes, start, run.bodyStart(index), end)) return end;
    }
    return run.end;
  }
}
