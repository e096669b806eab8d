// Places for work at once, some of which one key may have: whoever is slow, or asks for much, leaves
// room for the others.

import { adminErrors } from "./errors.ts";

export class Places {
  readonly #what: string;
  readonly #max: number;
  readonly #ofKeyMax: number;
  /** Ids of the keys that have a place, one for each. */
  readonly #taken: string[] = [];

  /** Half of them for one key; all where there is but one. */
  constructor(what: string, max: number) {
    this.#what = what;
    this.#max = max;
    this.#ofKeyMax = Math.max(1, Math.floor(max / 2));
  }

  /** What it gives back frees the place, once. @throws ADMIN_BUSY. */
  take(keyId: string): () => void {
    if (this.#taken.length >= this.#max) {
      throw adminErrors.busy({ what: this.#what, max: this.#max });
    }
    if (this.#taken.filter((each) => each === keyId).length >= this.#ofKeyMax) {
      throw adminErrors.busy({ what: `${this.#what} of this key`, max: this.#ofKeyMax });
    }
    this.#taken.push(keyId);
    let isTaken = true;
    return () => {
      if (isTaken) this.#taken.splice(this.#taken.indexOf(keyId), 1);
      isTaken = false;
    };
  }
}
