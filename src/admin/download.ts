// The file of an export as a stream: read as fast as its reader takes it, so that a slow one costs one
// chunk of memory. Bounded: downloads at once, also of one key, so that none takes every place.

import type { Disk } from "../base/index.ts";
import { Places } from "./places.ts";

const downloadsMax = 4;
const chunkBytes = 256 * 1024;

export class Downloads {
  readonly #disk: Disk;
  readonly #places = new Places("downloads", downloadsMax);

  constructor(disk: Disk) {
    this.#disk = disk;
  }

  /** The first `sizeBytes` of a file, for a key. @throws ADMIN_BUSY, DISK_NOT_FOUND. */
  async open(path: string, sizeBytes: number, keyId: string): Promise<ReadableStream<Uint8Array>> {
    const giveBack = this.#places.take(keyId);
    const file = await this.#disk.open(path, "read").catch((error: unknown) => {
      giveBack();
      throw error;
    });
    let isOpen = true;
    const ended = async (): Promise<void> => {
      if (!isOpen) return;
      isOpen = false;
      giveBack();
      await file.close();
    };
    let at = 0;
    // A stream that failed is not cancelled: nobody else would give its place back.
    const read = (chunk: Buffer): Promise<number> =>
      file.read(chunk, at).catch(async (error: unknown) => {
        await ended();
        throw error;
      });
    return new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          const chunk = Buffer.alloc(Math.min(chunkBytes, sizeBytes - at));
          const count = chunk.length === 0 ? 0 : await read(chunk);
          at += count;
          if (count > 0) controller.enqueue(chunk.subarray(0, count));
          if (count > 0 && at < sizeBytes) return;
          await ended();
          controller.close();
        },
        cancel: ended,
      },
      new CountQueuingStrategy({ highWaterMark: 1 }),
    );
  }
}
