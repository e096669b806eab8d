// Numbered messages in raw bytes, for tests with many of them: a publisher that sends in order and
// knows what was acked, and a receiver that answers as a client should and keeps what it got over its
// connections. QoS 2 is counted once per exchange, as a client that stores identifiers does.

import { bytes, puback, pubcomp, publish, publish5, pubrec, pubrel } from "./mqtt-bytes.ts";
import type { Frame, RawClient } from "./raw-client.ts";

export type Arrival = {
  readonly topic: string;
  readonly text: string;
  readonly qos: number;
  readonly dup: boolean;
  readonly retain: boolean;
  readonly packetId: number | undefined;
  /** Counts the receiver's connections, from 1. */
  readonly connection: number;
  /** A PUBLISH of a QoS 2 exchange that was open already. */
  readonly isRepeat: boolean;
};

const typeOf = { publish: 3, puback: 4, pubrec: 5, pubrel: 6, pubcomp: 7 } as const;

export class Receiver {
  readonly arrivals: Arrival[] = [];
  /** What the receiver does not answer. */
  mute: (arrival: Arrival) => boolean = () => false;
  connection = 0;
  /** QoS 2 exchanges that are open: PUBLISH received, PUBREL not. */
  readonly #open = new Set<number>();
  readonly #fresh: Arrival[] = [];
  readonly #seen = new Set<string>();
  readonly #counts = new Map<string, number>();
  #client: RawClient | undefined;

  /** Takes everything that comes on this connection from now on. */
  attach(client: RawClient): void {
    this.#client = client;
    this.connection++;
    client.handle((frame) => this.#take(client, frame));
  }

  get client(): RawClient {
    if (this.#client === undefined) throw new Error("the receiver has no connection");
    return this.#client;
  }

  /** Texts of a topic in order of arrival, repeats left out. */
  texts(topic?: string): string[] {
    return this.fresh(topic).map(({ text }) => text);
  }

  /** The first arrival of each text. */
  fresh(topic?: string): Arrival[] {
    return this.#fresh.filter((arrival) => topic === undefined || arrival.topic === topic);
  }

  /** Texts of a topic so far, repeats left out. */
  count(topic: string): number {
    return this.#counts.get(topic) ?? 0;
  }

  /** Resolves when so many different messages have arrived; rejects with how many did. */
  async until(count: number, withinMs = 30_000): Promise<void> {
    await waitUntil(
      () => this.#fresh.length >= count,
      withinMs,
      () => {
        return `${this.#fresh.length} of ${count} messages arrived within ${withinMs} ms`;
      },
    );
  }

  #take(client: RawClient, frame: Frame): void {
    const { type, bytes: data } = frame;
    if (type === typeOf.pubrel) {
      const id = data.readUInt16BE(2);
      this.#open.delete(id);
      client.send(pubcomp(id));
      return;
    }
    if (type !== typeOf.publish) return;
    const arrival = this.#arrivalOf(frame, client.level === 5);
    this.arrivals.push(arrival);
    const key = `${arrival.topic} ${arrival.text}`;
    if (!arrival.isRepeat && !this.#seen.has(key)) {
      this.#seen.add(key);
      this.#fresh.push(arrival);
      this.#counts.set(arrival.topic, this.count(arrival.topic) + 1);
    }
    if (arrival.qos === 2) this.#open.add(arrival.packetId as number);
    if (arrival.qos === 0 || this.mute(arrival)) return;
    const answer = arrival.qos === 1 ? puback : pubrec;
    client.send(answer(arrival.packetId as number));
  }

  #arrivalOf(frame: Frame, hasProperties: boolean): Arrival {
    const { bytes: data, flags } = frame;
    const qos = (flags >> 1) & 3;
    let at = 1;
    while ((data[at] as number) >= 0x80) at++;
    at++;
    const topicEnd = at + 2 + data.readUInt16BE(at);
    const topic = data.toString("utf8", at + 2, topicEnd);
    at = topicEnd;
    const packetId = qos > 0 ? data.readUInt16BE(at) : undefined;
    if (qos > 0) at += 2;
    // Property lists of these tests are short.
    if (hasProperties) at += 1 + (data[at] as number);
    return {
      topic,
      text: data.toString("utf8", at),
      qos,
      dup: (flags & 8) !== 0,
      retain: (flags & 1) !== 0,
      packetId,
      connection: this.connection,
      isRepeat: qos === 2 && this.#open.has(packetId as number),
    };
  }
}

export type NumberedOptions = {
  readonly topic: string;
  readonly count: number;
  readonly qos?: 1 | 2;
  /** Messages sent and not yet acked. Default 100. */
  readonly window?: number;
  readonly first?: number;
};

/** Publishes numbers as texts, in order, and resolves when all are acked. */
export async function publishNumbered(client: RawClient, options: NumberedOptions): Promise<void> {
  const { topic, count, qos = 1, window = 100, first = 1 } = options;
  const create = client.level === 5 ? publish5 : publish;
  let sent = 0;
  let done = 0;
  let end: () => void = () => undefined;
  const finished = new Promise<void>((resolve) => {
    end = resolve;
  });
  const idOf = (n: number): number => (n % 60_000) + 1;
  const sendMore = (): void => {
    const batch: Buffer[] = [];
    while (sent < count && sent - done < window) {
      batch.push(create(topic, `${first + sent}`, { qos, id: idOf(sent) }));
      sent++;
    }
    if (batch.length > 0) client.send(bytes(...batch));
  };
  client.handle(({ type, bytes: data }) => {
    if (type === typeOf.pubrec) client.send(pubrel(data.readUInt16BE(2)));
    if (type !== typeOf.puback && type !== typeOf.pubcomp) return;
    done++;
    if (done === count) end();
    // In batches, as long as the window is half full.
    else if (sent - done <= window / 2) sendMore();
  });
  sendMore();
  if (count > 0) await finished;
  client.handle(() => undefined);
}

/** The numbers from first to last as texts. */
export function numbers(first: number, last: number): string[] {
  return Array.from({ length: last - first + 1 }, (_, index) => `${first + index}`);
}

export async function waitUntil(
  isTrue: () => boolean,
  withinMs: number,
  late: () => string,
): Promise<void> {
  const deadline = performance.now() + withinMs;
  while (!isTrue()) {
    if (performance.now() > deadline) throw new Error(late());
    await pause(10);
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
