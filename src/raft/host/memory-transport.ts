// The twin of stream-transport.ts: frames between hosts of one process, with the faults of a network
// drawn from a seed. For tests, simulations, and clusters that live in one process.
//
// Keeps: a frame arrives whole or not at all, never inside the call that sent it; what was under way
// to a host that ended is lost. Everything follows from the seed and the order of calls.

import type { Clock, Random } from "../../base/index.ts";
import type { Uuid } from "./identity.ts";
import type { Transport, TransportEvents } from "./ports.ts";

export type MemoryFaults = {
  /** Of 1,000 frames so many are lost, or arrive twice. */
  readonly lossPerMille: number;
  readonly repeatPerMille: number;
  /** Of 1,000 frames so many have one bit turned on the way. */
  readonly damagePerMille: number;
  /** Each takes a drawn time up to this: frames overtake each other. */
  readonly delayMsMax: number;
};

export const noFaults: MemoryFaults = {
  lossPerMille: 0,
  repeatPerMille: 0,
  damagePerMille: 0,
  delayMsMax: 1,
};

type Attached = { readonly events: TransportEvents };

export class MemoryNetwork {
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #attached = new Map<Uuid, Attached>();
  readonly #cuts = new Set<string>();
  faults: MemoryFaults;
  /** Frames lost, repeated, damaged so far. */
  readonly counts = { lost: 0, repeated: 0, damaged: 0 };
  /** Sees every frame that is sent. */
  tap: ((from: Uuid, to: Uuid, frame: Buffer) => void) | undefined;

  constructor(clock: Clock, random: Random, faults: MemoryFaults = noFaults) {
    this.#clock = clock;
    this.#random = random;
    this.faults = faults;
  }

  /** The network as one process of a site uses it. */
  host(siteId: Uuid): Transport {
    let own: Attached | undefined;
    return {
      start: async (events) => {
        own = { events };
        this.#attached.set(siteId, own);
      },
      setPeers: () => undefined,
      send: (to, frame) => {
        if (own === undefined || this.#attached.get(siteId) !== own) return false;
        this.#send(siteId, to, Buffer.from(frame));
        return true;
      },
      close: async () => {
        if (own !== undefined && this.#attached.get(siteId) === own) this.kill(siteId);
      },
    };
  }

  /** The process ends; its peers notice. */
  kill(siteId: Uuid): void {
    this.#attached.delete(siteId);
    for (const { events } of this.#attached.values()) events.onDown(siteId);
  }

  /** Nothing passes from one to the other until `mend`. */
  cut(from: Uuid, to: Uuid): void {
    this.#cuts.add(`${from}>${to}`);
  }

  mend(): void {
    this.#cuts.clear();
  }

  #send(from: Uuid, to: Uuid, frame: Buffer): void {
    this.tap?.(from, to, frame);
    const { lossPerMille, repeatPerMille, damagePerMille } = this.faults;
    const isLost = this.#random.below(1000) < lossPerMille;
    const isRepeated = this.#random.below(1000) < repeatPerMille;
    const isDamaged = this.#random.below(1000) < damagePerMille;
    const place = this.#random.below(frame.length);
    if (isLost) {
      this.counts.lost++;
      return;
    }
    if (isRepeated) {
      this.counts.repeated++;
      this.#arriveLater(from, to, Buffer.from(frame));
    }
    if (isDamaged) {
      this.counts.damaged++;
      frame[place] = (frame[place] as number) ^ (1 << this.#random.below(8));
    }
    this.#arriveLater(from, to, frame);
  }

  #arriveLater(from: Uuid, to: Uuid, frame: Buffer): void {
    const target = this.#attached.get(to);
    const delayMs = (this.faults.delayMsMax * (1 + this.#random.below(1000))) / 1000;
    this.#clock.schedule(delayMs, () => {
      // What was on its way to an earlier process does not reach a later one.
      if (target === undefined || this.#attached.get(to) !== target) return;
      if (!this.#cuts.has(`${from}>${to}`)) target.events.onFrame(frame);
    });
  }
}
