// The way out: what is said to a connection in one turn leaves in one write at the end of it.
//
// - `WriteTurn` collects the connections that have something to send and writes them together.
// - A connection that is still busy with its last write is left alone until its network has taken
//   it; what collects meanwhile is the outbound buffer, whose bound is kept by the caller of `admits`.
// - Memory of chunks goes back to the pool only when the network holds nothing of it.

import type { ByteConnection, Clock } from "../base/index.ts";
import { type ChunkPool, OutputBuffer } from "../mqtt/index.ts";
import type { BrokerCounters } from "./counters.ts";

export class WriteTurn {
  readonly pool: ChunkPool;
  readonly counters: BrokerCounters;
  readonly #clock: Clock;
  /** What has to leave before anything that is said here. */
  readonly #before: () => void;
  #dirty: ConnectionOutput[] = [];
  #scheduled = false;

  constructor(
    clock: Clock,
    pool: ChunkPool,
    counters: BrokerCounters,
    before: () => void = () => undefined,
  ) {
    this.#clock = clock;
    this.#before = before;
    this.pool = pool;
    this.counters = counters;
  }

  add(output: ConnectionOutput): void {
    this.#dirty.push(output);
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#clock.soon(this.#run);
  }

  readonly #run = (): void => {
    this.#scheduled = false;
    this.#before();
    const dirty = this.#dirty;
    this.#dirty = [];
    for (const output of dirty) output.flush();
  };
}

export class ConnectionOutput {
  readonly buffer: OutputBuffer;
  readonly #turn: WriteTurn;
  readonly #transport: ByteConnection;
  readonly #bytesMax: number;
  readonly #onRoom: () => void;
  /** Chunks that the network has not taken yet. */
  #lent: Buffer[] = [];
  #refused = false;

  /** `onRoom`: half of `bytesMax` is free again after `admits` or `isOver` said no. */
  constructor(turn: WriteTurn, transport: ByteConnection, bytesMax: number, onRoom: () => void) {
    this.#turn = turn;
    this.#transport = transport;
    this.#bytesMax = bytesMax;
    this.#onRoom = onRoom;
    this.buffer = new OutputBuffer(turn.pool, () => turn.add(this));
  }

  get waitingBytes(): number {
    return this.buffer.pendingBytes + this.#transport.unsentBytes;
  }

  /** Room for a message of this size? One is always admitted. */
  admits(sizeBytes: number): boolean {
    const waiting = this.waitingBytes;
    if (waiting === 0 || waiting + sizeBytes <= this.#bytesMax) return true;
    this.#refused = true;
    return false;
  }

  /** Answers have piled up to twice the bound: the peer does not read what it asks for. */
  isOver(): boolean {
    if (this.waitingBytes <= 2 * this.#bytesMax) return false;
    this.#refused = true;
    return true;
  }

  flush(): void {
    if (this.#transport.unsentBytes === 0) this.#write();
    if (!this.#refused || this.waitingBytes > this.#bytesMax / 2) return;
    this.#refused = false;
    this.#onRoom();
  }

  /** The network has taken everything. */
  drained(): void {
    this.#reclaim();
    this.flush();
  }

  /** The last write; what was lent to the network is its own now. */
  finish(): void {
    this.buffer.drain((bytes) => {
      this.#turn.counters.bytesSent += bytes.length;
      this.#transport.write(bytes);
    });
    this.#lent = [];
    this.#transport.end();
  }

  #write(): void {
    this.buffer.drain((bytes, chunk) => {
      this.#turn.counters.bytesSent += bytes.length;
      this.#transport.write(bytes);
      this.#lent.push(chunk);
    });
    if (this.#transport.unsentBytes === 0) this.#reclaim();
  }

  #reclaim(): void {
    for (const chunk of this.#lent) this.#turn.pool.release(chunk);
    this.#lent.length = 0;
  }
}
