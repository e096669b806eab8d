// One end of a simulated connection. Bytes go from the sender's queue (`unsentBytes`) into the
// system's buffers as far as the window allows, and from there in drawn chunks to the peer.
//
// Invariants: one delivery at a time in each direction, so that order is kept; bytes beyond the
// window stay in the caller's memory until they are taken, as with a real socket; `onClose` is the
// last call and never comes inside a call of the connection.

import { type ByteConnection, type ConnectionHandlers, networkErrors } from "./network.ts";
import type { SeededRandom } from "./random.ts";

/** The network in one direction. */
export type SimWire = {
  readonly random: SeededRandom;
  readonly windowBytes: number;
  /** Whether the next delivery is cut short. */
  readonly cuts: () => boolean;
  /** Runs a task after a drawn delay. */
  readonly later: (task: () => void) => void;
  readonly isSilent: () => boolean;
  /** Keeps a task until the silence may be over. */
  readonly park: (task: () => void) => void;
};

/** Left in `onData` memory after the call, so that a kept view shows. */
const poison = 0xdb;

export class SimConnection implements ByteConnection {
  readonly remote: string;
  readonly #wire: SimWire;
  #peer: SimConnection | undefined;
  #left: (() => void) | undefined;
  #handlers: ConnectionHandlers | undefined;
  /** Not yet taken by the system: the caller's memory. */
  readonly #queue: Uint8Array[] = [];
  #unsentBytes = 0;
  /** Taken by the system, not yet with the peer. */
  #inFlight = Buffer.alloc(0);
  #isDelivering = false;
  #isPaused = false;
  /** `end` was called, or the peer's end arrived: nothing more is taken. */
  #isEnding = false;
  #peerEnded = false;
  #isClosed = false;

  constructor(remote: string, wire: SimWire) {
    this.remote = remote;
    this.#wire = wire;
  }

  pairWith(peer: SimConnection, left: () => void): void {
    this.#peer = peer;
    this.#left = left;
  }

  serve(handlers: ConnectionHandlers): void {
    this.#handlers = handlers;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  get unsentBytes(): number {
    return this.#unsentBytes;
  }

  write(bytes: Uint8Array): void {
    if (this.#isEnding || this.#isClosed || bytes.length === 0) return;
    this.#queue.push(bytes);
    this.#unsentBytes += bytes.length;
    this.#takeIn();
    this.#deliver();
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    const peer = this.#peer;
    if (peer !== undefined) peer.#deliver();
  }

  end(): void {
    if (this.#isEnding || this.#isClosed) return;
    this.#isEnding = true;
    this.#deliver();
  }

  destroy(): void {
    if (this.#isClosed) return;
    const peer = this.#peer;
    const sentOnly = this.#inFlight;
    this.#close(undefined);
    if (peer === undefined || peer.#isClosed) return;
    // The system still sends what it took, or it resets: both happen with real sockets.
    if (this.#wire.random.chance(0.5)) this.#tell(() => peer.cut("ECONNRESET"));
    else this.#sendRest(sentOnly, peer);
  }

  /** The network or the peer ended it. */
  cut(errno: string): void {
    this.#close(networkErrors.failed({ address: this.remote, errno }));
  }

  /** The host is gone: nobody is told. */
  vanish(): void {
    this.#handlers = undefined;
    this.#close(undefined);
  }

  /** The process is gone: its system tells the peer. */
  die(): void {
    const peer = this.#peer;
    this.vanish();
    if (peer !== undefined) this.#tell(() => peer.cut("ECONNRESET"));
  }

  #close(error: Error | undefined): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#queue.length = 0;
    this.#unsentBytes = 0;
    this.#inFlight = Buffer.alloc(0);
    this.#left?.();
    this.#wire.later(() => {
      const handlers = this.#handlers;
      this.#handlers = undefined;
      handlers?.onClose(error);
    });
  }

  /** Moves bytes from the caller's memory into the system's buffers. */
  #takeIn(): void {
    while (this.#inFlight.length < this.#wire.windowBytes) {
      const bytes = this.#queue.shift();
      if (bytes === undefined) return;
      const room = this.#wire.windowBytes - this.#inFlight.length;
      if (bytes.length > room) this.#queue.unshift(bytes.subarray(room));
      const taken = bytes.subarray(0, room);
      this.#inFlight = Buffer.concat([this.#inFlight, taken]);
      this.#unsentBytes -= taken.length;
    }
  }

  #deliver(): void {
    if (this.#isDelivering || this.#isClosed) return;
    if (this.#inFlight.length === 0 && !this.#isEnding) return;
    this.#isDelivering = true;
    this.#wire.later(this.#step);
  }

  readonly #step = (): void => {
    const peer = this.#peer;
    if (this.#wire.isSilent()) {
      this.#wire.park(() => this.#wire.later(this.#step));
      return;
    }
    this.#isDelivering = false;
    if (this.#isClosed || peer === undefined || peer.#isClosed || peer.#isPaused) return;
    if (this.#inFlight.length > 0) this.#deliverChunk(peer);
    else if (this.#isEnding) this.#deliverEnd(peer);
  };

  #deliverChunk(peer: SimConnection): void {
    const { random, cuts } = this.#wire;
    const size = cuts() ? random.between(1, this.#inFlight.length) : this.#inFlight.length;
    const chunk = Buffer.from(this.#inFlight.subarray(0, size));
    this.#inFlight = this.#inFlight.subarray(size);
    const wasAbove = this.#unsentBytes > 0;
    this.#takeIn();
    this.#deliver();
    peer.#handlers?.onData(chunk);
    chunk.fill(poison);
    if (wasAbove && this.#unsentBytes === 0 && !this.#isClosed) this.#handlers?.onDrain();
  }

  // As node does without half-open connections: whoever reads the end sends its own rest and end.
  #deliverEnd(peer: SimConnection): void {
    peer.#peerEnded = true;
    if (this.#peerEnded) {
      this.#close(undefined);
      peer.#close(undefined);
      return;
    }
    peer.end();
  }

  #sendRest(rest: Buffer, peer: SimConnection): void {
    this.#tell(() => {
      if (peer.#isClosed) return;
      if (peer.#isPaused) {
        // A reader that does not read learns of it when it writes or reads: the plain way is a
        // reset.
        peer.cut("ECONNRESET");
        return;
      }
      if (rest.length > 0) peer.#handlers?.onData(Buffer.from(rest));
      peer.#close(undefined);
    });
  }

  #tell(task: () => void): void {
    const attempt = (): void => {
      if (this.#wire.isSilent()) this.#wire.park(() => this.#wire.later(attempt));
      else task();
    };
    this.#wire.later(attempt);
  }
}
