// Words between the nodes of a cluster that no log keeps: told, or asked and answered.
//
// Each direction between two nodes is a link of numbered parts. A peer is reached while both hear each
// other's link, which beats say; nothing is said or heard before `begin`.
// Keeps: what was told to a peer arrives in order and without a gap for as long as it is reached; a
// gap, silence, or another start of the peer ends the link on both sides; those who listen hear of it
// before whatever arrives on the next one. A change of peers is told before the first word behind
// it. Bytes on the way to a peer are bounded: at the brim nothing more is taken, and counted.
// Leaves to its users what must not be lost: a word that was taken may still not arrive.

import {
  type Cancel,
  type Clock,
  type CodedError,
  isCodedError,
  type Logger,
  toError,
} from "../base/index.ts";
import {
  type ChannelNote,
  decodeChannelNote,
  decodeLetter,
  encodeChannelNote,
  encodeLetter,
  type Letter,
  type Link,
} from "./core/channel-codec.ts";
import type { ClusterCounters } from "./counters.ts";
import { clusterErrors } from "./errors.ts";

/** Answers what was asked; undefined where the kind is only told. */
export type WordHandler = (
  from: number,
  bytes: Uint8Array,
) => Uint8Array | Promise<Uint8Array> | undefined;

/** What floors above speak through. */
export interface NodeChannel {
  readonly node: number;
  /** Of this life of the directory: no other start of any node has it. */
  readonly start: string;
  /** Active members that are reached now, in order of their numbers. */
  peers(): readonly number[];
  /** Of a peer that is reached. */
  startOf(node: number): string | undefined;
  /** Told of each peer that is reached anew, or no more. Returns the end of it. */
  onPeersChanged(listener: PeerListener): () => void;
  /** Ordered per peer. False: nothing was sent, the peer is not reached or takes no more now. */
  tell(node: number, kind: string, bytes: Uint8Array): boolean;
  /**
   * @throws CLUSTER_PEER_UNREACHED (also when it is no more while it is asked), CLUSTER_PEER_BUSY,
   *   CLUSTER_PEER_SILENT after the time, CLUSTER_PEER_FAILED.
   */
  ask(node: number, kind: string, bytes: Uint8Array, timeoutMs: number): Promise<Uint8Array>;
  /** One for each kind. What it throws is counted, and answered as a failure. */
  handle(kind: string, handler: WordHandler): void;
}

export type PeerListener = (node: number, isReached: boolean) => void;

export type ChannelSettings = {
  /** Between two beats to a peer. */
  readonly beatMs: number;
  /** A peer whose beats stay away so long is not reached. */
  readonly silentMsMax: number;
  /** Bytes sent to a peer that it has not told to have come; one word is always taken. */
  readonly windowBytesMax: number;
  /** Longer words go in several parts, so that heartbeats of Raft come between them. */
  readonly partBytesMax: number;
  /** Of a word; what is longer ends the link. */
  readonly wordBytesMax: number;
};

export const defaultChannelSettings: ChannelSettings = {
  beatMs: 250,
  // A few lost beats; shorter than an election.
  silentMsMax: 2_000,
  windowBytesMax: 8 * 1024 * 1024,
  partBytesMax: 256 * 1024,
  // A message of the largest size, with room around it.
  wordBytesMax: 16 * 1024 * 1024,
};

export type ChannelParts = {
  readonly node: number;
  readonly start: string;
  /** Other members that are active. */
  readonly members: () => readonly number[];
  /** In order, or not at all; false where it was not taken. */
  readonly send: (node: number, bytes: Uint8Array) => boolean;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly counters: ClusterCounters;
  readonly settings?: Partial<ChannelSettings>;
};

type Peer = {
  readonly node: number;
  /** This side's link to it. */
  link: number;
  parts: number;
  sentBytes: number;
  /** Told to have come. */
  takenBytes: number;
  /** It said that it hears `link`. */
  isHeard: boolean;
  /** Its link to this side, where all of it has come so far. */
  heard: Heard | undefined;
  beatAtMs: number;
  isReached: boolean;
};

type Heard = Link & { parts: number; bytes: number; toldBytes: number; pieces: Uint8Array[] };

type Asked = {
  readonly node: number;
  readonly cancel: Cancel;
  resolve(bytes: Uint8Array): void;
  reject(error: CodedError): void;
};

export class MemberChannel implements NodeChannel {
  readonly node: number;
  readonly start: string;
  readonly #parts: ChannelParts;
  readonly #settings: ChannelSettings;
  readonly #peers = new Map<number, Peer>();
  readonly #handlers = new Map<string, WordHandler>();
  readonly #listeners = new Set<PeerListener>();
  readonly #asked = new Map<number, Asked>();
  #changes: Array<readonly [node: number, isReached: boolean]> = [];
  #lastId = 0;
  #cancelBeat: Cancel | undefined;
  #isClosed = false;

  constructor(parts: ChannelParts) {
    this.#parts = parts;
    this.#settings = { ...defaultChannelSettings, ...parts.settings };
    this.node = parts.node;
    this.start = parts.start;
  }

