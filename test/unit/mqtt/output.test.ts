import { describe, expect, test } from "vitest";
import { ChunkPool, OutputBuffer } from "../../../src/mqtt/index.ts";

function outputOf(pool = new ChunkPool()): {
  output: OutputBuffer;
  dirty: () => number;
  take: () => Buffer[];
} {
  let dirty = 0;
  const output = new OutputBuffer(pool, () => {
    dirty++;
  });
  const take = (): Buffer[] => {
    const parts: Buffer[] = [];
    output.drain((bytes) => parts.push(Buffer.from(bytes)));
    return parts;
  };
  return { output, dirty: () => dirty, take };
}

describe("the output of a connection", () => {
  test("comes out in order and whole, whatever the sizes", () => {
    const { output, take } = outputOf();
    const parts: Buffer[] = [];
    for (const size of [1, 500, 600, 7_000, 60_000, 3, 200_000, 0, 5, 64 * 1024, 1]) {
      const bytes = Buffer.alloc(size, parts.length + 1);
      parts.push(bytes);
      output.write(bytes);
    }
    const all = Buffer.concat(parts);
    expect(output.pendingBytes).toBe(all.length);
    expect(Buffer.concat(take()).equals(all)).toBe(true);
    expect(output.pendingBytes).toBe(0);
    expect(take()).toEqual([]);
  });

  test("up to 64 KiB it is one write", () => {
    const { output, take } = outputOf();
    for (let count = 0; count < 64; count++) output.write(Buffer.alloc(1024, count));
    expect(take()).toHaveLength(1);
  });

  test("its owner hears of the first byte after a drain, once", () => {
    const { output, dirty, take } = outputOf();
    for (let count = 0; count < 200; count++) output.write(Buffer.alloc(1000));
    expect(dirty()).toBe(1);
    take();
    output.write(Buffer.alloc(1));
    expect(dirty()).toBe(2);
  });

  test("chunks given back are used again, and the pool is bounded", () => {
    const pool = new ChunkPool(2048);
    const chunks = [1, 2, 3].map(() => pool.acquire(10));
    for (const chunk of chunks) pool.release(chunk);
    const again = [1, 2, 3].map(() => pool.acquire(10));
    expect(again.filter((chunk) => chunks.includes(chunk))).toHaveLength(2);
    const own = pool.acquire(100_000);
    pool.release(own);
    expect(pool.acquire(100_000)).not.toBe(own);
  });
});
