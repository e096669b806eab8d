// The names of the simulated disk: a tree of folders as processes see it, and what of it a power
// cut may leave. Pure state: no clock, no faults.
//
// Invariants: a rename is one change, kept or lost as a whole; changes of one name are kept in
// order, so that a cut never brings back what a kept change replaced; changes of different names
// are independent of each other. A synced change is never lost.

import { diskErrors } from "./disk.ts";
import type { SeededRandom } from "./random.ts";
import { SimFile } from "./sim-file.ts";

export type SimNode = SimFile | SimDir;

export class SimDir {
  readonly kind = "dir";
  readonly names = new Map<string, SimNode>();
  /** What a power cut is sure to leave. */
  readonly durable = new Map<string, SimNode>();
}

type NameChange = {
  readonly dir: SimDir;
  readonly name: string;
  readonly node: SimNode | undefined;
};
type NameOperation = readonly NameChange[];

/** The changes a `syncDir` under way will have made durable. */
export type NamesTicket = { readonly dir: SimDir; readonly covered: ReadonlySet<NameOperation> };

export class SimNames {
  readonly root = new SimDir();
  #journal: NameOperation[] = [];

  find(path: string): SimNode | undefined {
    let node: SimNode | undefined = this.root;
    for (const name of splitPath(path)) {
      if (node === undefined || node.kind !== "dir") return undefined;
      node = node.names.get(name);
    }
    return node;
  }

  /** @throws DISK_NOT_FOUND, or DISK_IO_FAILED (ENOTDIR) when it is a file. */
  dir(path: string, operation: string): SimDir {
    const node = this.find(path);
    if (node === undefined) throw diskErrors.missing({ path });
    if (node.kind !== "dir") throw simError(operation, path, "ENOTDIR");
    return node;
  }

  /** @throws DISK_NOT_FOUND, or DISK_IO_FAILED (EISDIR) when it is a folder. */
  file(path: string, operation: string): SimFile {
    const node = this.find(path);
    if (node === undefined) throw diskErrors.missing({ path });
    if (node.kind !== "file") throw simError(operation, path, "EISDIR");
    return node;
  }

  /** The files that have a name, once each. */
  files(): Set<SimFile> {
    const found = new Set<SimFile>();
    const visit = (dir: SimDir): void => {
      for (const node of dir.names.values()) {
        if (node.kind === "dir") visit(node);
        else found.add(node);
      }
    };
    visit(this.root);
    return found;
  }

  create(path: string): SimFile {
    const { dir, name } = this.#place(path, "open");
    if (dir.names.has(name)) throw diskErrors.exists({ path });
    const file = new SimFile();
    this.#change([{ dir, name, node: file }]);
    return file;
  }

  /** Folders are durable at once, as the port promises. */
  makeDir(path: string): void {
    let dir = this.root;
    for (const name of splitPath(path)) {
      let next = dir.names.get(name);
      if (next === undefined) {
        next = new SimDir();
        this.#change([{ dir, name, node: next }]);
      }
      if (next.kind !== "dir") throw simError("mkdir", path, "ENOTDIR");
      this.#commit(this.#journal.filter((operation) => touches(operation, dir, name)));
      dir = next;
    }
  }

