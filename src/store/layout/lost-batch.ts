// What readers get in place of a block that cannot be read, or that has expired: no TTVs, only how many
// there were.

import { assert } from "../../base/index.ts";
import type { MissingReason } from "../core/missing.ts";
import type { BlockRow } from "./index-row.ts";
import type { TtvBatch } from "./ttv-view.ts";

export class LostBatch implements TtvBatch {
  readonly count = 0;
  readonly topicCount = 0;
  readonly publisherCount = 0;
  readonly memoryBytes = 256;
  readonly row: BlockRow;
  readonly reason: MissingReason;

  constructor(row: BlockRow, reason: MissingReason = "damaged") {
    this.row = row;
    this.reason = reason;
  }

  timeUs(): number {
    return this.#empty();
  }

  flags(): number {
    return this.#empty();
  }

  topicId(): number {
    return this.#empty();
  }

  publisherId(): number {
    return this.#empty();
  }

  expiryUs(): number {
    return this.#empty();
  }

  expiryOffset(): number {
    return this.#empty();
  }

  frameStart(): number {
    return 0;
  }

  frames(): Buffer {
    return Buffer.alloc(0);
  }

  frame(): Buffer {
    return this.#empty();
  }

  varying(): readonly string[] {
    return this.#empty();
  }

  publisher(): string {
    return this.#empty();
  }

  matchVarying(): Uint8Array {
    return new Uint8Array(0);
  }

  #empty(): never {
    assert(false, "a lost block has no TTVs");
    throw new Error("unreachable");
  }
}
