import { describe, expect, test } from "vitest";
import { ByteReader, ByteWriter, SeededRandom } from "../../../src/base/index.ts";
import { type Lts, type LtsSettings, ltsSettingsDefault } from "../../../src/store/core/lts.ts";
import {
  decodeLtsRow,
  encodeLtsRow,
  readLtsRecords,
  writeLtsRecords,
} from "../../../src/store/core/lts-codec.ts";
import { createLts, inheritLts, loadLts } from "../../../src/store/core/lts-start.ts";
import type { LtsRecord } from "../../../src/store/core/lts-trie.ts";
import { parseTopicFilter } from "../../../src/topic/index.ts";

const lts = (settings: Partial<LtsSettings> = {}): Lts =>
  createLts({ ...ltsSettingsDefault, ...settings });

const structureFor = (trie: Lts, topic: string): string =>
  trie.structureOf(trie.place(topic, []).stream).join("/");

const planned = (trie: Lts, filter: string): unknown[] =>
  trie
    .plan(parseTopicFilter(filter))
    .map(({ structure, residual }) => [structure.join("/"), residual]);

const cpuTopics = (hosts: number, sockets: number, cores: number): string[] => {
  const topics: string[] = [];
  for (let host = 0; host < hosts; host++) {
    for (let socket = 0; socket < sockets; socket++) {
      for (let core = 0; core < cores; core++) {
        topics.push(`metrics/host${host}/cpu/socket/${socket}/core/${core}`);
      }
    }
  }
  return topics;
};

describe("learning", () => {
  test("a level varies once its node has as many exact children as its threshold", () => {
    const trie = lts({ thresholds: [3, 2] });
    expect(["a", "b", "c"].map((word) => structureFor(trie, word))).toEqual(["a", "b", "c"]);
    expect(structureFor(trie, "d")).toBe("+");
    expect(structureFor(trie, "a")).toBe("a");
    expect(structureFor(trie, "a/1")).toBe("a/1");
    expect(structureFor(trie, "a/2")).toBe("a/2");
    expect(structureFor(trie, "a/3")).toBe("a/+");
    expect(trie.place("a/4", []).varying).toEqual(["4"]);
    expect(trie.place("a/2", []).varying).toEqual([]);
  });

  test("the default thresholds are 100 at the first level and 10 below", () => {
    const trie = lts({ streamsMax: 10_000 });
    for (let root = 0; root < 100; root++) expect(structureFor(trie, `r${root}`)).toBe(`r${root}`);
    expect(structureFor(trie, "r100")).toBe("+");
    for (let word = 0; word < 10; word++) {
      expect(structureFor(trie, `r0/${word}`)).toBe(`r0/${word}`);
    }
    expect(structureFor(trie, "r0/10")).toBe("r0/+");
  });

  test("what one branch found to vary is the model for its siblings", () => {
    const trie = lts();
    for (let core = 0; core <= 10; core++) trie.place(`m/host0/cpu/${core}`, []);
    expect(structureFor(trie, "m/host1/cpu/0")).toBe("m/host1/cpu/+");
    expect(structureFor(trie, "m/host1/disk/0")).toBe("m/host1/disk/+");
    expect(structureFor(trie, "m/host1/disk/0/x")).toBe("m/host1/disk/+/x");
    expect(structureFor(trie, "m/host1")).toBe("m/host1");
  });

  test("branches of the root are strangers and model nothing", () => {
    const trie = lts();
    for (let id = 0; id <= 10; id++) trie.place(`sensors/${id}`, []);
    expect(structureFor(trie, "alerts/high")).toBe("alerts/high");
  });

  test("`$` topics have a root of their own with their own thresholds", () => {
    const trie = lts({ thresholds: [1, 1], dollarThresholds: [1, 3] });
    expect(structureFor(trie, "a")).toBe("a");
    expect(structureFor(trie, "$SYS/a")).toBe("$SYS/a");
    expect(structureFor(trie, "b")).toBe("+");
    expect(structureFor(trie, "$other/a")).toBe("+/a");
    expect(planned(trie, "#")).toEqual([
      ["a", "all"],
      ["+", "all"],
    ]);
    expect(planned(trie, "$other/#")).toEqual([["+/a", ["$other"]]]);
    expect(planned(trie, "+/a")).toEqual([]);
  });

  test("declared patterns vary from the first topic on", () => {
    const patterns = [parseTopicFilter("metrics/+/cpu/socket/+/core/+"), parseTopicFilter("x/+/#")];
    const trie = lts({ patterns });
    for (const topic of cpuTopics(3, 2, 2)) {
      expect(structureFor(trie, topic)).toBe("metrics/+/cpu/socket/+/core/+");
    }
    expect(trie.streamCount).toBe(1);
    expect(structureFor(trie, "x/1/y")).toBe("x/+/y");
  });

  test("hosts, sockets and cores end up in one stream without a pattern", () => {
    const trie = lts();
    const counts = new Map<string, number>();
    const topics = cpuTopics(200, 16, 64);
    for (const topic of topics) {
      const structure = structureFor(trie, topic);
      counts.set(structure, (counts.get(structure) ?? 0) + 1);
    }
    const share = (counts.get("metrics/+/cpu/socket/+/core/+") ?? 0) / topics.length;
    expect(share).toBeGreaterThan(0.9);
    expect(trie.streamCount).toBeLessThanOrEqual(50);
    const next = inheritLts(ltsSettingsDefault, trie);
    for (const topic of topics) next.place(topic, []);
    expect(next.streamCount).toBe(1);
  });
});

