// Acks owed for what a client sent, in the order it was sent. Commits finish in any order; PUBACK,
// PUBREC and PUBCOMP leave in the order of the packets they answer (4.6.0-2, -3), so a finished one
// waits until all before it are finished.
//
// One ring of packed numbers, allocated at the first ack and grown by doubling: no object per ack.

import { assert } from "../../base/index.ts";
import type { Properties } from "../codec/properties.ts";
import { noProperties } from "../codec/properties.ts";
import type { ReasonCode } from "../codec/reasons.ts";

/** Names an ack owed; counts up from 1 for a connection. */
export type AckToken = number;

export type AckEmitter = (
  firstByte: number,
  packetId: number,
  reasonCode: ReasonCode,
  properties: Properties,
) => void;

const capacityMin = 16;
/** Stands for "not finished"; no reason code has it. */
const pending = 0xff;

export class AckQueue {
  readonly #emit: AckEmitter;
  // Packet id in the low 16 bits, then the first byte of the ack, then its reason.
  #slots: Uint32Array | undefined;
  #head: AckToken = 1;
  #tail: AckToken = 1;
  // Only acks with a Reason String or user properties are in it.
  #properties: Map<AckToken, Properties> | undefined;

  constructor(emit: AckEmitter) {
    this.#emit = emit;
  }

  /** Acks owed or waiting. */
  get length(): number {
    return this.#tail - this.#head;
  }

  push(firstByte: number, packetId: number): AckToken {
    const slots = this.#roomForOne();
    const token = this.#tail++;
    slots[token & (slots.length - 1)] = packetId | (firstByte << 16) | (pending << 24);
    return token;
  }

  /** Finishes the ack of `token` and emits what no longer waits. REQUIRES: not finished before. */
  complete(token: AckToken, reasonCode: ReasonCode, properties: Properties): void {
    const slots = this.#slots;
    assert(slots !== undefined && token >= this.#head && token < this.#tail, "unknown ack token");
    const at = token & (slots.length - 1);
    const slot = slots[at] as number;
    assert(slot >>> 24 === pending, "ack completed twice");
    slots[at] = (slot & 0xff_ffff) | (reasonCode << 24);
    if (properties !== noProperties) {
      this.#properties ??= new Map();
      this.#properties.set(token, properties);
    }
    if (token === this.#head) this.#emitFinished(slots);
  }

  #emitFinished(slots: Uint32Array): void {
    while (this.#head < this.#tail) {
      const slot = slots[this.#head & (slots.length - 1)] as number;
      const reasonCode = slot >>> 24;
      if (reasonCode === pending) return;
      const properties = this.#takeProperties(this.#head);
      this.#head++;
      this.#emit((slot >>> 16) & 0xff, slot & 0xffff, reasonCode, properties);
    }
  }

  #takeProperties(token: AckToken): Properties {
    const found = this.#properties?.get(token);
    if (found === undefined) return noProperties;
    this.#properties?.delete(token);
    return found;
  }

  #roomForOne(): Uint32Array {
    const slots = this.#slots;
    if (slots !== undefined && this.length < slots.length) return slots;
    const grown = new Uint32Array(slots === undefined ? capacityMin : slots.length * 2);
    if (slots !== undefined) {
      for (let token = this.#head; token < this.#tail; token++) {
        grown[token & (grown.length - 1)] = slots[token & (slots.length - 1)] as number;
      }
    }
    this.#slots = grown;
    return grown;
  }
}
