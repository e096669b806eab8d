// Mutual TLS between hosts: the network port on node:tls. Both sides show a certificate of the
// cluster's authority; whom it must name is judged by the transport, which knows the members.
//
// Keeps: no byte passes before both certificates are verified; an error of a socket reaches its
// owner through `onClose` only, once; handshakes that fail are counted by the listener.

import tls from "node:tls";
import {
  type ConnectionHandlers,
  formatAddress,
  type ListenAddress,
  type Listener,
  type Network,
  networkErrors,
  toError,
} from "../../base/index.ts";
import type { NamedConnection } from "./stream-transport.ts";

/** PEM texts. */
export type PeerCertificates = {
  readonly certificate: string;
  readonly key: string;
  /** The authority whose certificates are taken, and no other. */
  readonly authority: string;
};

type Open = (connection: NamedConnection) => ConnectionHandlers;

export function createTlsNetwork({ certificate, key, authority }: PeerCertificates): Network {
  const pair = { cert: certificate, key, ca: authority, minVersion: "TLSv1.3" as const };
  return {
    listen: (address, accept) => listen(pair, address, accept),
    connect: (address, open) => connect(pair, address, open),
  };
}

type Pair = Pick<tls.SecureContextOptions, "cert" | "key" | "ca" | "minVersion">;

const handshakeTimeoutMs = 5_000;

function listen(pair: Pair, address: ListenAddress, accept: Open): Promise<Listener> {
  const rules = {
    requestCert: true,
    rejectUnauthorized: true,
    handshakeTimeout: handshakeTimeoutMs,
  };
  const server = tls.createServer({ ...pair, ...rules, noDelay: true }, (socket) => {
    attach(socket, accept);
  });
  let failedAccepts = 0;
  server.on("tlsClientError", (_error, socket) => {
    failedAccepts++;
    socket.destroy();
  });
  return new Promise((resolve, reject) => {
    const details = { address: formatAddress(address) };
    server.once("error", (error: NodeJS.ErrnoException) => {
      const isTaken = error.code === "EADDRINUSE";
      const make = isTaken ? networkErrors.addressInUse : networkErrors.addressInvalid;
      reject(make({ ...details, errno: error.code }, error));
    });
    server.listen({ ...address }, () => {
      server.removeAllListeners("error");
      server.on("error", () => {
        failedAccepts++;
      });
      const bound = server.address();
      const isPath = bound === null || typeof bound === "string";
      resolve({
        address: isPath ? { path: bound ?? "" } : { host: bound.address, port: bound.port },
        get failedAccepts() {
          return failedAccepts;
        },
        close: async () => {
          server.close();
        },
      });
    });
  });
}

function connect(pair: Pair, address: ListenAddress, open: Open): Promise<NamedConnection> {
  return new Promise((resolve, reject) => {
    // Hosts have many names; the transport compares the member's.
    const rules = { checkServerIdentity: () => undefined, rejectUnauthorized: true };
    const socket = tls.connect({ ...pair, ...address, ...rules });
    socket.setTimeout(handshakeTimeoutMs, () =>
      socket.destroy(new Error("handshake took too long")),
    );
    const fail = (cause: Error): void => {
      const errno = "code" in cause ? cause.code : cause.message;
      const details = { address: formatAddress(address), errno };
      const make = errno === "ECONNREFUSED" ? networkErrors.refused : networkErrors.failed;
      reject(make(details, cause));
    };
    socket.once("error", fail);
    socket.once("close", () => fail(new Error("closed in the handshake")));
    socket.once("secureConnect", () => {
      socket.setTimeout(0);
      socket.setNoDelay(true);
      socket.removeListener("error", fail);
      resolve(attach(socket, open));
    });
  });
}

function attach(socket: tls.TLSSocket, open: Open): NamedConnection {
  let isClosing = false;
  let error: Error | undefined;
  const remote = socket.remoteAddress
    ? formatAddress({ host: socket.remoteAddress, port: socket.remotePort ?? 0 })
    : "unix";
  const connection: NamedConnection = {
    remote,
    peerNames: namesOf(socket),
    get unsentBytes() {
      return socket.writableLength;
    },
    write: (bytes) => {
      if (!isClosing && socket.writable && bytes.length > 0) socket.write(bytes);
    },
    pause: () => {
      socket.pause();
    },
    resume: () => {
      socket.resume();
    },
    end: () => {
      isClosing = true;
      socket.end();
    },
    destroy: () => {
      isClosing = true;
      socket.destroy();
    },
  };
  const handlers = open(connection);
  socket.on("data", (bytes: Buffer) => {
    if (!socket.destroyed) handlers.onData(bytes);
  });
  socket.on("drain", () => handlers.onDrain());
  socket.on("error", (cause) => {
    error = networkErrors.failed({ address: remote, errno: toError(cause).message }, cause);
  });
  socket.on("close", () => {
    isClosing = true;
    handlers.onClose(error);
  });
  return connection;
}

/** The common name and the DNS names of a verified certificate. */
function namesOf(socket: tls.TLSSocket): string[] {
  const { subject, subjectaltname } = socket.getPeerCertificate();
  const names = (subjectaltname ?? "").split(", ").filter((item) => item.startsWith("DNS:"));
  const common: unknown = subject?.CN;
  const found = names.map((item) => item.slice("DNS:".length));
  return typeof common === "string" ? [common, ...found] : found;
}