describe("limits", () => {
  const noise = (count: number, deep: number): string[] => {
    const random = new SeededRandom(3);
    return Array.from({ length: count }, () =>
      Array.from({ length: 1 + random.below(deep) }, () => `w${random.below(500)}`).join("/"),
    );
  };

  test("past the stream limit new structures share a catch-all, one for each root", () => {
    const trie = lts({ streamsMax: 20 });
    for (const topic of noise(5000, 30)) {
      trie.place(topic, []);
      trie.place(`$${topic}`, []);
    }
    expect(trie.isFull).toBe(true);
    expect(trie.streamCount).toBeLessThanOrEqual(20);
    const topic = "never/seen/before/and/very/odd".repeat(9);
    expect(structureFor(trie, topic)).toBe("#");
    expect(trie.place(topic, []).varying.join("/")).toBe(topic);
    expect(structureFor(trie, `$${topic}`)).toBe("#");
    expect(trie.place(`$${topic}`, []).stream).not.toBe(trie.place(topic, []).stream);
    expect(planned(trie, topic)).toContainEqual(["#", topic.split("/")]);
    expect(planned(trie, "#")).toContainEqual(["#", "all"]);
  });

  test("past the byte limit nothing is learned any more", () => {
    const trie = lts({ bytesMax: 20_000, streamsMax: 100_000 });
    for (const topic of noise(5000, 30)) trie.place(topic, []);
    expect(trie.isFull).toBe(true);
    expect(trie.sizeBytes).toBeLessThanOrEqual(20_000);
    const before = trie.edgeCount;
    trie.place("something/new", []);
    expect(trie.edgeCount).toBe(before);
  });

  test("once a topic went to the catch-all, no path made later draws it away", () => {
    const trie = lts({ thresholds: [1, 1], bytesMax: 1000 });
    const long = "x".repeat(500);
    const { stream } = trie.place(long, []);
    expect(trie.structureOf(stream)).toEqual(["#"]);
    for (const topic of ["a", "b"]) trie.place(topic, []);
    expect(trie.lookup(long)?.stream).toBe(stream);
    const copy = loadLts({ ...ltsSettingsDefault, cacheTopicsMax: 2 }, trie.records());
    for (const topic of ["c", "d", long]) expect(copy.place(topic, []).stream).toBe(stream);
  });

  test("the places remembered are bounded and the places stay the same", () => {
    const trie = lts({ cacheTopicsMax: 100 });
    const topics = cpuTopics(5, 10, 20);
    const first = topics.map((topic) => trie.place(topic, []).stream);
    expect(trie.cachedCount).toBeLessThanOrEqual(100);
    expect(topics.map((topic) => trie.lookup(topic)?.stream)).toEqual(first);
  });

  test("of a topic of more than a kilobyte the place stays the same and is not remembered", () => {
    const trie = lts();
    const long = `a/${"x".repeat(1023)}`;
    const place = trie.place(long, []);
    expect(trie.cachedCount).toBe(0);
    expect(trie.lookup(long)).toEqual(place);
    trie.place(long.slice(1), []);
    expect(trie.cachedCount).toBe(1);
  });
});

