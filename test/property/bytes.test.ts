import fc from "fast-check";
import { expect, test } from "vitest";
import { ByteReader, ByteSource, ByteWriter, isCodedError, viewOf } from "../../src/base/index.ts";

const safeInteger = fc.oneof(fc.maxSafeNat(), fc.nat(300));

const field = fc.oneof(
  fc.record({ type: fc.constant("u8" as const), value: fc.nat(0xff) }),
  fc.record({ type: fc.constant("u16" as const), value: fc.nat(0xffff) }),
  fc.record({ type: fc.constant("u32" as const), value: fc.nat(0xffffffff) }),
  fc.record({ type: fc.constant("u64" as const), value: safeInteger }),
  fc.record({ type: fc.constant("varint" as const), value: safeInteger }),
  fc.record({ type: fc.constant("bytes" as const), value: fc.uint8Array({ maxLength: 300 }) }),
  fc.record({
    type: fc.constant("string" as const),
    value: fc.string({ unit: "binary", maxLength: 100 }),
  }),
);

type Field = typeof field extends fc.Arbitrary<infer T> ? T : never;

test("what was written in any order of forms is read back", () => {
  fc.assert(
    fc.property(fc.array(field, { maxLength: 40 }), fc.nat(64), (fields, capacity) => {
      const reader = new ByteReader(encode(fields, capacity));
      for (const { type, value } of fields) {
        const read = reader[type]();
        if (value instanceof Uint8Array)
          expect(Buffer.from(value).equals(read as Buffer)).toBe(true);
        else expect(read).toBe(value);
      }
      expect(reader.remaining).toBe(0);
    }),
  );
});

test("a record cut anywhere is refused with a code, never read past its end", () => {
  fc.assert(
    fc.property(fc.array(field, { minLength: 1, maxLength: 10 }), fc.nat(), (fields, at) => {
      const bytes = encode(fields, 16);
      const cut = bytes.subarray(0, at % bytes.length);
      const reader = new ByteReader(cut);
      let error: unknown;
      try {
        for (const { type } of fields) reader[type]();
      } catch (thrown) {
        error = thrown;
      }
      expect(isCodedError(error, "BYTES_TRUNCATED")).toBe(true);
      expect(reader.offset).toBeLessThanOrEqual(cut.length);
    }),
  );
});

test("any bytes are read or refused with a code", () => {
  fc.assert(
    fc.property(
      fc.uint8Array({ maxLength: 60 }),
      fc.array(field, { maxLength: 10 }),
      (bytes, fields) => {
        const reader = new ByteReader(bytes);
        try {
          for (const { type } of fields) reader[type]();
        } catch (error) {
          expect(isCodedError(error) && error.kind === "corrupt").toBe(true);
        }
        expect(reader.offset).toBeLessThanOrEqual(bytes.length);
      },
    ),
  );
});

function encode(fields: readonly Field[], capacity: number): Buffer {
  const writer = new ByteWriter(capacity);
  for (const { type, value } of fields) {
    (writer[type] as (this: ByteWriter, value: unknown) => unknown).call(writer, value);
  }
  return writer.finish();
}

test("many varints are read as they are one by one, and cut anywhere refused with a code", () => {
  const numbers = fc.array(fc.oneof(fc.nat(127), fc.nat(20_000), fc.maxSafeNat()));
  fc.assert(
    fc.property(numbers, fc.nat(), (values, at) => {
      const writer = new ByteWriter();
      for (const value of values) writer.varint(value);
      const bytes = writer.finish();
      const reader = new ByteReader(Buffer.concat([bytes, Buffer.from([0x7f])]));
      const read = new Float64Array(1 + values.length);
      expect(reader.varints(read, 1)).toBe(Math.max(0, ...values));
      expect([...read.subarray(1)]).toEqual(values);
      expect(reader.remaining).toBe(1);
      if (values.length === 0) return;
      const cut = new ByteReader(bytes.subarray(0, at % bytes.length));
      expect(() => cut.varints(new Float64Array(values.length))).toThrow(/ends early/);
    }),
    { numRuns: 300, endOnFailure: true },
  );
});

test("pieces of any length are copied whole, and nothing beside them is touched", () => {
  const lengths = fc.oneof(fc.nat(20), fc.nat(400));
  fc.assert(
    fc.property(lengths, fc.nat(40), fc.nat(40), (length, from, at) => {
      const bytes = Buffer.from(
        Array.from({ length: from + length + 9 }, (_, n) => (n * 7) & 0xff),
      );
      // Neither begins where its memory does.
      const source = new ByteSource(Buffer.concat([Buffer.alloc(3), bytes]).subarray(3));
      const target = Buffer.alloc(at + length + 12, 0xee).subarray(2);
      const expected = Buffer.from(target);
      bytes.copy(expected, at, from, from + length);
      source.copy(from, from + length, target, viewOf(target), at);
      expect(target.equals(expected)).toBe(true);
      const writer = new ByteWriter(1)
        .u8(1)
        .rawFrom(source, from, from + length)
        .u8(2);
      const all = [Buffer.from([1]), bytes.subarray(from, from + length), Buffer.from([2])];
      expect(writer.finish().equals(Buffer.concat(all))).toBe(true);
    }),
    { numRuns: 300, endOnFailure: true },
  );
});
