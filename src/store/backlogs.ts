// Backlog files of a shard that cannot take checkpoints: copies of the entries that kept the log from
// going on, beside the shard's slabs. A start replays them before the log.
//
// Invariants: files follow each other by number, and so do their entries; the log lets go of an entry
// only when a file with it is synced; a file goes when a checkpoint covers its last entry. The end of
// them all stands in a small file of its own, so that a lost file is noticed.

import {
  ByteReader,
  ByteWriter,
  crc32,
  type Disk,
  isCodedError,
  joinPath,
  type Logger,
  readFile,
  replaceFile,
  toError,
} from "../base/index.ts";
import {
  type LogGap,
  type LogRange,
  type LogRecord,
  readBacklog,
  type WriteAheadLog,
} from "../log/index.ts";

export type BacklogsParts = {
  /** Folder of the shard. */
  readonly dir: string;
  readonly quarantineDir: string;
  readonly disk: Disk;
  readonly logger: Logger;
};

type BacklogFile = {
  readonly path: string;
  readonly number: number;
  lastIndex: number;
  isDamaged: boolean;
};

const endName = "backlog-end";
const endBytes = 12;
const filePattern = /^backlog-(\d{8})$/;

export class Backlogs {
  readonly #parts: BacklogsParts;
  /** Ascending. */
  #files: BacklogFile[] = [];
  #removing: Promise<void> = Promise.resolve();
  /** Last entry that was copied; 0 when there is none. */
  #lastIndex = 0;
  /** Where entries are missing that had been copied, as far as the last replay saw. */
  #lostFromIndex: number | undefined;

  constructor(parts: BacklogsParts) {
    this.#parts = parts;
  }

  get count(): number {
    return this.#files.length;
  }

  /** The log may be let go up to here: not while it may have what a damaged file lost. */
  get releasableIndex(): number {
    return this.#files.some((file) => file.isDamaged) ? 0 : this.#lastIndex;
  }

  /** What could not be read, as of the last replay. */
  gapsOf(shard: number): LogGap[] {
    if (this.#lostFromIndex === undefined) return [];
    const span = { fromIndex: this.#lostFromIndex, toIndex: undefined };
    return [{ shard, ...span, quarantinePath: undefined }];
  }

  /**
   * Visits the entries from `fromIndex` on that were copied, in order. Resolves with the index behind
   * the last one. What is damaged is passed: the hole in the indexes shows it.
   */
  async replay(
    fromIndex: number,
    visit: (record: LogRecord) => void | Promise<void>,
  ): Promise<number> {
    this.#files = await this.#list();
    this.#lastIndex = await this.#readEnd();
    let nextIndex = fromIndex;
    for (const file of this.#files) {
      try {
        await readBacklog(this.#parts.disk, file.path, async (record) => {
          file.lastIndex = record.index;
          if (record.index < nextIndex) return;
          nextIndex = record.index + 1;
          await visit(record);
        });
      } catch (error) {
        if (!isCodedError(error, "LOG_BACKLOG_DAMAGED")) throw error;
        file.isDamaged = true;
        this.#parts.logger.error("store.backlog_damaged", {
          path: file.path,
          reason: error.message,
        });
      }
    }
    return nextIndex;
  }

  /** After a replay of files and log: the index behind the files, and behind everything. */
  replayed(behindFiles: number, nextIndex: number): void {
    const isShort =
      this.#lastIndex > 0
        ? nextIndex <= this.#lastIndex
        : nextIndex === behindFiles && this.#files.some((file) => file.isDamaged);
    this.#lostFromIndex = isShort ? nextIndex : undefined;
  }

  /** Copies what the log holds of the shard; the log lets go of it. */
  async add(log: WriteAheadLog, shard: number): Promise<LogRange | undefined> {
    const number = (this.#files.at(-1)?.number ?? 0) + 1;
    const path = joinPath(this.#parts.dir, `backlog-${String(number).padStart(8, "0")}`);
    const range = await log.copyBacklog(shard, path);
    if (range === undefined) {
      await this.#parts.disk.remove(path);
      return undefined;
    }
    this.#files.push({ path, number, lastIndex: range.lastIndex, isDamaged: false });
    this.#lastIndex = range.lastIndex;
    await this.#writeEnd(range.lastIndex);
    return range;
  }

  /** Entries up to `index` are in a checkpoint. */
  release(index: number): void {
    const done = this.#files.filter(({ lastIndex }) => lastIndex <= index);
    this.#files = this.#files.filter(({ lastIndex }) => lastIndex > index);
    const isLast = this.#files.length === 0 && this.#lastIndex > 0;
    if (done.length === 0 && !isLast) return;
    if (isLast) this.#lastIndex = 0;
    // One after the other, oldest first: a crash leaves no hole.
    this.#removing = this.#removing.then(() => this.#remove(done, isLast));
  }

  /** Resolves when what was released is removed. */
  settled(): Promise<void> {
    return this.#removing;
  }

  async #remove(files: readonly BacklogFile[], isLast: boolean): Promise<void> {
    const { dir, disk } = this.#parts;
    const end = joinPath(dir, endName);
    // The end goes first: it must not speak of entries whose file has gone.
    for (const { path, isDamaged } of isLast ? [endFile(end), ...files] : files) {
      try {
        if (isDamaged) await this.#setAside(path);
        else await disk.remove(path);
        await disk.syncDir(dir);
      } catch (error) {
        // The next start finds it, and the checkpoint behind it.
        const reason = toError(error).message;
        this.#parts.logger.warn("store.backlog_not_removed", { path, reason });
      }
    }
  }

  async #setAside(path: string): Promise<void> {
    const { disk, quarantineDir } = this.#parts;
    await disk.makeDir(quarantineDir);
    await disk.rename(path, joinPath(quarantineDir, path.split("/").slice(-3).join("-")));
    await disk.syncDir(quarantineDir);
  }

  async #writeEnd(lastIndex: number): Promise<void> {
    const { dir, disk } = this.#parts;
    const writer = new ByteWriter(endBytes).u64(lastIndex);
    writer.u32(crc32(writer.finish()));
    await replaceFile(disk, joinPath(dir, endName), writer.finish());
  }

  /** 0 when there is none, or none that can be read: then the files speak for themselves. */
  async #readEnd(): Promise<number> {
    const { dir, disk } = this.#parts;
    const path = joinPath(dir, endName);
    if (!(await disk.exists(path))) return 0;
    const bytes = await readFile(disk, path);
    const isWhole =
      bytes.length === endBytes && crc32(bytes.subarray(0, 8)) === bytes.readUInt32BE(8);
    return isWhole ? new ByteReader(bytes).u64() : 0;
  }

  async #list(): Promise<BacklogFile[]> {
    const { dir, disk } = this.#parts;
    const files: BacklogFile[] = [];
    for (const { name, isDirectory } of await disk.list(dir)) {
      const digits = filePattern.exec(name)?.[1];
      if (isDirectory || digits === undefined) continue;
      const path = joinPath(dir, name);
      files.push({ path, number: Number(digits), lastIndex: 0, isDamaged: false });
    }
    return files.sort((a, b) => a.number - b.number);
  }
}

function endFile(path: string): BacklogFile {
  return { path, number: 0, lastIndex: 0, isDamaged: false };
}
