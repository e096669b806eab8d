// Packet identifiers we give to messages of one session: from 1 up, round, past those in use.

const idMax = 0xffff;

/** Ids in use, for instance an `OutboundWindow`, a Map or a Set. */
export type IdsInUse = { readonly size: number; has(packetId: number): boolean };

export class PacketIds {
  #next: number;

  /** Goes on at `next`; a resumed session continues behind what it may have sent. */
  constructor(next = 1) {
    this.#next = next;
  }

  /** The id that will be tried next. */
  get next(): number {
    return this.#next;
  }

  /** An id that is not in use; undefined when all 65,535 are. */
  take(inUse: IdsInUse): number | undefined {
    if (inUse.size >= idMax) return undefined;
    let candidate = this.#next;
    while (inUse.has(candidate)) candidate = following(candidate);
    this.#next = following(candidate);
    return candidate;
  }
}

function following(packetId: number): number {
  return packetId === idMax ? 1 : packetId + 1;
}
