// A reader of MessagePack, as far as other Aedes persistences write it: maps, arrays, texts, bytes,
// numbers, booleans and nil. Bytes are copied. What ends early or is of another kind is refused.

import { aedesErrors } from "./errors.ts";

const depthMax = 64;

/** @throws AEDES_MIGRATION_SOURCE_INVALID. */
export function decodeMsgpack(bytes: Buffer): unknown {
  try {
    const reader = new Reader(bytes);
    const value = reader.value(0);
    if (!reader.isAtEnd) throw new RangeError("bytes follow the value");
    return value;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw aedesErrors.migrationSource({ reason: `a record is no MessagePack: ${reason}` }, error);
  }
}

class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  value(depth: number): unknown {
    if (depth > depthMax) throw new RangeError("nested too deeply");
    const type = this.#uint(1);
    if (type < 0x80) return type;
    if (type < 0x90) return this.#map(type & 0x0f, depth);
    if (type < 0xa0) return this.#array(type & 0x0f, depth);
    if (type < 0xc0) return this.#take(type & 0x1f).toString("utf8");
    if (type >= 0xe0) return type - 0x100;
    return this.#wide(type, depth);
  }

  #wide(type: number, depth: number): unknown {
    switch (type) {
      case 0xc0:
        return undefined;
      case 0xc2:
        return false;
      case 0xc3:
        return true;
      case 0xc4:
      case 0xc5:
      case 0xc6:
        return Buffer.from(this.#take(this.#uint(1 << (type - 0xc4))));
      case 0xc7:
      case 0xc8:
      case 0xc9:
        return this.#extension(this.#uint(1 << (type - 0xc7)));
      case 0xca:
        return this.#take(4).readFloatBE(0);
      case 0xcb:
        return this.#take(8).readDoubleBE(0);
      case 0xcc:
      case 0xcd:
      case 0xce:
      case 0xcf:
        return this.#uint(1 << (type - 0xcc));
      case 0xd0:
      case 0xd1:
      case 0xd2:
        return this.#take(1 << (type - 0xd0)).readIntBE(0, 1 << (type - 0xd0));
      case 0xd3:
        return Number(this.#take(8).readBigInt64BE(0));
      case 0xd4:
      case 0xd5:
      case 0xd6:
      case 0xd7:
      case 0xd8:
        return this.#extension(1 << (type - 0xd4));
      case 0xd9:
      case 0xda:
      case 0xdb:
        return this.#take(this.#uint(1 << (type - 0xd9))).toString("utf8");
      case 0xdc:
      case 0xdd:
        return this.#array(this.#uint(2 << (type - 0xdc)), depth);
      case 0xde:
      case 0xdf:
        return this.#map(this.#uint(2 << (type - 0xde)), depth);
      default:
        throw new RangeError(`type 0x${type.toString(16)}`);
    }
  }

  /** Of msgpack-lite: typed arrays and Buffers as extensions 0x1b and 0x10 to 0x1d; the rest is nil. */
  #extension(sizeBytes: number): unknown {
    const kind = this.#uint(1);
    const bytes = Buffer.from(this.#take(sizeBytes));
    const isBytes = kind === 0x1b || (kind >= 0x11 && kind <= 0x1d);
    return isBytes ? bytes : undefined;
  }

  #array(count: number, depth: number): unknown[] {
    const values: unknown[] = [];
    for (let left = count; left > 0; left--) values.push(this.value(depth + 1));
    return values;
  }

  #map(count: number, depth: number): Record<string, unknown> {
    const entries: Array<[string, unknown]> = [];
    for (let left = count; left > 0; left--) {
      const key = String(this.value(depth + 1));
      entries.push([key, this.value(depth + 1)]);
    }
    return Object.fromEntries(entries);
  }

  #uint(sizeBytes: number): number {
    const bytes = this.#take(sizeBytes);
    if (sizeBytes <= 4) return bytes.readUIntBE(0, sizeBytes);
    return Number(bytes.readBigUInt64BE(0));
  }

  #take(sizeBytes: number): Buffer {
    const end = this.#at + sizeBytes;
    if (end > this.#bytes.length) throw new RangeError("it ends early");
    const part = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return part;
  }
}
