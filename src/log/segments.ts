// The files of the log: makes segments ahead of need, gives them a header at each use, takes back
// those that nobody needs.
//
// Invariants: `N.wal` has a synced header, `N.free` has none that counts: the rename between them,
// made durable by a directory sync, is the moment of use and of retirement. Retirement is oldest
// first and one at a time, each durable before the next, so the `.wal` files never have a hole that
// is not damage. A failed fdatasync is never repeated on the same file. Filling with zeros runs in
// the background in small synced steps. A segment never takes the last room of a volume: where there is
// not twice its size, a small one is made. Which segment may go is left to log.ts.

import {
  type Cancel,
  type Counters,
  type DiskFile,
  diskErrors,
  isCodedError,
  joinPath,
  syncFully,
  toError,
  writeFully,
} from "../base/index.ts";
import type { LogCounterHelp } from "./counters.ts";
import { logErrors } from "./errors.ts";
import { encodeSegmentHeader, idBytes, seedOf, segmentHeaderBytes } from "./format.ts";
import type { LogComponents, LogSettings } from "./types.ts";

export const walSuffix = ".wal";
export const freeSuffix = ".free";

/** A damaged area [from, to) between two good flushes. */
export type Hole = { readonly from: number; readonly to: number };

/** One use of a segment file. */
export type Segment = {
  readonly path: string;
  readonly order: number;
  readonly firstFlush: number;
  readonly sizeBytes: number;
  readonly seed: number;
  /** Offset behind the last durable flush. */
  endOffset: number;
  /** Shards with unreleased records in it, and how many extents each. */
  readonly pins: Map<number, number>;
  /** Reads under way. */
  readers: number;
  readonly holes: Hole[];
  /** Offsets of blocks found damaged at open. */
  readonly badBlocks: Set<number>;
};

export type OpenSegment = { readonly segment: Segment; readonly file: DiskFile };

export function createSegment(
  path: string,
  header: { order: number; firstFlush: number; sizeBytes: number; id: Buffer },
): Segment {
  return {
    path,
    order: header.order,
    firstFlush: header.firstFlush,
    sizeBytes: header.sizeBytes,
    seed: seedOf(header.id),
    endOffset: segmentHeaderBytes,
    pins: new Map(),
    readers: 0,
    holes: [],
    badBlocks: new Set(),
  };
}

/** Behind the last place that a flush may reach. */
export function dataEnd(segment: { readonly sizeBytes: number }): number {
  return segment.sizeBytes - segmentHeaderBytes;
}

/**
 * The volume has no space, or the process no descriptor, at this moment: both pass, and neither
 * says anything about bytes already written.
 */
export function isSpaceError(error: unknown): boolean {
  if (isCodedError(error, "DISK_FULL")) return true;
  if (!isCodedError(error)) return false;
  return error.details.errno === "EMFILE" || error.details.errno === "ENFILE";
}

/**
 * Size of a first segment that is needed at once and not there, since filling one of the full size
 * would make the start wait, and of those made where room is scarce. Removed after use.
 */
const starterBytes = 4 * 1024 * 1024;

const probeDelayMsMin = 250;
const probeDelayMsMax = 10_000;

type Spare = { readonly path: string; readonly sizeBytes: number; readonly file: DiskFile };

export type PoolHooks = {
  /** A segment is ready after there was no space for one. */
  readonly onReady: () => void;
  readonly onFull: (full: boolean) => void;
  /** An error that ends the log. */
  readonly onError: (error: Error) => void;
};

export type FreeFile = { readonly path: string; readonly sizeBytes: number };

export class SegmentPool {
  readonly #dir: string;
  readonly #settings: LogSettings;
  readonly #components: LogComponents;
  readonly #counters: Counters<LogCounterHelp>;
  readonly #hooks: PoolHooks;
  readonly #free: FreeFile[] = [];
  readonly #zeros: Buffer;
  #fileNumber = 0;
  #ready: Spare | undefined;
  #preparing: Promise<void> | undefined;
  #retiring: Promise<void> = Promise.resolve();
  #full = false;
  #probeDelayMs = probeDelayMsMin;
  #cancelProbe: Cancel | undefined;
  #stopped = false;
  #fileBytes = 0;
  /** What the flush that waits for a segment needs. */
  #needBytes = 0;

