// The network port: byte-stream connections and listeners. `node-network.ts` drives TCP,
// `sim-network.ts` is the twin whose chunks, delays and cuts come from one seed.
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
  failed: {
    code: "NETWORK_FAILED",
    kind: "retry",
    message: "connection with {address} failed: {errno}",
    help: "Look at the network and the other side; connecting again may help.",
  },
});

export interface ByteConnection {
  /**
   * Address and port of the peer, for logs and limits: `127.0.0.1:50312`, `[::1]:50312`, `unix`.
   */
  readonly remote: string;
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

export interface Listener {
  /** The bound address; a port of 0 is replaced by the one that was given. */
  readonly address: ListenAddress;
  /** Connections the system could not hand over, for want of descriptors for example. */
  readonly failedAccepts: number;
  /** Stops accepting and frees the address. Connections already accepted live on. */
  close(): Promise<void>;
}

export interface Network {
  /**
   * A socket file that nobody listens on any more (its process was killed) is replaced.
   * @throws NETWORK_ADDRESS_IN_USE, NETWORK_ADDRESS_INVALID, NETWORK_ACCESS_DENIED, NETWORK_FAILED.
   */
  listen(
    address: ListenAddress,
    accept: (connection: ByteConnection) => ConnectionHandlers,
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
