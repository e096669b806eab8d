// Client ids that two clients fight over: each connects, takes the session over, and kicks the other
// out. That is what the standard asks for, so it goes on: told from a few takeovers on, slowed down
// when it begins to cost. A device that comes back often is not held up.
//
// The ids watched are bounded; the one not seen longest is forgotten.

import { createLru, type Lru } from "../../base/index.ts";

export type FlappingSettings = {
  /** Takeovers of one id within the window that are told. */
  readonly takeoversMax: number;
  /** Takeovers of one id within the window after which each further one waits. */
  readonly unhurriedMax: number;
  readonly windowMs: number;
  readonly idsMax: number;
};

export const flappingSettingsDefault: FlappingSettings = {
  takeoversMax: 5,
  // Five a second for a whole minute: no device that means well, and cheap until then.
  unhurriedMax: 300,
  windowMs: 60_000,
  idsMax: 10_000,
};

type Watched = { startMs: number; takeovers: number };

export class Flapping {
  readonly #settings: FlappingSettings;
  readonly #ids: Lru<Watched>;

  constructor(settings: FlappingSettings) {
    this.#settings = settings;
    this.#ids = createLru(settings.idsMax, () => 1);
  }

  /** A takeover has happened. True once in a window: the id has begun to flap, or still does. */
  note(clientId: string, nowMs: number): boolean {
    let watched = this.#ids.get(clientId);
    if (watched === undefined || nowMs - watched.startMs >= this.#settings.windowMs) {
      watched = { startMs: nowMs, takeovers: 0 };
      this.#ids.set(clientId, watched);
    }
    watched.takeovers++;
    return watched.takeovers === this.#settings.takeoversMax;
  }

  /** Whether the next takeover of this id has to wait. */
  isSlowed(clientId: string, nowMs: number): boolean {
    const watched = this.#ids.get(clientId);
    if (watched === undefined || nowMs - watched.startMs >= this.#settings.windowMs) return false;
    return watched.takeovers >= this.#settings.unhurriedMax;
  }
}