  constructor(
    place: { dir: string; settings: LogSettings; components: LogComponents },
    counters: Counters<LogCounterHelp>,
    hooks: PoolHooks,
  ) {
    this.#dir = place.dir;
    this.#settings = place.settings;
    this.#components = place.components;
    this.#counters = counters;
    this.#hooks = hooks;
    this.#zeros = Buffer.alloc(Math.min(place.settings.zeroFillBytes, place.settings.segmentBytes));
  }

  /** No space for the segment after the current one. */
  get full(): boolean {
    return this.#full;
  }

  /** Bytes of all files: live, free and ready. */
  get fileBytes(): number {
    return this.#fileBytes;
  }

  get isReady(): boolean {
    return this.#ready !== undefined;
  }

  /** Takes over what a former process left. Free files of another size, or too many, go. */
  async adopt(free: readonly FreeFile[], liveBytes: number, fileNumber: number): Promise<void> {
    this.#fileNumber = fileNumber;
    this.#fileBytes = liveBytes;
    const { segmentBytes, spareSegmentsMax } = this.#settings;
    const { freeBytes } = await this.#components.disk.space(this.#dir);
    const isScarce = freeBytes < 2 * segmentBytes;
    const countMax = isScarce ? 1 : Math.max(1, spareSegmentsMax);
    for (const file of free) {
      const fits = file.sizeBytes === segmentBytes;
      if (fits && this.#free.length < countMax) {
        this.#free.push(file);
        this.#fileBytes += file.sizeBytes;
      } else {
        await this.#components.disk.remove(file.path);
      }
    }
  }

