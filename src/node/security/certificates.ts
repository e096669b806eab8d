// Certificates of listeners, read again by content: a pair that has changed on disk is used for new
// handshakes within seconds, one that does not fit is told once and changes nothing.

import { createHash, X509Certificate } from "node:crypto";
import {
  type Cancel,
  type Clock,
  type Logger,
  type TlsMaterial,
  toError,
} from "../../base/index.ts";
import type { Settings } from "../config/keys.ts";
import { readSecurityFile, warnWhenOpen } from "./files.ts";

type Tls = Settings["listeners"][string]["tls"];
type SetTls = (material: TlsMaterial) => void;

const lookMs = 5000;

type Watched = {
  readonly name: string;
  readonly tls: Tls;
  readonly set: SetTls;
  /** Of the last material that was tried, good or bad. */
  digest: string;
};

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
  #cancel: Cancel | undefined;
  #isClosed = false;

  constructor(clock: Clock, logger: Logger) {
    this.#clock = clock;
    this.#logger = logger;
  }

  async watch(name: string, tls: Tls, material: TlsMaterial, set: SetTls): Promise<void> {
    this.#watched.push({ name, tls, set, digest: digestOf(material) });
    await warnWhenOpen(tls.key, this.#logger);
    this.#cancel ??= this.#later();
  }

  /** When the certificate that is used expires, by listener; for metrics and alarms. */
  readonly expiresMs = new Map<string, number>();

  noteExpiry(name: string, { cert }: TlsMaterial): void {
    this.expiresMs.set(name, Date.parse(new X509Certificate(cert).validTo));
  }

  /** Looks at all files now; the result names the listeners whose certificate has changed. */
  async look(): Promise<readonly string[]> {
    const changed: string[] = [];
    for (const watched of this.#watched)
      if (await this.#lookAt(watched)) changed.push(watched.name);
    return changed;
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
      if (digest === watched.digest) return false;
      watched.digest = digest;
      set(material);
      this.noteExpiry(name, material);
      this.#logger.info("node.certificate_changed", { listener: name });
      return true;
    } catch (error) {
      this.#logger.error("node.certificate_refused", {
        listener: name,
        reason: toError(error).message,
      });
      return false;
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

function digestOf({ cert, key, ca }: TlsMaterial): string {
  return createHash("sha256").update(`${cert}\0${key}\0${ca}`).digest("base64");
}
