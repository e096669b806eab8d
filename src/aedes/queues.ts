// Queues of clients: what was published for a client and is not acknowledged, in order of arrival.
// Aedes names a packet first by its broker and count, then, once sent, by a message id.
//
// Invariants: an entry and its body come and go in one entry of the log; changes of one packet
// happen one after the other, changes of different packets side by side. A client gets one copy
// however many of its subscriptions match.

import { createLru, isCodedError, type Logger } from "../base/index.ts";
import type { MapWrite } from "../store/index.ts";
import type { Bodies } from "./bodies.ts";
import { aedesErrors } from "./errors.ts";
import { formatNumber } from "./keys.ts";
import { KeyedLock, Turns } from "./lock.ts";
import {
  decodeEntry,
  decodeNumber,
  encodeEntry,
  encodeNumber,
  type QueueEntry,
} from "./records.ts";
import type { AedesState } from "./state.ts";
import type { AedesPacket } from "./types.ts";

/** Receivers named in one record of the log; more make several, the body in the first. */
const receiversMax = 500;

/** Where packets stand is remembered this far back; beyond, the queue is looked through. */
const placesBytesMax = 16 * 1024 * 1024;
const placeBytes = 100;

/** Broker id of packets that had none when they were stored. */
const earlyBrokerId = "flagstone";

type Place = { readonly order: number };

export class Queues {
  readonly #state: AedesState;
  readonly #bodies: Bodies;
  readonly #logger: Logger;
  readonly #lock = new KeyedLock();
  readonly #turns = new Turns();
  readonly #places = createLru<Place>(placesBytesMax, (_, name) => placeBytes + name.length);

  readonly #givenOut = new WeakMap<AedesPacket, number>();

  constructor(state: AedesState, bodies: Bodies, logger: Logger) {
    this.#state = state;
    this.#bodies = bodies;
    this.#logger = logger;
  }

