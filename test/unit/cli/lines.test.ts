import { expect, test } from "vitest";
import { linesOf } from "../../../src/cli/lines.ts";

async function* chunksOf(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function read(bytes: Buffer, size: number, sizeBytesMax = 100): Promise<string[]> {
  const lines: string[] = [];
  const found = linesOf(chunksOf(bytes, size), sizeBytesMax, () => new Error("too long"));
  for await (const line of found) lines.push(line.toString("latin1"));
  return lines;
}

test("lines are the same wherever the stream is cut", async () => {
  const bytes = Buffer.from("a\r\n\r\nb\rc\n\xe2\x80\xa8\n\n\r", "latin1");
  for (let size = 1; size <= bytes.length; size++) {
    expect(await read(bytes, size)).toEqual(["a", "", "b\rc", "\xe2\x80\xa8", "", "\r"]);
  }
  expect(await read(Buffer.alloc(0), 1)).toEqual([]);
});

test("a line longer than the limit is not collected", async () => {
  await expect(read(Buffer.alloc(11, "x"), 2, 10)).rejects.toThrow("too long");
  expect(await read(Buffer.from(`${"x".repeat(10)}\nyy`), 2, 10)).toEqual(["x".repeat(10), "yy"]);
});
