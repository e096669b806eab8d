import { describe, expect, test } from "vitest";
import {
  decodeGenerationRow,
  encodeGenerationKey,
  encodeGenerationRow,
} from "../../../src/store/core/generation-codec.ts";
import {
  type Generation,
  GenerationTable,
  type StreamCount,
  totalOf,
} from "../../../src/store/core/generations.ts";
import { checkLayout } from "../../../src/store/slab/layouts.ts";

const withThree = (): GenerationTable => {
  const table = new GenerationTable();
  table.rotate(0, "log-v1");
  table.rotate(100, "log-v1");
  table.rotate(200, "log-v1");
  return table;
};

const counted = (ttvs: number, sizeBytes: number): StreamCount => ({
  ...{ ttvs, sizeBytes },
  ...{ structure: ["a", "+"], dollar: false },
});

const numberAt = (table: GenerationTable, timeUs: number): unknown => {
  const place = table.place(timeUs);
  return typeof place === "string" ? place : place.number;
};

const code = (name: string): unknown => expect.objectContaining({ code: name });

describe("generation table", () => {
  test("a rotation ends the current generation where the next one begins", () => {
    const table = withThree();
    expect(
      table.generations.map(({ number, fromUs, toUs, state }) => [number, fromUs, toUs, state]),
    ).toEqual([
      [1, 0, 100, "sealing"],
      [2, 100, 200, "sealing"],
      [3, 200, undefined, "current"],
    ]);
    expect(table.current?.number).toBe(3);
    expect(() => table.rotate(200, "log-v1")).toThrow("spans some time");
  });

  test("a time lies in exactly one generation", () => {
    const table = withThree();
    expect([0, 99, 100, 199, 200, 9_999].map((timeUs) => numberAt(table, timeUs))).toEqual([
      1, 1, 2, 2, 3, 3,
    ]);
    expect(numberAt(new GenerationTable(), 5)).toBe("none");
  });

  test("a generation counts as sealed only after its checkpoint", () => {
    const table = withThree();
    table.finishSeal(1);
    table.finishSeal(1);
    expect(table.get(1).state).toBe("sealed");
    expect(table.get(2).state).toBe("sealing");
    table.finishSeal(3);
    expect(table.get(3).state).toBe("current");
  });

  test("times of a dropped generation are dropped, before and after its directory is gone", () => {
    const table = withThree();
    table.beginDrop(2);
    expect(numberAt(table, 150)).toBe("dropped");
    expect(table.readable().map(({ number }) => number)).toEqual([1, 3]);
    table.beginDrop(2);
    table.finishDrop(2);
    expect(numberAt(table, 150)).toBe("dropped");
    expect(numberAt(table, 50)).toBe(1);
    table.beginDrop(1);
    table.finishDrop(1);
    expect(numberAt(table, 50)).toBe("dropped");
    expect(numberAt(table, 250)).toBe(3);
    expect(table.rotate(300, "log-v1").number).toBe(4);
  });

  test("the current generation cannot be dropped, nor one that does not exist", () => {
    const table = withThree();
    expect(() => table.beginDrop(3)).toThrow(code("STORE_GENERATION_CURRENT"));
    expect(() => table.beginDrop(9)).toThrow(code("STORE_GENERATION_UNKNOWN"));
    expect(() => table.finishDrop(1)).toThrow("was not being dropped");
    expect(numberAt(table, 250)).toBe(3);
  });

  test("what is written is counted per stream, through seal and drop", () => {
    const table = withThree();
    table.count(2, 7, counted(2, 30), 150);
    table.finishSeal(2);
    table.count(2, 7, counted(1, 10), 120);
    table.count(2, 8, counted(4, 5), 160);
    const dropping = table.beginDrop(2);
    expect(dropping.streams.get(7)).toEqual(counted(3, 40));
    expect(totalOf(dropping)).toEqual({ ttvs: 7, sizeBytes: 45 });
    expect(totalOf(table.get(3))).toEqual({ ttvs: 0, sizeBytes: 0 });
    expect([dropping.firstUs, table.get(3).firstUs]).toEqual([120, 0]);
  });

  test("a row is taken for saving when it has changed, and again when it was not saved", () => {
    const table = withThree();
    const taken = (): number[] => table.takeChanged().map(({ number }) => number);
    expect(taken()).toEqual([1, 2, 3]);
    expect(taken()).toEqual([]);
    table.count(3, 1, counted(1, 1), 250);
    table.finishSeal(1);
    expect(taken()).toEqual([1, 3]);
    table.giveBackChanged([3]);
    expect(taken()).toEqual([3]);
    table.beginDrop(1);
    expect(taken()).toEqual([]);
  });
});

