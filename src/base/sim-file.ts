// One file of the simulated disk: what a process sees (the page cache) and, per 512-byte sector,
// what a power cut may leave of it. Pure state: no clock, no faults, no names.
//
// Invariants: a sector without an older version here is durable as it stands; a finished sync makes
// everything written before it *began* durable and nothing else; a power cut never touches a
// durable sector. Choosing when calls finish is left to `sim-disk.ts`, names to `sim-names.ts`.

import type { SeededRandom } from "./random.ts";

export const sectorBytes = 512;
/** Unit in which space is taken from the volume; a hole takes none. */
export const blockBytes = 4096;

/**
 * Older versions of the sectors written since one sync began, as they were before it; the lowest
 * layer holds what is surely on the medium. Sizes seen in the same time bound the size after a cut.
 */
type Layer = { readonly before: Map<number, Buffer>; sizeMin: number; sizeMax: number };

/** A sync under way: what it will have made durable once it finishes. */
export type SyncTicket = { readonly layer: Layer; readonly sizeBytes: number };

export class SimFile {
  readonly kind = "file";
  #cache = Buffer.alloc(0);
  #sizeBytes = 0;
  #durableSizeBytes = 0;
  #layers: Layer[] = [newLayer(0)];
  // Sectors of a failed sync: the kernel believes them clean, so that no later sync writes them.
  readonly #lost = new Map<number, Buffer>();
  readonly #blocks = new Set<number>();

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  get allocatedBytes(): number {
    return this.#blocks.size * blockBytes;
  }

  get dirtySectors(): number {
    return this.#dirty().size;
  }

