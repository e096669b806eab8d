// Learned topic structure: which stream of a slab a topic belongs to, and which streams a filter
// has to read.
//
// Placing: an exact edge wins over "+"; else an existing "+" takes the word; else the leader learns
// (lts-learn.ts). Two limits are hard, streams and bytes: the first topic that would pass one goes to
// the catch-all stream of its root, and under that root nothing is learned in this generation after.
// Invariants: a topic never changes its stream within a generation; what was learned is data
// (`LtsRecord`), travels in the entry of the TTV that needed it, and is undone with an entry that
// was never committed. Only the leader learns; replicas and replay apply.

import { assert, assertPresent } from "../../base/index.ts";
import {
  isDollarTopic,
  rememberedTopicMax,
  splitTopic,
  type TopicFilter,
} from "../../topic/index.ts";
import { learnPath, pathBytes, type Thresholds } from "./lts-learn.ts";
import {
  dollarCatchAll,
  dollarRoot,
  type LtsNode,
  type LtsRecord,
  LtsTrie,
  mainCatchAll,
  mainRoot,
} from "./lts-trie.ts";
import { type Place, WordTable } from "./place.ts";
import { PlaceCache } from "./place-cache.ts";
import { compressResidual, type Residual, type Structure } from "./structure.ts";

export type LtsSettings = {
  /** Exact children of a node before its level varies; by level, the last for all below it. */
  readonly thresholds: Thresholds;
  /** The same by first level, in place of `thresholds`. */
  readonly rootThresholds?: ReadonlyMap<string, Thresholds>;
  /** The same for topics that start with `$`. */
  readonly dollarThresholds: Thresholds;
  /** Filters whose "+" levels vary from the start; a last "#" says nothing. */
  readonly patterns: readonly TopicFilter[];
  /** Most memory of one trie, estimated. */
  readonly bytesMax: number;
  /** Most streams of one slab, the two catch-alls among them: each may hold an open block. */
  readonly streamsMax: number;
  /** Most topics whose place is remembered. */
  readonly cacheTopicsMax: number;
};

export const ltsSettingsDefault: LtsSettings = {
  thresholds: [100, 10],
  dollarThresholds: [100, 10],
  patterns: [],
  bytesMax: 16 * 1024 * 1024,
  streamsMax: 256,
  cacheTopicsMax: 100_000,
};

/** A stream that may hold TTVs a filter wants, and what to compare in it. */
export type PlannedStream = {
  readonly stream: number;
  readonly structure: Structure;
  readonly residual: Residual;
};

export class Lts {
  readonly #settings: LtsSettings;
  readonly #trie = new LtsTrie();
  readonly #cache: PlaceCache<Place>;
  readonly #words: WordTable;
  readonly #structures = new Map<number, Structure>();
  /** Learned here and not yet applied by a committed entry, oldest first. */
  #pending: LtsRecord[] = [];
  #revision = 0;

  /** An empty trie: see `createLts`, `inheritLts` and `loadLts` for the ways to begin. */
  constructor(settings: LtsSettings) {
    assert(settings.streamsMax > 2, "two streams are kept for the catch-alls");
    this.#settings = settings;
    this.#cache = new PlaceCache(settings.cacheTopicsMax);
    this.#words = new WordTable(settings.cacheTopicsMax);
  }

  get streamCount(): number {
    return this.#trie.streamCount;
  }

  get edgeCount(): number {
    return this.#trie.edgeCount;
  }

  /** Estimate of the trie's memory; the cache of places is apart. */
  get sizeBytes(): number {
    return this.#trie.sizeBytes;
  }

  get streams(): Iterable<number> {
    return this.#trie.streams();
  }

  /** Topics whose place is remembered. */
  get cachedCount(): number {
    return this.#cache.size;
  }

  /** Records learned and not applied yet. */
  get pendingCount(): number {
    return this.#pending.length;
  }

  /** Changes whenever a plan made before may lack a stream. */
  get revision(): number {
    return this.#revision;
  }

  /** True once topics had to go to a catch-all: a limit was reached. */
  get isFull(): boolean {
    return this.#trie.node(mainCatchAll).stream + this.#trie.node(dollarCatchAll).stream > 0;
  }