  rename(from: string, to: string): void {
    const source = this.#place(from, "rename");
    const target = this.#place(to, "rename");
    const node = source.dir.names.get(source.name);
    if (node === undefined) throw diskErrors.missing({ path: from });
    const replaced = target.dir.names.get(target.name);
    if (replaced === node) return;
    if (replaced !== undefined) refuseMixedKinds(node, replaced, to);
    this.#change([
      { ...source, node: undefined },
      { ...target, node },
    ]);
  }

  remove(path: string): void {
    const parts = splitPath(path);
    const name = parts.pop();
    const dir = this.find(parts.join("/"));
    if (name === undefined || dir?.kind !== "dir") return;
    const node = dir.names.get(name);
    if (node === undefined) return;
    if (node.kind === "dir") throw simError("unlink", path, "EISDIR");
    this.#change([{ dir, name, node: undefined }]);
  }

  /** Entry by entry, from the leaves up: a cut in the middle leaves a part of the folder. */
  removeDir(path: string): void {
    const node = this.find(path);
    if (node === undefined) return;
    if (node.kind !== "dir") throw simError("rmdir", path, "ENOTDIR");
    const empty = (dir: SimDir): void => {
      for (const [name, child] of [...dir.names]) {
        if (child.kind === "dir") empty(child);
        this.#change([{ dir, name, node: undefined }]);
      }
    };
    empty(node);
    if (node !== this.root) this.#change([{ ...this.#place(path, "rmdir"), node: undefined }]);
  }

  beginSync(path: string): NamesTicket {
    const dir = this.dir(path, "fsync");
    const covered = this.#journal.filter((operation) => touches(operation, dir));
    return { dir, covered: new Set(covered) };
  }

  finishSync(ticket: NamesTicket): void {
    this.#commit(this.#journal.filter((operation) => ticket.covered.has(operation)));
  }

  losePower(random: SeededRandom): void {
    const mode = random.pick(["old", "new", "mixed", "mixed"] as const);
    const lost: NameChange[] = [];
    for (const operation of this.#journal) {
      const blocked = operation.some(({ dir, name }) => touches(lost, dir, name));
      const kept = mode === "new" || (mode === "mixed" && random.chance(0.5));
      if (kept && !blocked) persist(operation);
      else lost.push(...operation);
    }
    this.#journal = [];
    revert(this.root);
  }

  #place(path: string, operation: string): { dir: SimDir; name: string } {
    const parts = splitPath(path);
    const name = parts.pop();
    if (name === undefined) throw simError(operation, path, "EBUSY");
    return { dir: this.dir(parts.join("/"), operation), name };
  }

  #change(operation: NameOperation): void {
    this.#journal.push(operation);
    for (const { dir, name, node } of operation) {
      if (node === undefined) dir.names.delete(name);
      else dir.names.set(name, node);
    }
  }

  // An operation takes along the earlier ones on its names: order per name is kept.
  #commit(operations: readonly NameOperation[]): void {
    if (operations.length === 0) return;
    const wanted = new Set(operations);
    const needed: NameChange[] = [];
    for (const operation of [...this.#journal].reverse()) {
      const isNeeded = operation.some(({ dir, name }) => touches(needed, dir, name));
      if (!wanted.has(operation) && !isNeeded) continue;
      wanted.add(operation);
      needed.push(...operation);
    }
    for (const operation of this.#journal) if (wanted.has(operation)) persist(operation);
    this.#journal = this.#journal.filter((operation) => !wanted.has(operation));
  }
}

function splitPath(path: string): string[] {
  return path.split("/").filter((part) => part !== "" && part !== ".");
}

function touches(operation: NameOperation, dir: SimDir, name?: string): boolean {
  return operation.some((change) => change.dir === dir && (name ?? change.name) === change.name);
}

function persist(operation: NameOperation): void {
  for (const { dir, name, node } of operation) {
    if (node === undefined) dir.durable.delete(name);
    else dir.durable.set(name, node);
  }
}

function revert(dir: SimDir): void {
  dir.names.clear();
  for (const [name, node] of dir.durable) {
    dir.names.set(name, node);
    if (node.kind === "dir") revert(node);
  }
}

function refuseMixedKinds(node: SimNode, replaced: SimNode, path: string): void {
  if (replaced.kind !== "dir") {
    if (node.kind === "dir") throw simError("rename", path, "ENOTDIR");
    return;
  }
  if (node.kind !== "dir") throw simError("rename", path, "EISDIR");
  if (replaced.names.size > 0) throw simError("rename", path, "ENOTEMPTY");
}

/** The error the real driver gives for the same errno. */
export function simError(operation: string, path: string, errno: string): Error {
  return diskErrors.failed({ operation, path, errno, reason: errno });
}
