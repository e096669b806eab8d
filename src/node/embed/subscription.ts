// A subscription of the program that a broker runs in: a session like any other, whose connection is
// a loop over messages. A message is acknowledged when the loop asks for the next one, or by
// `acknowledge`. A loop that is left has not finished its last message: whether by `break` or by an
// error in its body cannot be told apart, and what an error or a crash interrupts must come again.
//
// Back-pressure: no more than a window of messages is on its way to the loop. With a name the rest
// waits in the store, for as long as it must and while the program is away; without one it waits in
// memory, and at the brim of that queue the subscription ends with NODE_SUBSCRIPTION_OVERRUN.

import { toError } from "../../base/index.ts";
import type { Delivery, Qos, Session, SessionLink, Sessions } from "../../session/index.ts";
import type { Ttv } from "../../store/index.ts";
import { nodeErrors } from "../errors.ts";
import { countRule, type Rules, rules } from "./arguments.ts";
import { type InsideMessage, messageOf } from "./message.ts";

export type SubscribeOptions = {
  /** Keeps the place while nobody loops: a durable session under this name. */
  readonly name?: string;
  /** Highest QoS of delivery. Default 1. */
  readonly qos?: Qos;
  /** How long the place is kept after the loop ended; default 7 days. Only with a name. */
  readonly expiryS?: number;
  /** Messages on their way to the loop. Default 100. */
  readonly windowMax?: number;
  /** False: no retained messages at the start. Default true. */
  readonly retained?: boolean;
  /** Aborted, it ends the loop with its reason, as an error would. */
  readonly signal?: AbortSignal;
};

/** Client ids of this length are taken as keys. */
const nameBytesMax = 1000;

export const subscribeRules: Rules<SubscribeOptions> = {
  name: {
    expected: `a text of 1 to ${nameBytesMax} bytes`,
    holds: (name) =>
      typeof name === "string" && name !== "" && Buffer.byteLength(name) <= nameBytesMax,
  },
  qos: rules.qos,
  expiryS: countRule(1, 0xffff_ffff),
  windowMax: countRule(1, 0xffff),
  retained: rules.flag,
  signal: rules.signal,
};

export type InsideSubscription = AsyncIterableIterator<InsideMessage> & {
  /**
   * Takes the message that the loop was given last, without asking for the next one: before a `break`,
   * so that it does not come again under this name. No-op where there is none.
   */
  acknowledge(): void;
  /**
   * Messages that were gone before the loop got to them, by retention, a quota, an operator or
   * damage: an upper bound, since the loop began. 0 without a name, which has no store behind it.
   */
  readonly lostCount: number;
  /** Ends the loop. With a name the place is kept, without one all is forgotten. Once. */
  close(): Promise<void>;
  /** Ends the loop with an error, and leaves the rest as it is: the node is gone. */
  abandon(error: Error): void;
  [Symbol.asyncDispose](): Promise<void>;
};

export type SubscriptionRequest = {
  readonly clientId: string;
  readonly filters: readonly string[];
  readonly options: SubscribeOptions;
  readonly onClose: (closed: InsideSubscription) => void;
};

type Arrived = { readonly message: InsideMessage; readonly delivery: Delivery };

type Waiting = {
  readonly resolve: (result: IteratorResult<InsideMessage>) => void;
  readonly reject: (error: Error) => void;
};

/** User of sessions that the program has: nobody else can take them over. */
export const insideUser = "$inside";
export const insidePrefix = "$inside/";

const week = 7 * 24 * 3600;
const windowMaxDefault = 100;
const failureMin = 0x80;

/** @throws what the session room refuses with; NODE_SUBSCRIBE_REFUSED; the reason of `signal`. */
export async function openSubscription(
  sessions: Sessions,
  { clientId, filters, options, onClose }: SubscriptionRequest,
): Promise<InsideSubscription> {
  const { name, qos = 1, expiryS = week, windowMax = windowMaxDefault, retained = true } = options;
  options.signal?.throwIfAborted();
  const link = new LoopLink(windowMax, onClose);
  const { session, sessionPresent } = await sessions.connect(
    {
      clientId,
      user: insideUser,
      cleanStart: name === undefined,
      expiryS: name === undefined ? 0 : expiryS,
      protocol: 5,
      will: undefined,
    },
    link,
  );
  link.attach(session);
  try {
    const results = await session.subscribe(
      filters.map((filter) => ({
        ...{ filter, qos, noLocal: false, retainAsPublished: true, identifier: 0 },
        retainHandling: !retained ? 2 : sessionPresent ? 1 : 0,
      })),
    );
    const refused = results.find(({ reasonCode }) => reasonCode >= failureMin);
    if (refused !== undefined) {
      const { filter } = refused.subscription;
      throw nodeErrors.subscribeRefused({ filter, reasonCode: refused.reasonCode });
    }
    options.signal?.throwIfAborted();
    session.open();
    session.sendRetained(results);
    link.endAt(options.signal);
    return link;
  } catch (error) {
    await link.close();
    throw error;
  }
}

