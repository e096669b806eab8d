// CRC-32C (Castagnoli), the checksum in LevelDB's files, which zlib does not know.
//
// Four bytes a step by tables made at the first use; several hundred MB a second.

const polynomial = 0x82f63b78;
const tableSize = 256;
/** What LevelDB adds to a rotated checksum, so that sums of data with sums in it stay good. */
const maskDelta = 0xa282ead8;

let tables: readonly Uint32Array[] | undefined;

function makeTables(): readonly Uint32Array[] {
  const made = Array.from({ length: 4 }, () => new Uint32Array(tableSize));
  const [first] = made as [Uint32Array, ...Uint32Array[]];
  for (let byte = 0; byte < tableSize; byte++) {
    let crc = byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc & 1) === 1 ? (crc >>> 1) ^ polynomial : crc >>> 1;
    first[byte] = crc;
  }
  for (let level = 1; level < made.length; level++) {
    const [before, table] = [made[level - 1] as Uint32Array, made[level] as Uint32Array];
    for (let byte = 0; byte < tableSize; byte++) {
      const crc = before[byte] as number;
      table[byte] = (crc >>> 8) ^ (first[crc & 0xff] as number);
    }
  }
  return made;
}

/** Of `bytes` from `start` up to `end`. */
export function crc32c(bytes: Uint8Array, start = 0, end = bytes.length): number {
  tables ??= makeTables();
  const [t0, t1, t2, t3] = tables as [Uint32Array, Uint32Array, Uint32Array, Uint32Array];
  let crc = 0xffffffff;
  let at = start;
  for (const last = end - 3; at < last; at += 4) {
    const b0 = (bytes[at] as number) ^ (crc & 0xff);
    const b1 = (bytes[at + 1] as number) ^ ((crc >>> 8) & 0xff);
    const b2 = (bytes[at + 2] as number) ^ ((crc >>> 16) & 0xff);
    const b3 = (bytes[at + 3] as number) ^ (crc >>> 24);
    crc = (t3[b0] as number) ^ (t2[b1] as number) ^ (t1[b2] as number) ^ (t0[b3] as number);
  }
  for (; at < end; at++) {
    crc = (crc >>> 8) ^ (t0[(crc ^ (bytes[at] as number)) & 0xff] as number);
  }
  return ~crc >>> 0;
}

/** As LevelDB stores it. */
export function masked(crc: number): number {
  return ((((crc >>> 15) | (crc << 17)) >>> 0) + maskDelta) >>> 0;
}

/**
 * Where the checksum of `bytes` from `start` on first stands, masked, behind the bytes it covers:
 * the end of those bytes; undefined when it is found nowhere.
 */
export function endOfChecked(bytes: Buffer, start: number): number | undefined {
  tables ??= makeTables();
  const table = tables[0] as Uint32Array;
  let crc = 0xffffffff;
  for (let at = start; at + 4 < bytes.length; ) {
    crc = (crc >>> 8) ^ (table[(crc ^ (bytes[at] as number)) & 0xff] as number);
    at++;
    if (bytes.readUInt32LE(at) === masked(~crc >>> 0)) return at;
  }
  return undefined;
}
