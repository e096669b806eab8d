// Items that carry the stamp of the node that asked for them: whatever the item does, and that it was
// decided, are one item, so that a repeat of the request is answered and does nothing.
//
// stamped: stamp | refusal varint | kind u8 (0: it does nothing) | body of that kind

import { assert, type ByteReader, type ByteWriter } from "../base/index.ts";
import type { WriterStamp } from "./api.ts";
import { namesBytesMax } from "./log-items.ts";
import type { Item } from "./machine.ts";
import type { Decided } from "./verdict.ts";
import { readStamp, writeStamp } from "./writers.ts";

export type Stamped = { readonly stamp: WriterStamp; readonly decided: Decided };

/** While one is begun, the next item that is cooked carries it. Never over a turn of the event loop. */
export class Stamping {
  readonly #kind: number;
  #begun: Stamped | undefined;

  /** `kind` is that of a stamped item in the layout. */
  constructor(kind: number) {
    this.#kind = kind;
  }

  begin(stamped: Stamped): void {
    assert(this.#begun === undefined, "one stamp at a time");
    this.#begun = stamped;
  }

  /** What is left where nothing was cooked. */
  end(): Stamped | undefined {
    const left = this.#begun;
    this.#begun = undefined;
    return left;
  }

  /** The item with what is begun. */
  wrap(item: Item): Item {
    const stamped = this.#begun;
    if (stamped === undefined) return item;
    this.#begun = undefined;
    return this.item(stamped, item, 0);
  }

  item({ stamp, decided }: Stamped, item: Item | undefined, refusal: number): Item {
    let at = 0;
    return {
      kind: this.#kind,
      sizeBytes: (item?.sizeBytes ?? 0) + namesBytesMax(stamp.name),
      encode: (writer: ByteWriter, timeUs: number) => {
        at = timeUs;
        writeStamp(writer, stamp);
        writer.varint(refusal).u8(item?.kind ?? 0);
        item?.encode(writer, timeUs);
      },
      done: (error) => {
        item?.done(error);
        decided(error, at, refusal);
      },
    };
  }
}

/** The head of a stamped item; the body of `kind` follows unless that is 0. */
export function readStamped(reader: ByteReader): {
  readonly stamp: WriterStamp;
  readonly refusal: number;
  readonly kind: number;
} {
  return { stamp: readStamp(reader), refusal: reader.varint(), kind: reader.u8() };
}
