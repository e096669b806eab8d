// Hashes that are not checksums: shard choice, block summaries, logical hashes in tests. Stable for
// ever, since shard choice is stored behaviour. `crc32` is zlib's, seeded by its second argument.

export { crc32 } from "node:zlib";

/** FNV-1a, 32 bits, over UTF-16 code units split in bytes; spread by a final avalanche. */
export function hash32(text: string, seed = 0): number {
  let hash = (0x811c9dc5 ^ seed) >>> 0;
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index);
    hash = Math.imul(hash ^ (unit & 0xff), 0x01000193);
    hash = Math.imul(hash ^ (unit >>> 8), 0x01000193);
  }
  return avalanche(hash);
}

/** FNV-1a, 32 bits, over bytes; spread by a final avalanche. */
export function hashBytes32(bytes: Uint8Array, seed = 0): number {
  let hash = (0x811c9dc5 ^ seed) >>> 0;
  for (const byte of bytes) hash = Math.imul(hash ^ byte, 0x01000193);
  return avalanche(hash);
}

// Finaliser of MurmurHash3 (public domain): FNV alone leaves the low bits of short keys uneven.
function avalanche(value: number): number {
  let hash = value;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