describe("records", () => {
  test("look-up learns nothing", () => {
    const trie = lts();
    expect(trie.lookup("a/b")).toBeUndefined();
    expect([trie.edgeCount, trie.streamCount]).toEqual([0, 0]);
  });

  test("an entry that was refused leaves no trace", () => {
    const trie = lts({ thresholds: [2, 2] });
    for (const topic of ["a/1", "a/2", "b/1"]) {
      const learned: LtsRecord[] = [];
      trie.place(topic, learned);
      trie.apply(learned);
    }
    const before = trie.records();
    const learned: LtsRecord[] = [];
    for (const topic of ["a/3", "c/d/e", "c/d", "b/2"]) trie.place(topic, learned);
    expect(learned.length).toBeGreaterThan(4);
    trie.undo(learned);
    expect(trie.records()).toEqual(before);
    expect(trie.pendingCount).toBe(0);
    expect(trie.lookup("c/d")).toBeUndefined();
    const again: LtsRecord[] = [];
    for (const topic of ["a/3", "c/d/e", "c/d", "b/2"]) trie.place(topic, again);
    expect(again).toEqual(learned);
  });

  test("a finding that was undone is no model any more, and the next one is", () => {
    const trie = lts({ thresholds: [5, 5, 1] });
    trie.place("m/z", []);
    const learned: LtsRecord[] = [];
    for (const topic of ["m/a/1", "m/a/2"]) trie.place(topic, learned);
    expect(trie.lookup("m/a/3")).toBeDefined();
    trie.undo(learned);
    expect(structureFor(trie, "m/b/1")).toBe("m/b/1");
    expect(structureFor(trie, "m/b/2")).toBe("m/b/+");
    expect(structureFor(trie, "m/c/1")).toBe("m/c/+");
  });

  test("on step-down what no committed entry confirmed is forgotten", () => {
    const trie = lts();
    const confirmed: LtsRecord[] = [];
    trie.place("a/b", confirmed);
    trie.place("c/d", []);
    trie.apply(confirmed);
    trie.dropPending();
    expect(trie.records()).toEqual(confirmed);
    expect(trie.lookup("c/d")).toBeUndefined();
    expect(trie.lookup("a/b")?.stream).toBe(1);
  });

  test("records applied twice, as in replay, change nothing", () => {
    const trie = lts();
    trie.place("a/b", []);
    const records = trie.records();
    const copy = loadLts(ltsSettingsDefault, records);
    copy.apply(records);
    expect(copy.records()).toEqual(records);
  });

  test("records that contradict each other are refused as damage", () => {
    const edge = (node: number, parent: number, word: string): LtsRecord => ({
      kind: "edge",
      node,
      parent,
      word,
    });
    const stream = (number: number, node: number): LtsRecord => ({
      kind: "stream",
      stream: number,
      node,
    });
    const faulty: LtsRecord[][] = [
      [edge(4, 99, "a")],
      [edge(4, 2, "a")],
      [edge(4, 0, "a"), edge(5, 0, "a")],
      [edge(4, 0, "a"), edge(4, 0, "b")],
      [stream(1, 9)],
      [edge(4, 0, "a"), stream(1, 4), stream(2, 4)],
      [edge(4, 0, "a"), edge(5, 0, "b"), stream(1, 4), stream(1, 5)],
      [edge(4, 0, "+"), stream(1, 4), edge(5, 0, "a")],
    ];
    for (const records of faulty) {
      expect(() => loadLts(ltsSettingsDefault, records)).toThrow(
        expect.objectContaining({ code: "STORE_TOPICS_CORRUPT" }),
      );
    }
  });

  test("a trie loaded from its rows goes on where it was", () => {
    const settings = { ...ltsSettingsDefault, thresholds: [2, 2] as const };
    const trie = createLts(settings);
    for (const topic of ["a/ä/1", "a/b/2", "a/c/3", "$x/y", "b", "c"]) trie.place(topic, []);
    const rows = trie.records().map(encodeLtsRow);
    rows.sort((one, two) => Buffer.compare(one.key, two.key));
    const copy = loadLts(
      settings,
      rows.map(({ key, value }) => decodeLtsRow(key, value)),
    );
    expect(copy.records()).toEqual(trie.records());
    for (const topic of ["a/d/4", "new", "$x/z"]) {
      const { stream, varying } = trie.place(topic, []);
      expect(copy.place(topic, [])).toMatchObject({ stream, varying });
    }
  });

  test("a list of records survives its bytes, and cut bytes are refused", () => {
    const trie = lts();
    for (const topic of ["a/b/c", "$SYS/é", ""]) trie.place(topic, []);
    const writer = new ByteWriter();
    writeLtsRecords(writer, trie.records());
    const bytes = Buffer.from(writer.finish());
    expect(readLtsRecords(new ByteReader(bytes))).toEqual(trie.records());
    for (let size = 0; size < bytes.length; size++) {
      expect(() => readLtsRecords(new ByteReader(bytes.subarray(0, size)))).toThrow(
        expect.objectContaining({ code: "STORE_ROW_CORRUPT" }),
      );
    }
  });

  test("the bytes of rows and lists stay as documented", () => {
    const edge: LtsRecord = { kind: "edge", node: 4, parent: 0, word: "metrics" };
    const stream: LtsRecord = { kind: "stream", stream: 1, node: 4 };
    const hex = (record: LtsRecord): string[] => {
      const row = encodeLtsRow(record);
      return [row.key.toString("hex"), row.value.toString("hex")];
    };
    expect(hex(edge)).toEqual(["0100000004", "0100000000076d657472696373"]);
    expect(hex(stream)).toEqual(["0200000001", "0100000004"]);
    const writer = new ByteWriter();
    writeLtsRecords(writer, [edge, stream]);
    expect(writer.finish().toString("hex")).toBe(
      "0102010000000400000000076d6574726963730200000001" + "00000004",
    );
  });

  test("a row of a newer version is told apart from damage", () => {
    const { key, value } = encodeLtsRow({ kind: "stream", stream: 1, node: 4 });
    value[0] = 2;
    expect(() => decodeLtsRow(key, value)).toThrow(
      expect.objectContaining({ code: "STORE_VERSION_UNKNOWN" }),
    );
    value[0] = 0;
    expect(() => decodeLtsRow(key, value)).toThrow(
      expect.objectContaining({ code: "STORE_ROW_CORRUPT" }),
    );
  });
});

