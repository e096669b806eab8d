import { expect, test } from "vitest";
import { asBuffer, ByteReader, ByteWriter, readU64, u64Key } from "../../../src/base/index.ts";

test("each form has the bytes the formats page shows", () => {
  const hex = (write: (writer: ByteWriter) => void): string => {
    const writer = new ByteWriter(0);
    write(writer);
    return writer.finish().toString("hex");
  };
  expect(hex((w) => w.u8(0xab))).toBe("ab");
  expect(hex((w) => w.u16(0xabc))).toBe("0abc");
  expect(hex((w) => w.u32(0xdeadbeef))).toBe("deadbeef");
  expect(hex((w) => w.u64(Number.MAX_SAFE_INTEGER))).toBe("001fffffffffffff");
  expect(hex((w) => w.varint(0))).toBe("00");
  expect(hex((w) => w.varint(127))).toBe("7f");
  expect(hex((w) => w.varint(128))).toBe("8001");
  expect(hex((w) => w.varint(Number.MAX_SAFE_INTEGER))).toBe("ffffffffffffff0f");
  expect(hex((w) => w.bytes(Buffer.from([1, 2])))).toBe("020102");
  expect(hex((w) => w.string("é"))).toBe("02c3a9");
  expect(hex((w) => w.u32(0).u8(1).patchU32(0, 5))).toBe("0000000501");
});

test("a value that does not fit is our fault, not cut off", () => {
  const writer = new ByteWriter();
  for (const write of [
    () => writer.u8(256),
    () => writer.u8(-1),
    () => writer.u8(0.5),
    () => writer.u16(65_536),
    () => writer.u32(2 ** 32),
    () => writer.u64(2 ** 53),
    () => writer.u64(-1),
    () => writer.varint(0.5),
    () => writer.varint(Number.NaN),
    () => writer.patchU32(0, 1),
    () => u64Key(-1),
  ]) {
    expect(write).toThrow();
  }
});

test("a varint of more than 53 bits or eight bytes is refused", () => {
  for (const bytes of [
    [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x10],
    [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00],
    [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
  ]) {
    expect(() => new ByteReader(Uint8Array.from(bytes)).varint()).toThrow(
      expect.objectContaining({ code: "BYTES_VARINT_OVERFLOW", kind: "corrupt" }),
    );
  }
  const tooLarge = Buffer.from("0020000000000000", "hex");
  expect(() => new ByteReader(tooLarge).u64()).toThrow(/53 bits/);
});

test("a record that ends early names the missing bytes and the place", () => {
  const reader = new ByteReader(Buffer.from("0000000501", "hex"), 3);
  expect(() => reader.bytes()).toThrow(
    expect.objectContaining({ code: "BYTES_TRUNCATED", details: { need: 4, offset: 4 } }),
  );
});

test("a text is its UTF-8, of any length and with a foreign letter anywhere", () => {
  for (let length = 0; length <= 130; length++) {
    for (const at of [-1, 0, length >> 1, length - 1]) {
      const units = Array.from({ length }, (_, n) => (n === at ? "é" : "a"));
      const text = units.join("");
      const written = new ByteWriter(1).u8(1).string(text).u8(2).finish();
      const utf8 = Buffer.from(text);
      const size = new ByteWriter().varint(utf8.length).finish();
      expect(written).toEqual(Buffer.concat([Buffer.from([1]), size, utf8, Buffer.from([2])]));
    }
  }
});

test("a writer used again starts at its beginning", () => {
  const writer = new ByteWriter();
  writer.string("first");
  writer.reset();
  expect(writer.length).toBe(0);
  expect(writer.u8(7).finish()).toEqual(Buffer.from([7]));
});

test("a reader hands out views and tells where it is", () => {
  const bytes = Buffer.from([9, 2, 5, 6, 7]);
  const reader = new ByteReader(bytes.subarray(1));
  const view = reader.bytes();
  bytes[2] = 8;
  expect([...view]).toEqual([8, 6]);
  expect([reader.offset, reader.remaining]).toEqual([3, 1]);
  reader.skip(1);
  expect(() => reader.skip(1)).toThrow();
});

test("keys of numbers sort as the numbers do", () => {
  const numbers = [0, 1, 255, 256, 2 ** 32 - 1, 2 ** 32, 2 ** 40, Number.MAX_SAFE_INTEGER];
  const keys = numbers.map(u64Key);
  expect([...keys].sort(Buffer.compare)).toEqual(keys);
  expect(keys.map((key) => readU64(key))).toEqual(numbers);
});

test("asBuffer shares the memory, also of a part", () => {
  const whole = new Uint8Array([1, 2, 3]);
  const part = asBuffer(whole.subarray(1));
  whole[1] = 9;
  expect([...part]).toEqual([9, 3]);
  expect(asBuffer(part)).toBe(part);
});
