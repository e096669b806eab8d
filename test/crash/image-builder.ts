// Rebuilds the folder that a machine would find after a power cut behind a given operation of a
// record. What was synced is there, byte for byte. Of the rest any part may be there:
//
// - bytes, in sectors of 512: each sector holds one of the versions it went through since its last
//   sync. The size of the file is one of the sizes it went through; where the model is `ordered` it
//   ends before the first new sector that is missing, since those file systems write data first.
// - names, by one of two models. `strict` is what POSIX promises: a name is durable only after a sync
//   of its folder, and of the others any subset may have happened. `ordered` is what journaling file
//   systems do (ext4, XFS, btrfs): names change in order, the cut falls somewhere in that order, and
//   a sync of a file takes its own creation and all earlier changes with it. A rename is atomic in
//   both. LevelDB is written for `ordered`: it renames CURRENT without a sync of the folder and then
//   removes the old manifest. Our own files are held to `strict`.

import { mkdirSync, writeFileSync } from "node:fs";
import { join, posix } from "node:path";
import type { SeededRandom } from "../../src/base/index.ts";
import { type FileNode, type History, type NameChange, rootNode } from "./history.ts";

/**
 * What becomes of unsynced bytes: all lost; all kept (as after kill -9); kept in order up to one torn
 * write; any sectors kept.
 */
export type BytesKept = "none" | "all" | "prefix" | "any";

export type NamesModel = "strict" | "ordered";

export type PowerCut = {
  /** Index of the last operation that was issued. */
  readonly cut: number;
  readonly bytes: BytesKept;
  /** The model for names in a folder, by its path below the root ("" is the root). */
  readonly namesModel: (folder: string) => NamesModel;
  /** What a sector holds that the file grew over and that never reached the disk. */
  readonly lostSectors: "zeros" | "noise";
  readonly random: SeededRandom;
};

export const sectorBytes = 512;

export type Image = ReadonlyMap<string, Buffer | "folder">;

export function buildImage(history: History, powerCut: PowerCut): Image {
  const names = survivingNames(history, powerCut);
  const byteCut = powerCut.random.below(powerCut.cut + 2);
  const image = new Map<string, Buffer | "folder">();
  const visit = (folder: number, path: string): void => {
    for (const [name, child] of names.get(folder) ?? []) {
      const full = posix.join(path, name);
      const node = history.nodes[child] as FileNode;
      const model = powerCut.namesModel(path);
      const content = node.folder ? "folder" : survivingBytes(node, powerCut, byteCut, model);
      image.set(full, content);
      if (node.folder) visit(child, full);
    }
  };
  visit(rootNode, "");
  return image;
}

/** Writes the image into the folder `target`, which must be empty or absent. */
export function writeImage(image: Image, target: string): void {
  mkdirSync(target, { recursive: true });
  for (const [path, content] of image) {
    if (content === "folder") mkdirSync(join(target, path));
    else writeFileSync(join(target, path), content);
  }
}

// --- names ---

type Names = Map<number, Map<string, number>>;

function survivingNames(history: History, powerCut: PowerCut): Names {
  const { cut, random } = powerCut;
  const issued = history.names.filter((change) => change.at <= cut);
  const paths = folderPaths(history);
  const modelOf = (change: NameChange): NamesModel =>
    touched(change).some((folder) => powerCut.namesModel(paths.get(folder) ?? "") === "strict")
      ? "strict"
      : "ordered";
  const keepAll = powerCut.bytes === "all";
  const keepNone = powerCut.bytes === "none";
  const durableUpTo = journalledUpTo(history, issued, cut);
  const later = issued.filter((change) => change.at > durableUpTo).length;
  const extra = keepNone ? 0 : random.below(later + 1);
  const orderedUpTo =
    (issued[issued.length - later + extra - 1] as NameChange | undefined)?.at ?? -1;
  const chance = random.pick([0.1, 0.5, 0.9]);
  const names: Names = new Map(
    [...history.initialNames].map(([folder, entries]) => [folder, new Map(entries)]),
  );
  for (const change of issued) {
    const kept =
      keepAll ||
      (modelOf(change) === "ordered"
        ? change.at <= orderedUpTo
        : isFolderSynced(history, change, cut) || (!keepNone && random.chance(chance)));
    if (kept) applyNames(names, change);
  }
  return names;
}

