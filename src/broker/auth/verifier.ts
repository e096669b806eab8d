// Checks passwords in bounded number: hashing costs memory and a thread each, and the threads are
// those that sync the log. What waits is bounded too; beyond, a login is refused for now.
//
// Who was right a moment ago need not be hashed again: a keyed digest of name, hash and password is
// remembered for some minutes, under a key that only this process has. So a crowd that reconnects is
// not held up, and a changed hash counts at once.

import { createHmac } from "node:crypto";
import { type Clock, createLru, type Lru, type Random } from "../../base/index.ts";
import { parsePasswordHash, verifyPassword } from "./password-hash.ts";

export type VerifierSettings = {
  readonly hashingMax: number;
  readonly waitingMax: number;
  readonly rememberedMax: number;
  readonly rememberMs: number;
};

export const verifierSettingsDefault: VerifierSettings = {
  hashingMax: 2,
  waitingMax: 1000,
  rememberedMax: 10_000,
  rememberMs: 10 * 60_000,
};

export type VerifyAnswer = "right" | "wrong" | "busy";

const keyBytes = 32;
/** Somebody nobody knows costs as much as somebody known: names must not be told by the time. */
const decoy = `$scrypt$ln=15,r=8,p=1$${"A".repeat(22)}$${"A".repeat(43)}`;

export class PasswordVerifier {
  readonly #settings: VerifierSettings;
  readonly #clock: Clock;
  readonly #key: Buffer;
  readonly #remembered: Lru<{ readonly untilMs: number }>;
  readonly #waiting: Array<() => void> = [];
  #hashing = 0;

  constructor(settings: VerifierSettings, clock: Clock, random: Random) {
    this.#settings = settings;
    this.#clock = clock;
    this.#key = random.bytes(keyBytes);
    this.#remembered = createLru(settings.rememberedMax, () => 1);
  }

  /** `text` undefined: the user is not known; as slow as a wrong password, and never right. */
  async verify(user: string, text: string | undefined, password: Buffer): Promise<VerifyAnswer> {
    const stored = parsePasswordHash(text ?? decoy);
    if (stored === undefined) return "wrong";
    const digest = this.#digest(user, text ?? "", password);
    const untilMs = this.#remembered.get(digest)?.untilMs ?? 0;
    if (untilMs > this.#clock.elapsedMs()) return "right";
    if (!(await this.#enter())) return "busy";
    try {
      const isRight = (await verifyPassword(stored, password)) && text !== undefined;
      if (!isRight) return "wrong";
      this.#remembered.set(digest, {
        untilMs: this.#clock.elapsedMs() + this.#settings.rememberMs,
      });
      return "right";
    } finally {
      this.#leave();
    }
  }

  #digest(user: string, text: string, password: Buffer): string {
    const hmac = createHmac("sha256", this.#key);
    // Lengths first: no two different triples are the same bytes.
    hmac.update(`${Buffer.byteLength(user)}:${Buffer.byteLength(text)}:`);
    return hmac.update(user).update(text).update(password).digest("base64");
  }

  /** False: too many wait already. */
  async #enter(): Promise<boolean> {
    if (this.#hashing < this.#settings.hashingMax) {
      this.#hashing++;
      return true;
    }
    if (this.#waiting.length >= this.#settings.waitingMax) return false;
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
    return true;
  }

  /** The place goes to the next who waits. */
  #leave(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#hashing--;
    else next();
  }
}
