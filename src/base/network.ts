// The network port: byte-stream connections and listeners. `node-network.ts` drives TCP,
// `sim-network.ts` is the twin whose chunks, delays and cuts come from one seed; it has no TLS,
// WebSocket or PROXY header.
//
// A connection never splits or merges what its owner means: any chunk may hold part of a packet or
// many packets. Bytes passed to `onData` are only valid during the call.

import { defineErrors } from "./errors.ts";

export const networkErrors = defineErrors({
  addressInUse: {
    code: "NETWORK_ADDRESS_IN_USE",
    kind: "invalid",
    message: "cannot listen on {address}: another program does",
    help: "Stop the other program or choose another address.",
  },
  addressInvalid: {
    code: "NETWORK_ADDRESS_INVALID",
    kind: "invalid",
    message: "cannot listen on {address}: this machine has no such address",
    help: "Listen on an address of this machine, on 0.0.0.0 or ::, or in a folder that exists.",
  },
  denied: {
    code: "NETWORK_ACCESS_DENIED",
    kind: "invalid",
    message: "cannot use {address}: not permitted for this user",
    help: "Ports below 1024 and socket folders need rights; choose another address or grant them.",
  },
  refused: {
    code: "NETWORK_REFUSED",
    kind: "retry",
    message: "cannot connect to {address}: nobody listens there",
    help: "Start the other side or check the address.",
  },
  tlsInvalid: {
    code: "NETWORK_TLS_INVALID",
    kind: "invalid",
    message: "certificate or key cannot be used: {reason}",
    help: "Both must be PEM and belong together; a listener keeps the pair that it has.",
  },
  refusedPeer: {
    code: "NETWORK_PEER_REFUSED",
    kind: "invalid",
    message: "connection of {address} refused: {reason}",
    help: "TLS, WebSocket or PROXY header of the peer do not fit the listener's settings.",
  },
  failed: {
    code: "NETWORK_FAILED",
    kind: "retry",
    message: "connection with {address} failed: {errno}",
    help: "Look at the network and the other side; connecting again may help.",
  },
});

/** What a verified client certificate says. */
export type PeerCertificate = {
  readonly commonName: string | undefined;
  /** DNS names, addresses and mail addresses, without their kinds. */
  readonly alternativeNames: readonly string[];
  /** SHA-256 of the certificate, upper-case hex with colons; undefined behind a balancer. */
  readonly fingerprint: string | undefined;
};

export interface ByteConnection {
  /**
   * Address and port of the peer, for logs and limits: `127.0.0.1:50312`, `[::1]:50312`, `unix`.
   * Behind a balancer that sends PROXY headers it is the client's, not the balancer's.
   */
  readonly remote: string;
  /** Once there is data. Undefined: the peer has shown none that we trust. */
  readonly certificate?: PeerCertificate | undefined;
  /** The peer has logged in: bounds that hold for strangers only are lifted. */
  admitted?(): void;
  /** Bytes accepted by `write` that the peer's network has not taken yet. */
  readonly unsentBytes: number;
  /**
   * Queues bytes in order. They belong to the connection, unless `unsentBytes` is 0 after the call:
   * then all are with the network and the memory is the caller's again. No-op after `end`,
   * `destroy` and the close by the peer.
   */
  write(bytes: Uint8Array): void;
  /** Stops `onData` until `resume`; the peer is slowed down by its own network window. */
  pause(): void;
  resume(): void;
  /** Sends what is queued, then closes; `onData` may still come until `onClose`. */
  end(): void;
  /** Closes at once and drops what is queued; no `onData` after it. */
  destroy(): void;
}

export interface ConnectionHandlers {
  onData(bytes: Buffer): void;
  /** `unsentBytes` fell to zero after having been above it. */
  onDrain(): void;
  /**
   * The last call, exactly once, whoever closed and never inside a call of the connection; `error`
   * (NETWORK_FAILED) when the network or the peer cut it off.
   */
  onClose(error: Error | undefined): void;
}

export type ListenAddress =
  | { readonly host: string; readonly port: number }
  | { readonly path: string };

/** PEM texts. */
export type TlsMaterial = {
  readonly cert: string;
  readonly key: string;
  /** Authorities that client certificates are checked against. */
  readonly ca: string | undefined;
};

export type TlsRules = {
  readonly material: TlsMaterial;
  readonly versionMin: "TLSv1.2" | "TLSv1.3";
  readonly clientCertificate: "none" | "optional" | "required";
};

export type WebSocketRules = {
  /** Of the URL; others get 404. */
  readonly path: string;
  /**
   * Origins of web pages that may connect. `*`: all. Empty: pages of the host that they connect to,
   * and of loopback. Clients that are no browsers send none and are not concerned.
   */
  readonly origins: readonly string[];
  /**
   * Peers may log in without credentials. A page in a browser of this machine then counts as one of
   * the same host only by address: a name can be pointed at loopback by whoever owns it.
   */
  readonly isOpen: boolean;
  /** Largest message; it may hold many packets. Beyond: closed with 1009. */
  readonly messageBytesMax: number;
  /** Bytes of a message that is not complete yet, taken from a peer that has not logged in. */
  readonly strangerBytesMax: number;
};

export type ProxyRules = {
  /** Peers that must send a PROXY header first; nobody else's is read. */
  readonly trusts: (host: string) => boolean;
  readonly headerWaitMs: number;
  /** Connections whose header is not complete; beyond they are closed. */
  readonly waitingMax: number;
};

/** What stands between TCP and MQTT, in the order: PROXY header, TLS, WebSocket. */
export type ListenOptions = {
  readonly proxy?: ProxyRules;
  readonly tls?: TlsRules;
  readonly webSocket?: WebSocketRules;
  /** A peer that never became a connection, or whose handshake failed. */
  readonly refused?: (remote: string, reason: string) => void;
};

export interface Listener {
  /** The bound address; a port of 0 is replaced by the one that was given. */
  readonly address: ListenAddress;
  /** Connections the system could not hand over, for want of descriptors for example. */
  readonly failedAccepts: number;
  /**
   * New handshakes use this certificate; connections live on with theirs.
   * @throws NETWORK_TLS_INVALID, and the old one stays.
   */
  setTls?(material: TlsMaterial): void;
  /** Stops accepting and frees the address. Connections already accepted live on. */
  close(): Promise<void>;
}

export interface Network {
  /**
   * A socket file that nobody listens on any more (its process was killed) is replaced.
   * `accept` is called before the handshakes of TLS and WebSocket, so that limits count them.
   * @throws NETWORK_ADDRESS_IN_USE, NETWORK_ADDRESS_INVALID, NETWORK_ACCESS_DENIED,
   * NETWORK_TLS_INVALID, NETWORK_FAILED.
   */
  listen(
    address: ListenAddress,
    accept: (connection: ByteConnection) => ConnectionHandlers,
    options?: ListenOptions,
  ): Promise<Listener>;
  /** @throws NETWORK_REFUSED, NETWORK_ACCESS_DENIED, NETWORK_FAILED. */
  connect(
    address: ListenAddress,
    open: (connection: ByteConnection) => ConnectionHandlers,
  ): Promise<ByteConnection>;
}

/** An address as people write it: `127.0.0.1:1883`, `[::1]:1883`, `/run/flagstone.sock`. */
export function formatAddress(address: ListenAddress): string {
  if ("path" in address) return address.path;
  return address.host.includes(":")
    ? `[${address.host}]:${address.port}`
    : `${address.host}:${address.port}`;
}
