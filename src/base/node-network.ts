// The real network: TCP and Unix sockets on node:net, Nagle's algorithm off.
//
// Invariants: an error of a socket reaches its owner through `onClose` only, once; a listener's
// errors after it listens are counted, since nothing useful can be done about one failed accept.
// TLS, WebSocket and the PROXY header are left to the broker.

import fs from "node:fs";
import net from "node:net";
import { parentDir } from "./disk.ts";
import { toError } from "./errors.ts";
import {
  type ByteConnection,
  type ConnectionHandlers,
  formatAddress,
  type ListenAddress,
  type Listener,
  type Network,
  networkErrors,
} from "./network.ts";

type Accept = (connection: ByteConnection) => ConnectionHandlers;

export const nodeNetwork: Network = { listen, connect };

async function listen(address: ListenAddress, accept: Accept): Promise<Listener> {
  try {
    return await listenOnce(address, accept);
  } catch (error) {
    const isStale =
      "path" in address && errnoOf(error) === "EADDRINUSE" && (await isDeserted(address));
    if (!isStale) throw listenError(address, error);
    fs.unlinkSync(address.path);
  }
  try {
    return await listenOnce(address, accept);
  } catch (error) {
    throw listenError(address, error);
  }
}

function listenOnce(address: ListenAddress, accept: Accept): Promise<Listener> {
  return new Promise((resolve, reject) => {
    const server = net.createServer({ noDelay: true }, (socket) => attach(socket, accept));
    server.once("error", reject);
    server.listen({ ...address }, () => {
      server.off("error", reject);
      resolve(new NodeListener(server));
    });
  });
}

class NodeListener implements Listener {
  readonly address: ListenAddress;
  readonly #server: net.Server;
  failedAccepts = 0;

  constructor(server: net.Server) {
    this.#server = server;
    const bound = server.address();
    if (bound === null || typeof bound === "string") this.address = { path: bound ?? "" };
    else this.address = { host: bound.address, port: bound.port };
    server.on("error", () => {
      this.failedAccepts++;
    });
  }

  // Node's callback waits for the connections to end; the descriptor is closed in the call itself.
  async close(): Promise<void> {
    this.#server.close();
  }
}

function connect(address: ListenAddress, open: Accept): Promise<ByteConnection> {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ ...address, noDelay: true });
    const fail = (error: Error): void => reject(connectError(address, error));
    socket.once("error", fail);
    socket.once("connect", () => {
      socket.off("error", fail);
      resolve(attach(socket, open));
    });
  });
}

function attach(socket: net.Socket, open: Accept): ByteConnection {
  const connection = new NodeConnection(socket);
  connection.serve(open(connection));
  return connection;
}

class NodeConnection implements ByteConnection {
  readonly remote: string;
  readonly #socket: net.Socket;
  #handlers: ConnectionHandlers | undefined;
  #isClosing = false;
  #awaitsDrain = false;
  #error: Error | undefined;

  constructor(socket: net.Socket) {
    this.#socket = socket;
    this.remote = remoteOf(socket);
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

function remoteOf(socket: net.Socket): string {
  const { remoteAddress, remotePort } = socket;
  if (remoteAddress === undefined || remotePort === undefined) return "unix";
  return formatAddress({ host: remoteAddress, port: remotePort });
}

/** Whether it is a socket nobody answers at. A plain file refuses connections too: it is kept. */
async function isDeserted(address: { readonly path: string }): Promise<boolean> {
  if (!(await fs.promises.lstat(address.path)).isSocket()) return false;
  return new Promise((resolve) => {
    const socket = net.connect({ path: address.path });
    socket.once("connect", () => {
      socket.destroy();
      resolve(false);
    });
    socket.once("error", (error) => resolve(errnoOf(error) === "ECONNREFUSED"));
  });
}

function errnoOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : toError(error).message;
}

function listenError(address: ListenAddress, cause: unknown): Error {
  const details = { address: formatAddress(address), errno: errnoOf(cause) };
  switch (details.errno) {
    case "EADDRINUSE":
      return networkErrors.addressInUse(details, cause);
    case "EADDRNOTAVAIL":
    case "EINVAL":
    case "ENOTFOUND":
    case "EAFNOSUPPORT":
    case "ENOENT":
      return networkErrors.addressInvalid(details, cause);
    case "EACCES":
    case "EPERM":
      // libuv says EACCES for a socket in a folder that does not exist.
      return "path" in address && !fs.existsSync(parentDir(address.path))
        ? networkErrors.addressInvalid(details, cause)
        : networkErrors.denied(details, cause);
    default:
      return networkErrors.failed(details, cause);
  }
}

function connectError(address: ListenAddress, cause: unknown): Error {
  const details = { address: formatAddress(address), errno: errnoOf(cause) };
  switch (details.errno) {
    case "ECONNREFUSED":
    case "ENOENT":
      return networkErrors.refused(details, cause);
    case "EACCES":
    case "EPERM":
      return networkErrors.denied(details, cause);
    default:
      return networkErrors.failed(details, cause);
  }
}
