import { describe, expect, test } from "vitest";
import type { CodedError } from "../../../src/base/index.ts";
import { PacketFramer, reasonCodeOf } from "../../../src/mqtt/index.ts";
import { collect, hex } from "./support.ts";

function framerOf(sizeBytesMax: number): {
  framer: PacketFramer;
  frames: string[];
  faults: CodedError[];
} {
  const frames: string[] = [];
  const faults: CodedError[] = [];
  const framer = collect(
    sizeBytesMax,
    (bytes, start, bodyStart, end) =>
      frames.push(
        `${bytes.toString("hex", start, bodyStart)}|${bytes.toString("hex", bodyStart, end)}`,
      ),
    faults,
  );
  return { framer, frames, faults };
}

describe("framing", () => {
  test("packets are found whatever the chunking", () => {
    const stream = hex(`c000 3003000161 308101 0001 62${"00".repeat(126)}e000`);
    const whole = framerOf(1000);
    whole.framer.push(stream);
    expect(whole.frames).toHaveLength(4);
    for (let size = 1; size < stream.length; size++) {
      const cut = framerOf(1000);
      for (let at = 0; at < stream.length; at += size) {
        // A chunk is only valid during the call: garble it afterwards.
        const chunk = Buffer.from(stream.subarray(at, at + size));
        expect(cut.framer.push(chunk)).toBe(chunk.length);
        chunk.fill(0xee);
      }
      expect(cut.frames).toEqual(whole.frames);
      expect(cut.framer.pendingBytes).toBe(0);
    }
  });

  test("the size limit counts the fixed header: limit-1, limit, limit+1", () => {
    for (const [remaining, refused] of [
      [97, false],
      [98, false],
      [99, true],
    ] as const) {
      const { framer, frames, faults } = framerOf(100);
      framer.push(Buffer.concat([Buffer.from([0x30, remaining]), Buffer.alloc(remaining)]));
      expect(frames.length).toBe(refused ? 0 : 1);
      expect(faults.map(reasonCodeOf)).toEqual(refused ? [0x95] : []);
    }
  });

  test("a packet too large is refused on its header, before a byte of its body", () => {
    const { framer, faults } = framerOf(8 * 1024 * 1024);
    framer.push(hex("30 ffff"));
    expect(faults).toHaveLength(0);
    framer.push(hex("ff7f"));
    expect(faults.map(reasonCodeOf)).toEqual([0x95]);
    expect(framer.pendingBytes).toBe(0);
  });

  test("memory grows with what came, not with what a length announces", () => {
    const { framer } = framerOf(8 * 1024 * 1024);
    framer.push(hex("30 ffff7f"));
    const before = process.memoryUsage().arrayBuffers;
    framer.push(Buffer.alloc(10));
    expect(framer.pendingBytes).toBe(14);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(64 * 1024);
  });

  test("a length of five bytes, or longer than needed, is malformed", () => {
    for (const bytes of ["30 ffffffff", "30 80808080", "30 8000", "30 818000", "c0 8000"]) {
      const { framer, faults } = framerOf(1 << 28);
      framer.push(hex(bytes));
      expect(faults.map(reasonCodeOf)).toEqual([0x81]);
    }
  });

  test("packets before a bad one are handed out, none after it", () => {
    const { framer, frames, faults } = framerOf(100);
    framer.push(hex("c000 30 8000 c000"));
    framer.push(hex("c000"));
    expect([frames.length, faults.length]).toEqual([1, 1]);
  });

  test("a sink that stops keeps the rest of the chunk", () => {
    let seen = 0;
    const framer = new PacketFramer(100, {
      onFrame: () => ++seen < 2,
      onHeader: () => undefined,
      onFault: () => undefined,
    });
    expect(framer.push(hex("c0"))).toBe(1);
    expect(framer.push(hex("00 c000 c000"))).toBe(3);
    expect(seen).toBe(2);
  });

  test("an incomplete packet of a bad type is refused at its header", () => {
    const refused: number[] = [];
    for (const chunks of [["1005"], ["10", "05"]]) {
      const framer = new PacketFramer(100, {
        onFrame: () => true,
        onHeader: (firstByte) => {
          refused.push(firstByte);
          return undefined;
        },
        onFault: () => undefined,
      });
      for (const chunk of chunks) framer.push(hex(chunk));
    }
    expect(refused).toEqual([0x10, 0x10]);
  });
});
