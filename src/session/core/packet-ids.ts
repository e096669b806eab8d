// Packet ids of one session: they start at 1, count up, roll on after 65,535 and skip what is in
// use. Counted as positions that never roll, so that "reserved up to" is one number; position p
// stands for id (p - 1) % 65,535 + 1.
//
// A durable session hands out only positions below `end`, which it has made durable before.

const idCount = 65_535;

export class PacketIds {
  #next: number;
  #end: number;

  /** `end` is exclusive; Infinity for sessions that keep nothing. */
  constructor(next = 1, end = Number.POSITIVE_INFINITY) {
    this.#next = next;
    this.#end = end;
  }

  /** Next position to be tried. */
  get next(): number {
    return this.#next;
  }

  /** Reserved positions left. */
  get left(): number {
    return this.#end - this.#next;
  }

  extend(end: number): void {
    if (end > this.#end) this.#end = end;
  }

  /** An id that is not in use; undefined when the reservation or all ids are used up. */
  take(inUse: (packetId: number) => boolean): number | undefined {
    const end = Math.min(this.#end, this.#next + idCount);
    for (let position = this.#next; position < end; position++) {
      const packetId = ((position - 1) % idCount) + 1;
      if (inUse(packetId)) continue;
      this.#next = position + 1;
      return packetId;
    }
    // All that is reserved is in use: a new reservation has to begin behind it.
    if (end === this.#end) this.#next = end;
    return undefined;
  }

  /**
   * Takes `count` ids that follow each other without rolling over, none of them in use: the first;
   * undefined, and nothing is taken, where the next ones are not like that.
   */
  takeRow(count: number, inUse: (packetId: number) => boolean): number | undefined {
    const first = ((this.#next - 1) % idCount) + 1;
    if (this.#next + count > this.#end || first + count - 1 > idCount) return undefined;
    for (let packetId = first; packetId < first + count; packetId++) {
      if (inUse(packetId)) return undefined;
    }
    this.#next += count;
    return first;
  }

  /** Undoes the last `take`: its id was not sent. REQUIRES: `position` was `next` before it. */
  rewind(position: number): void {
    this.#next = position;
  }
}
