// TTVs of one batch that follow each other for their reader: alike but for topic, publisher and frame,
// and matched by the same filters. Handed on as one; a TTV is an index. Scratch of a cursor: valid
// until the reader's next step.

import type { TtvForm, TtvRun } from "../api.ts";
import { formNameOf } from "../deliverable.ts";
import { type TtvBatch, topicAt } from "../layout/ttv-view.ts";
import { isRetain, type Qos, qosOf } from "../types.ts";
import { type BatchOrigin, nowhere } from "./stored-ttv.ts";

export class BatchRun implements TtvRun {
  readonly kind = "stored";
  count = 0;
  #origin: BatchOrigin = nowhere;
  #batch: TtvBatch | undefined;
  #first = 0;
  #frames: Buffer = nothing;

  set(origin: BatchOrigin, batch: TtvBatch, first: number, count: number): this {
    this.#origin = origin;
    this.#batch = batch;
    this.#first = first;
    this.#frames = batch.frames();
    this.count = count;
    return this;
  }

  get ref(): BatchOrigin {
    return this.#origin;
  }

  get form(): TtvForm {
    return formNameOf(this.#at.flags(this.#first));
  }

  get qos(): Qos {
    return qosOf(this.#at.flags(this.#first));
  }

  get retain(): boolean {
    return isRetain(this.#at.flags(this.#first));
  }

  get frames(): Buffer {
    return this.#frames;
  }

  get topicCount(): number {
    return this.#at.topicCount;
  }

  timeUs(index: number): number {
    return this.#at.timeUs(this.#first + index);
  }

  frameStart(index: number): number {
    return this.#at.frameStart(this.#first + index);
  }

  frameBytes(index: number): number {
    return this.frameStart(index + 1) - this.frameStart(index);
  }

  topicId(index: number): number {
    return this.#at.topicId(this.#first + index);
  }

  topic(index: number): string {
    return topicAt(this.#at, this.#origin.structure, this.#first + index);
  }

  /** REQUIRES: it was set. */
  get #at(): TtvBatch {
    return this.#batch as TtvBatch;
  }
}

const nothing = Buffer.alloc(0);
