// The trie under learned topic structure: nodes, edges, streams, and nothing of how they are chosen.
//
// Everything in it was added by a record, and records are all that is ever written or sent: applied
// in order to an empty trie they give the same trie, with the same numbers. Applying one twice does
// nothing. Undo takes the last ones off again, for entries that were never committed.
//
// Invariant: where a node has a "+" in use no exact edge is added any more. So a topic that was
// placed stays where it is, and a level with an exact edge for a word never has that word under "+".

import { assert, assertPresent } from "../../base/index.ts";
import { catchAllStructure, type Structure } from "./structure.ts";

/** A node below another one. "+" is the varying edge: no topic name has such a word. */
export type EdgeRecord = {
  readonly kind: "edge";
  readonly node: number;
  readonly parent: number;
  readonly word: string;
};

/** A node at which topics end. The catch-all nodes have no edges: they take whole topics. */
export type StreamRecord = {
  readonly kind: "stream";
  readonly stream: number;
  readonly node: number;
};

export type LtsRecord = EdgeRecord | StreamRecord;

export const mainRoot = 0;
export const dollarRoot = 1;
export const mainCatchAll = 2;
export const dollarCatchAll = 3;
export const firstNode = 4;
const firstStream = 1;

/** Measured on V8 in chains of nodes, each with a map of one child: heap per node, words apart. */
const nodeBytes = 336;

export type LtsNode = {
  readonly id: number;
  readonly parent: LtsNode | undefined;
  readonly word: string;
  children: Map<string, LtsNode> | undefined;
  plus: LtsNode | undefined;
  /** A child below which a level was found to vary: what its siblings are modelled on. */
  model: LtsNode | undefined;
  /** 0 while no topic ends here. */
  stream: number;
  /** Streams here and below. */
  streamsWithin: number;
};

export class LtsTrie {
  readonly #nodes = new Map<number, LtsNode>();
  readonly #streams = new Map<number, LtsNode>();
  #nextNode = firstNode;
  #nextStream = firstStream;
  #sizeBytes = 0;

  constructor() {
    for (const id of [mainRoot, dollarRoot, mainCatchAll, dollarCatchAll]) {
      this.#nodes.set(id, createNode(id, undefined, ""));
    }
  }

  get streamCount(): number {
    return this.#streams.size;
  }

  /** Edges held; the four fixed nodes do not count. */
  get edgeCount(): number {
    return this.#nodes.size - firstNode;
  }