  /**
   * The place of a topic; learns it where it is new and adds what was learned to `learned`, which
   * has to go into the entry that carries the TTV. REQUIRES: the caller leads the shard.
   */
  place(topic: string, learned: LtsRecord[]): Place {
    const known = this.lookup(topic);
    if (known !== undefined) return known;
    const words = splitTopic(topic);
    const node = this.#learn(words, isDollarTopic(topic), learned);
    return this.#placeAt(node, topic, words);
  }

  /** The place of a topic that was placed before, or would be without learning. */
  lookup(topic: string): Place | undefined {
    const cached = this.#cache.get(topic);
    if (cached !== undefined) return cached;
    const words = splitTopic(topic);
    const dollar = isDollarTopic(topic);
    const node = this.#find(words, dollar) ?? this.#catchAll(dollar);
    if (node.stream === 0) return undefined;
    return this.#placeAt(node, topic, words);
  }

  /** Records of a committed entry: adds them, or confirms them where they were learned. */
  apply(records: readonly LtsRecord[]): void {
    for (const record of records) {
      const pending = this.#pending[0];
      if (pending !== undefined) {
        assert(
          sameRecord(pending, record),
          "entries are applied in the order they were learned in",
        );
        this.#pending.shift();
      } else {
        this.#add(record);
      }
    }
  }

  /** Takes back what `place` learned for an entry that was refused. REQUIRES: nothing later. */
  undo(learned: readonly LtsRecord[]): void {
    if (learned.length === 0) return;
    for (const record of learned.toReversed()) {
      const last = this.#pending.pop();
      assert(last !== undefined && sameRecord(last, record), "undo goes last first");
      this.#take(record);
    }
    this.#cache.clear();
  }

  /** On step-down: forgets all that no committed entry has confirmed. */
  dropPending(): void {
    this.undo([...this.#pending]);
  }

  structureOf(stream: number): Structure {
    let structure = this.#structures.get(stream);
    if (structure === undefined) {
      const node = this.#trie.streamNode(stream);
      assert(node !== undefined, `stream ${stream} is not in the topic trie`);
      structure = this.#trie.structureOf(node);
      this.#structures.set(stream, structure);
    }
    return structure;
  }

  /** The structure of a stream and its root: with `dollar` its topics start with `$`. */
  originOf(stream: number): { readonly structure: Structure; readonly dollar: boolean } {
    const node = assertPresent(this.#trie.streamNode(stream), `no stream ${stream} in the trie`);
    let root = node;
    while (root.parent !== undefined) root = root.parent;
    const dollar = root.id === dollarRoot || root.id === dollarCatchAll;
    return { structure: this.structureOf(stream), dollar };
  }

  /** Streams that may hold topics of `filter`; none is left out. Sorted by stream. */
  plan(filter: TopicFilter): PlannedStream[] {
    const words = filter.words;
    const dollar = words[0]?.startsWith("$") === true;
    const found: PlannedStream[] = [];
    const emit = (node: LtsNode, pattern: readonly string[]): void => {
      if (node.stream === 0) return;
      const structure = this.structureOf(node.stream);
      found.push({ stream: node.stream, structure, residual: compressResidual(pattern) });
    };
    descend(this.#root(dollar), words, 0, [], emit);
    // An exact topic that has a stream of its own was never put into the catch-all.
    const rest = this.#catchAll(dollar);
    if (rest.stream > 0 && !(filter.exact && found.length > 0)) {
      const residual = words[0] === "#" ? "all" : words;
      found.push({ stream: rest.stream, structure: this.structureOf(rest.stream), residual });
    }
    return found.sort((a, b) => a.stream - b.stream);
  }

  /** All that this trie knows, pending included, in an order in which it can be applied. */
  records(): LtsRecord[] {
    return [...this.#trie.records()];
  }

  /** Adds the edges of a path without a stream. For patterns and inheritance, before any topic. */
  addPath(words: readonly string[]): void {
    assert(this.streamCount === 0, "paths are declared before the first topic");
    let node = this.#root(words[0]?.startsWith("$") === true);
    for (const word of words) {
      const next = word === "+" ? node.plus : node.children?.get(word);
      node = next ?? this.#add(this.#trie.nextEdge(node, word));
    }
  }

  /** No topic will be placed here any more: what is remembered of them is let go. */
  forgetPlaces(): void {
    this.#cache.clear();
    this.#words.clear();
  }

  /** Root nodes, for those who walk the trie without changing it. */
  get roots(): readonly LtsNode[] {
    return [this.#root(false), this.#root(true)];
  }

  #learn(words: readonly string[], dollar: boolean, learned: LtsRecord[]): LtsNode {
    const full = this.streamCount + 2 >= this.#settings.streamsMax;
    const path = full ? undefined : this.#pathFor(words, dollar);
    let node = path?.from ?? this.#catchAll(dollar);
    for (const word of path?.words ?? []) {
      node = this.#learnRecord(this.#trie.nextEdge(node, word), learned);
    }
    return this.#learnRecord(this.#trie.nextStream(node), learned);
  }

  #pathFor(words: readonly string[], dollar: boolean): ReturnType<typeof learnPath> | undefined {
    const { thresholds, dollarThresholds, bytesMax, streamsMax } = this.#settings;
    const pressure = Math.max(this.streamCount / streamsMax, this.sizeBytes / bytesMax);
    const own = this.#settings.rootThresholds?.get(words[0] as string);
    const limits = own ?? (dollar ? dollarThresholds : thresholds);
    const path = learnPath(this.#root(dollar), words, { thresholds: limits, pressure });
    return this.sizeBytes + pathBytes(path) > bytesMax ? undefined : path;
  }

  #learnRecord(record: LtsRecord, learned: LtsRecord[]): LtsNode {
    const node = this.#add(record);
    this.#pending.push(record);
    learned.push(record);
    return node;
  }

  #add(record: LtsRecord): LtsNode {
    this.#revision++;
    return this.#trie.apply(record);
  }

  #take(record: LtsRecord): void {
    this.#revision++;
    this.#trie.undo(record);
    if (record.kind === "stream") this.#structures.delete(record.stream);
  }

  #find(words: readonly string[], dollar: boolean): LtsNode | undefined {
    let node = this.#root(dollar);
    for (const word of words) {
      const next = node.children?.get(word) ?? node.plus;
      if (next === undefined) return undefined;
      node = next;
    }
    return node.stream === 0 ? undefined : node;
  }

  #placeAt({ stream }: LtsNode, topic: string, words: readonly string[]): Place {
    const structure = this.structureOf(stream);
    const all = structure[0] === "#";
    const varying = all ? words : words.filter((_, level) => structure[level] === "+");
    const isKept = topic.length <= rememberedTopicMax;
    const place = this.#words.place(stream, varying, isKept);
    if (isKept) this.#cache.set(topic, place);
    return place;
  }

