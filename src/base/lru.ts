// Bounded caches, least recently used first out. The only home of `lru-cache`.

import { LRUCache } from "lru-cache";

export interface Lru<V extends object> {
  get(key: string): V | undefined;
  set(key: string, value: V): void;
  delete(key: string): void;
  clear(): void;
  readonly sizeBytes: number;
  readonly count: number;
}

/** A cache bounded by the bytes of its values and keys, as `sizeOf` counts them. */
export function createLru<V extends object>(
  bytesMax: number,
  sizeOf: (value: V, key: string) => number,
): Lru<V> {
  const cache = new LRUCache<string, V>({
    maxSize: Math.max(1, bytesMax),
    sizeCalculation: (value, key) => Math.max(1, sizeOf(value, key)),
  });
  return {
    get: (key) => cache.get(key),
    set: (key, value) => {
      cache.set(key, value);
    },
    delete: (key) => {
      cache.delete(key);
    },
    clear: () => cache.clear(),
    get sizeBytes() {
      return cache.calculatedSize;
    },
    get count() {
      return cache.size;
    },
  };
}
