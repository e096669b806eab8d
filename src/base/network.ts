// The network port: byte-stream connections and listeners. `node-network.ts` drives TCP,
// `sim-network.ts` is the twin whose chunks, delays and cuts come from one seed.
//
// A connection never splits or merges what its owner means: any chunk may hold part of a packet or
// many packets. Bytes passed to `onData` are only valid during the call.

export interface ByteConnection {
  /** Address and port of the peer, for logs and limits: `127.0.0.1:50312`. */
  readonly remote: string;
  /** Bytes accepted by `write` that the peer's network has not taken yet. */
  readonly unsentBytes: number;
  /** Queues bytes in order. They belong to the connection from now on. No-op after close. */
  write(bytes: Uint8Array): void;
  /** Stops `onData` until `resume`; the peer is slowed down by its own network window. */
  pause(): void;
  resume(): void;
  /** Sends what is queued, then closes. */
  end(): void;
  /** Closes at once and drops what is queued. */
  destroy(): void;
}

export interface ConnectionHandlers {
  onData(bytes: Buffer): void;
  /** `unsentBytes` fell to zero after having been above it. */
  onDrain(): void;
  /** Called exactly once, whoever closed; `error` when the network failed. */
  onClose(error: Error | undefined): void;
}

export type ListenAddress =
  | { readonly host: string; readonly port: number }
  | { readonly path: string };

export interface Listener {
  /** The bound address; a port of 0 is replaced by the one that was given. */
  readonly address: ListenAddress;
  /** Stops accepting. Connections already accepted live on. */
  close(): Promise<void>;
}

export interface Network {
  /** @throws NETWORK_ADDRESS_IN_USE, NETWORK_ADDRESS_INVALID (see `networkErrors`). */
  listen(
    address: ListenAddress,
    accept: (connection: ByteConnection) => ConnectionHandlers,
  ): Promise<Listener>;
  connect(
    address: ListenAddress,
    open: (connection: ByteConnection) => ConnectionHandlers,
  ): Promise<ByteConnection>;
}
