// Frames over byte streams: TCP, TLS, or the simulated network.
//
// Each host dials each of its peers and sends on that connection only; what it accepts it only reads.
// A connection begins with a hello each way (docs/formats/raft.md).
// Keeps: nothing is taken from a stranger but one small frame; a site is let in by the allow-list,
// and under mTLS only with a certificate that names it; every frame of a connection is of the disk
// that said hello; a member's disk speaks on one connection, its newest, and copies of it on none; a
// queue is bounded, and what does not move for long is cut off and dialled anew.

import {
  type ByteConnection,
  type Cancel,
  type Clock,
  type ConnectionHandlers,
  type Counters,
  createCounters,
  formatAddress,
  type ListenAddress,
  type Listener,
  type Logger,
  type Network,
  toError,
} from "../../base/index.ts";
import { raftErrors } from "../errors.ts";
import { FrameCutter } from "./frame-cutter.ts";
import { encodeFrame, openFrame } from "./frames.ts";
import { decodeHello, encodeHello, helloBytesMax, versionMax, versionMin } from "./hello.ts";
import type { Identity, Uuid } from "./identity.ts";
import { type Life, Speakers } from "./life.ts";
import type { Member } from "./members.ts";
import type { Transport, TransportEvents } from "./ports.ts";

export type StreamSettings = {
  readonly listen: ListenAddress;
  readonly frameBytesMax: number;
  /** Bytes to one peer that its network has not taken; at the brim frames are refused. */
  readonly queueBytesMax: number;
  /** Accepted connections; at the brim the oldest that is no member's is closed. */
  readonly connectionsMax: number;
  /** From the connection to the end of the hello. */
  readonly helloMs: number;
  /** A queue that has not moved for so long is given up with its connection. */
  readonly stuckMs: number;
  /** Waits between two attempts to dial, doubled from the first up to the second. */
  readonly redialMs: readonly [first: number, last: number];
};

export const defaultStreamSettings: Omit<StreamSettings, "listen"> = {
  frameBytesMax: 16 * 1024 * 1024,
  queueBytesMax: 64 * 1024 * 1024,
  connectionsMax: 256,
  helloMs: 5_000,
  stuckMs: 10_000,
  redialMs: [100, 3_000],
};

export type StreamComponents = {
  readonly network: Network;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly identity: Identity;
  /** Of this start of the directory; without one, peers cannot tell copies of it apart. */
  readonly life?: Life | undefined;
};

/** A connection of mTLS says whom the peer's certificate names. */
export type NamedConnection = ByteConnection & { readonly peerNames?: readonly string[] };

export const streamCounterHelp = {
  dialled: "Connections made",
  accepted: "Connections taken",
  dialsFailed: "Attempts to connect that failed",
  refused: "Connections refused: not a member, a wrong name, version or cluster",
  malformed: "Connections cut off over a frame that cannot be",
  crowded: "Connections closed at the limit",
  queuesFull: "Frames not taken for a full queue",
  stuck: "Connections given up since nothing moved",
} as const;

type Dial = {
  peer: Member;
  connection: ByteConnection | undefined;
  isUp: boolean;
  waitMs: number;
  stuckSinceMs: number | undefined;
  cancel: Cancel | undefined;
  isClosed: boolean;
  /** Told once a state lasts, not at each attempt. */
  lastReason: string;
};

export class StreamTransport implements Transport {
  readonly counters: Counters<typeof streamCounterHelp> = createCounters(streamCounterHelp);
  readonly #settings: StreamSettings;
  readonly #components: StreamComponents;
  readonly #dials = new Map<Uuid, Dial>();
  /** In the order in which they came. */
  readonly #accepted = new Set<ByteConnection>();
  readonly #speakers = new Speakers();
  #events: TransportEvents | undefined;
  #listener: Listener | undefined;
  #isClosed = false;

  constructor(settings: StreamSettings, components: StreamComponents) {
    this.#settings = settings;
    this.#components = components;
  }

