// The oracle for sessions whose subscriptions come and go. Everything that happens has a place in one
// order of events (`at`), so that "before SUBACK" and "after UNSUBACK" are questions of numbers.
//
// What it finds wrong, at once where that is possible:
// - loss: acked, sent after the SUBACK of a filter that stayed, never received by a durable session;
// - duplicate: at QoS 2 any; at QoS 1 a repeat without DUP, or on the same connection;
// - order: a first delivery behind a later message of its publisher;
// - unexpected: what nobody sent, what no subscription can have asked for (unsubscribed before it was
//   sent, subscribed after it was acked), a QoS that is not the granted one.
//
// A publisher that sends a QoS 1 message again says so in the payload (`attempt`), so a repeat by
// the publisher is told from one by the broker.

import { matches, parseTopicFilter, splitTopic, type TopicFilter } from "../../src/topic/index.ts";

export type Qos = 0 | 1 | 2;

export type Message = {
  readonly publisher: string;
  readonly number: number;
  readonly topic: string;
  readonly words: readonly string[];
  readonly qos: Qos;
  readonly retain: boolean;
  /** Nothing but its topic can be known of an empty one. */
  readonly isEmpty: boolean;
  readonly firstSentAt: number;
  /** Of the publisher: QoS 0 keeps its order within one. */
  readonly connection: number;
  attempt: number;
  ackedAt: number | undefined;
  ackedMs: number;
};

/** One life of a filter in a session. */
type Interval = {
  readonly filter: TopicFilter;
  readonly qos: Qos;
  readonly requestedAt: number;
  grantedAt: number | undefined;
  leavingAt: number | undefined;
  leftAt: number | undefined;
};

export type SessionKind = "durable" | "memory";

export class SessionBook {
  readonly name: string;
  readonly kind: SessionKind;
  /** By text, the newest life last. */
  readonly filters = new Map<string, Interval[]>();
  /** By message: how often it was new to the application, at which QoS. */
  readonly news = new Map<Message, Qos[]>();
  readonly seen = new Map<string, number>();
  readonly last = new Map<string, number>();

  constructor(name: string, kind: SessionKind) {
    this.name = name;
    this.kind = kind;
  }
}

export type Receipt = {
  readonly topic: string;
  readonly payload: string;
  readonly qos: Qos;
  readonly dup: boolean;
  readonly retain: boolean;
  /** Counts the session's connections. */
  readonly connection: number;
  /** False for a QoS 2 repeat under an id that the client still holds. */
  readonly isNew: boolean;
};

export class SubscriptionOracle {
  readonly messages: Message[] = [];
  readonly #byName = new Map<string, Message>();
  readonly #numbers = new Map<string, number>();
  readonly #books = new Map<string, SessionBook>();
  readonly #fault: (text: string) => void;
  #at = 0;

  constructor(fault: (text: string) => void) {
    this.#fault = fault;
  }

  /** The place of the event that happens now. */
  now(): number {
    return ++this.#at;
  }

  open(name: string, kind: SessionKind): SessionBook {
    const book = new SessionBook(name, kind);
    this.#books.set(name, book);
    return book;
  }

  // -------------------------------------------------------------- publishers

  /** A new message, sent now. */
  send(
    publisher: string,
    what: Pick<Message, "topic" | "qos" | "retain" | "isEmpty" | "connection">,
  ): Message {
    const number = (this.#numbers.get(publisher) ?? 0) + 1;
    this.#numbers.set(publisher, number);
    const message: Message = {
      publisher,
      number,
      words: splitTopic(what.topic),
      ...what,
      firstSentAt: this.now(),
      attempt: 0,
      ackedAt: undefined,
      ackedMs: 0,
    };
    this.messages.push(message);
    this.#byName.set(`${publisher} ${number}`, message);
    return message;
  }

  acked(message: Message, atMs: number): void {
    message.ackedAt ??= this.now();
    message.ackedMs = atMs;
  }

  // -------------------------------------------------------------- subscribers

  requested(book: SessionBook, filter: string, qos: Qos): void {
    const lives = book.filters.get(filter) ?? [];
    book.filters.set(filter, lives);
    const last = lives.at(-1);
    if (last !== undefined && last.leftAt === undefined) return;
    lives.push({
      filter: parseTopicFilter(filter),
      qos,
      requestedAt: this.now(),
      grantedAt: undefined,
      leavingAt: undefined,
      leftAt: undefined,
    });
  }

  granted(book: SessionBook, filter: string): void {
    const last = book.filters.get(filter)?.at(-1);
    if (last !== undefined) last.grantedAt ??= this.now();
  }

  leaving(book: SessionBook, filter: string): void {
    const last = book.filters.get(filter)?.at(-1);
    if (last !== undefined) last.leavingAt ??= this.now();
  }

  left(book: SessionBook, filter: string): void {
    const last = book.filters.get(filter)?.at(-1);
    if (last !== undefined) last.leftAt ??= this.now();
  }

  /** The session is over: nothing more comes of its subscriptions. */
  ended(book: SessionBook): void {
    for (const filter of book.filters.keys()) {
      this.leaving(book, filter);
      this.left(book, filter);
    }
  }

  /** Returns the message when it is known. */
  received(book: SessionBook, receipt: Receipt): Message | undefined {
    const { topic, payload, qos, retain } = receipt;
    if (payload === "") return undefined;
    const [publisher = "", number = "", attempt = ""] = payload.split(" ");
    const message = this.#byName.get(`${publisher} ${number}`);
    if (message === undefined || message.topic !== topic || Number(attempt) > message.attempt) {
      this.#wrong(book, receipt, "which nobody sent");
      return undefined;
    }
    if (!retain) {
      const isOwed = this.#checkRight(book, receipt, message);
      this.#checkRepeat(book, receipt);
      // An earlier attempt may have passed before there was a subscription: then this one is late.
      const isInOrder = isOwed || Number(attempt) === 0;
      if (receipt.isNew) this.#checkNew(book, receipt, message, isInOrder);
    } else if (qos > message.qos) {
      this.#wrong(book, receipt, "retained at a lower QoS");
    }
    return message;
  }

  /** True when a filter above QoS 0 asked for it before it was first sent. */
  #checkRight(book: SessionBook, receipt: Receipt, message: Message): boolean {
    const now = this.now();
    let most = -1;
    let least = -1;
    for (const lives of book.filters.values()) {
      for (const life of lives) {
        if (!matches(life.filter, message.words)) continue;
        const isPossible =
          life.requestedAt < (message.ackedAt ?? now) &&
          (life.leftAt === undefined || life.leftAt > message.firstSentAt);
        if (isPossible) most = Math.max(most, life.qos);
        if (isOwed(life, message)) least = Math.max(least, life.qos);
      }
    }
    if (most < 0) this.#wrong(book, receipt, "which no subscription asks for");
    else if (receipt.qos > Math.min(message.qos, most)) {
      this.#wrong(book, receipt, "above the granted QoS");
    } else if (receipt.qos < Math.min(message.qos, least)) {
      this.#wrong(book, receipt, "below the granted QoS");
    }
    return least > 0;
  }

