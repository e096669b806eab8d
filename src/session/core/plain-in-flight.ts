// QoS 1 messages in flight of a session that keeps nothing: only their ids and sizes count, until
// PUBACK. A table by packet id, direct-mapped: ids follow each other, so two that are in flight
// together rarely share a place; where they would, the table grows. No object for a message.

const placesMin = 16;
/** A place for every packet id. */
const placesMax = 65_536;

export class PlainInFlight {
  #ids = new Uint16Array(0);
  #sizes = new Uint32Array(0);
  #count = 0;

  get size(): number {
    return this.#count;
  }

  has(packetId: number): boolean {
    const ids = this.#ids;
    return ids.length > 0 && ids[packetId & (ids.length - 1)] === packetId;
  }

  /** REQUIRES: the id is not here. */
  add(packetId: number, sizeBytes: number): void {
    while (!this.#isFree(packetId)) this.#grow();
    const at = packetId & (this.#ids.length - 1);
    this.#ids[at] = packetId;
    this.#sizes[at] = sizeBytes;
    this.#count++;
  }

  /** The size it was added with; undefined where it is not here. */
  remove(packetId: number): number | undefined {
    if (!this.has(packetId)) return undefined;
    const at = packetId & (this.#ids.length - 1);
    this.#ids[at] = 0;
    this.#count--;
    return this.#sizes[at];
  }

  #isFree(packetId: number): boolean {
    const ids = this.#ids;
    return ids.length > 0 && ids[packetId & (ids.length - 1)] === 0;
  }

  #grow(): void {
    const [ids, sizes] = [this.#ids, this.#sizes];
    const length = ids.length === 0 ? placesMin : ids.length * 2;
    this.#ids = new Uint16Array(Math.min(length, placesMax));
    this.#sizes = new Uint32Array(this.#ids.length);
    const mask = this.#ids.length - 1;
    ids.forEach((packetId, at) => {
      if (packetId === 0) return;
      this.#ids[packetId & mask] = packetId;
      this.#sizes[packetId & mask] = sizes[at] as number;
    });
  }
}