  /** @throws what the network says about the address. */
  async start(events: TransportEvents): Promise<void> {
    this.#events = events;
    const { network } = this.#components;
    this.#listener = await network.listen(this.#settings.listen, (accepted) =>
      this.#accept(accepted),
    );
  }

  /** Where it listens; a port of 0 is replaced by the one that was given. */
  get address(): ListenAddress {
    return this.#listener?.address ?? this.#settings.listen;
  }

  setPeers(peers: readonly Member[]): void {
    const wanted = new Map(peers.map((peer) => [peer.siteId, peer]));
    this.#speakers.keep(wanted);
    for (const [siteId, dial] of this.#dials) {
      const peer = wanted.get(siteId);
      const isMoved = peer && formatAddress(peer.address) !== formatAddress(dial.peer.address);
      if (peer !== undefined && !isMoved) dial.peer = peer;
      else this.#endDial(siteId, dial);
    }
    for (const [siteId, peer] of wanted) {
      if (this.#dials.has(siteId) || this.#isClosed) continue;
      const rest = { connection: undefined, stuckSinceMs: undefined, cancel: undefined };
      const [waitMs] = this.#settings.redialMs;
      const dial = { ...rest, peer, isUp: false, waitMs, isClosed: false, lastReason: "" };
      this.#dials.set(siteId, dial);
      void this.#dial(dial);
    }
  }

  send(to: Uuid, frame: Uint8Array): boolean {
    const dial = this.#dials.get(to);
    const connection = dial?.connection;
    if (dial === undefined || connection === undefined || !dial.isUp) return false;
    if (connection.unsentBytes > this.#settings.queueBytesMax) {
      this.counters.queuesFull++;
      this.#checkStuck(dial, connection);
      return false;
    }
    connection.write(frame);
    this.#checkStuck(dial, connection);
    return true;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const [siteId, dial] of this.#dials) this.#endDial(siteId, dial);
    for (const connection of this.#accepted) connection.destroy();
    await this.#listener?.close();
  }

  #checkStuck(dial: Dial, connection: ByteConnection): void {
    const nowMs = this.#components.clock.elapsedMs();
    if (connection.unsentBytes === 0) dial.stuckSinceMs = undefined;
    else dial.stuckSinceMs ??= nowMs;
    if (nowMs - (dial.stuckSinceMs ?? nowMs) <= this.#settings.stuckMs) return;
    this.counters.stuck++;
    dial.stuckSinceMs = undefined;
    connection.destroy();
  }

  #endDial(siteId: Uuid, dial: Dial): void {
    dial.isClosed = true;
    dial.cancel?.();
    dial.connection?.destroy();
    this.#dials.delete(siteId);
  }

  async #dial(dial: Dial): Promise<void> {
    const { network } = this.#components;
    try {
      await network.connect(dial.peer.address, (connection) => this.#greet(dial, connection));
    } catch (error) {
      this.counters.dialsFailed++;
      this.#dialLater(dial, toError(error).message);
    }
  }

  #dialLater(dial: Dial, reason: string): void {
    if (dial.isClosed || this.#isClosed) return;
    const { clock, logger } = this.#components;
    const { name, address } = dial.peer;
    if (reason !== dial.lastReason) {
      logger.warn("raft.peer_away", { peer: name, address: formatAddress(address), reason });
    }
    dial.lastReason = reason;
    dial.cancel = clock.schedule(dial.waitMs, () => void this.#dial(dial));
    dial.waitMs = Math.min(dial.waitMs * 2, this.#settings.redialMs[1]);
  }

  #greet(dial: Dial, connection: NamedConnection): ConnectionHandlers {
    const { clock } = this.#components;
    let reason = "the connection ended";
    if (dial.isClosed || this.#isClosed) connection.destroy();
    dial.connection = connection;
    this.counters.dialled++;
    const cancel = clock.schedule(this.#settings.helloMs, () => {
      reason = "no hello came";
      connection.destroy();
    });
    const cutter = new FrameCutter(helloBytesMax);
    connection.write(this.#hello(""));
    return {
      onData: (bytes) => {
        let refusal: string | undefined = "its hello cannot be";
        const isWhole = cutter.add(bytes, (frame) => {
          // Nothing is ever read from a peer that was dialled, but its one hello.
          refusal = dial.isUp ? "it spoke out of turn" : this.#judge(dial, frame, connection);
          if (refusal !== undefined) return false;
          cancel();
          this.#reached(dial);
          return true;
        });
        if (isWhole) return;
        reason = refusal;
        this.counters.refused++;
        connection.destroy();
      },
      onDrain: () => {
        dial.stuckSinceMs = undefined;
      },
      onClose: (error) => {
        cancel();
        const wasUp = dial.isUp;
        dial.isUp = false;
        dial.connection = undefined;
        if (wasUp) this.#events?.onDown(dial.peer.siteId);
        this.#dialLater(dial, error?.message ?? reason);
      },
    };
  }

  #reached(dial: Dial): void {
    dial.isUp = true;
    dial.lastReason = "";
    [dial.waitMs] = this.#settings.redialMs;
    this.#components.logger.info("raft.peer_reached", { peer: dial.peer.name });
  }

  /** Why the hello of whom we dialled is not taken. */
  #judge({ peer }: Dial, bytes: Buffer, connection: NamedConnection): string | undefined {
    const { clusterId } = this.#components.identity;
    const check = { clusterId, frameBytesMax: helloBytesMax, knows: () => true };
    const frame = openFrame(bytes, check);
    if (typeof frame === "string") return `its hello has a wrong ${frame}`;
    const hello = frame.kind === "hello" ? decodeHello(frame.body) : undefined;
    if (hello === undefined) return "it does not say hello";
    if (hello.refusal !== "") return `it refuses us: ${hello.refusal}`;
    if (frame.siteId !== peer.siteId) return "another site answers at this address";
    if (hello.versionMax < versionMin || hello.versionMin > versionMax) return "no common version";
    if (frame.diskId === peer.diskId) {
      const copied = this.#speakers.refusalOf(frame.siteId, hello.life);
      if (copied !== undefined) return copied;
      this.#speakers.note(frame.siteId, hello.life);
    }
    return wrongName(peer, connection);
  }

  #accept(connection: NamedConnection): ConnectionHandlers {
    const { clock } = this.#components;
    const { helloMs, frameBytesMax } = this.#settings;
    if (this.#isClosed) connection.destroy();
    this.#accepted.add(connection);
    this.#makeRoom();
    this.counters.accepted++;
    const cancel = clock.schedule(helloMs, () => connection.destroy());
    const cutter = new FrameCutter(helloBytesMax);
    let sender: Buffer | undefined;
    const onFrame = (frame: Buffer): boolean => {
      if (sender === undefined) {
        if (!this.#welcome(connection, frame)) return false;
        cancel();
        cutter.frameBytesMax = frameBytesMax;
        sender = Buffer.from(senderOf(frame));
        return true;
      }
      if (!senderOf(frame).equals(sender)) return false;
      this.#events?.onFrame(frame);
      return true;
    };
    return {
      onData: (bytes) => {
        if (cutter.add(bytes, onFrame)) return;
        this.counters.malformed++;
        // What was written of a refusal still leaves.
        connection.end();
        cancel();
      },
      onDrain: () => undefined,
      onClose: () => {
        cancel();
        this.#accepted.delete(connection);
        this.#speakers.closed(connection);
      },
    };
  }

  // Whoever came last may be a member: strangers that only wait give way to it.
  #makeRoom(): void {
    if (this.#accepted.size <= this.#settings.connectionsMax) return;
    for (const connection of this.#accepted) {
      if (this.#speakers.has(connection)) continue;
      this.counters.crowded++;
      this.#accepted.delete(connection);
      connection.destroy();
      return;
    }
  }

  #hello(refusal: string): Buffer {
    const { identity, life } = this.#components;
    return encodeFrame(identity, "hello", encodeHello(refusal, life));
  }

  #welcome(connection: NamedConnection, bytes: Buffer): boolean {
    const { logger } = this.#components;
    const refusal = this.#refusalOf(connection, bytes);
    connection.write(this.#hello(refusal ?? ""));
    if (refusal === undefined) return true;
    this.counters.refused++;
    const error = raftErrors.peerRefused({ address: connection.remote, reason: refusal });
    logger.warn("raft.peer_refused", { remote: connection.remote, reason: error.message });
    return false;
  }

  // A member's disk speaks on this connection from here on, if there is nothing against it.
  #refusalOf(connection: NamedConnection, bytes: Buffer): string | undefined {
    const { clusterId } = this.#components.identity;
    const knows = (siteId: Uuid): boolean => this.#dials.has(siteId);
    const frame = openFrame(bytes, { clusterId, frameBytesMax: helloBytesMax, knows });
    if (frame === "cluster") return "this is another cluster";
    if (frame === "sender") return "your site is not a member here";
    if (typeof frame === "string") return `your hello has a wrong ${frame}`;
    const { siteId, diskId } = frame;
    const hello = frame.kind === "hello" ? decodeHello(frame.body) : undefined;
    if (hello === undefined) return "you did not say hello";
    if (hello.versionMax < versionMin || hello.versionMin > versionMax) {
      return `you speak versions ${hello.versionMin} to ${hello.versionMax}, we ${versionMin} to ${versionMax}`;
    }
    const peer = this.#dials.get(siteId)?.peer;
    const misnamed = peer && wrongName(peer, connection);
    // Any other disk is only told who it is not, as the cluster forms or by whoever reads its frames.
    if (misnamed !== undefined || peer?.diskId !== diskId) return misnamed;
    const copied = this.#speakers.refusalOf(siteId, hello.life);
    if (copied === undefined) this.#speakers.take(siteId, hello.life, connection);
    return copied;
  }
}

function wrongName(peer: Member, { peerNames }: NamedConnection): string | undefined {
  if (peerNames === undefined || peerNames.includes(peer.name)) return undefined;
  return `the certificate names ${peerNames.join(", ") || "nobody"}, not ${peer.name}`;
}

/** Site and disk, as they stand in the head of a frame. */
function senderOf(frame: Buffer): Buffer {
  return frame.subarray(24, 56);
}
