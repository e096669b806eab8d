// Reading and writing of our own binary formats: big-endian fixed-width integers, LEB128 varints
// (up to 2^53 - 1) and length-prefixed bytes and strings. A reader never reads past its end: it
// throws BYTES_TRUNCATED, which callers turn into their own "corrupt" error.

import { assert, fail } from "./assert.ts";
import { defineErrors } from "./errors.ts";

export const bytesErrors = defineErrors({
  truncated: {
    code: "BYTES_TRUNCATED",
    kind: "corrupt",
    message: "record ends early: {need} more bytes needed at offset {offset}",
    help: "The stored record is damaged; the layer that read it names the file.",
  },
  varintOverflow: {
    code: "BYTES_VARINT_OVERFLOW",
    kind: "corrupt",
    message: "varint at offset {offset} does not fit 53 bits",
    help: "The stored record is damaged; the layer that read it names the file.",
  },
});

const UINT32 = 0x1_0000_0000;
const initialBytes = 256;
/** A text below this, and its length in one byte, is written unit by unit where it is ASCII. */
const shortTextMax = 0x80;
/** Eight groups of seven bits hold 53. */
const varintScaleMax = 2 ** 56;

/** Up to so many bytes are copied here: a call out of JavaScript, and a view for it, cost more. */
const shortCopyMax = 160;

/** Bytes that pieces are copied out of. */
export class ByteSource {
  readonly bytes: Buffer;
  #view: DataView | undefined;

  constructor(bytes: Uint8Array) {
    this.bytes = asBuffer(bytes);
  }

  /** REQUIRES: both reach that far; `view` is one of `target`. */
  copy(from: number, to: number, target: Buffer, view: DataView, at: number): void {
    if (to - from > shortCopyMax) {
      this.bytes.copy(target, at, from, to);
      return;
    }
    this.#view ??= viewOf(this.bytes);
    const source = this.#view;
    let left = from;
    let put = at;
    for (; left <= to - 4; left += 4, put += 4) view.setInt32(put, source.getInt32(left));
    for (; left < to; left++, put++) view.setInt8(put, source.getInt8(left));
  }
}

export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Growable output buffer. `finish()` hands out a view of what was written; no copy. */
export class ByteWriter {
  #buffer: Buffer;
  /** Of the same memory, made where it is wanted. */
  #view: DataView | undefined;
  #length = 0;

  constructor(capacity = initialBytes) {
    this.#buffer = Buffer.allocUnsafe(capacity);
  }

  get length(): number {
    return this.#length;
  }

  /** Bytes written so far, as a view that the next write may invalidate. */
  finish(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }

  /** Starts again in the same memory. Views handed out before become invalid. */
  reset(): void {
    this.#length = 0;
  }

  u8(value: number): this {
    if (value !== (value & 0xff)) outOfRange("u8", value);
    this.#reserve(1);
    this.#buffer[this.#length++] = value;
    return this;
  }

  u16(value: number): this {
    this.#reserve(2);
    this.#buffer.writeUInt16BE(value, this.#length);
    this.#length += 2;
    return this;
  }

  u32(value: number): this {
    this.#reserve(4);
    this.#buffer.writeUInt32BE(value, this.#length);
    this.#length += 4;
    return this;
  }

  /** A non-negative safe integer in eight bytes. */
  u64(value: number): this {
    if (!isUint53(value)) outOfRange("u64", value);
    this.u32(Math.floor(value / UINT32));
    return this.u32(value % UINT32);
  }

  varint(value: number): this {
    if (!isUint53(value)) outOfRange("varint", value);
    this.#reserve(8);
    let rest = value;
    while (rest >= 0x80) {
      this.#buffer[this.#length++] = (rest % 0x80) | 0x80;
      rest = Math.floor(rest / 0x80);
    }
    this.#buffer[this.#length++] = rest;
    return this;
  }

  raw(bytes: Uint8Array): this {
    this.#reserve(bytes.length);
    this.#buffer.set(bytes, this.#length);
    this.#length += bytes.length;
    return this;
  }

