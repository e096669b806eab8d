// What a record says about each file and each name: the changes, in order, and the syncs that made
// them durable. Files are known by number, not by path, so that renames and reused paths stay apart.
//
// Every change knows the index of its operation. A sync covers changes before its begin, and counts
// for a power cut only if its end stands before the cut.

import { readdirSync, readFileSync, statSync } from "node:fs";
import { posix } from "node:path";
import type { Operation } from "./record-reader.ts";

export type ByteChange = { readonly at: number } & (
  | { readonly kind: "bytes"; readonly offset: number; readonly data: Buffer }
  | { readonly kind: "size"; readonly sizeBytes: number }
  | { readonly kind: "grow"; readonly sizeBytes: number }
);

export type Sync = { readonly begin: number; readonly end: number };

export type FileNode = {
  readonly id: number;
  readonly folder: boolean;
  /** Content before the record began; durable. */
  readonly initial: Buffer;
  readonly changes: ByteChange[];
  readonly syncs: Sync[];
};

/** One atomic change of names: removes some, sets some. Folders and files are node numbers. */
export type NameChange = {
  readonly at: number;
  readonly removes: ReadonlyArray<{ folder: number; name: string; node: number }>;
  readonly sets: ReadonlyArray<{ folder: number; name: string; node: number }>;
};

export type History = {
  readonly root: string;
  readonly nodes: readonly FileNode[];
  /** Names before the record began. */
  readonly initialNames: ReadonlyMap<number, ReadonlyMap<string, number>>;
  readonly names: readonly NameChange[];
  readonly operationCount: number;
};

export const rootNode = 0;

class HistoryBuilder {
  readonly nodes: FileNode[] = [];
  readonly names: NameChange[] = [];
  readonly #live = new Map<number, Map<string, number>>();
  readonly #handles = new Map<bigint, number>();
  readonly #openSyncs = new Map<string, number>();
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
    this.#addNode(true, Buffer.alloc(0));
  }

  load(folder: string, node: number): void {
    for (const name of readdirSync(folder).sort()) {
      const path = posix.join(folder, name);
      const isFolder = statSync(path).isDirectory();
      const child = this.#addNode(isFolder, isFolder ? Buffer.alloc(0) : readFileSync(path));
      this.#namesOf(node).set(name, child);
      if (isFolder) this.load(path, child);
    }
  }

  snapshotNames(): Map<number, Map<string, number>> {
    return new Map([...this.#live].map(([node, names]) => [node, new Map(names)]));
  }

  apply(operation: Operation, at: number): void {
    switch (operation.kind) {
      case "open":
        this.#open(operation, at);
        return;
      case "write": {
        const { offset, data } = operation;
        this.#file(operation.handle).changes.push({ at, kind: "bytes", offset, data });
        return;
      }
      case "truncate":
        this.#resize(this.#file(operation.handle), at, operation.sizeBytes);
        return;
      case "truncatePath":
        this.#resize(this.#node(operation.path), at, operation.sizeBytes);
        return;
      case "allocate": {
        const { sizeBytes } = operation;
        this.#file(operation.handle).changes.push({ at, kind: "grow", sizeBytes });
        return;
      }
      case "syncBegin":
        this.#openSyncs.set(`${operation.handle}/${operation.token}`, at);
        return;
      case "syncEnd": {
        const begin = this.#openSyncs.get(`${operation.handle}/${operation.token}`);
        if (begin === undefined) throw new Error(`operation ${at}: a sync ends that never began`);
        this.#file(operation.handle).syncs.push({ begin, end: at });
        return;
      }
      case "mark":
        return;
      default:
        this.#rename(operation, at);
    }
  }

  #open(operation: Extract<Operation, { kind: "open" }>, at: number): void {
    const { path, handle } = operation;
    if (operation.created) {
      const place = this.#place(path);
      const node = this.#addNode(false, Buffer.alloc(0));
      this.#change(at, [], [{ ...place, node }]);
    }
    const node = this.#node(path);
    this.#handles.set(handle, node.id);
    if (operation.emptied) this.#resize(node, at, 0);
  }

  #rename(
    operation: Extract<Operation, { kind: "rename" | "link" | "unlink" | "mkdir" | "rmdir" }>,
    at: number,
  ): void {
    const place = this.#place(operation.path);
    if (operation.kind === "mkdir") {
      const node = this.#addNode(true, Buffer.alloc(0));
      this.#change(at, [], [{ ...place, node }]);
      return;
    }
    const node = this.#node(operation.path).id;
    const gone = operation.kind === "link" ? [] : [{ ...place, node }];
    const moved = operation.kind === "rename" || operation.kind === "link";
    this.#change(at, gone, moved ? [{ ...this.#place(operation.to), node }] : []);
  }

  #change(at: number, removes: NameChange["removes"], sets: NameChange["sets"]): void {
    this.names.push({ at, removes, sets });
    for (const { folder, name } of removes) this.#namesOf(folder).delete(name);
    for (const { folder, name, node } of sets) this.#namesOf(folder).set(name, node);
  }

  #resize(node: FileNode, at: number, sizeBytes: number): void {
    node.changes.push({ at, kind: "size", sizeBytes });
  }

  #addNode(folder: boolean, initial: Buffer): number {
    const id = this.nodes.length;
    this.nodes.push({ id, folder, initial, changes: [], syncs: [] });
    if (folder) this.#live.set(id, new Map());
    return id;
  }

  #file(handle: bigint): FileNode {
    const id = this.#handles.get(handle);
    if (id === undefined) throw new Error(`the record uses handle ${handle}, which was not opened`);
    return this.nodes[id] as FileNode;
  }

  #node(path: string): FileNode {
    const relative = posix.relative(this.#root, posix.normalize(path));
    let node = rootNode;
    for (const name of relative === "" ? [] : relative.split("/")) {
      const next = this.#namesOf(node).get(name);
      if (next === undefined) throw new Error(`the record uses ${path}, which was not made`);
      node = next;
    }
    return this.nodes[node] as FileNode;
  }

  #place(path: string): { folder: number; name: string } {
    const full = posix.normalize(path).replace(/\/$/, "");
    return { folder: this.#node(posix.dirname(full)).id, name: posix.basename(full) };
  }

  #namesOf(folder: number): Map<string, number> {
    const names = this.#live.get(folder);
    if (names === undefined) throw new Error(`node ${folder} is not a folder`);
    return names;
  }
}

/**
 * The history of the folder `root`, an absolute path as the shim was given it. `base` is a copy of
 * the folder as it was when the record began; without it the folder was empty.
 */
export function createHistory(
  operations: readonly Operation[],
  root: string,
  base?: string,
): History {
  const builder = new HistoryBuilder(root);
  if (base !== undefined) builder.load(base, rootNode);
  const initialNames = builder.snapshotNames();
  operations.forEach((operation, at) => {
    builder.apply(operation, at);
  });
  const { nodes, names } = builder;
  return { root, nodes, initialNames, names, operationCount: operations.length };
}
