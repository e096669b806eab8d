// A TTV of a batch as its reader is offered it: an index, and what is asked for is looked up then. Most
// readers ask for some of it, and one that counts for nothing. One object for all that a cursor offers:
// valid until the reader's next step.

import type { DeliverableTtv, TtvForm, TtvRef } from "../api.ts";
import type { Structure } from "../core/structure.ts";
import { formNameOf } from "../deliverable.ts";
import { type TtvBatch, topicAt } from "../layout/ttv-view.ts";
import { isRetain, type Qos, qosOf } from "../types.ts";

/** Whose batch it is. One object for all TTVs of a stream. */
export type BatchOrigin = {
  readonly shard: number;
  readonly generation: number;
  readonly stream: number;
  readonly structure: Structure;
};

export const nowhere: BatchOrigin = { shard: 0, generation: 0, stream: 0, structure: [] };

export class StoredTtv implements DeliverableTtv {
  timeUs = 0;
  #origin: BatchOrigin = nowhere;
  #batch: TtvBatch = noBatch;
  #index = 0;
  #frame: Buffer | undefined = undefined;
  #ref: TtvRef | undefined = undefined;

  set(origin: BatchOrigin, batch: TtvBatch, index: number, timeUs: number): this {
    this.timeUs = timeUs;
    this.#origin = origin;
    this.#batch = batch;
    this.#index = index;
    this.#frame = undefined;
    this.#ref = undefined;
    return this;
  }

  get topic(): string {
    return topicAt(this.#batch, this.#origin.structure, this.#index);
  }

  get publisher(): string {
    return this.#batch.publisher(this.#batch.publisherId(this.#index));
  }

  get form(): TtvForm {
    return formNameOf(this.#batch.flags(this.#index));
  }

  get qos(): Qos {
    return qosOf(this.#batch.flags(this.#index));
  }

  get retain(): boolean {
    return isRetain(this.#batch.flags(this.#index));
  }

  get expiryUs(): number {
    return this.#batch.expiryUs(this.#index);
  }

  get expiryOffset(): number {
    return this.#batch.expiryOffset(this.#index);
  }

  get frame(): Buffer {
    this.#frame ??= this.#batch.frame(this.#index);
    return this.#frame;
  }

  get ref(): TtvRef {
    if (this.#ref === undefined) {
      const { shard, generation, stream } = this.#origin;
      this.#ref = { shard, generation, stream, timeUs: this.timeUs };
    }
    return this.#ref;
  }
}

/** Before it is set. */
const noBatch = undefined as unknown as TtvBatch;