  /** Some of the bytes: no view of them has to be made. */
  rawFrom(source: ByteSource, from: number, to: number): this {
    assert(from <= to && to <= source.bytes.length, "bytes past the end");
    this.#reserve(to - from);
    this.#view ??= viewOf(this.#buffer);
    source.copy(from, to, this.#buffer, this.#view, this.#length);
    this.#length += to - from;
    return this;
  }

  /** Varint length, then the bytes. */
  bytes(bytes: Uint8Array): this {
    return this.varint(bytes.length).raw(bytes);
  }

  /** Varint byte length, then UTF-8. */
  string(text: string): this {
    if (text.length < shortTextMax && this.#ascii(text)) return this;
    const size = Buffer.byteLength(text);
    this.varint(size);
    this.#reserve(size);
    this.#length += this.#buffer.write(text, this.#length, "utf8");
    return this;
  }

  /** Overwrites four bytes written before, for lengths and checksums known at the end. */
  patchU32(offset: number, value: number): this {
    assert(offset + 4 <= this.#length, "patch past the end");
    this.#buffer.writeUInt32BE(value, offset);
    return this;
  }

  /** Short ASCII is written here: two calls out of JavaScript cost more. False: it is another text. */
  #ascii(text: string): boolean {
    const size = text.length;
    this.#reserve(1 + size);
    const buffer = this.#buffer;
    const start = this.#length + 1;
    for (let at = 0; at < size; at++) {
      const unit = text.charCodeAt(at);
      if (unit >= 0x80) return false;
      buffer[start + at] = unit;
    }
    buffer[start - 1] = size;
    this.#length = start + size;
    return true;
  }

  #reserve(size: number): void {
    const need = this.#length + size;
    if (need <= this.#buffer.length) return;
    const grown = Buffer.allocUnsafe(Math.max(need, this.#buffer.length * 2));
    this.#buffer.copy(grown, 0, 0, this.#length);
    this.#buffer = grown;
    this.#view = undefined;
  }
}

/** Cursor over bytes. Slices it returns are views of the input: the input's owner keeps them. */
export class ByteReader {
  readonly #buffer: Buffer;
  #offset: number;

  constructor(bytes: Uint8Array, offset = 0) {
    this.#buffer = asBuffer(bytes);
    this.#offset = offset;
  }

  get offset(): number {
    return this.#offset;
  }

  get remaining(): number {
    return this.#buffer.length - this.#offset;
  }

  u8(): number {
    this.#need(1);
    return this.#buffer[this.#offset++] as number;
  }

  u16(): number {
    this.#need(2);
    const value = this.#buffer.readUInt16BE(this.#offset);
    this.#offset += 2;
    return value;
  }

  u32(): number {
    this.#need(4);
    const value = this.#buffer.readUInt32BE(this.#offset);
    this.#offset += 4;
    return value;
  }

  u64(): number {
    const high = this.u32();
    const value = high * UINT32 + this.u32();
    if (!Number.isSafeInteger(value)) {
      throw bytesErrors.varintOverflow({ offset: this.#offset - 8 });
    }
    return value;
  }

  varint(): number {
    const byte = this.#buffer[this.#offset];
    if (byte === undefined || byte >= 0x80) return this.#longVarint();
    this.#offset++;
    return byte;
  }

  /**
   * Fills `into` from `from` on; gives the largest value, which may have been too large for the table.
   * For many that are mostly of one byte or two.
   */
  varints(into: Float64Array | Uint32Array | Uint16Array, from = 0): number {
    const buffer = this.#buffer;
    let offset = this.#offset;
    let max = 0;
    for (let index = from; index < into.length; index++) {
      let value = buffer[offset] ?? 0x80;
      if (value < 0x80) {
        offset++;
      } else {
        const second = buffer[offset + 1] ?? 0x80;
        if (second < 0x80) {
          value += (second - 1) * 0x80;
          offset += 2;
        } else {
          this.#offset = offset;
          value = this.#longVarint();
          offset = this.#offset;
        }
      }
      if (value > max) max = value;
      into[index] = value;
    }
    this.#offset = offset;
    return max;
  }

  #longVarint(): number {
    const start = this.#offset;
    let value = 0;
    let scale = 1;
    for (;;) {
      const byte = this.u8();
      value += (byte & 0x7f) * scale;
      if (value > Number.MAX_SAFE_INTEGER) throw bytesErrors.varintOverflow({ offset: start });
      if (byte < 0x80) return value;
      scale *= 0x80;
      if (scale >= varintScaleMax) throw bytesErrors.varintOverflow({ offset: start });
    }
  }

  raw(size: number): Buffer {
    this.#need(size);
    const view = this.#buffer.subarray(this.#offset, this.#offset + size);
    this.#offset += size;
    return view;
  }

  bytes(): Buffer {
    return this.raw(this.varint());
  }

  string(): string {
    return this.bytes().toString("utf8");
  }

  skip(size: number): void {
    this.#need(size);
    this.#offset += size;
  }

  #need(size: number): void {
    if (this.#buffer.length - this.#offset < size) {
      throw bytesErrors.truncated({ need: size - this.remaining, offset: this.#offset });
    }
  }
}

/** The same memory as a Buffer. */
export function asBuffer(bytes: Uint8Array): Buffer {
  if (Buffer.isBuffer(bytes)) return bytes;
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Eight big-endian bytes of a non-negative safe integer: keys that sort by number. */
export function u64Key(value: number): Buffer {
  if (!isUint53(value)) outOfRange("u64", value);
  const key = Buffer.allocUnsafe(8);
  key.writeUInt32BE(Math.floor(value / UINT32), 0);
  key.writeUInt32BE(value % UINT32, 4);
  return key;
}

export function readU64(bytes: Buffer, offset = 0): number {
  return bytes.readUInt32BE(offset) * UINT32 + bytes.readUInt32BE(offset + 4);
}

function isUint53(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0;
}

// Apart from the check, so that hot writers build no message.
function outOfRange(type: string, value: number): never {
  return fail(`${type} out of range: ${value}`);
}
