// The file of an export as a stream: read as fast as its reader takes it, so that a slow one costs one
// chunk of memory. Bounded: downloads at once, also of one key, so that none takes every place.

import type { Disk } from "../base/index.ts";
import { adminErrors } from "./errors.ts";

const downloadsMax = 4;
const downloadsOfKeyMax = 2;
const chunkBytes = 256 * 1024;

export class Downloads {
  readonly #disk: Disk;
  /** Ids of the keys that have a place, one for each. */
  readonly #places: string[] = [];

  constructor(disk: Disk) {
    this.#disk = disk;
  }

  /** The first `sizeBytes` of a file, for a key. @throws ADMIN_BUSY, DISK_NOT_FOUND. */
  async open(path: string, sizeBytes: number, keyId: string): Promise<ReadableStream<Uint8Array>> {
    this.#take(keyId);
    const file = await this.#disk.open(path, "read").catch((error: unknown) => {
      this.#giveBack(keyId);
      throw error;
    });
    let isOpen = true;
    const ended = async (): Promise<void> => {
      if (!isOpen) return;
      isOpen = false;
      this.#giveBack(keyId);
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

  #take(keyId: string): void {
    if (this.#places.length >= downloadsMax) {
      throw adminErrors.busy({ what: "downloads", max: downloadsMax });
    }
    if (this.#places.filter((each) => each === keyId).length >= downloadsOfKeyMax) {
      throw adminErrors.busy({ what: "downloads of this key", max: downloadsOfKeyMax });
    }
    this.#places.push(keyId);
  }

  #giveBack(keyId: string): void {
    this.#places.splice(this.#places.indexOf(keyId), 1);
  }
}