  /** Bytes of `length` at `position` that fit when the volume has `freeBytes` left. */
  fitting(position: number, length: number, freeBytes: number): number {
    let blocksLeft = Math.floor(freeBytes / blockBytes);
    for (let block = Math.floor(position / blockBytes); ; block++) {
      if (block * blockBytes >= position + length) return length;
      if (this.#blocks.has(block)) continue;
      if (blocksLeft-- <= 0) return Math.max(0, block * blockBytes - position);
    }
  }

  read(into: Uint8Array, position: number): number {
    const count = Math.max(0, Math.min(into.length, this.#sizeBytes - position));
    into.set(this.#cache.subarray(position, position + count));
    return count;
  }

  write(bytes: Uint8Array, position: number): void {
    if (bytes.length === 0) return;
    const end = position + bytes.length;
    this.#grow(end);
    this.#touch(position, end);
    this.#cache.set(bytes, position);
    this.#setSize(Math.max(this.#sizeBytes, end));
    const lastBlock = Math.floor((end - 1) / blockBytes);
    for (let block = Math.floor(position / blockBytes); block <= lastBlock; block++) {
      this.#blocks.add(block);
    }
  }

  truncate(sizeBytes: number): void {
    if (sizeBytes < this.#sizeBytes) {
      this.#touch(sizeBytes, this.#sizeBytes);
      this.#cache.fill(0, sizeBytes, this.#sizeBytes);
    }
    this.#grow(sizeBytes);
    this.#setSize(sizeBytes);
    for (const block of this.#blocks) {
      if (block * blockBytes >= sizeBytes) this.#blocks.delete(block);
    }
  }

  beginSync(): SyncTicket {
    const layer = this.#top();
    this.#layers.push(newLayer(this.#sizeBytes));
    return { layer, sizeBytes: this.#sizeBytes };
  }

  finishSync(ticket: SyncTicket): void {
    const at = this.#layers.indexOf(ticket.layer);
    if (at < 0) return; // a later sync finished first and covered this one
    this.#layers.splice(0, at + 1);
    this.#durableSizeBytes = ticket.sizeBytes;
  }

  /** Some sectors arrived, the others are clean in the cache and nowhere else. */
  failSync(ticket: SyncTicket, random: SeededRandom): void {
    const at = this.#layers.indexOf(ticket.layer);
    if (at < 0) return;
    const failed = this.#layers.splice(0, at + 1);
    const above = this.#layers[0] as Layer;
    for (const layer of failed) {
      above.sizeMin = Math.min(above.sizeMin, layer.sizeMin);
      above.sizeMax = Math.max(above.sizeMax, layer.sizeMax);
    }
    for (const [sector, versions] of versionsIn(failed)) {
      if (random.chance(0.5)) continue;
      const oldest = versions[0] as Buffer;
      const later = this.#layers.find((layer) => layer.before.has(sector));
      if (later === undefined) this.#lost.set(sector, oldest);
      else later.before.set(sector, oldest);
    }
  }

  /** The kernel writes one dirty sector back on its own account. */
  writeBack(random: SeededRandom): void {
    const { before } = this.#top();
    let left = random.below(Math.min(before.size, writeBackSpread));
    for (const sector of before.keys()) {
      if (left-- > 0) continue;
      for (const layer of this.#layers) layer.before.delete(sector);
      return;
    }
  }

  /**
   * What is left after the power went: any mix of old and new for what was not synced. Returns how
   * many sectors are torn: neither the one nor the other.
   */
  losePower(random: SeededRandom, tornChance = tornChanceDefault): number {
    let torn = 0;
    const mode = random.pick(["old", "new", "mixed", "mixed"] as const);
    const dirty = this.#dirty();
    let lastDirty = -1;
    for (const sector of dirty.keys()) lastDirty = Math.max(lastDirty, sector);
    for (const [sector, versions] of dirty) {
      const current = this.#sector(sector);
      const chance = sector === lastDirty ? tornLastChance : tornChance;
      const left = survivor([...versions, current], mode, random, chance);
      if (![...versions, current].some((version) => version.equals(left))) torn++;
      this.#cache.set(left, sector * sectorBytes);
    }
    this.#sizeBytes = this.#survivingSize(mode, random);
    this.#cache.fill(0, this.#sizeBytes);
    this.#forgetVersions();
    return torn;
  }

  /** Rot: changes the medium under everybody's eyes. */
  corrupt(offset: number, change: (byte: number) => number): void {
    const sector = Math.floor(offset / sectorBytes);
    const inSector = offset % sectorBytes;
    this.#cache[offset] = change(this.#cache[offset] as number);
    for (const versions of [this.#lost, ...this.#layers.map((layer) => layer.before)]) {
      const version = versions.get(sector);
      if (version !== undefined) version[inSector] = change(version[inSector] as number);
    }
  }

  /** A copy of what a process sees. */
  content(): Buffer {
    return Buffer.from(this.#cache.subarray(0, this.#sizeBytes));
  }

  #top(): Layer {
    return this.#layers[this.#layers.length - 1] as Layer;
  }

  #sector(sector: number): Buffer {
    return Buffer.from(this.#cache.subarray(sector * sectorBytes, (sector + 1) * sectorBytes));
  }

  /** Keeps the versions that the coming change of [from, end) makes old. */
  #touch(from: number, end: number): void {
    const { before } = this.#top();
    const last = Math.floor((end - 1) / sectorBytes);
    for (let sector = Math.floor(from / sectorBytes); sector <= last; sector++) {
      if (before.has(sector)) continue;
      const lost = this.#lost.get(sector);
      before.set(sector, lost ?? this.#sector(sector));
      if (lost !== undefined) this.#lost.delete(sector);
    }
  }

  #setSize(sizeBytes: number): void {
    this.#sizeBytes = sizeBytes;
    const top = this.#top();
    top.sizeMin = Math.min(top.sizeMin, sizeBytes);
    top.sizeMax = Math.max(top.sizeMax, sizeBytes);
  }

  #grow(sizeBytes: number): void {
    if (sizeBytes <= this.#cache.length) return;
    const wanted = Math.max(sizeBytes, this.#cache.length * 2);
    const grown = Buffer.alloc(Math.ceil(wanted / sectorBytes) * sectorBytes);
    this.#cache.copy(grown);
    this.#cache = grown;
  }

  /** Old versions of every sector that is not durable as it stands, oldest first. */
  #dirty(): Map<number, Buffer[]> {
    const versions = versionsIn(this.#layers);
    for (const [sector, oldest] of this.#lost) versions.set(sector, [oldest]);
    return versions;
  }

  #survivingSize(mode: "old" | "new" | "mixed", random: SeededRandom): number {
    if (mode === "old") return this.#durableSizeBytes;
    if (mode === "new" || random.chance(0.5)) return this.#sizeBytes;
    const sizes = this.#layers.flatMap((layer) => [layer.sizeMin, layer.sizeMax]);
    const low = Math.min(this.#durableSizeBytes, ...sizes);
    return random.between(low, Math.max(this.#durableSizeBytes, ...sizes));
  }

  #forgetVersions(): void {
    this.#lost.clear();
    this.#durableSizeBytes = this.#sizeBytes;
    this.#layers = [newLayer(this.#sizeBytes)];
    for (const block of this.#blocks) {
      if (block * blockBytes >= this.#sizeBytes) this.#blocks.delete(block);
    }
  }
}

function newLayer(sizeBytes: number): Layer {
  return { before: new Map(), sizeMin: sizeBytes, sizeMax: sizeBytes };
}

function versionsIn(layers: readonly Layer[]): Map<number, Buffer[]> {
  const all = new Map<number, Buffer[]>();
  for (const layer of layers) {
    for (const [sector, version] of layer.before) {
      const versions = all.get(sector);
      if (versions === undefined) all.set(sector, [version]);
      else versions.push(version);
    }
  }
  return all;
}

/** Write-back takes one of so many oldest dirty sectors: kernels write old pages first. */
const writeBackSpread = 16;

/** Tearing is rare except at the end of a write, where devices are caught most often. */
const tornChanceDefault = 1 / 16;
const tornLastChance = 1 / 2;

function survivor(
  versions: readonly Buffer[],
  mode: "old" | "new" | "mixed",
  random: SeededRandom,
  tornChance: number,
): Buffer {
  if (mode === "old") return versions[0] as Buffer;
  if (mode === "new") return versions[versions.length - 1] as Buffer;
  const head = random.pick(versions);
  if (!random.chance(tornChance)) return head;
  const cut = random.between(1, sectorBytes - 1);
  return Buffer.concat([head.subarray(0, cut), random.pick(versions).subarray(cut)]);
}