  /** All handlers are there. Once. */
  begin(): void {
    this.#beat();
  }

  peers(): readonly number[] {
    const reached = [...this.#peers.values()].filter((peer) => peer.isReached);
    return reached.map(({ node }) => node).sort((one, other) => one - other);
  }

  startOf(node: number): string | undefined {
    const peer = this.#peers.get(node);
    return peer?.isReached ? peer.heard?.start : undefined;
  }

  onPeersChanged(listener: PeerListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  handle(kind: string, handler: WordHandler): void {
    this.#handlers.set(kind, handler);
  }

  tell(node: number, kind: string, bytes: Uint8Array): boolean {
    return this.#post(node, { what: "told", kind, bytes }) === "sent";
  }

  ask(node: number, kind: string, bytes: Uint8Array, timeoutMs: number): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      const id = ++this.#lastId;
      const cancel = this.#parts.clock.schedule(timeoutMs, () => {
        this.#asked.delete(id);
        reject(clusterErrors.peerSilent({ node, waitedMs: timeoutMs }));
      });
      this.#asked.set(id, { node, cancel, resolve, reject });
      const posted = this.#post(node, { what: "asked", id, kind, bytes });
      if (posted === "unreached") this.#answered(id)?.reject(clusterErrors.peerUnreached({ node }));
      if (posted === "busy") this.#answered(id)?.reject(clusterErrors.peerBusy({ node }));
    });
  }

  /** A note of another member; checked, and never trusted. */
  receive(from: number, bytes: Uint8Array): void {
    if (this.#isClosed || this.#cancelBeat === undefined || from === this.node) return;
    const note = decodeChannelNote(bytes);
    if (note === undefined) this.#parts.counters.wordsBroken++;
    else if (note.kind === "beat") this.#onBeat(this.#peer(from), note);
    else this.#onPart(this.#peer(from), note);
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelBeat?.();
    for (const peer of this.#peers.values()) this.#rejectAsked(peer.node);
    this.#listeners.clear();
  }

  // ---------------------------------------------------------------- links

  get #nowMs(): number {
    return this.#parts.clock.elapsedMs();
  }

  #peer(node: number): Peer {
    const known = this.#peers.get(node);
    if (known !== undefined) return known;
    const link = { link: 1, parts: 0, sentBytes: 0, takenBytes: 0, isHeard: false };
    const made = { node, ...link, heard: undefined, beatAtMs: this.#nowMs, isReached: false };
    this.#peers.set(node, made);
    return made;
  }

  #beat(): void {
    const { members } = this.#parts;
    const { beatMs, silentMsMax } = this.#settings;
    const wanted = new Set(members().filter((node) => node !== this.node));
    for (const peer of this.#peers.values()) {
      const isSilent = this.#nowMs - peer.beatAtMs > silentMsMax;
      if (peer.isReached && (isSilent || !wanted.has(peer.node))) this.#lose(peer);
    }
    for (const node of wanted) this.#sendBeat(this.#peer(node));
    this.#cancelBeat = this.#parts.clock.schedule(beatMs, () => this.#beat());
  }

  #sendBeat(peer: Peer): void {
    const { heard, link, parts } = peer;
    if (heard !== undefined) heard.toldBytes = heard.bytes;
    const own = { start: this.start, link };
    const beat: ChannelNote = { kind: "beat", own, parts, heard };
    if (!this.#parts.send(peer.node, encodeChannelNote(beat))) this.#lose(peer);
  }

  #onBeat(peer: Peer, { own, parts, heard }: ChannelNote & { kind: "beat" }): void {
    peer.beatAtMs = this.#nowMs;
    const { isReached, link, heard: before } = peer;
    if (before?.start !== own.start || before.link !== own.link) {
      this.#lose(peer);
      // Of an older link something may be lost.
      const begun = { ...own, parts: 0, bytes: 0, toldBytes: 0, pieces: [] };
      peer.heard = parts === 0 ? begun : undefined;
    } else if (before.parts !== parts) this.#lose(peer);
    peer.isHeard = heard?.start === this.start && heard.link === peer.link;
    if (peer.isHeard) peer.takenBytes = Math.max(peer.takenBytes, heard?.bytes ?? 0);
    else if (peer.isReached) this.#lose(peer);
    if (!peer.isReached && peer.isHeard && peer.heard !== undefined) this.#reach(peer);
    const isNews = peer.isReached !== isReached || peer.link !== link || peer.heard !== before;
    // It hears of it before the first part that follows.
    if (isNews) this.#sendBeat(peer);
    this.#tellChanges();
  }

  #reach(peer: Peer): void {
    if (!this.#parts.members().includes(peer.node)) return;
    peer.isReached = true;
    this.#changes.push([peer.node, true]);
  }

  /** What was sent may be lost: a new link begins, without a word of the old. */
  #lose(peer: Peer): void {
    peer.heard = undefined;
    peer.isHeard = false;
    if (!peer.isReached) return;
    peer.isReached = false;
    peer.link++;
    peer.parts = 0;
    peer.sentBytes = 0;
    peer.takenBytes = 0;
    this.#parts.counters.linksLost++;
    this.#changes.push([peer.node, false]);
    // Whoever is telling just now hears of it later.
    this.#parts.clock.soon(() => this.#tellChanges());
    this.#rejectAsked(peer.node);
  }

  #tellChanges(): void {
    while (!this.#isClosed) {
      const [change] = this.#changes.splice(0, 1);
      if (change === undefined) return;
      for (const listener of [...this.#listeners]) {
        this.#safely(() => listener(change[0], change[1]));
      }
    }
  }

  // ---------------------------------------------------------------- words

  #post(node: number, letter: Letter): "sent" | "unreached" | "busy" {
    const { counters } = this.#parts;
    const peer = this.#peers.get(node);
    if (this.#isClosed || peer === undefined || !peer.isReached) {
      counters.wordsUnreached++;
      return "unreached";
    }
    const { partBytesMax, windowBytesMax } = this.#settings;
    const bytes = encodeLetter(letter);
    const onWayBytes = peer.sentBytes - peer.takenBytes;
    const isAnswer = letter.what === "answered" || letter.what === "failed";
    // Answers are bounded by the questions.
    if (!isAnswer && onWayBytes > 0 && onWayBytes + bytes.length > windowBytesMax) {
      counters.wordsRefused++;
      return "busy";
    }
    for (let at = 0; at < bytes.length; at += partBytesMax) {
      const piece = bytes.subarray(at, at + partBytesMax);
      const isLast = at + partBytesMax >= bytes.length;
      const note = {
        kind: "part",
        link: peer.link,
        part: peer.parts,
        isLast,
        bytes: piece,
      } as const;
      if (!this.#parts.send(node, encodeChannelNote(note))) {
        this.#lose(peer);
        return "unreached";
      }
      peer.parts++;
      peer.sentBytes += piece.length;
    }
    counters.wordsSent++;
    return "sent";
  }

  #onPart(peer: Peer, { link, part, isLast, bytes }: ChannelNote & { kind: "part" }): void {
    const { heard } = peer;
    // Of a link that has ended here.
    if (heard === undefined || heard.link !== link) return;
    // Unreached: the beat that says that it hears this side did not come.
    const isNext = peer.isReached && heard.parts === part;
    if (!isNext || !this.#take(heard, bytes)) {
      this.#lose(peer);
      this.#tellChanges();
      this.#sendBeat(peer);
      return;
    }
    if (isLast) this.#onLetter(peer, Buffer.concat(heard.pieces.splice(0)));
    if (heard.bytes - heard.toldBytes > this.#settings.windowBytesMax / 4) this.#sendBeat(peer);
  }

  #take(heard: Heard, bytes: Uint8Array): boolean {
    heard.parts++;
    heard.bytes += bytes.length;
    heard.pieces.push(bytes);
    const held = heard.pieces.reduce((sum, piece) => sum + piece.length, 0);
    return held <= this.#settings.wordBytesMax;
  }

  #onLetter({ node }: Peer, bytes: Uint8Array): void {
    const { counters } = this.#parts;
    this.#tellChanges();
    const letter = decodeLetter(bytes);
    if (letter === undefined) {
      counters.wordsBroken++;
      return;
    }
    counters.wordsReceived++;
    switch (letter.what) {
      case "told":
        this.#safely(() => void this.#handlers.get(letter.kind)?.(node, letter.bytes));
        return;
      case "asked":
        return void this.#answer(node, letter);
      case "answered":
        return this.#answered(letter.id)?.resolve(letter.bytes);
      case "failed": {
        const reason = Buffer.from(letter.bytes).toString();
        this.#answered(letter.id)?.reject(clusterErrors.peerFailed({ node, reason }));
      }
    }
  }

  async #answer(node: number, { id, kind, bytes }: Letter & { what: "asked" }): Promise<void> {
    try {
      const answer = await this.#handlers.get(kind)?.(node, bytes);
      if (answer !== undefined) this.#post(node, { what: "answered", id, bytes: answer });
      else this.#fail(node, id, `nothing here answers ${kind}`);
    } catch (error) {
      if (!isCodedError(error)) this.#failed(error);
      this.#fail(node, id, toError(error).message);
    }
  }

  #fail(node: number, id: number, reason: string): void {
    this.#post(node, { what: "failed", id, bytes: Buffer.from(reason) });
  }

  #answered(id: number): Asked | undefined {
    const asked = this.#asked.get(id);
    asked?.cancel();
    this.#asked.delete(id);
    return asked;
  }

  #rejectAsked(node: number): void {
    for (const [id, asked] of this.#asked) {
      if (asked.node === node) this.#answered(id)?.reject(clusterErrors.peerUnreached({ node }));
    }
  }

  #safely(run: () => void): void {
    try {
      run();
    } catch (error) {
      this.#failed(error);
    }
  }

  #failed(error: unknown): void {
    this.#parts.counters.wordsFailed++;
    this.#parts.logger.error("cluster.word_failed", { reason: toError(error).message });
  }
}
