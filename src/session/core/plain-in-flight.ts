// Plain QoS 1 messages in flight, until PUBACK: ids and sizes, and of those that are owed also where
// they stand in the store. A table by packet id, direct-mapped: ids follow each other, so two that are
// in flight together rarely share a place; where they would, the table grows. No object for a message.
//
// Who needs a record of one takes it out with `takeOwed`; what is acked before never had one.

import type { InFlight } from "./in-flight.ts";

const placesMin = 16;
/** A place for every packet id. */
const placesMax = 65_536;

/** Where messages of a row stand, but for their times. */
export type Origin = {
  readonly shard: number;
  readonly generation: number;
  readonly stream: number;
};

export type OwedMessage = {
  readonly packetId: number;
  readonly sizeBytes: number;
  readonly sendNumber: number;
  readonly origin: Origin;
  readonly timeUs: number;
};

class Places {
  readonly ids: Uint16Array;
  readonly sizes: Uint32Array;
  /** Of owed ones; made with the first. */
  owed: { sendNumbers: Float64Array; times: Float64Array; origins: Origin[] } | undefined;

  constructor(count: number) {
    this.ids = new Uint16Array(count);
    this.sizes = new Uint32Array(count);
  }

  place(packetId: number): number {
    return packetId & (this.ids.length - 1);
  }

  put(packetId: number, sizeBytes: number): number {
    const at = this.place(packetId);
    this.ids[at] = packetId;
    this.sizes[at] = sizeBytes;
    return at;
  }

  oweAt(at: number, sendNumber: number, origin: Origin, timeUs: number): void {
    const count = this.ids.length;
    this.owed ??= {
      sendNumbers: new Float64Array(count),
      times: new Float64Array(count),
      origins: new Array(count),
    };
    this.owed.sendNumbers[at] = sendNumber;
    this.owed.times[at] = timeUs;
    this.owed.origins[at] = origin;
  }
}

export class PlainInFlight {
  #places = new Places(0);
  #count = 0;

  get size(): number {
    return this.#count;
  }

  has(packetId: number): boolean {
    const { ids } = this.#places;
    return ids.length > 0 && ids[packetId & (ids.length - 1)] === packetId;
  }

  /** REQUIRES: the id is not here. */
  add(packetId: number, sizeBytes: number): void {
    this.#add(packetId, sizeBytes);
  }

  /** REQUIRES: as `add`, and all that are here are owed. Spelled out: an object each would show. */
  addOwed(
    packetId: number,
    sizeBytes: number,
    sendNumber: number,
    origin: Origin,
    timeUs: number,
  ): void {
    const at = this.#add(packetId, sizeBytes);
    this.#places.oweAt(at, sendNumber, origin, timeUs);
  }

  /** The size it was added with; undefined where it is not here. */
  remove(packetId: number): number | undefined {
    if (!this.has(packetId)) return undefined;
    const at = this.#places.place(packetId);
    this.#places.ids[at] = 0;
    this.#count--;
    return this.#places.sizes[at];
  }

  /** Takes out all that are here, in the order they were sent. REQUIRES: all are owed. */
  takeOwed(): OwedMessage[] {
    const taken: OwedMessage[] = [];
    if (this.#count === 0) return taken;
    this.#places.ids.forEach((packetId, at) => {
      if (packetId !== 0) taken.push(owedAt(this.#places, at));
    });
    this.#places.ids.fill(0);
    this.#count = 0;
    return taken.sort((a, b) => a.sendNumber - b.sendNumber);
  }

  #add(packetId: number, sizeBytes: number): number {
    while (!this.#isFree(packetId)) this.#grow();
    this.#count++;
    return this.#places.put(packetId, sizeBytes);
  }

  #isFree(packetId: number): boolean {
    const { ids } = this.#places;
    return ids.length > 0 && ids[packetId & (ids.length - 1)] === 0;
  }

  #grow(): void {
    const old = this.#places;
    const doubled = old.ids.length === 0 ? placesMin : old.ids.length * 2;
    const grown = new Places(Math.min(doubled, placesMax));
    this.#places = grown;
    old.ids.forEach((packetId, at) => {
      if (packetId === 0) return;
      const to = grown.put(packetId, old.sizes[at] as number);
      if (old.owed === undefined) return;
      const { sendNumber, origin, timeUs } = owedAt(old, at);
      grown.oweAt(to, sendNumber, origin, timeUs);
    });
  }
}

function owedAt({ ids, sizes, owed }: Places, at: number): OwedMessage {
  return {
    packetId: ids[at] as number,
    sizeBytes: sizes[at] as number,
    sendNumber: owed?.sendNumbers[at] as number,
    origin: owed?.origins[at] as Origin,
    timeUs: owed?.times[at] as number,
  };
}

/** The entry of one that was sent: it gets a record now. */
export function sentEntry({
  packetId,
  sizeBytes,
  sendNumber,
  origin,
  timeUs,
}: OwedMessage): InFlight {
  const { shard, generation, stream } = origin;
  return {
    sendNumber,
    packetId,
    qos: 1,
    retain: false,
    identifiers: [],
    source: { kind: "log", ref: { shard, generation, stream, timeUs } },
    sizeBytes,
    stage: "sent",
    dup: false,
    inWindow: true,
    message: undefined,
    stored: false,
    storedSent: false,
    bound: false,
    releaseBound: false,
    kept: true,
    dealt: undefined,
    awaitsGroup: false,
  };
}
