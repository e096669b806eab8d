// Keys that tokens are signed with: a shared secret, a file, or a URL that is asked again and again,
// and at once when a token names a key that is not known yet. What was good stays until something
// better comes.

import { type Cancel, type Clock, type Logger, toError } from "../../base/index.ts";
import { type JwtKeys, keysOfSecret, RotatingKeys } from "../../broker/index.ts";
import type { Settings } from "../config/keys.ts";
import { readSecurityFile } from "./files.ts";
import { reasonOf, request } from "./http.ts";

export interface TokenKeys {
  readonly current: JwtKeys | undefined;
  /**
   * Reads them again; what comes of it holds once the result is called. A URL's keys rotate by
   * themselves, and hold at once. @throws what reading and parsing throw; the old ones stay.
   */
  prepare(): Promise<() => void>;
  close(): void;
}

/** After a failure, and between two fetches for the sake of unknown keys. */
const retryMs = 10_000;
const fetchTimeoutMs = 10_000;

type Jwt = Settings["authentication"]["jwt"];

/** @throws when a secret or file cannot be used; a URL may fail for now. */
export async function openTokenKeys(jwt: Jwt, clock: Clock, logger: Logger): Promise<TokenKeys> {
  if (jwt.secret !== "") {
    const current = keysOfSecret(jwt.secret);
    return { current, prepare: async () => nothing, close: nothing };
  }
  if (jwt.jwksFile !== "") {
    const keys = new RotatingKeys();
    const prepare = async () => keys.prepare(await readSecurityFile(jwt.jwksFile));
    (await prepare())();
    return {
      get current() {
        return keys.current;
      },
      prepare,
      close: nothing,
    };
  }
  const fetched = new FetchedKeys(jwt, clock, logger);
  await fetched.start();
  return fetched;
}

const nothing = (): void => undefined;

class FetchedKeys implements TokenKeys {
  readonly #jwt: Jwt;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #keys = new RotatingKeys();
  #fetchedMs = Number.NEGATIVE_INFINITY;
  #fetching: Promise<boolean> | undefined;
  #cancel: Cancel | undefined;
  #isClosed = false;

  constructor(jwt: Jwt, clock: Clock, logger: Logger) {
    this.#jwt = jwt;
    this.#clock = clock;
    this.#logger = logger;
  }

  get current(): JwtKeys | undefined {
    const known = this.#keys.current;
    if (known === undefined) return undefined;
    return async (header, token) => {
      try {
        return await known(header, token);
      } catch (error) {
        if (!isUnknownKey(error) || !(await this.#fetchForUnknown())) throw error;
        return (this.#keys.current ?? known)(header, token);
      }
    };
  }

  async start(): Promise<void> {
    const isGood = await this.#fetch();
    if (this.#isClosed) return;
    this.#cancel = this.#clock.schedule(isGood ? this.#jwt.refreshMs : retryMs, () => {
      this.start().catch(() => undefined); // it never rejects
    });
  }

  async prepare(): Promise<() => void> {
    await this.#fetch();
    return nothing;
  }

  close(): void {
    this.#isClosed = true;
    this.#cancel?.();
  }

  /** Not for every token that somebody makes up. */
  async #fetchForUnknown(): Promise<boolean> {
    if (this.#fetching !== undefined) return this.#fetching;
    if (this.#clock.elapsedMs() - this.#fetchedMs < retryMs) return false;
    return this.#fetch();
  }

  #fetch(): Promise<boolean> {
    this.#fetching ??= this.#fetchOnce().finally(() => {
      this.#fetching = undefined;
    });
    return this.#fetching;
  }

  async #fetchOnce(): Promise<boolean> {
    this.#fetchedMs = this.#clock.elapsedMs();
    try {
      const { status, text } = await request({
        url: this.#jwt.jwksUrl,
        timeoutMs: fetchTimeoutMs,
      });
      if (status !== 200) throw new Error(`status ${status}`);
      if (await this.#keys.set(text)) this.#logger.info("node.token_keys_changed");
      return true;
    } catch (error) {
      this.#logger.error("node.token_keys_unavailable", { reason: reasonOf(error) });
      return false;
    }
  }
}

function isUnknownKey(error: unknown): boolean {
  return (
    "code" in toError(error) && (error as { code: unknown }).code === "ERR_JWKS_NO_MATCHING_KEY"
  );
}