  /**
   * One copy for each client; tells where each stands. Resolves when all of it is durable. `first`
   * are writes that go along with the body, in the same entry of the log.
   */
  async enqueue(
    clients: readonly string[],
    packet: AedesPacket,
    first: MapWrite[] = [],
  ): Promise<ReadonlyMap<string, number>> {
    const receivers = [...new Set(clients)];
    const orders = new Map<string, number>();
    const parts: Array<Promise<void>> = [];
    let body = 0;
    for (let at = 0; at < receivers.length; at += receiversMax) {
      const part = receivers.slice(at, at + receiversMax);
      const writes = at === 0 ? first : [];
      if (at === 0) body = this.#bodies.share(packet, part.length, writes);
      else this.#bodies.addUsers(body, part.length, writes);
      for (const client of part) {
        orders.set(client, this.#append(client, packet, body, writes));
      }
      parts.push(this.#write(writes, body));
    }
    if (parts.length === 0 && first.length > 0) parts.push(this.#write(first, undefined));
    await Promise.all(parts);
    return orders;
  }

  /** The packets that stand there have this name now. */
  rename(orders: ReadonlyMap<string, number>, { brokerId, brokerCounter }: AedesPacket): void {
    if (brokerId === undefined || brokerCounter === undefined) return;
    for (const [client, order] of orders) {
      this.#places.set(placeName(client, brokerId, brokerCounter), { order });
    }
  }

  /**
   * Notes the id under which a packet is sent, or that its PUBREL takes its place. Changes of one
   * client are made in the order of the calls, since Aedes sends what it noted in that order.
   */
  async update(client: string, packet: AedesPacket): Promise<void> {
    const turn = this.#turns.take(client);
    try {
      const isRelease = packet.cmd !== "publish" && packet.cmd !== undefined;
      const order =
        (isRelease ? undefined : await this.#orderByName(client, packet)) ??
        (await this.#orderById(client, packet.messageId));
      // Before the lock: who holds a lock waits for no turn.
      await turn.before;
      if (order === undefined) throw unknown(client, packet);
      await this.#lock.run(`${client}/${order}`, async () => {
        const entry = await this.#entryAt(client, order);
        if (entry === undefined) throw unknown(client, packet);
        const writes: MapWrite[] = [];
        const isReleased = isRelease && entry.kind === "publish";
        if (isReleased) await this.#bodies.release(entry.body, writes);
        const { messageId } = packet;
        const changed: QueueEntry = isRelease
          ? { kind: "release", messageId, brokerId: undefined, brokerCounter: 0, body: 0 }
          : { ...entry, messageId };
        writes.push({ key: this.#entryKey(client, order), value: encodeEntry(changed) });
        await this.#moveId(client, entry.messageId, messageId, order, writes);
        const written = this.#write(writes, isReleased ? entry.body : undefined);
        turn.begun();
        await written;
      });
    } finally {
      turn.begun();
    }
  }

  /**
   * Takes a packet out of the queue; undefined when it is not there. A packet that was never sent is
   * taken only as `packets` gave it out: Aedes also calls this for what it takes for a duplicate, be
   * it of a message that is on its way or of one that was overtaken and never sent.
   */
  async clear(client: string, packet: AedesPacket): Promise<AedesPacket | undefined> {
    const order =
      packet.messageId !== undefined
        ? await this.#orderById(client, packet.messageId)
        : this.#givenOut.get(packet);
    if (order === undefined) return undefined;
    return this.#lock.run(`${client}/${order}`, async () => {
      const entry = await this.#entryAt(client, order);
      if (entry === undefined) return undefined;
      const cleared = await this.#packetOf(entry);
      const writes: MapWrite[] = [{ key: this.#entryKey(client, order), value: undefined }];
      if (entry.kind === "publish") await this.#bodies.release(entry.body, writes);
      await this.#moveId(client, entry.messageId, undefined, order, writes);
      await this.#write(writes, entry.kind === "publish" ? entry.body : undefined);
      return cleared;
    });
  }

  /** What is queued now, oldest first. What cannot be read is passed over and told. */
  async *packets(client: string): AsyncGenerator<AedesPacket> {
    const until = this.#state.takeNumber([]);
    const prefix = this.#state.keys.queue(client);
    for await (const { key, value } of this.#state.entries(prefix)) {
      const order = orderOf(key);
      if (order > until) return;
      try {
        const entry = decodeEntry(key, value);
        const packet = await this.#packetOf(entry);
        if (packet === undefined) continue;
        this.#remember(client, entry, order);
        this.#givenOut.set(packet, order);
        yield packet;
      } catch (error) {
        if (!isCodedError(error) || error.kind !== "corrupt") throw error;
        this.#logger.error("aedes.record_skipped", { key, error });
      }
    }
  }

  #append(client: string, packet: AedesPacket, body: number, writes: MapWrite[]): number {
    const order = this.#state.takeNumber(writes);
    // Stored before Aedes named it: its place is its name.
    const { brokerId = earlyBrokerId, brokerCounter = order } = packet;
    const entry: QueueEntry = {
      ...{ kind: "publish", messageId: undefined, brokerId, brokerCounter, body },
    };
    writes.push({ key: this.#entryKey(client, order), value: encodeEntry(entry) });
    this.#remember(client, entry, order);
    return order;
  }

  async #write(writes: readonly MapWrite[], body: number | undefined): Promise<void> {
    try {
      await this.#state.write(writes);
      if (body !== undefined) this.#bodies.settled(body);
    } catch (error) {
      if (body !== undefined) this.#bodies.settled(body, error);
      throw error;
    }
  }

  /** Undefined when the body went meanwhile. */
  async #packetOf(entry: QueueEntry): Promise<AedesPacket | undefined> {
    const { kind, messageId, brokerId, brokerCounter, body } = entry;
    if (kind === "release") return { cmd: "pubrel", messageId };
    const packet = await this.#bodies.read(body);
    if (packet === undefined) return undefined;
    return queuedPacket(packet, { messageId, brokerId, brokerCounter });
  }

  async #entryAt(client: string, order: number): Promise<QueueEntry | undefined> {
    const key = this.#entryKey(client, order);
    const found = await this.#state.get(key);
    return found === undefined ? undefined : decodeEntry(key, found.value);
  }

  // -------------------------------------------------------------- where packets stand

  async #orderByName(client: string, packet: AedesPacket): Promise<number | undefined> {
    const { brokerId, brokerCounter } = packet;
    if (typeof brokerId !== "string" || brokerCounter === undefined) return undefined;
    const known = this.#places.get(placeName(client, brokerId, brokerCounter));
    if (known !== undefined) return known.order;
    for await (const { key, value } of this.#state.entries(this.#state.keys.queue(client))) {
      const entry = decodeEntry(key, value);
      if (entry.brokerId === brokerId && entry.brokerCounter === brokerCounter) return orderOf(key);
    }
    return undefined;
  }

  async #orderById(client: string, messageId: number | undefined): Promise<number | undefined> {
    if (typeof messageId !== "number") return undefined;
    const key = this.#state.keys.sent(client, messageId);
    const found = await this.#state.get(key);
    return found === undefined ? undefined : decodeNumber(key, found.value);
  }

  /** Aedes may give an id again while an old packet still has it: the id names the newer one. */
  async #moveId(
    client: string,
    before: number | undefined,
    after: number | undefined,
    order: number,
    writes: MapWrite[],
  ): Promise<void> {
    if (before === after) return;
    const { keys } = this.#state;
    if ((await this.#orderById(client, before)) === order) {
      writes.push({ key: keys.sent(client, before as number), value: undefined });
    }
    if (after !== undefined) {
      writes.push({ key: keys.sent(client, after), value: encodeNumber(order) });
    }
  }

  #remember(client: string, entry: QueueEntry, order: number): void {
    const { brokerId, brokerCounter } = entry;
    if (brokerId === undefined) return;
    this.#places.set(placeName(client, brokerId, brokerCounter), { order });
  }

  #entryKey(client: string, order: number): string {
    return this.#state.keys.queue(client) + formatNumber(order);
  }
}

/** A packet as Aedes sends it on: what every delivery has, and how this one is called. */
export function queuedPacket(
  body: AedesPacket,
  { messageId, brokerId, brokerCounter }: Omit<QueueEntry, "kind" | "body">,
): AedesPacket {
  return {
    cmd: "publish",
    payload: Buffer.alloc(0),
    qos: 0,
    retain: false,
    dup: false,
    ...body,
    ...{ messageId, brokerId, brokerCounter },
  };
}

function placeName(client: string, brokerId: string, brokerCounter: number): string {
  return `${client}\0${brokerId}\0${brokerCounter}`;
}

function orderOf(key: string): number {
  return Number.parseInt(key.slice(key.lastIndexOf("/") + 1), 16);
}

function unknown(client: string, { messageId, brokerId, brokerCounter }: AedesPacket): Error {
  const packet = messageId ?? `${brokerId}:${brokerCounter}`;
  return aedesErrors.packetUnknown({ client, packet });
}
