// Certificates of listeners, read again by content: a pair that has changed on disk is used for new
// handshakes within seconds, one that does not fit is told once and changes nothing. One that ends soon
// is told once a day.

import { createHash, createPrivateKey, X509Certificate } from "node:crypto";
import {
  type Cancel,
  type Clock,
  type Logger,
  type TlsMaterial,
  toError,
} from "../../base/index.ts";
import type { Settings } from "../config/keys.ts";
import { nodeErrors } from "../errors.ts";
import { readSecurityFile, warnWhenOpen } from "./files.ts";

type Tls = Settings["listeners"][string]["tls"];
type SetTls = (material: TlsMaterial) => void;

const lookMs = 5000;

type Watched = {
  readonly name: string;
  readonly tls: Tls;
  readonly set: SetTls;
  /** Of the last material that was tried, good or bad. */
  tried: string;
  /** Of the material in use. */
  used: string;
  /** Of the material in use. */
  expiresMs: number;
  /** Why what lies there now is not taken. */
  fault: { readonly reason: string; readonly sinceMs: number } | undefined;
};

export type ListenerCertificate = {
  readonly listener: string;
  /** Wall clock: the first end of a certificate in its chain. */
  readonly expiresMs: number;
  /** Of files that are not taken; what was used before goes on being used. */
  readonly fault?: { readonly reason: string; readonly sinceMs: number } | undefined;
};

/** A fortnight: time for whoever renews by hand; those that renew by themselves are done by then. */
export const certificateWarnMs = 14 * 24 * 3600 * 1000;
const dayMs = 24 * 3600 * 1000;

/** @throws NODE_SECURITY_FILE_UNREADABLE. */
export async function readMaterial(tls: Tls): Promise<TlsMaterial> {
  const [cert, key] = [await readSecurityFile(tls.cert), await readSecurityFile(tls.key)];
  const ca = tls.clientCa === "" ? undefined : await readSecurityFile(tls.clientCa);
  return { cert, key, ca };
}

export class CertificateWatch {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #watched: Watched[] = [];
  /** When an end was told last, by listener. */
  readonly #toldMs = new Map<string, number>();
  #cancel: Cancel | undefined;
  #isClosed = false;

  constructor(clock: Clock, logger: Logger) {
    this.#clock = clock;
    this.#logger = logger;
  }

  async watch(name: string, tls: Tls, material: TlsMaterial, set: SetTls): Promise<void> {
    const expiresMs = checkedExpiryMs(tls, material);
    const digest = digestOf(material);
    const fault = undefined;
    this.#watched.push({ name, tls, set, tried: digest, used: digest, expiresMs, fault });
    this.#tellExpiry();
    await warnWhenOpen(tls.key, "secret", this.#logger);
    for (const path of [tls.cert, tls.clientCa]) {
      if (path !== "") await warnWhenOpen(path, "public", this.#logger);
    }
    this.#cancel ??= this.#later();
  }

  /** The certificates in use, for metrics and alarms. */
  list(): readonly ListenerCertificate[] {
    return this.#watched.map(({ name, expiresMs, fault }) => ({
      listener: name,
      expiresMs,
      fault,
    }));
  }

  /** Looks at all files now; the result names the listeners whose certificate has changed. */
  async look(): Promise<readonly string[]> {
    const changed: string[] = [];
    for (const watched of this.#watched)
      if (await this.#lookAt(watched)) changed.push(watched.name);
    this.#tellExpiry();
    return changed;
  }

  /** @throws NODE_CERTIFICATE_REFUSED when what lies there is not what is used. */
  demandGood(): void {
    for (const { name, fault } of this.#watched) {
      if (fault === undefined) continue;
      throw nodeErrors.certificateRefused({ listener: name, reason: fault.reason });
    }
  }

  close(): void {
    this.#isClosed = true;
    this.#cancel?.();
  }

  async #lookAt(watched: Watched): Promise<boolean> {
    const { name, tls, set } = watched;
    try {
      const material = await readMaterial(tls);
      const digest = digestOf(material);
      if (digest === watched.used) watched.fault = undefined;
      if (digest === watched.tried) return false;
      watched.tried = digest;
      const expiresMs = checkedExpiryMs(tls, material);
      readable(tls.cert, "TLS does not take it", () => set(material));
      watched.used = digest;
      watched.expiresMs = expiresMs;
      watched.fault = undefined;
      this.#logger.info("node.certificate_changed", { listener: name });
      return true;
    } catch (error) {
      const reason = toError(error).message;
      const sinceMs = watched.fault?.sinceMs ?? Math.floor(this.#clock.wallUs() / 1000);
      watched.fault = { reason, sinceMs };
      this.#logger.error("node.certificate_refused", { listener: name, reason });
      return false;
    }
  }

  #tellExpiry(): void {
    const nowMs = this.#clock.wallUs() / 1000;
    for (const { name, expiresMs } of this.#watched) {
      if (expiresMs - nowMs >= certificateWarnMs) continue;
      if (Math.abs(nowMs - (this.#toldMs.get(name) ?? 0)) < dayMs) continue;
      this.#toldMs.set(name, nowMs);
      const event = expiresMs <= nowMs ? "node.certificate_expired" : "node.certificate_expires";
      this.#logger.warn(event, { listener: name, at: new Date(expiresMs).toISOString() });
    }
  }

  #later(): Cancel {
    return this.#clock.schedule(lookMs, () => {
      const done = (): void => {
        if (!this.#isClosed) this.#cancel = this.#later();
      };
      this.look().then(done, done);
    });
  }
}

const pem = /-----BEGIN ([A-Z ]*)CERTIFICATE-----[^-]+-----END \1CERTIFICATE-----/g;

/**
 * Certificate and key are there and belong together, and so are those of clients' authorities; each
 * fault names the file. A chain is as good as the certificate in it that ends first.
 * @throws NODE_SECURITY_FILE_UNREADABLE.
 */
export function checkedExpiryMs(tls: Tls, { cert, key, ca }: TlsMaterial): number {
  const chain = certificatesIn(tls.cert, cert);
  const privateKey = readable(tls.key, "it holds no private key in PEM", () =>
    createPrivateKey(key),
  );
  // The first of a chain is the server's own.
  if (!chain[0]?.checkPrivateKey(privateKey)) {
    throw unreadable(tls.key, `it is not the key of ${tls.cert}`);
  }
  if (ca !== undefined) certificatesIn(tls.clientCa, ca);
  return Math.min(...chain.map(({ validTo }) => Date.parse(validTo)));
}

function certificatesIn(path: string, text: string): readonly X509Certificate[] {
  const found = text.match(pem) ?? [];
  if (found.length === 0) throw unreadable(path, "it holds no certificate in PEM");
  return readable(path, "it holds a broken certificate", () =>
    found.map((one) => new X509Certificate(one)),
  );
}

function readable<T>(path: string, fault: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw unreadable(path, `${fault}: ${toError(error).message}`, error);
  }
}

function unreadable(path: string, reason: string, cause?: unknown): Error {
  return nodeErrors.securityFileUnreadable({ path, reason }, cause);
}

function digestOf({ cert, key, ca }: TlsMaterial): string {
  return createHash("sha256").update(`${cert}\0${key}\0${ca}`).digest("base64");
}
