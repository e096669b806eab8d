// Guessing, slowed down: who has given too many wrong passwords is refused unseen for the rest of a
// minute, by address and user name together, and with a larger bound by address alone, so that names
// are not tried one after the other either. Nothing is hashed and nobody is asked for those.
//
// Who must not be locked out: others at other addresses, whatever their name; and whoever was let in
// from that address with these same credentials before, which a keyed digest tells.
//
// Both tables are bounded; what was not seen longest is forgotten. They hold digests, no names.

import { createHmac } from "node:crypto";
import { type Clock, createLru, type Lru, type Random } from "../../base/index.ts";
import { addressKey } from "../limits/address.ts";
import type { AuthPort, Exchange, ExchangeStep, Identity, LoginRequest, Verdict } from "./types.ts";

export type ThrottleSettings = {
  /** Wrong logins of one user name from one address in a window; Infinity: any number. */
  readonly failedPerNameMax: number;
  /** Of one address, whatever the names. */
  readonly failedPerAddressMax: number;
  readonly windowMs: number;
  /** Remembered of each kind. */
  readonly rememberedMax: number;
};

export const throttleSettingsDefault: ThrottleSettings = {
  // More than a person mistypes, far fewer than a guesser wants.
  failedPerNameMax: 10,
  // A site of many devices behind one address, some of them set up wrong.
  failedPerAddressMax: 100,
  windowMs: 60_000,
  rememberedMax: 50_000,
};

type Watched = {
  startMs: number;
  failed: number;
  /** Of the credentials that were right last; only of a name at an address. */
  right: string | undefined;
};

const keyBytes = 32;

export class LoginThrottle {
  readonly #settings: ThrottleSettings;
  readonly #clock: Clock;
  readonly #key: Buffer;
  readonly #names: Lru<Watched>;
  readonly #addresses: Lru<Watched>;

  constructor(settings: ThrottleSettings, clock: Clock, random: Random) {
    this.#settings = settings;
    this.#clock = clock;
    this.#key = random.bytes(keyBytes);
    this.#names = createLru(settings.rememberedMax, () => 1);
    this.#addresses = createLru(settings.rememberedMax, () => 1);
  }

  /** Whether a login is not to be looked at now. */
  isHeld(request: LoginRequest): boolean {
    if (!hasShown(request) || this.#addresses.count === 0) return false;
    const { failedPerNameMax, failedPerAddressMax } = this.#settings;
    const ofName = this.#names.get(this.#nameKey(request));
    const isMany =
      this.#failed(ofName) >= failedPerNameMax ||
      this.#failed(this.#addresses.get(addressOf(request))) >= failedPerAddressMax;
    return isMany && (ofName?.right === undefined || ofName.right !== this.#rightOf(request));
  }

  failed(request: LoginRequest): void {
    if (!hasShown(request)) return;
    this.#note(this.#addresses, addressOf(request));
    if (request.userName !== undefined) this.#note(this.#names, this.#nameKey(request));
  }

  /** Of a login by password. */
  succeeded(request: LoginRequest): void {
    if (request.userName === undefined || request.password === undefined) return;
    const right = this.#rightOf(request);
    this.#names.set(this.#nameKey(request), { startMs: 0, failed: 0, right });
  }

  #failed(watched: Watched | undefined): number {
    if (watched === undefined || this.#isOver(watched)) return 0;
    return watched.failed;
  }

  #isOver({ startMs }: Watched): boolean {
    return this.#clock.elapsedMs() - startMs >= this.#settings.windowMs;
  }

  #note(table: Lru<Watched>, key: string): void {
    const known = table.get(key);
    if (known !== undefined && known.failed > 0 && !this.#isOver(known)) {
      known.failed++;
      return;
    }
    table.set(key, { startMs: this.#clock.elapsedMs(), failed: 1, right: known?.right });
  }

  #nameKey(request: LoginRequest): string {
    return this.#digest(addressOf(request), request.userName ?? "");
  }

  #rightOf({ userName = "", password = Buffer.alloc(0) }: LoginRequest): string {
    return this.#digest(userName, password);
  }

  /** Of two parts that cannot flow into each other. */
  #digest(first: string, second: string | Buffer): string {
    const hmac = createHmac("sha256", this.#key).update(`${Buffer.byteLength(first)}:`);
    return hmac.update(first).update(second).digest("base64");
  }
}

/** Who shows nothing guesses nothing. */
function hasShown({ userName, password }: LoginRequest): boolean {
  return userName !== undefined || password !== undefined;
}

/** Everybody on a Unix socket is at one address here. */
function addressOf({ remote }: LoginRequest): string {
  return addressKey(remote) ?? "local";
}

const held = { kind: "held", why: "too many wrong logins before it" } as const;

/** What a listener asks, behind a throttle. One for each connection. */
export class ThrottledAuth implements AuthPort {
  readonly #throttle: LoginThrottle;
  readonly #inner: AuthPort;
  /** Who is in may show that it still is whom it was, whatever others at its address do. */
  #isIn = false;

  constructor(throttle: LoginThrottle, inner: AuthPort) {
    this.#throttle = throttle;
    this.#inner = inner;
  }

  authenticate(request: LoginRequest): Verdict | Promise<Verdict> {
    if (this.#throttle.isHeld(request)) return held;
    const verdict = this.#inner.authenticate(request);
    if (!(verdict instanceof Promise)) return this.#noted(request, verdict);
    return verdict.then((found) => this.#noted(request, found));
  }

  begin(method: string, request: LoginRequest): Exchange | undefined {
    const exchange = this.#inner.begin(method, request);
    if (exchange === undefined) return undefined;
    // Who it is stands in the exchange, not in CONNECT: only the address counts.
    const guess = { ...request, userName: undefined, password: Buffer.alloc(0) };
    return {
      step: (data) => {
        if (!this.#isIn && this.#throttle.isHeld(guess)) return held;
        const step = exchange.step(data);
        if (!(step instanceof Promise)) return this.#stepNoted(guess, step);
        return step.then((found) => this.#stepNoted(guess, found));
      },
    };
  }

  isCurrent(identity: Identity): boolean {
    return this.#inner.isCurrent(identity);
  }

  #noted(request: LoginRequest, verdict: Verdict): Verdict {
    if (verdict.kind === "deny" || verdict.kind === "ignore") this.#throttle.failed(request);
    else if (verdict.kind === "allow") this.#throttle.succeeded(request);
    return verdict;
  }

  #stepNoted(guess: LoginRequest, step: ExchangeStep): ExchangeStep {
    if (step.kind === "failed") this.#throttle.failed(guess);
    else if (step.kind === "done") this.#isIn = true;
    return step;
  }
}