  /** Makes the next segment ready in the background, unless it is. */
  prepare(): void {
    if (this.#stopped || this.#ready !== undefined || this.#preparing !== undefined) return;
    this.#cancelProbe?.();
    this.#preparing = this.#makeReady().then(
      () => {
        this.#preparing = undefined;
        this.#noteSpace();
      },
      (error: unknown) => {
        this.#preparing = undefined;
        if (this.#stopped) return;
        if (isSpaceError(error)) this.#noteFull();
        else this.#hooks.onError(toError(error));
      },
    );
  }

  /**
   * Starts a new use: header synced, name durable. Waits for a segment that is being prepared.
   * @throws DISK_FULL when there is no space; `onReady` tells when it is worth trying again.
   */
  async take(order: number, firstFlush: number, flushBytes: number): Promise<OpenSegment> {
    this.#needBytes = flushBytes + 2 * segmentHeaderBytes;
    const spare = await this.#spareOf(this.#needBytes);
    this.#needBytes = 0;
    const id = this.#components.random.bytes(idBytes);
    const header = { id, order, firstFlush, sizeBytes: spare.sizeBytes };
    try {
      const path = await this.#startUse(spare, encodeSegmentHeader(header));
      this.prepare();
      return { segment: createSegment(path, header), file: spare.file };
    } catch (error) {
      // Nothing of the use has become durable in a way that counts: the same file may try again.
      if (isSpaceError(error)) await this.#putBack(spare);
      throw error;
    }
  }

  /** Gives a segment back that nobody needs. Call oldest first. */
  retire(segment: FreeFile): void {
    this.#retiring = this.#retiring
      .then(() => this.#retireOne(segment))
      .catch((error: unknown) => {
        if (!this.#stopped) this.#hooks.onError(toError(error));
      });
  }

  /** Removes free files: what was retired before the call, but for the one that is ready. */
  async trim(): Promise<void> {
    const trimming = this.#retiring.then(() => this.#removeFree());
    this.#retiring = trimming.catch(() => undefined); // told to who asked; the files are in nobody's way
    await trimming;
  }

  async #removeFree(): Promise<void> {
    // It may be about to take one of them.
    while (this.#preparing !== undefined) await this.#preparing;
    if (this.#stopped) return;
    for (let file = this.#free.pop(); file !== undefined; file = this.#free.pop()) {
      try {
        await this.#removeUsed(file);
      } catch (error) {
        this.#free.push(file);
        throw error;
      }
    }
  }

  /** Stops background work and closes the ready segment. */
  async close(): Promise<void> {
    this.stop();
    await this.#preparing;
    await this.#retiring;
    await this.#ready?.file.close();
    this.#ready = undefined;
  }

  stop(): void {
    this.#stopped = true;
    this.#cancelProbe?.();
  }

  async #startUse(spare: Spare, header: Buffer): Promise<string> {
    const { disk } = this.#components;
    await writeFully(spare.file, header, 0);
    await writeFully(spare.file, header, spare.sizeBytes - segmentHeaderBytes);
    await this.#syncFinally(() => syncFully(spare.file));
    const path = `${spare.path.slice(0, -freeSuffix.length)}${walSuffix}`;
    await disk.rename(spare.path, path);
    await this.#syncFinally(() => disk.syncDir(this.#dir));
    return path;
  }

  // "No space" from a sync is as final as any other error of a sync.
  async #syncFinally(sync: () => Promise<void>): Promise<void> {
    try {
      await sync();
    } catch (error) {
      throw logErrors.failed({ path: this.#dir, reason: toError(error).message }, error);
    }
  }

  async #spareOf(needBytes: number): Promise<Spare> {
    const { segmentBytes } = this.#settings;
    if (needBytes > segmentBytes) return this.#createNow(needBytes);
    if (this.#isBare() && starterBytes < segmentBytes && needBytes <= starterBytes) {
      return this.#createNow(starterBytes);
    }
    if (this.#ready === undefined) {
      if (this.#full && this.#preparing === undefined) throw this.#noSpace();
      this.prepare();
      await this.#preparing;
    }
    const spare = this.#ready;
    if (spare === undefined) throw this.#noSpace();
    this.#ready = undefined;
    if (spare.sizeBytes >= needBytes) return spare;
    await this.#discard(spare);
    return this.#createNow(needBytes);
  }

  /** Nothing is ready, and nothing has been begun that is worth waiting for. */
  #isBare(): boolean {
    const isBegun = this.#ready !== undefined || this.#preparing !== undefined;
    return !isBegun && this.#free.length === 0 && !this.#full;
  }

  async #createNow(sizeBytes: number): Promise<Spare> {
    try {
      return await this.#create(sizeBytes);
    } catch (error) {
      if (isSpaceError(error)) this.#noteFull();
      throw error;
    }
  }

  #noSpace(): Error {
    if (this.#stopped) return logErrors.closed({ path: this.#dir });
    return diskErrors.full({ path: this.#dir });
  }

  async #putBack(spare: Spare): Promise<void> {
    if (this.#ready === undefined && spare.sizeBytes === this.#settings.segmentBytes) {
      this.#ready = spare;
    } else {
      await this.#discard(spare);
    }
    this.#noteFull();
  }

  async #makeReady(): Promise<void> {
    const free = this.#free.at(-1);
    if (free === undefined) {
      this.#ready = await this.#create(await this.#sizeThatFits());
      return;
    }
    const file = await this.#openFree(free.path);
    this.#free.splice(this.#free.indexOf(free), 1);
    if (file === undefined) {
      this.#fileBytes -= free.sizeBytes;
      await this.#makeReady();
      return;
    }
    this.#ready = { ...free, file };
    this.#counters.segmentsRecycled++;
  }

  /** @throws DISK_FULL rather than to fill the volume: slabs need room to give room back. */
  async #sizeThatFits(): Promise<number> {
    const { segmentBytes } = this.#settings;
    const { freeBytes } = await this.#components.disk.space(this.#dir);
    if (freeBytes >= 2 * segmentBytes) return segmentBytes;
    const sizeBytes = Math.min(segmentBytes, Math.max(starterBytes, this.#needBytes));
    if (freeBytes < sizeBytes) throw diskErrors.full({ path: this.#dir });
    return sizeBytes;
  }

  // Nothing is lost with a free file that somebody removed.
  async #openFree(path: string): Promise<DiskFile | undefined> {
    try {
      return await this.#components.disk.open(path, "write");
    } catch (error) {
      if (isCodedError(error, "DISK_NOT_FOUND")) return undefined;
      throw error;
    }
  }

  async #create(sizeBytes: number): Promise<Spare> {
    this.#fileNumber++;
    const path = joinPath(this.#dir, segmentFileName(this.#fileNumber));
    const file = await this.#components.disk.open(path, "create");
    const spare = { path, sizeBytes, file };
    this.#fileBytes += sizeBytes;
    try {
      await this.#fill(spare);
    } catch (error) {
      await this.#discard(spare);
      throw error;
    }
    this.#counters.segmentsCreated++;
    return spare;
  }

  // Each step is synced by itself: many dirty pages at once would make the syncs of flushes wait.
  async #fill(spare: Spare): Promise<void> {
    for (let at = 0; at < spare.sizeBytes; at += this.#zeros.length) {
      if (this.#stopped) throw logErrors.closed({ path: this.#dir });
      const size = Math.min(this.#zeros.length, spare.sizeBytes - at);
      await writeFully(spare.file, this.#zeros.subarray(0, size), at);
      await syncFully(spare.file);
    }
  }

  async #discard(spare: Spare): Promise<void> {
    this.#fileBytes -= spare.sizeBytes;
    await spare.file.close();
    await this.#components.disk.remove(spare.path);
  }

  async #retireOne(segment: FreeFile): Promise<void> {
    if (this.#stopped) return;
    const count = this.#free.length + (this.#ready === undefined ? 0 : 1);
    const isWanted =
      segment.sizeBytes === this.#settings.segmentBytes &&
      count < Math.max(1, this.#settings.spareSegmentsMax);
    if (!(isWanted && (await this.#makeFree(segment)))) await this.#removeUsed(segment);
    this.prepare();
  }

  async #makeFree(segment: FreeFile): Promise<boolean> {
    const { disk } = this.#components;
    const path = `${segment.path.slice(0, -walSuffix.length)}${freeSuffix}`;
    try {
      await disk.rename(segment.path, path);
    } catch (error) {
      // A full directory may have no room for a new name; removing the file needs none.
      if (isSpaceError(error)) return false;
      throw error;
    }
    await disk.syncDir(this.#dir);
    this.#free.push({ path, sizeBytes: segment.sizeBytes });
    return true;
  }

  async #removeUsed(segment: FreeFile): Promise<void> {
    await this.#components.disk.remove(segment.path);
    await this.#components.disk.syncDir(this.#dir);
    this.#fileBytes -= segment.sizeBytes;
    this.#counters.segmentsRemoved++;
  }

  #noteSpace(): void {
    this.#probeDelayMs = probeDelayMsMin;
    if (!this.#full) return;
    this.#full = false;
    this.#hooks.onFull(false);
    this.#hooks.onReady();
  }

  #noteFull(): void {
    this.#counters.spaceWaits++;
    this.#cancelProbe?.();
    this.#cancelProbe = this.#components.clock.schedule(this.#probeDelayMs, () => this.#probe());
    this.#probeDelayMs = Math.min(this.#probeDelayMs * 2, probeDelayMsMax);
    if (this.#full) return;
    this.#full = true;
    this.#components.logger.warn("log.disk_full", { path: this.#dir });
    this.#hooks.onFull(true);
  }

  #probe(): void {
    if (this.#stopped) return;
    if (this.#ready === undefined) {
      this.prepare();
      return;
    }
    // A segment is there, its header found no room: only writing it again can tell.
    this.#full = false;
    this.#hooks.onFull(false);
    this.#hooks.onReady();
  }
}

/** Numbers only keep names apart; the header of a segment decides its place. */
function segmentFileName(fileNumber: number): string {
  return `${String(fileNumber).padStart(8, "0")}${freeSuffix}`;
}