  #root(dollar: boolean): LtsNode {
    return this.#trie.node(dollar ? dollarRoot : mainRoot);
  }

  #catchAll(dollar: boolean): LtsNode {
    return this.#trie.node(dollar ? dollarCatchAll : mainCatchAll);
  }
}

type Emit = (node: LtsNode, pattern: readonly string[]) => void;

function descend(
  node: LtsNode,
  words: readonly string[],
  level: number,
  pattern: readonly string[],
  emit: Emit,
): void {
  const word = words[level];
  if (word === undefined) {
    emit(node, pattern);
  } else if (word === "#") {
    descendAll(node, pattern, emit);
  } else {
    // A word with an exact edge never went under "+" (lts-trie.ts), so one of the two is enough.
    const exact = node.children?.get(word);
    const open = exact === undefined ? node.plus : undefined;
    const all = word === "+" ? (node.children?.values() ?? []) : [];
    for (const child of all) descend(child, words, level + 1, pattern, emit);
    if (exact !== undefined) descend(exact, words, level + 1, pattern, emit);
    if (open !== undefined) descend(open, words, level + 1, [...pattern, word], emit);
  }
}

function descendAll(node: LtsNode, pattern: readonly string[], emit: Emit): void {
  emit(node, pattern);
  for (const child of node.children?.values() ?? []) descendAll(child, pattern, emit);
  if (node.plus !== undefined) descendAll(node.plus, [...pattern, "+"], emit);
}

function sameRecord(a: LtsRecord, b: LtsRecord): boolean {
  if (a.kind === "edge") {
    return b.kind === "edge" && a.node === b.node && a.parent === b.parent && a.word === b.word;
  }
  return b.kind === "stream" && a.stream === b.stream && a.node === b.node;
}
