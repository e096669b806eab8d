// The server side of TLS. Sockets come from a listener that has accepted them; what becomes of each
// is told by its key, since Node does not say which socket lies below a secure one.

import type net from "node:net";
import tls from "node:tls";
import { systemClock } from "./clock.ts";
import { toError } from "./errors.ts";
import { networkErrors, type PeerCertificate, type TlsMaterial, type TlsRules } from "./network.ts";

export type Handshake = {
  done(socket: tls.TLSSocket, certificate: PeerCertificate | undefined): void;
  failed(reason: string): void;
};

/** The broker cuts whoever has not logged in; this bound is only for what it does not know of. */
const handshakeTimeoutMs = 120_000;

export class TlsDoor {
  readonly #server: tls.Server;
  readonly #rules: TlsRules;
  readonly #waiting = new Map<string, Handshake>();

  /** @throws NETWORK_TLS_INVALID. */
  constructor(rules: TlsRules) {
    this.#rules = rules;
    checkMaterial(rules.material);
    const { clientCertificate } = rules;
    this.#server = tls.createServer({
      ...contextOf(rules, rules.material),
      requestCert: clientCertificate !== "none",
      rejectUnauthorized: clientCertificate === "required",
      handshakeTimeout: handshakeTimeoutMs,
    });
    this.#server.on("secureConnection", (socket) => {
      const handshake = this.#take(socket);
      if (clientCertificate === "required" && hasExpired(socket)) {
        // In this order: Node dies when the socket below goes first, inside of this event.
        socket.destroy();
        handshake?.failed("the client's certificate has expired");
      } else {
        handshake?.done(socket, certificateOf(socket));
      }
    });
    this.#server.on("tlsClientError", (error, socket) => {
      this.#take(socket)?.failed(reasonOf(error));
      socket.destroy();
    });
  }

  handle(socket: net.Socket, handshake: Handshake): void {
    const key = keyOf(socket);
    this.#waiting.set(key, handshake);
    socket.once("close", () => {
      if (this.#waiting.get(key) === handshake) this.#waiting.delete(key);
    });
    this.#server.emit("connection", socket);
  }

  /** @throws NETWORK_TLS_INVALID, and nothing has changed. */
  setMaterial(material: TlsMaterial): void {
    checkMaterial(material);
    this.#server.setSecureContext(contextOf(this.#rules, material));
  }

  #take(socket: net.Socket): Handshake | undefined {
    const key = keyOf(socket);
    const handshake = this.#waiting.get(key);
    this.#waiting.delete(key);
    if (handshake === undefined) socket.destroy();
    return handshake;
  }
}

function keyOf(socket: net.Socket): string {
  return `${socket.remoteAddress}|${socket.remotePort}|${socket.localAddress}|${socket.localPort}`;
}

function contextOf({ versionMin }: TlsRules, { cert, key, ca }: TlsMaterial) {
  return { cert, key, ...(ca !== undefined && { ca }), minVersion: versionMin };
}

function checkMaterial({ cert, key, ca }: TlsMaterial): void {
  if (!/-----BEGIN [A-Z ]*CERTIFICATE-----/.test(cert)) {
    throw networkErrors.tlsInvalid({ reason: "the certificate file holds no PEM certificate" });
  }
  if (!/-----BEGIN [A-Z ]*PRIVATE KEY-----/.test(key)) {
    throw networkErrors.tlsInvalid({ reason: "the key file holds no PEM private key" });
  }
  try {
    tls.createSecureContext({ cert, key, ...(ca !== undefined && { ca }) });
  } catch (error) {
    throw networkErrors.tlsInvalid({ reason: toError(error).message }, error);
  }
}

/** Nobody looks at its dates again when a session is resumed, and each resumption renews the ticket. */
function hasExpired(socket: tls.TLSSocket): boolean {
  const { valid_to } = socket.getPeerCertificate();
  return valid_to !== undefined && Date.parse(valid_to) * 1000 < systemClock.wallUs();
}

function certificateOf(socket: tls.TLSSocket): PeerCertificate | undefined {
  if (!socket.authorized || hasExpired(socket)) return undefined;
  const { subject, subjectaltname, fingerprint256 } = socket.getPeerCertificate();
  if (subject === undefined) return undefined;
  const commonName: unknown = subject.CN;
  return {
    // Several common names are no identity.
    commonName: typeof commonName === "string" && commonName !== "" ? commonName : undefined,
    alternativeNames: alternativeNames(subjectaltname ?? ""),
    fingerprint: fingerprint256,
  };
}

/** `DNS:a.example, IP Address:10.0.0.1`: names with a quote or comma inside are left out. */
function alternativeNames(text: string): string[] {
  return text.split(", ").flatMap((item) => {
    const value = item.slice(item.indexOf(":") + 1);
    return value === "" || value.includes('"') ? [] : [value];
  });
}

function reasonOf(error: Error): string {
  return "code" in error && error.code !== undefined ? String(error.code) : error.message;
}
