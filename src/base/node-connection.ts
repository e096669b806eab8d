// Connections on sockets of Node: TCP, Unix and TLS ones, whose bytes are MQTT's as they come; and
// staged ones, whose bytes begin after a handshake.
//
// Invariant: an error of a socket reaches its owner through `onClose` only, once.

import type net from "node:net";
import { toError } from "./errors.ts";
import {
  type ByteConnection,
  type ConnectionHandlers,
  formatAddress,
  networkErrors,
  type PeerCertificate,
} from "./network.ts";

export type Accept = (connection: ByteConnection) => ConnectionHandlers;

export class NodeConnection implements ByteConnection {
  readonly remote: string;
  readonly certificate: PeerCertificate | undefined;
  readonly #socket: net.Socket;
  #handlers: ConnectionHandlers | undefined;
  #isClosing = false;
  #awaitsDrain = false;
  #error: Error | undefined;

  constructor(socket: net.Socket, remote: string, certificate?: PeerCertificate) {
    this.#socket = socket;
    this.remote = remote;
    this.certificate = certificate;
  }

  /** Starts to report. Called in the turn in which the socket was made: no event is missed. */
  serve(handlers: ConnectionHandlers): void {
    this.#handlers = handlers;
    const socket = this.#socket;
    socket.on("data", (bytes: Buffer) => {
      if (!socket.destroyed) handlers.onData(bytes);
    });
    socket.on("error", (error) => {
      this.#error = networkErrors.failed({ address: this.remote, errno: errnoOf(error) }, error);
    });
    socket.on("close", () => {
      this.#isClosing = true;
      handlers.onClose(this.#error);
    });
  }

  get unsentBytes(): number {
    return this.#socket.writableLength;
  }

  write(bytes: Uint8Array): void {
    if (this.#isClosing || !this.#socket.writable || bytes.length === 0) return;
    this.#socket.write(bytes, this.#flushed);
    this.#awaitsDrain ||= this.#socket.writableLength > 0;
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  end(): void {
    this.#isClosing = true;
    this.#socket.end();
  }

  destroy(): void {
    this.#isClosing = true;
    this.#socket.destroy();
  }

  // Node's own "drain" comes only after more than 16 KiB; this one function serves all writes, so
  // that node can report the finished ones together.
  readonly #flushed = (): void => {
    if (!this.#awaitsDrain || this.#socket.writableLength > 0 || this.#socket.destroyed) return;
    this.#awaitsDrain = false;
    this.#handlers?.onDrain();
  };
}

/** A connection that can be given its handlers: what a handshake ends in. */
export type Served = ByteConnection & { serve(handlers: ConnectionHandlers): void };

/** A connection from the moment of its accept: until `become` it can only be given up. */
export class StagedConnection implements ByteConnection {
  readonly remote: string;
  readonly #socket: net.Socket;
  #handlers: ConnectionHandlers | undefined;
  #inner: Served | undefined;
  #isPaused = false;
  #isAdmitted = false;
  #error: Error | undefined;

  constructor(socket: net.Socket, remote: string) {
    this.#socket = socket;
    this.remote = remote;
  }

  serve(handlers: ConnectionHandlers): void {
    this.#handlers = handlers;
    const socket = this.#socket;
    socket.on("error", (error) => {
      this.#error ??= networkErrors.failed({ address: this.remote, errno: errnoOf(error) }, error);
    });
    socket.once("close", () => {
      if (this.#inner === undefined) handlers.onClose(this.#error);
    });
  }

  /** The handshake is done. */
  become(inner: Served): void {
    if (this.#handlers === undefined || this.#socket.destroyed) {
      inner.destroy();
      return;
    }
    this.#inner = inner;
    inner.serve(this.#handlers);
    if (this.#isPaused) inner.pause();
    if (this.#isAdmitted) inner.admitted?.();
  }

  /** The handshake failed. */
  fail(reason: string): void {
    this.#error ??= networkErrors.refusedPeer({ address: this.remote, reason });
    this.#socket.destroy();
  }

  get certificate(): PeerCertificate | undefined {
    return this.#inner?.certificate;
  }

  get unsentBytes(): number {
    return this.#inner?.unsentBytes ?? 0;
  }

  admitted(): void {
    this.#isAdmitted = true;
    this.#inner?.admitted?.();
  }

  write(bytes: Uint8Array): void {
    this.#inner?.write(bytes);
  }

  pause(): void {
    this.#isPaused = true;
    this.#inner?.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#inner?.resume();
  }

  end(): void {
    if (this.#inner === undefined) this.#socket.destroy();
    else this.#inner.end();
  }

  destroy(): void {
    this.#inner?.destroy();
    this.#socket.destroy();
  }
}

export function remoteOf(socket: net.Socket): string {
  const { remoteAddress, remotePort } = socket;
  if (remoteAddress === undefined || remotePort === undefined) return "unix";
  return formatAddress({ host: remoteAddress, port: remotePort });
}

export function errnoOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : toError(error).message;
}