class LoopLink implements SessionLink, InsideSubscription {
  readonly version = 5;
  readonly receiveMaximum: number;
  lostCount = 0;
  readonly #onClose: (closed: InsideSubscription) => void;
  readonly #arrived: Arrived[] = [];
  readonly #released = new Set<number>();
  #session: Session | undefined;
  /** Given to the loop and not acknowledged yet. */
  #current: Delivery | undefined;
  /** Calls of `next`, in their order; bounded by the loop, which as a rule makes one at a time. */
  readonly #waiting: Waiting[] = [];
  #forgetSignal: () => void = () => undefined;
  #isFull = false;
  #end: { readonly error: Error | undefined } | undefined;
  #closed: Promise<void> | undefined;

  constructor(windowMax: number, onClose: (closed: InsideSubscription) => void) {
    this.receiveMaximum = windowMax;
    this.#onClose = onClose;
  }

  attach(session: Session): void {
    this.#session = session;
  }

  endAt(signal: AbortSignal | undefined): void {
    if (signal === undefined) return;
    const end = (): void => queueMicrotask(() => this.#finish(toError(signal.reason)));
    signal.addEventListener("abort", end, { once: true });
    this.#forgetSignal = () => signal.removeEventListener("abort", end);
  }

  // -------------------------------------------------------------- the session's side

  fits(): boolean {
    return true;
  }

  publish(ttv: Ttv, delivery: Delivery): "sent" | "full" {
    if (this.#end !== undefined || this.#arrived.length >= this.receiveMaximum) {
      this.#isFull = true;
      return "full";
    }
    const { qos, retain } = delivery;
    this.#arrived.push({ message: { ...messageOf(ttv), qos, retain }, delivery: { ...delivery } });
    // Not at once: a session must not be called back from within.
    if (this.#waiting.length > 0) queueMicrotask(() => this.#give());
    return "sent";
  }

  pubrel(packetId: number): void {
    this.#released.add(packetId);
    queueMicrotask(() => this.#complete(packetId));
  }

  lost(count: number): void {
    this.lostCount += count;
  }

  end(reasonCode: number): void {
    const error = nodeErrors.subscriptionOverrun({ reasonCode });
    queueMicrotask(() => this.#finish(error));
  }

  // -------------------------------------------------------------- the loop's side

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<InsideMessage>> {
    this.acknowledge();
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      this.#give();
    });
  }

  acknowledge(): void {
    const delivery = this.#current;
    this.#current = undefined;
    if (delivery === undefined || delivery.qos === 0 || this.#end !== undefined) return;
    const { packetId, qos } = delivery;
    if (qos === 1) this.#session?.puback(packetId, 0);
    else this.#session?.pubrec(packetId, 0);
  }

  async return(): Promise<IteratorResult<InsideMessage>> {
    await this.close();
    return { done: true, value: undefined };
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    this.#finish(undefined);
    this.#onClose(this);
    await this.#session?.detach({ kind: "disconnect", expiryS: undefined });
  }

  abandon(error: Error): void {
    this.#closed ??= Promise.resolve();
    this.#finish(error);
  }

  #give(): void {
    while (this.#waiting.length > 0) {
      const arrived = this.#end === undefined ? this.#arrived.shift() : undefined;
      if (arrived === undefined && this.#end === undefined) return;
      const waiting = this.#waiting.shift() as Waiting;
      if (arrived !== undefined) {
        // Asked for before the one in front of it was given.
        this.acknowledge();
        this.#current = arrived.delivery;
        waiting.resolve({ done: false, value: arrived.message });
        this.#makeRoom();
        continue;
      }
      const error = this.#end?.error;
      if (error === undefined) waiting.resolve({ done: true, value: undefined });
      else waiting.reject(error);
    }
  }

  #makeRoom(): void {
    if (!this.#isFull || this.#arrived.length > this.receiveMaximum / 2) return;
    this.#isFull = false;
    this.#session?.drained();
  }

  #complete(packetId: number): void {
    if (this.#released.delete(packetId)) this.#session?.pubcomp(packetId, 0);
  }

  #finish(error: Error | undefined): void {
    if (this.#end !== undefined) return;
    this.#end = { error };
    this.#forgetSignal();
    this.#arrived.length = 0;
    this.#give();
    // A session that was ended from its side is let go of as well.
    if (error !== undefined) this.close().catch(() => undefined); // told by the loop already
  }
}
