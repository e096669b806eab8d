// The real network: TCP and Unix sockets on node:net, Nagle's algorithm off, with what may stand
// between them and MQTT: PROXY header, TLS, WebSocket.
//
// Invariant: a listener's errors after it listens are counted, since nothing useful can be done
// about one failed accept.

import fs from "node:fs";
import net from "node:net";
import { parentDir } from "./disk.ts";
import {
  type ByteConnection,
  formatAddress,
  type ListenAddress,
  type Listener,
  type ListenOptions,
  type Network,
  networkErrors,
  type PeerCertificate,
  type TlsMaterial,
} from "./network.ts";
import {
  type Accept,
  errnoOf,
  NodeConnection,
  remoteOf,
  StagedConnection,
} from "./node-connection.ts";
import { ProxyDoor } from "./node-proxy.ts";
import { TlsDoor } from "./node-tls.ts";
import { WebSocketDoor } from "./node-websocket.ts";

/**
 * Connections that the system holds until a turn of the event loop takes them; Node's own 511 is less
 * than what comes back at once behind a restart. Those beyond try again after a second, then after
 * two. The system may bound it further (`net.core.somaxconn`).
 */
const waitingAcceptsMax = 4096;

export const nodeNetwork: Network = { listen, connect };

async function listen(
  address: ListenAddress,
  accept: Accept,
  options: ListenOptions = {},
): Promise<Listener> {
  const door = new Door(accept, options);
  try {
    return await listenOnce(address, door);
  } catch (error) {
    const isStale =
      "path" in address && errnoOf(error) === "EADDRINUSE" && (await isDeserted(address));
    if (!isStale) throw listenError(address, error);
    fs.unlinkSync(address.path);
  }
  try {
    return await listenOnce(address, door);
  } catch (error) {
    throw listenError(address, error);
  }
}

/**
 * Silence after which the system asks whether a peer is still there. MQTT's own keep alive may be
 * off, or eighteen hours; a peer that lost its power would hold its descriptor for as long.
 */
const probeAfterMs = 60_000;

function listenOnce(address: ListenAddress, door: Door): Promise<Listener> {
  return new Promise((resolve, reject) => {
    const options = { noDelay: true, keepAlive: true, keepAliveInitialDelay: probeAfterMs };
    const server = net.createServer(options, (socket) => door.open(socket));
    server.once("error", reject);
    server.listen({ ...address, backlog: waitingAcceptsMax }, () => {
      server.off("error", reject);
      resolve(new NodeListener(server, door));
    });
  });
}

/** The way of a socket from its accept to its connection. */
class Door {
  readonly #accept: Accept;
  readonly #refused: (remote: string, reason: string) => void;
  readonly #proxy: ProxyDoor | undefined;
  readonly #tls: TlsDoor | undefined;
  readonly #webSocket: WebSocketDoor | undefined;

  /** @throws NETWORK_TLS_INVALID. */
  constructor(accept: Accept, options: ListenOptions) {
    const { proxy, tls, webSocket, refused = () => undefined } = options;
    this.#accept = accept;
    this.#refused = refused;
    this.#proxy =
      proxy && new ProxyDoor(proxy, (socket, reason) => refused(remoteOf(socket), reason));
    this.#tls = tls && new TlsDoor(tls);
    this.#webSocket = webSocket && new WebSocketDoor(webSocket);
  }

  setTls(material: TlsMaterial): void {
    this.#tls?.setMaterial(material);
  }

  open(socket: net.Socket): void {
    if (this.#proxy === undefined) {
      this.#enter(socket, remoteOf(socket), undefined);
      return;
    }
    const own = remoteOf(socket);
    this.#proxy.read(socket, (header) => {
      const { source, commonName } = header ?? {};
      const remote = source === undefined ? own : formatAddress(source);
      this.#enter(
        socket,
        remote,
        commonName === undefined ? undefined : behindBalancer(commonName),
      );
      // TLS takes what was put back by itself; a stream that flows already would drop it.
      if (header !== undefined && this.#tls === undefined) socket.resume();
    });
  }

  #enter(socket: net.Socket, remote: string, told: PeerCertificate | undefined): void {
    if (this.#tls === undefined && this.#webSocket === undefined) {
      const connection = new NodeConnection(socket, remote, told);
      connection.serve(this.#accept(connection));
      return;
    }
    const staged = new StagedConnection(socket, remote);
    staged.serve(this.#accept(staged));
    if (socket.destroyed) return;
    if (this.#tls === undefined) {
      this.#enterWebSocket(socket, staged, told);
      return;
    }
    this.#tls.handle(socket, {
      done: (secure, certificate = told) => {
        if (this.#webSocket === undefined) {
          staged.become(new NodeConnection(secure, remote, certificate));
        } else {
          this.#enterWebSocket(secure, staged, certificate);
        }
      },
      failed: (reason) => this.#fail(staged, `TLS: ${reason}`),
    });
  }

  #enterWebSocket(
    socket: net.Socket,
    staged: StagedConnection,
    certificate: PeerCertificate | undefined,
  ): void {
    const { remote } = staged;
    const upgrade = {
      done: (connection: Parameters<StagedConnection["become"]>[0]) => staged.become(connection),
      failed: (reason: string) => this.#refused(remote, `WebSocket: ${reason}`),
    };
    this.#webSocket?.handle(socket, { upgrade, remote, certificate });
  }

  #fail(staged: StagedConnection, reason: string): void {
    this.#refused(staged.remote, reason);
    staged.fail(reason);
  }
}

function behindBalancer(commonName: string): PeerCertificate {
  return { commonName, alternativeNames: [], fingerprint: undefined };
}

class NodeListener implements Listener {
  readonly address: ListenAddress;
  readonly #server: net.Server;
  readonly #door: Door;
  failedAccepts = 0;

  constructor(server: net.Server, door: Door) {
    this.#server = server;
    this.#door = door;
    const bound = server.address();
    if (bound === null || typeof bound === "string") this.address = { path: bound ?? "" };
    else this.address = { host: bound.address, port: bound.port };
    server.on("error", () => {
      this.failedAccepts++;
    });
  }

  setTls(material: TlsMaterial): void {
    this.#door.setTls(material);
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
  const connection = new NodeConnection(socket, remoteOf(socket));
  connection.serve(open(connection));
  return connection;
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
