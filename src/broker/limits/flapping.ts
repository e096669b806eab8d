// Client ids that two clients fight over: each connects, takes the session over, and kicks the other
// out. That is what the standard asks for, so it goes on, but slowly and not in silence.
//
// The ids watched are bounded; the one not seen longest is forgotten.

import { createLru, type Lru } from "../../base/index.ts";

export type FlappingSettings = {
  /** Takeovers of one id within the window that count as flapping. */
  readonly takeoversMax: number;
  readonly windowMs: number;
  readonly idsMax: number;
};

export const flappingSettingsDefault: FlappingSettings = {
  takeoversMax: 5,
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

  isFlapping(clientId: string, nowMs: number): boolean {
    const watched = this.#ids.get(clientId);
    if (watched === undefined || nowMs - watched.startMs >= this.#settings.windowMs) return false;
    return watched.takeovers >= this.#settings.takeoversMax;
  }
}