  #checkRepeat(book: SessionBook, receipt: Receipt): void {
    const { payload, dup, connection } = receipt;
    const before = book.seen.get(payload);
    book.seen.set(payload, connection);
    if (before === undefined) return;
    if (receipt.qos === 0) this.#wrong(book, receipt, "a second time at QoS 0");
    else if (!dup) this.#wrong(book, receipt, "again without DUP");
    else if (before === connection) this.#wrong(book, receipt, "twice on one connection");
  }

  #checkNew(book: SessionBook, receipt: Receipt, message: Message, isInOrder: boolean): void {
    const news = book.news.get(message) ?? [];
    if (receipt.qos === 2 && news.includes(2)) {
      this.#wrong(book, receipt, "a second time at QoS 2");
    }
    const isFirst = news.length === 0;
    book.news.set(message, [...news, receipt.qos]);
    if (!isFirst || !isInOrder) return;
    const isStored = book.kind === "durable" && message.qos > 0 && receipt.qos > 0;
    const lane = isStored
      ? `${message.publisher} stored`
      : `${message.publisher} ${message.topic} ${message.qos}`;
    const last = book.last.get(lane) ?? 0;
    if (message.number < last) this.#wrong(book, receipt, `behind number ${last}`);
    book.last.set(lane, Math.max(last, message.number));
  }

  /** Since when this session may have asked for what is retained on the topic. */
  askedSince(book: SessionBook, topic: string): number {
    const words = splitTopic(topic);
    // A durable session may still hold what its subscription before the last one has brought.
    const livesMax = book.kind === "durable" ? 2 : 1;
    const lives = [...book.filters.values()].flatMap((all) => all.slice(-livesMax));
    const asked = lives.filter(({ filter }) => matches(filter, words));
    return Math.min(...asked.map(({ requestedAt }) => requestedAt));
  }

  // -------------------------------------------------------------- in the end

  /** Acked messages that a durable session should have and has not. */
  missing(book: SessionBook): Message[] {
    const lives = [...book.filters.values()].flat();
    return this.messages.filter(
      (message) =>
        message.ackedAt !== undefined &&
        message.qos > 0 &&
        !message.isEmpty &&
        !book.news.has(message) &&
        lives.some(
          (life) => life.qos > 0 && isOwed(life, message) && matches(life.filter, message.words),
        ),
    );
  }

  #wrong(book: SessionBook, receipt: Receipt, why: string): void {
    const { topic, payload, qos, dup, retain, connection } = receipt;
    const text = payload.trimEnd();
    const how = `QoS ${qos}${dup ? " DUP" : ""}${retain ? " RETAIN" : ""}, connection ${connection}`;
    this.#fault(`${book.name} got ${text} on ${topic} (${how}), ${why}`);
  }
}

/** The filter was granted before the message was first sent, and it stayed. */
function isOwed(life: Interval, message: Message): boolean {
  return (
    life.grantedAt !== undefined &&
    life.grantedAt < message.firstSentAt &&
    life.leavingAt === undefined
  );
}

export function formatMessage(message: Message): string {
  const { publisher, number, topic, qos, firstSentAt, ackedAt } = message;
  return `${publisher} ${number} on ${topic} at QoS ${qos}, sent at ${firstSentAt}, acked at ${ackedAt}`;
}

/** The payload: padded with dots to `sizeBytes`. */
export function payloadOf(message: Message, sizeBytes = 0): string {
  if (message.isEmpty) return "";
  return `${message.publisher} ${message.number} ${message.attempt} `.padEnd(sizeBytes, ".");
}
