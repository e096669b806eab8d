// What one simulated process sees of its machine's stores: from its end on no call of it completes,
// or has an effect.

import type { Kv, KvDriver, KvOptions, KvSalvage } from "./kv.ts";

export class ProcessDriver implements KvDriver {
  readonly #driver: KvDriver;
  readonly #isAlive: () => boolean;

  constructor(driver: KvDriver, isAlive: () => boolean) {
    this.#driver = driver;
    this.#isAlive = isAlive;
  }

  open(path: string, options?: KvOptions): Promise<Kv> {
    return this.#call((driver) => driver.open(path, options));
  }

  destroy(path: string): Promise<void> {
    return this.#call((driver) => driver.destroy(path));
  }

  setAside(path: string, to: string): Promise<void> {
    return this.#call((driver) => driver.setAside(path, to));
  }

  sizeBytes(path: string): Promise<number> {
    return this.#call((driver) => driver.sizeBytes(path));
  }

  salvage(path: string, to: string): Promise<KvSalvage> {
    return this.#call((driver) => driver.salvage(path, to));
  }

  condemn(path: string): Promise<void> {
    return this.#call((driver) => driver.condemn(path));
  }

  #call<T>(call: (driver: KvDriver) => Promise<T>): Promise<T> {
    return this.#isAlive() ? call(this.#driver) : new Promise(() => undefined);
  }
}
