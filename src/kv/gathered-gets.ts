// Look-ups of one turn go to LevelDB together: a trip to a thread of the pool costs more than what
// most of them read. Readers that merge streams ask for the next block of each at about the same time.
//
// Each is answered for itself: where one of a trip fails, all of them are asked again one by one.

/** More trips beside each other keep a disk busier that has to be asked. */
const tripKeysMax = 16;

export type Lookups = {
  get(key: Buffer): Promise<Buffer | undefined>;
  getMany(keys: Buffer[]): Promise<Array<Buffer | undefined>>;
};

type Waiting = {
  readonly key: Buffer;
  readonly resolve: (value: Buffer | undefined | Promise<Buffer | undefined>) => void;
};

export class GatheredGets {
  readonly #lookups: Lookups;
  #waiting: Waiting[] = [];

  constructor(lookups: Lookups) {
    this.#lookups = lookups;
  }

  get(key: Buffer): Promise<Buffer | undefined> {
    return new Promise((resolve) => {
      if (this.#waiting.push({ key, resolve }) === 1) void this.#sendSoon();
    });
  }

  /** Behind all that is asked for in the same step. */
  async #sendSoon(): Promise<void> {
    await undefined;
    const waiting = this.#waiting;
    this.#waiting = [];
    const trips = Math.ceil(waiting.length / tripKeysMax);
    const size = Math.ceil(waiting.length / trips);
    for (let at = 0; at < waiting.length; at += size) this.#trip(waiting.slice(at, at + size));
  }

  #trip(some: readonly Waiting[]): void {
    const oneByOne = (): void => {
      for (const { key, resolve } of some) resolve(this.#lookups.get(key));
    };
    if (some.length === 1) return oneByOne();
    this.#lookups.getMany(some.map(({ key }) => key)).then((values) => {
      for (const [at, { resolve }] of some.entries()) resolve(values[at]);
    }, oneByOne);
  }
}