describe("inheritance", () => {
  test("varying paths are kept with fresh stream numbers, plain ones are learned anew", () => {
    const settings = { ...ltsSettingsDefault, thresholds: [5, 1, 5] as const };
    const trie = createLts(settings);
    for (const topic of ["plain/x", "m/1/t", "m/2/t", "m/3/u", "$s/1"]) trie.place(topic, []);
    expect(trie.place("m/2/t", []).stream).toBe(3);
    const next = inheritLts(settings, trie);
    expect(next.streamCount).toBe(0);
    expect(next.records().map((record) => record.kind === "edge" && record.word)).toEqual([
      "m",
      "+",
      "t",
      "u",
    ]);
    expect(structureFor(next, "m/9/t")).toBe("m/+/t");
    expect(next.place("m/9/t", []).stream).toBe(1);
    expect(structureFor(next, "m/9/v")).toBe("m/+/v");
    expect(structureFor(next, "plain/x")).toBe("plain/x");
  });

  test("`$` topics are inherited too", () => {
    const settings = { ...ltsSettingsDefault, dollarThresholds: [5, 1] as const };
    const trie = createLts(settings);
    for (const topic of ["$s/1", "$s/2"]) trie.place(topic, []);
    expect(structureFor(inheritLts(settings, trie), "$s/1")).toBe("$s/+");
  });

  test("an exact branch beside a + is left out where the + says all that it says", () => {
    const settings = { ...ltsSettingsDefault, thresholds: [1, 1] as const };
    const said = createLts(settings);
    for (const topic of ["a/1", "a/2", "b/1", "b/2"]) said.place(topic, []);
    expect(structureFor(said, "a/3")).toBe("a/+");
    expect(structureFor(inheritLts(settings, said), "a/3")).toBe("+/+");
    const more = createLts(settings);
    for (const topic of ["a/1", "a/2", "a/2/x", "b/1", "b/2"]) more.place(topic, []);
    const next = inheritLts(settings, more);
    expect(structureFor(next, "a/3")).toBe("a/+");
    expect(structureFor(next, "b/3")).toBe("+/+");
  });

  test("what is inherited leaves room to learn", () => {
    const trie = lts({ thresholds: [1000, 1000], streamsMax: 100_000 });
    for (let app = 0; app < 900; app++) {
      trie.place(`app${app}`, []);
    }
    const wide = lts({ thresholds: [1000, 0], streamsMax: 100_000 });
    for (let app = 0; app < 900; app++) wide.place(`app${app}/1`, []);
    const bytesMax = 160_000;
    const next = inheritLts({ ...ltsSettingsDefault, bytesMax }, wide);
    expect(next.sizeBytes).toBeLessThan(bytesMax / 16 + 2000);
    expect(next.edgeCount).toBeGreaterThan(10);
    expect(inheritLts(ltsSettingsDefault, trie).edgeCount).toBe(0);
  });
});