  /** Estimate of the memory held. */
  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  node(id: number): LtsNode {
    return assertPresent(this.#nodes.get(id), `no node ${id} in the topic trie`);
  }

  streamNode(stream: number): LtsNode | undefined {
    return this.#streams.get(stream);
  }

  streams(): IterableIterator<number> {
    return this.#streams.keys();
  }

  /** The record that would add this edge; it is not applied yet. */
  nextEdge(parent: LtsNode, word: string): EdgeRecord {
    return { kind: "edge", node: this.#nextNode, parent: parent.id, word };
  }

  nextStream(node: LtsNode): StreamRecord {
    return { kind: "stream", stream: this.#nextStream, node: node.id };
  }

  /** The node that the record leads to. False news (a record held already) changes nothing. */
  apply(record: LtsRecord): LtsNode {
    return record.kind === "edge" ? this.#addEdge(record) : this.#addStream(record);
  }

  /** REQUIRES: `record` is the last one applied that has not been undone. */
  undo(record: LtsRecord): void {
    if (record.kind === "edge") this.#removeEdge(record);
    else this.#removeStream(record);
  }

  /** All records, in an order in which they can be applied. */
  *records(): Generator<LtsRecord> {
    for (const node of this.#nodes.values()) {
      if (node.parent !== undefined) {
        yield { kind: "edge", node: node.id, parent: node.parent.id, word: node.word };
      }
    }
    for (const [stream, node] of this.#streams) yield { kind: "stream", stream, node: node.id };
  }

  structureOf(node: LtsNode): Structure {
    if (node.id === mainCatchAll || node.id === dollarCatchAll) return catchAllStructure;
    const words: string[] = [];
    for (let at: LtsNode = node; at.parent !== undefined; at = at.parent) words.push(at.word);
    return words.reverse();
  }

  #addEdge(record: EdgeRecord): LtsNode {
    const parent = this.node(record.parent);
    assert(parent.id !== mainCatchAll && parent.id !== dollarCatchAll, "a catch-all has no edges");
    const known = childOf(parent, record.word);
    if (known !== undefined) {
      assert(known.id === record.node, `edge of node ${record.node} is node ${known.id} here`);
      return known;
    }
    assert(!this.#nodes.has(record.node), `node ${record.node} stands elsewhere in the topic trie`);
    const node = createNode(record.node, parent, record.word);
    if (record.word === "+") {
      parent.plus = node;
      for (let at = parent; at.parent !== undefined; at = at.parent) at.parent.model ??= at;
    } else {
      const blocked = parent.plus !== undefined && parent.plus.streamsWithin > 0;
      assert(!blocked, `an exact edge beside a "+" in use would move topics`);
      parent.children ??= new Map();
      parent.children.set(record.word, node);
    }
    this.#nodes.set(record.node, node);
    this.#nextNode = Math.max(this.#nextNode, record.node + 1);
    this.#sizeBytes += edgeBytes(record.word);
    return node;
  }

  #addStream(record: StreamRecord): LtsNode {
    const node = this.node(record.node);
    if (node.stream === record.stream) return node;
    const free = node.stream === 0 && !this.#streams.has(record.stream);
    assert(free, `stream ${record.stream} cannot stand at node ${record.node}`);
    node.stream = record.stream;
    this.#streams.set(record.stream, node);
    this.#nextStream = Math.max(this.#nextStream, record.stream + 1);
    for (let at: LtsNode | undefined = node; at !== undefined; at = at.parent) at.streamsWithin++;
    return node;
  }

  #removeEdge(record: EdgeRecord): void {
    const node = this.node(record.node);
    const parent = assertPresent(node.parent, "a root has no edge to undo");
    const bare = node.children === undefined && node.plus === undefined && node.stream === 0;
    assert(bare, `node ${record.node} is still in use`);
    assert(record.node === this.#nextNode - 1, "edges are undone last first");
    if (record.word === "+") {
      parent.plus = undefined;
      forgetModel(parent);
    } else {
      parent.children?.delete(record.word);
      if (parent.children?.size === 0) parent.children = undefined;
    }
    this.#nodes.delete(record.node);
    this.#nextNode--;
    this.#sizeBytes -= edgeBytes(record.word);
  }

  #removeStream(record: StreamRecord): void {
    assert(record.stream === this.#nextStream - 1, "streams are undone last first");
    const node = this.node(record.node);
    node.stream = 0;
    this.#streams.delete(record.stream);
    this.#nextStream--;
    for (let at: LtsNode | undefined = node; at !== undefined; at = at.parent) at.streamsWithin--;
  }
}

export function edgeBytes(word: string): number {
  return nodeBytes + 2 * word.length;
}

export function childOf(node: LtsNode, word: string): LtsNode | undefined {
  return word === "+" ? node.plus : node.children?.get(word);
}

/** True when a level was found to vary at the node or below it. */
export function isWild(node: LtsNode): boolean {
  return node.plus !== undefined || node.model !== undefined;
}

function createNode(id: number, parent: LtsNode | undefined, word: string): LtsNode {
  return {
    id,
    parent,
    word,
    children: undefined,
    plus: undefined,
    model: undefined,
    stream: 0,
    streamsWithin: 0,
  };
}

/** After the "+" of `node` is gone: ancestors that were modelled on it have no model any more. */
function forgetModel(node: LtsNode): void {
  for (let at = node; at.parent !== undefined && !isWild(at); at = at.parent) {
    if (at.parent.model !== at) return;
    at.parent.model = undefined;
  }
}