describe("generation rows", () => {
  const rowsOf = (table: GenerationTable): Generation[] =>
    table.generations.map((each) =>
      decodeGenerationRow(encodeGenerationKey(each.number), encodeGenerationRow(each)),
    );

  test("a table comes back from its rows", () => {
    const table = withThree();
    table.count(1, 3, counted(5, 2 ** 40), 50);
    table.beginDrop(2);
    const copy = GenerationTable.from(rowsOf(table), table.nextNumber);
    // The checkpoint that wrote it as sealing covers it.
    expect(copy.get(1).state).toBe("sealed");
    table.finishSeal(1);
    expect(copy.generations).toEqual(table.generations);
    expect(copy.rotate(300, "log-v1").number).toBe(4);
  });

  test("rows that contradict each other are refused", () => {
    const [first, second, third] = withThree().generations as [Generation, Generation, Generation];
    const faulty: Array<[Generation[], number]> = [
      [[second, first], 4],
      [[first, second, third], 3],
      [[{ ...first, toUs: 150 }, second, third], 4],
      [[{ ...first, toUs: 0 }, second], 4],
      [[{ ...first, toUs: undefined }, second], 4],
      [[{ ...first, state: "current", toUs: undefined }, second], 4],
    ];
    for (const [rows, nextNumber] of faulty) {
      expect(() => GenerationTable.from(rows, nextNumber)).toThrow(code("STORE_ROW_CORRUPT"));
    }
  });

  test("the worked example of docs/formats/generations.md is what is written", () => {
    const generation: Generation = {
      ...{ number: 3, layout: "log-v2", pack: 1, fromUs: 1000, toUs: 2000, firstUs: 1001 },
      ...{ state: "sealed", streams: new Map([[1, counted(5, 60)]]) },
    };
    expect(encodeGenerationKey(3).toString("hex")).toBe("00000003");
    expect(encodeGenerationRow(generation).toString("hex")).toBe(
      [
        ...["0202066c6f672d7632", "00000000000003e8", "00000000000007d0", "00000000000003e9"],
        ...["01", "0100000001053c", "0003612f2b"],
      ].join(""),
    );
  });

  test("a layout that this build does not know is refused by its name", () => {
    for (const layout of ["log-v1", "log-v2"]) checkLayout({ number: 1, layout });
    expect(() => checkLayout({ number: 7, layout: "log-v9" })).toThrow(
      "generation 7 has layout log-v9",
    );
  });

  test("a row of version 1 has a slab that was never packed anew", () => {
    const bytes = ["0102066c6f672d7631", "00000000000003e8", "00000000000007d0"];
    const rest = ["00000000000003e9", "0100000001053c", "0003612f2b"];
    const row = Buffer.from([...bytes, ...rest].join(""), "hex");
    const decoded = decodeGenerationRow(encodeGenerationKey(3), row);
    expect(decoded).toMatchObject({ number: 3, layout: "log-v1", pack: 0, firstUs: 1001 });
    expect(decoded.streams.get(1)).toEqual(counted(5, 60));
  });

  test("damage and newer versions are told apart", () => {
    const key = encodeGenerationKey(1);
    const row = encodeGenerationRow(withThree().get(1));
    for (let size = 0; size < row.length; size++) {
      expect(() => decodeGenerationRow(key, row.subarray(0, size))).toThrow(
        code("STORE_ROW_CORRUPT"),
      );
    }
    const edited = (at: number, value: number): Buffer => {
      const copy = Buffer.from(row);
      copy[at] = value;
      return copy;
    };
    expect(() => decodeGenerationRow(key, edited(0, 9))).toThrow(code("STORE_VERSION_UNKNOWN"));
    expect(() => decodeGenerationRow(key, edited(1, 9))).toThrow(code("STORE_ROW_CORRUPT"));
    expect(() => decodeGenerationRow(key.subarray(1), row)).toThrow(code("STORE_ROW_CORRUPT"));
    const long = Buffer.concat([row, Buffer.alloc(1)]);
    expect(() => decodeGenerationRow(key, long)).toThrow(code("STORE_ROW_CORRUPT"));
  });
});
