// Whether appends are taken now: the write buffer, the log's queue and the disk each have a brim.
// Callers ask before they append and wait here; progress writes never ask.
//
// Hysteresis: once refused, writing begins again below seven eighths of a brim, so that a buffer at
// its limit does not flap with each block.

import type { Cancel, Clock, CodedError } from "../base/index.ts";
import type { WriteAheadLog } from "../log/index.ts";
import { storeErrors } from "./errors.ts";

export type WriteGateParts = {
  readonly settings: { readonly writeBufferBytesMax: number; readonly pendingBytesMax: number };
  readonly log: WriteAheadLog;
  readonly clock: Clock;
  /** The buffer fills up with what is not sealed: it has to be written to be freed. */
  readonly relieve: () => void;
  /** Further reasons: a quota, a volume that runs low. */
  readonly more?: () => CodedError | undefined;
};

const resumeShare = 7 / 8;
/** How often a closed gate looks whether it may open. */
const lookIntervalMs = 5;

export class WriteGate {
  readonly #parts: WriteGateParts;
  #memoryBytes = 0;
  #closedBy: CodedError | undefined;
  readonly #waiting = new Set<{ readonly listener: () => void }>();
  #cancel: Cancel | undefined;
  #relieving = false;

  constructor(parts: WriteGateParts) {
    this.#parts = parts;
  }

  /** Bytes of blocks that are not on disk yet. */
  get memoryBytes(): number {
    return this.#memoryBytes;
  }

  addMemory(deltaBytes: number): void {
    this.#memoryBytes += deltaBytes;
    const { settings, clock, relieve } = this.#parts;
    const isHigh = this.#memoryBytes > settings.writeBufferBytesMax * resumeShare;
    if (deltaBytes <= 0 || !isHigh || this.#relieving) return;
    this.#relieving = true;
    // In the next turn: what adds memory is in the middle of an apply.
    clock.soon(() => {
      this.#relieving = false;
      relieve();
    });
  }

  get refusal(): CodedError | undefined {
    this.#closedBy = this.#look(this.#closedBy === undefined ? 1 : resumeShare);
    return this.#closedBy;
  }

  /**
   * Calls back once when appends are taken again; at once when they are. Who goes away cancels: the
   * gate of a full disk may stay closed for hours.
   */
  onceWritable(listener: () => void): Cancel {
    if (this.refusal === undefined) {
      listener();
      return () => undefined;
    }
    const waiter = { listener };
    this.#waiting.add(waiter);
    if (this.#cancel === undefined) this.#arm();
    return () => this.#waiting.delete(waiter);
  }

  /** Those who wait are not called: the store is at its end. */
  close(): void {
    this.#cancel?.();
    this.#waiting.clear();
  }

  #look(share: number): CodedError | undefined {
    const { settings, log } = this.#parts;
    if (log.failure !== undefined) return storeErrors.failed({ reason: log.failure.message });
    if (log.full) return storeErrors.full();
    if (this.#memoryBytes > settings.writeBufferBytesMax * share) {
      return storeErrors.bufferFull({ limitBytes: settings.writeBufferBytesMax });
    }
    if (log.pendingBytes > settings.pendingBytesMax * share) {
      return storeErrors.bufferFull({ limitBytes: settings.pendingBytesMax });
    }
    return this.#parts.more?.();
  }

  #arm(): void {
    this.#cancel = this.#parts.clock.schedule(lookIntervalMs, () => {
      this.#cancel = undefined;
      // A log that has failed never takes anything again.
      if (this.#parts.log.failure !== undefined) return this.close();
      if (this.refusal !== undefined) return this.#arm();
      // A listener that fills the buffer again sends the others back to wait.
      for (const waiter of [...this.#waiting]) {
        if (this.refusal !== undefined) break;
        if (this.#waiting.delete(waiter)) waiter.listener();
      }
      if (this.#waiting.size > 0) this.#arm();
    });
  }
}