function applyNames(names: Names, change: NameChange): void {
  const entries = (folder: number): Map<string, number> => {
    const found = names.get(folder) ?? new Map<string, number>();
    names.set(folder, found);
    return found;
  };
  // A change that was lost before may have left another node under the name: it stays.
  for (const { folder, name, node } of change.removes) {
    if (entries(folder).get(name) === node) entries(folder).delete(name);
  }
  for (const { folder, name, node } of change.sets) entries(folder).set(name, node);
}

function touched(change: NameChange): number[] {
  return [...change.removes, ...change.sets].map(({ folder }) => folder);
}

function isFolderSynced(history: History, change: NameChange, cut: number): boolean {
  return touched(change).every((folder) =>
    (history.nodes[folder] as FileNode).syncs.some(
      ({ begin, end }) => begin > change.at && end <= cut,
    ),
  );
}

/** A journal writes changes of names in order: everything up to here is durable. */
function journalledUpTo(history: History, issued: readonly NameChange[], cut: number): number {
  let upTo = -1;
  for (const node of history.nodes) {
    const begin = coveredUpTo(node, cut);
    if (begin < 0) continue;
    for (const change of issued) {
      if (change.at >= begin || change.at <= upTo) continue;
      const own = node.folder
        ? touched(change).includes(node.id)
        : change.sets.some((set) => set.node === node.id);
      if (own) upTo = change.at;
    }
  }
  return upTo;
}

/** Paths of folders below the root, at their last place. */
function folderPaths(history: History): Map<number, string> {
  const paths = new Map<number, string>([[rootNode, ""]]);
  const place = (folder: number, name: string, node: number): void => {
    if (history.nodes[node]?.folder) paths.set(node, posix.join(paths.get(folder) ?? "", name));
  };
  for (const [folder, entries] of history.initialNames) {
    for (const [name, node] of entries) place(folder, name, node);
  }
  for (const change of history.names) {
    for (const { folder, name, node } of change.sets) place(folder, name, node);
  }
  return paths;
}

// --- bytes ---

/** Changes of the node before this operation are durable at the cut; -1: none. */
function coveredUpTo(node: FileNode, cut: number): number {
  let upTo = -1;
  for (const { begin, end } of node.syncs) if (end <= cut && begin > upTo) upTo = begin;
  return upTo;
}

function survivingBytes(
  node: FileNode,
  powerCut: PowerCut,
  byteCut: number,
  model: NamesModel,
): Buffer {
  const { cut, random } = powerCut;
  const durable = coveredUpTo(node, cut);
  const issued = node.changes.filter((change) => change.at <= cut);
  const capacity = capacityOf(node, issued);
  const memory = new FileContent(node.initial, capacity);
  for (const change of issued) if (change.at < durable) memory.apply(change);
  const disk = new FileContent(memory.bytes, capacity);
  const durableBytes = memory.sizeBytes;
  const reached = new ReachedSectors(capacity);
  const sizes = [durableBytes];
  for (const change of issued) {
    if (change.at < durable) continue;
    const before = memory.sizeBytes;
    memory.apply(change);
    sizes.push(memory.sizeBytes);
    const fate = fateOf(change.at, powerCut, byteCut);
    if (fate === "lost") continue;
    if (change.kind === "bytes") {
      const { offset, data } = change;
      const keepUpTo =
        fate === "torn" ? offset + random.below(data.length + 1) : offset + data.length;
      for (const from of sectorsOf(offset, offset + data.length)) {
        if (from >= keepUpTo || (fate === "any" && random.chance(0.5))) continue;
        memory.bytes.copy(disk.bytes, from, from, Math.min(from + sectorBytes, capacity));
        reached.mark(from, memory.sizeBytes);
      }
    } else {
      // A cut-off tail that reached the disk does not come back when the file grows again.
      disk.bytes.fill(0, Math.min(before, memory.sizeBytes));
      for (const from of sectorsOf(before, memory.sizeBytes)) reached.mark(from, memory.sizeBytes);
    }
  }
  let sizeBytes = survivingSize(sizes, issued, powerCut, byteCut);
  if (model === "ordered") sizeBytes = reached.endOfData(durableBytes, sizeBytes);
  else if (powerCut.lostSectors === "noise") {
    reached.addNoise(disk.bytes, durableBytes, sizeBytes, random);
  }
  return Buffer.from(disk.bytes.subarray(0, sizeBytes));
}

