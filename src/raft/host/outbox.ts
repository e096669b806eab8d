// Messages on their way out, one frame a peer and turn.
//
// Keeps: the messages of all groups to a peer leave together and in order; a frame above the cap is
// cut between two messages. Bounded by the windows of the cores: it is emptied every turn.

import { encodeFrame, encodeLetters, type FrameKind, type Letter, letterBytes } from "./frames.ts";
import type { Identity, Uuid } from "./identity.ts";

/** Room for the head of a frame and the count in it. */
const reservedBytes = 1024;

export class Outbox {
  readonly #identity: Identity;
  readonly #bodyBytesMax: number;
  readonly #post: (to: Uuid, frame: Buffer) => void;
  #letters = new Map<Uuid, Letter[]>();

  constructor(identity: Identity, frameBytesMax: number, post: (to: Uuid, frame: Buffer) => void) {
    this.#identity = identity;
    this.#bodyBytesMax = frameBytesMax - reservedBytes;
    this.#post = post;
  }

  add(to: Uuid, letter: Letter): void {
    const letters = this.#letters.get(to);
    if (letters === undefined) this.#letters.set(to, [letter]);
    else letters.push(letter);
  }

  frame(kind: FrameKind, body: Uint8Array): Buffer {
    return encodeFrame(this.#identity, kind, body);
  }

  flush(): void {
    if (this.#letters.size === 0) return;
    const all = this.#letters;
    this.#letters = new Map();
    for (const [to, letters] of all) {
      for (const part of this.#cut(letters)) {
        this.#post(to, this.frame("messages", encodeLetters(part)));
      }
    }
  }

  *#cut(letters: readonly Letter[]): Generator<Letter[], void, void> {
    let part: Letter[] = [];
    let bytes = 0;
    for (const letter of letters) {
      const size = letterBytes(letter);
      if (part.length > 0 && bytes + size > this.#bodyBytesMax) {
        yield part;
        part = [];
        bytes = 0;
      }
      part.push(letter);
      bytes += size;
    }
    if (part.length > 0) yield part;
  }
}
