// Which nodes use a client id. Nothing of it is stored: a session in memory is known to its node alone,
// so at each CONNECT the others are asked, all client ids of a turn at once.
//
// Keeps: of two connections that come at the same time at two nodes one gives way, the earlier by the
// clocks of their nodes, then the one of the lower node: both nodes know both, since each counts its
// own as coming before it asks. A connection that is in always gives way to one that comes.
// Who cannot be asked is passed over; when it is reached again, both say which client ids they use, and
// the later connection stays.

import { isCodedError, toError } from "../../base/index.ts";
import type { SessionContext } from "../context.ts";
import {
  type Arrival,
  arrivalsMax,
  decodeArrivals,
  encodeArrivals,
  presence,
} from "../core/node-words.ts";
import type { SessionNodes } from "../nodes.ts";

export type PresenceParts = {
  readonly context: SessionContext;
  readonly nodes: SessionNodes;
  /** When the connection came that uses it here; undefined: none does. */
  readonly arrivedUs: (clientId: string) => number | undefined;
  /** Client ids that sessions in memory use here. */
  readonly inMemory: () => Iterable<Arrival>;
  /** Another node has a later connection. */
  readonly displaced: (clientId: string) => void;
};

export type Coming = Arrival & {
  isOvertaken: boolean;
  /** Told when it is. */
  onOvertaken: () => void;
};

type Question = { readonly coming: Coming; told(nodes: readonly number[]): void };

const whoKind = "session.who";
const mineKind = "session.mine";

export class Presence {
  readonly #parts: PresenceParts;
  readonly #coming = new Map<string, Coming>();
  #questions: Question[] = [];

  constructor(parts: PresenceParts) {
    this.#parts = parts;
    parts.nodes.handle(whoKind, (from, bytes) => this.#answer(bytes, from));
    parts.nodes.handle(mineKind, (from, bytes) => this.#compare(bytes, from));
  }

  /** From now on others hear of it. One of a client at a time. */
  comes(clientId: string): Coming {
    const arrivedUs = this.#parts.context.clock.wallUs();
    const onOvertaken = (): void => undefined;
    const coming = { clientId, arrivedUs, isOvertaken: false, onOvertaken };
    this.#coming.set(clientId, coming);
    return coming;
  }

  left(coming: Coming): void {
    this.#coming.delete(coming.clientId);
  }

  /**
   * What an arrival at another node may ask for here now: the session that is attached, and that of a
   * connection which comes, unless it is later. One that comes afterwards is none of its business.
   */
  claimable(theirs: Arrival, from: number): (arrivedUs: number) => boolean {
    const own = this.#parts.arrivedUs(theirs.clientId);
    const coming = this.#coming.get(theirs.clientId);
    const yields = coming !== undefined && !this.#isLater(coming.arrivedUs, theirs.arrivedUs, from);
    return (arrivedUs) => arrivedUs === own || (yields && arrivedUs === coming.arrivedUs);
  }

  /** Nodes that use the client id of one that comes; it may be overtaken when this resolves. */
  users(coming: Coming): Promise<readonly number[]> {
    return new Promise((resolve) => {
      this.#questions.push({ coming, told: resolve });
      if (this.#questions.length === 1) this.#parts.context.clock.soon(() => this.#askAll());
    });
  }

  /** A peer that was not reached may have let the same client ids in. */
  async settle(node: number): Promise<void> {
    const { nodes, inMemory, displaced, context } = this.#parts;
    const all = [...inMemory()];
    for (let at = 0; at < all.length; at += arrivalsMax) {
      const page = all.slice(at, at + arrivalsMax);
      const timeoutMs = context.settings.takeoverWaitMs;
      const answer = await nodes.ask(node, mineKind, encodeArrivals(page), timeoutMs);
      for (const [index, { clientId, arrivedUs }] of page.entries()) {
        const isSame = this.#parts.arrivedUs(clientId) === arrivedUs;
        if (answer[index] === presence.later && isSame) displaced(clientId);
      }
    }
  }

  // -------------------------------------------------------------- asking

  #askAll(): void {
    const questions = this.#questions.splice(0);
    for (let at = 0; at < questions.length; at += arrivalsMax) {
      this.#ask(questions.slice(at, at + arrivalsMax)).catch((error: unknown) => {
        this.#parts.context.logger.error("session.presence_failed", {
          error: toError(error).message,
        });
      });
    }
  }

  async #ask(questions: readonly Question[]): Promise<void> {
    const { nodes, context } = this.#parts;
    const bytes = encodeArrivals(questions.map(({ coming }) => coming));
    const users = questions.map((): number[] => []);
    const asking = nodes.peers().map(async (node) => {
      let answer: Uint8Array;
      try {
        answer = await nodes.ask(node, whoKind, bytes, context.settings.takeoverWaitMs);
      } catch (error) {
        if (!isCodedError(error)) throw error;
        context.counters.peersUnanswered++;
        return;
      }
      for (const [index, { coming }] of questions.entries()) {
        if (answer[index] === presence.here) users[index]?.push(node);
        if (answer[index] === presence.later) overtake(coming);
      }
    });
    await Promise.all(asking).finally(() => {
      for (const [index, { told }] of questions.entries()) told(users[index] ?? []);
    });
  }

  // -------------------------------------------------------------- answering

  #answer(bytes: Uint8Array, from: number): Uint8Array {
    const asked = decodeArrivals(bytes) ?? [];
    return Uint8Array.from(asked, (theirs) => {
      const coming = this.#coming.get(theirs.clientId);
      if (coming === undefined) {
        const isHere = this.#parts.arrivedUs(theirs.clientId) !== undefined;
        return isHere ? presence.here : presence.none;
      }
      if (this.#isLater(coming.arrivedUs, theirs.arrivedUs, from)) return presence.later;
      overtake(coming);
      return presence.here;
    });
  }

  #compare(bytes: Uint8Array, from: number): Uint8Array {
    const theirs = decodeArrivals(bytes) ?? [];
    return Uint8Array.from(theirs, ({ clientId, arrivedUs }) => {
      const own = this.#parts.arrivedUs(clientId);
      if (own === undefined) return presence.none;
      if (this.#isLater(own, arrivedUs, from)) return presence.later;
      this.#parts.displaced(clientId);
      return presence.none;
    });
  }

  #isLater(ownUs: number, theirUs: number, theirNode: number): boolean {
    return ownUs === theirUs ? this.#parts.nodes.node > theirNode : ownUs > theirUs;
  }
}

function overtake(coming: Coming): void {
  coming.isOvertaken = true;
  coming.onOvertaken();
}
