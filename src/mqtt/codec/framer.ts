// Cuts a byte stream into packets, whatever the chunking.
//
// - A packet that lies whole inside a chunk is handed out in place, uncopied; the bytes are only
//   valid during the call. What is cut off at the end of a chunk is copied into an own buffer that
//   grows with what really came, never with what a length announces.
// - The size limit is decided on the fixed header, before anything of the body is kept.
// - A fault is told to the sink, not thrown. Nothing follows it, nor a sink that said stop.

import type { CodedError } from "../../base/index.ts";
import { malformed, mqttErrors } from "../errors.ts";
import { reason } from "./reasons.ts";

/** Where a packet lies: first byte, first byte of its body, byte behind it. */
export interface FrameSink {
  /**
   * Takes several packets at once from `offset` on, all of them whole, and returns where it stopped:
   * `offset` when the next one is to be handed out by itself.
   */
  onMany?(bytes: Buffer, offset: number): number;
  /** Returns false to get nothing more of this chunk. */
  onFrame(bytes: Buffer, start: number, bodyStart: number, end: number): boolean;
  /** The header of a packet that is not yet complete: the place to refuse it early. */
  onHeader(firstByte: number): CodedError | undefined;
  onFault(error: CodedError): void;
}

/** First buffer of a cut packet; most are small. */
const pendingBytesMin = 256;

const headerIncomplete = -1;

export class PacketFramer {
  #sizeBytesMax: number;
  readonly #sink: FrameSink;
  #pending: Buffer | undefined;
  #pendingLength = 0;
  #stopped = false;
  // Results of the last #readHeader, in fields because there is one for every packet.
  #bodyStart = 0;
  #end = 0;

  /** Packets larger than `sizeBytesMax`, fixed header included, are refused. */
  constructor(sizeBytesMax: number, sink: FrameSink) {
    this.#sizeBytesMax = sizeBytesMax;
    this.#sink = sink;
  }

  /** Counts for packets whose header comes later. */
  setSizeBytesMax(sizeBytesMax: number): void {
    this.#sizeBytesMax = sizeBytesMax;
  }

  get sizeBytesMax(): number {
    return this.#sizeBytesMax;
  }

  /** Bytes of an incomplete packet held back. */
  get pendingBytes(): number {
    return this.#pendingLength;
  }

  /** Gives no more packets and forgets what it holds. */
  stop(): void {
    this.#stopped = true;
    this.#pending = undefined;
    this.#pendingLength = 0;
  }

  /**
   * Hands the packets of the next chunk to the sink. Returns how many bytes of it were used: fewer
   * than all only when the sink said stop. The rest is the caller's to keep or drop.
   */
  push(chunk: Buffer): number {
    let offset = 0;
    if (this.#pending !== undefined) {
      const used = this.#finishPending(chunk);
      if (used < 0) return -used;
      offset = used;
    }
    while (offset < chunk.length && !this.#stopped) {
      const behind = this.#sink.onMany?.(chunk, offset) ?? offset;
      if (behind > offset) {
        offset = behind;
        continue;
      }
      const fault = this.#readHeader(chunk, offset, chunk.length);
      if (fault !== undefined) return this.#fail(fault, offset);
      if (this.#end === headerIncomplete || this.#end > chunk.length) {
        return this.#keep(chunk, offset);
      }
      const start = offset;
      offset = this.#end;
      if (!this.#sink.onFrame(chunk, start, this.#bodyStart, offset)) return offset;
    }
    return offset;
  }

  /** Completes the cut packet. Returns bytes used of the chunk, negated when push is to end. */
  #finishPending(chunk: Buffer): number {
    let used = 0;
    // The length may itself be cut: one byte at a time until the header is whole (5 at most).
    let pending = this.#pending as Buffer;
    let fault = this.#readHeader(pending, 0, this.#pendingLength);
    while (fault === undefined && this.#end === headerIncomplete && used < chunk.length) {
      this.#append(chunk, used, used + 1);
      used++;
      pending = this.#pending as Buffer;
      fault = this.#readHeader(pending, 0, this.#pendingLength);
      if (fault === undefined && this.#end > this.#pendingLength) {
        fault = this.#sink.onHeader(pending[0] as number);
      }
    }
    if (fault !== undefined) return -this.#fail(fault, used);
    if (this.#end === headerIncomplete) return -used;
    const end = this.#end;
    const bodyStart = this.#bodyStart;
    const take = Math.min(end - this.#pendingLength, chunk.length - used);
    this.#append(chunk, used, used + take);
    used += take;
    if (this.#pendingLength < end) return -used;
    const packet = this.#pending as Buffer;
    this.#pending = undefined;
    this.#pendingLength = 0;
    return this.#sink.onFrame(packet, 0, bodyStart, end) ? used : -used;
  }

  #keep(chunk: Buffer, offset: number): number {
    if (this.#end !== headerIncomplete) {
      const fault = this.#sink.onHeader(chunk[offset] as number);
      if (fault !== undefined) return this.#fail(fault, offset);
    }
    this.#append(chunk, offset, chunk.length);
    return chunk.length;
  }

  #append(chunk: Buffer, start: number, end: number): void {
    const need = this.#pendingLength + (end - start);
    let pending = this.#pending;
    if (pending === undefined || pending.length < need) {
      const doubled = Math.max(need, pendingBytesMin, (pending?.length ?? 0) * 2);
      const grown = Buffer.allocUnsafeSlow(Math.min(doubled, Math.max(need, this.#pendingMax())));
      if (pending !== undefined) pending.copy(grown, 0, 0, this.#pendingLength);
      pending = grown;
      this.#pending = grown;
    }
    chunk.copy(pending, this.#pendingLength, start, end);
    this.#pendingLength = need;
  }

  #pendingMax(): number {
    return this.#end === headerIncomplete ? pendingBytesMin : this.#sizeBytesMax;
  }

  /** Sets `#bodyStart` and `#end`; `#end` is `headerIncomplete` when more bytes are needed. */
  #readHeader(bytes: Buffer, start: number, limit: number): CodedError | undefined {
    let remaining = 0;
    this.#end = headerIncomplete;
    for (let index = 1; index <= 4; index++) {
      const at = start + index;
      if (at >= limit) return undefined;
      const byte = bytes[at] as number;
      remaining |= (byte & 0x7f) << (7 * (index - 1));
      if (byte >= 0x80) continue;
      if (byte === 0 && index > 1) return malformed("remaining length is longer than needed");
      const sizeBytes = 1 + index + remaining;
      if (sizeBytes > this.#sizeBytesMax) return tooLarge(sizeBytes, this.#sizeBytesMax);
      this.#bodyStart = at + 1;
      this.#end = start + sizeBytes;
      return undefined;
    }
    return malformed("remaining length has more than four bytes");
  }

  #fail(fault: CodedError, used: number): number {
    this.stop();
    this.#sink.onFault(fault);
    return used;
  }
}

function tooLarge(sizeBytes: number, sizeBytesMax: number): CodedError {
  return mqttErrors.packetTooLarge({ reasonCode: reason.packetTooLarge, sizeBytes, sizeBytesMax });
}
