// Which segment of the log is the newest: a small file beside them, so that a log whose newest segment
// was removed is not taken for a whole one.
//
// It is written behind the beginning of each segment and may lag: it says "at least". One that is
// damaged or gone says nothing.

import {
  ByteReader,
  ByteWriter,
  crc32,
  type Disk,
  joinPath,
  type Logger,
  readFile,
  replaceFile,
  toError,
} from "../base/index.ts";

const fileName = "newest";
const sizeBytes = 12;

/** Order number of the newest segment; 0 when it is not known. */
export async function readNewest(disk: Disk, dir: string): Promise<number> {
  const path = joinPath(dir, fileName);
  if (!(await disk.exists(path))) return 0;
  const bytes = await readFile(disk, path).catch(() => Buffer.alloc(0)); // as good as damaged
  const isWhole =
    bytes.length === sizeBytes && crc32(bytes.subarray(0, 8)) === bytes.readUInt32BE(8);
  return isWhole ? new ByteReader(bytes).u64() : 0;
}

export class NewestMark {
  readonly #disk: Disk;
  readonly #dir: string;
  readonly #logger: Logger;
  #order = 0;
  #writing: Promise<void> | undefined;

  constructor(components: { readonly disk: Disk; readonly logger: Logger }, dir: string) {
    this.#disk = components.disk;
    this.#logger = components.logger;
    this.#dir = dir;
  }

  /** A segment has begun. Written in the background, the newest only. */
  begun(order: number): void {
    this.#order = order;
    this.#writing ??= this.#write().finally(() => {
      this.#writing = undefined;
    });
  }

  async settled(): Promise<void> {
    await this.#writing;
  }

  async #write(): Promise<void> {
    for (let order = 0; order !== this.#order; ) {
      order = this.#order;
      const writer = new ByteWriter(sizeBytes).u64(order);
      writer.u32(crc32(writer.finish()));
      try {
        await replaceFile(this.#disk, joinPath(this.#dir, fileName), writer.finish());
      } catch (error) {
        // The mark of the segment before stands; the next segment writes its own.
        this.#logger.warn("log.newest_not_written", { order, reason: toError(error).message });
      }
    }
  }
}
