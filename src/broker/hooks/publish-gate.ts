// Between a client's PUBLISHes and its publish queue, where hooks decide about them: in order of
// arrival, one at a time, in memory of their own while they wait.
//
// Bounded: with too many or too large ones waiting the client is not read. When the connection ends,
// QoS 0 goes on and the others, which nobody acknowledged, are dropped; the queue ends after them.

import { toError } from "../../base/index.ts";
import {
  type AckToken,
  canonicalFrame,
  createFrame,
  decodeContextDefault,
  type InboundPublish,
  PublishReader,
  type StoredFrame,
} from "../../mqtt/index.ts";
import type { PublishQueue } from "../publish-queue.ts";
import { hookPublishIn, hookPublishOf, type StoredMessage } from "./content.ts";
import type { Decided, HookRunner } from "./runner.ts";
import type { HookClient, HookPublish } from "./types.ts";

export type PublishGateParts = {
  readonly hooks: HookRunner;
  readonly client: HookClient;
  readonly queue: Pick<PublishQueue, "publish" | "end">;
  readonly bytesMax: number;
  /** A topic that a hook chose is one of the broker's own. */
  readonly isClosed: (topic: string) => boolean;
  readonly refuse: (token: AckToken, topic: string) => void;
  /** No decision could be had. */
  readonly undecided: (token: AckToken, topic: string) => void;
  /** The client cannot be served on. */
  readonly failed: (error: Error) => void;
  /** `blocked` may have changed. */
  readonly blockedChanged: () => void;
  /** The connection has ended, and all that waited has gone on. */
  readonly ended: () => void;
};

type Waiting = {
  readonly publish: HookPublish;
  readonly frame: StoredFrame;
  readonly packetId: number;
  readonly token: AckToken;
};

/** PUBLISHes before hooks, and observers that are behind. */
const waitingMax = 100;
const observedMax = 1000;

export class PublishGate {
  readonly #parts: PublishGateParts;
  readonly #waiting: Waiting[] = [];
  #bytes = 0;
  #observed = 0;
  #observing: Promise<void> = Promise.resolve();
  #isAsking = false;
  #isEnded = false;
  #isOver = false;
  #idleWaiters: Array<() => void> = [];

  constructor(parts: PublishGateParts) {
    this.#parts = parts;
  }

  get blocked(): boolean {
    const { length } = this.#waiting;
    const isFull = length >= waitingMax || (length > 1 && this.#bytes > this.#parts.bytesMax);
    return isFull || this.#observed >= observedMax;
  }

  publish(inbound: InboundPublish, token: AckToken): void {
    const { hooks, queue } = this.#parts;
    if (!hooks.has("authorizePublish")) {
      queue.publish(inbound, token);
      return;
    }
    const frame = canonicalFrame(inbound);
    const publish = hookPublishIn(inbound, frame);
    this.#waiting.push({ publish, frame, packetId: inbound.packetId, token });
    this.#bytes += frame.bytes.length;
    this.#next();
    if (this.blocked) this.#parts.blockedChanged();
  }

  /** A message of the client was taken: tells the observers, in order. */
  published(message: StoredMessage): void {
    const { hooks, client } = this.#parts;
    if (!hooks.has("published")) return;
    const publish = hookPublishOf(message);
    this.#observed++;
    this.#observing = this.#observing
      .then(() => hooks.tell("published", (set) => set.published?.(client, publish)))
      .then(() => {
        const wasBlocked = this.blocked;
        this.#observed--;
        if (wasBlocked) this.#parts.blockedChanged();
      });
  }

  /** The connection has ended. */
  end(): void {
    this.#isEnded = true;
    for (let at = this.#waiting.length - 1; at >= 0; at--) {
      const { publish } = this.#waiting[at] as Waiting;
      // The first one is with a hook; it is dropped when that has answered.
      if (publish.qos > 0 && (at > 0 || !this.#isAsking)) this.#waiting.splice(at, 1);
    }
    this.#endIfIdle();
  }

  /** Resolves when nothing waits for a hook. */
  idle(): Promise<void> {
    if (this.#waiting.length === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idleWaiters.push(resolve));
  }

  #next(): void {
    while (!this.#isAsking) {
      const first = this.#waiting[0];
      if (first === undefined) break;
      this.#isAsking = true;
      const decided = this.#parts.hooks.authorizePublish(this.#parts.client, first.publish);
      if (decided instanceof Promise) {
        decided
          .then((later) => {
            this.#decided(first, later);
            this.#next();
          })
          // A hook's error is a refusal already: this one is ours.
          .catch((error: unknown) => this.#parts.failed(toError(error)));
        return;
      }
      this.#decided(first, decided);
    }
    this.#endIfIdle();
  }

  #decided(waiting: Waiting, decided: Decided<HookPublish>): void {
    const wasBlocked = this.blocked;
    this.#isAsking = false;
    this.#waiting.shift();
    this.#bytes -= waiting.frame.bytes.length;
    const { publish, frame, packetId, token } = waiting;
    if (!this.#isEnded || publish.qos === 0) {
      if ("refusal" in decided && decided.refusal === "failed") {
        this.#parts.undecided(token, publish.topic);
      } else if ("refusal" in decided || this.#parts.isClosed(decided.value.topic)) {
        this.#parts.refuse(token, publish.topic);
      } else {
        const changed = decided.value === publish ? frame : createFrame(decided.value);
        this.#parts.queue.publish(reopened(changed, packetId), token);
      }
    }
    if (wasBlocked) this.#parts.blockedChanged();
  }

  #endIfIdle(): void {
    if (this.#waiting.length > 0) return;
    for (const resolve of this.#idleWaiters.splice(0)) resolve();
    if (!this.#isEnded || this.#isOver) return;
    this.#isOver = true;
    this.#parts.queue.end();
    this.#parts.ended();
  }
}

/** Limits were kept when the packet came, or are not meant for the program. */
const checkedBefore = {
  userPropertiesMax: Number.POSITIVE_INFINITY,
  topicLevelsMax: Number.POSITIVE_INFINITY,
};

/** As it would have come from the client. */
function reopened(frame: StoredFrame, packetId: number): InboundPublish {
  const { bytes, version } = frame;
  let bodyStart = 1;
  while (((bytes[bodyStart] as number) & 0x80) !== 0) bodyStart++;
  bodyStart++;
  const reader = new PublishReader({ ...decodeContextDefault, ...checkedBefore, version }, 0);
  const publish = reader.read(bytes, 0, bodyStart, bytes.length);
  publish.packetId = packetId;
  return publish;
}