/** Which sectors reached the disk since the last sync, and how far each was filled then. */
class ReachedSectors {
  readonly #upTo: Float64Array;

  constructor(capacity: number) {
    this.#upTo = new Float64Array(Math.ceil(capacity / sectorBytes));
  }

  mark(from: number, fileBytes: number): void {
    this.#upTo[from / sectorBytes] = Math.min(from + sectorBytes, fileBytes);
  }

  /** The size up to the first byte behind `durableBytes` that never reached the disk. */
  endOfData(durableBytes: number, sizeBytes: number): number {
    for (const from of sectorsOf(durableBytes, sizeBytes)) {
      const upTo = this.#upTo[from / sectorBytes] as number;
      const wanted = Math.min(from + sectorBytes, sizeBytes);
      if (upTo < wanted) return Math.max(durableBytes, upTo, from);
    }
    return sizeBytes;
  }

  addNoise(bytes: Buffer, durableBytes: number, sizeBytes: number, random: SeededRandom): void {
    for (const from of sectorsOf(durableBytes, sizeBytes)) {
      if (from < durableBytes || this.#upTo[from / sectorBytes] !== 0) continue;
      random.bytes(sectorBytes).copy(bytes, from);
    }
  }
}

/** Starts of the sectors that the range touches; none when it is empty. */
function sectorsOf(from: number, to: number): number[] {
  const starts: number[] = [];
  for (let at = from - (from % sectorBytes); at < to; at += sectorBytes) starts.push(at);
  return starts;
}

type Fate = "lost" | "kept" | "torn" | "any";

function fateOf(at: number, powerCut: PowerCut, byteCut: number): Fate {
  switch (powerCut.bytes) {
    case "none":
      return "lost";
    case "all":
      return "kept";
    case "prefix":
      return at < byteCut ? "kept" : at === byteCut ? "torn" : "lost";
    default:
      return powerCut.random.pick(["lost", "kept", "any", "torn"] as const);
  }
}

function survivingSize(
  sizes: readonly number[],
  issued: FileNode["changes"],
  powerCut: PowerCut,
  byteCut: number,
): number {
  const last = sizes.length - 1;
  const pick = (index: number): number => sizes[Math.max(0, Math.min(last, index))] as number;
  if (powerCut.bytes === "none") return pick(0);
  if (powerCut.bytes === "all") return pick(last);
  if (powerCut.bytes === "prefix") {
    const unsynced = issued.slice(issued.length - last);
    return pick(unsynced.filter((change) => change.at <= byteCut).length);
  }
  return pick(powerCut.random.below(sizes.length));
}

class FileContent {
  readonly bytes: Buffer;
  sizeBytes: number;

  constructor(initial: Buffer, capacity: number) {
    this.bytes = Buffer.alloc(capacity);
    initial.copy(this.bytes);
    this.sizeBytes = Math.min(initial.length, capacity);
  }

  apply(change: FileNode["changes"][number]): void {
    if (change.kind === "bytes") {
      change.data.copy(this.bytes, change.offset);
      this.sizeBytes = Math.max(this.sizeBytes, change.offset + change.data.length);
    } else if (change.kind === "grow") {
      this.sizeBytes = Math.max(this.sizeBytes, change.sizeBytes);
    } else {
      this.bytes.fill(0, Math.min(change.sizeBytes, this.bytes.length));
      this.sizeBytes = change.sizeBytes;
    }
  }
}

function capacityOf(node: FileNode, changes: FileNode["changes"]): number {
  let capacity = node.initial.length;
  for (const change of changes) {
    const end = change.kind === "bytes" ? change.offset + change.data.length : change.sizeBytes;
    capacity = Math.max(capacity, end);
  }
  return capacity;
}
