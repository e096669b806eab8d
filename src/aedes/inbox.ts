// Packets that came at QoS 2 and are not released: what tells a repeat from a new one. Their bodies
// are those of the deliveries, kept once.

import type { MapWrite } from "../store/index.ts";
import type { Bodies } from "./bodies.ts";
import { aedesErrors } from "./errors.ts";
import { KeyedLock, type Turn } from "./lock.ts";
import { queuedPacket } from "./queues.ts";
import { decodeEntry, encodeEntry, type QueueEntry } from "./records.ts";
import type { AedesState } from "./state.ts";
import type { AedesPacket } from "./types.ts";

export class Inbox {
  readonly #state: AedesState;
  readonly #bodies: Bodies;
  readonly #lock = new KeyedLock();

  constructor(state: AedesState, bodies: Bodies) {
    this.#state = state;
    this.#bodies = bodies;
  }

  /** Replaces what came before under the same id. */
  store(client: string, packet: AedesPacket): Promise<void> {
    const { messageId = 0, brokerId, brokerCounter = 0 } = packet;
    const key = this.#state.keys.inbound(client, messageId);
    return this.#lock.run(key, async () => {
      const before = await this.#entry(key);
      const writes: MapWrite[] = [];
      if (before !== undefined) await this.#bodies.release(before.body, writes);
      const body = this.#bodies.share(packet, 1, writes);
      const entry: QueueEntry = { kind: "publish", messageId, brokerId, brokerCounter, body };
      writes.push({ key, value: encodeEntry(entry) });
      const bodies = before === undefined ? [body] : [body, before.body];
      await this.#settle(bodies, () => this.#state.write(writes));
    });
  }

  /**
   * Stores a packet along with what `storeRest` writes besides, in one entry; undefined when it came
   * before. `writes` of the packet are handed on, and `storeRest` resolves when they are durable; it is
   * called, and has to give them to the store, in the order of the turns.
   */
  storeWith<T>(
    client: string,
    packet: AedesPacket,
    turn: Turn,
    storeRest: (writes: MapWrite[]) => Promise<T>,
  ): Promise<T | undefined> {
    const { messageId = 0, brokerId, brokerCounter = 0 } = packet;
    const key = this.#state.keys.inbound(client, messageId);
    return this.#lock.run(key, async () => {
      try {
        const known = await this.#entry(key);
        await turn.before;
        if (known !== undefined) return undefined;
        const writes: MapWrite[] = [];
        const body = this.#bodies.share(packet, 1, writes);
        const entry: QueueEntry = { kind: "publish", messageId, brokerId, brokerCounter, body };
        writes.push({ key, value: encodeEntry(entry) });
        const stored = this.#settle([body], () => storeRest(writes));
        turn.begun();
        return await stored;
      } finally {
        turn.begun();
      }
    });
  }

  /** @throws AEDES_PACKET_UNKNOWN. */
  async get(client: string, { messageId = 0 }: AedesPacket): Promise<AedesPacket> {
    const entry = await this.#entry(this.#state.keys.inbound(client, messageId));
    const packet = entry === undefined ? undefined : await this.#bodies.read(entry.body);
    if (entry === undefined || packet === undefined) throw unknown(client, messageId);
    return queuedPacket(packet, entry);
  }

  /** @throws AEDES_PACKET_UNKNOWN. */
  remove(client: string, { messageId = 0 }: AedesPacket): Promise<void> {
    return this.#remove(this.#state.keys.inbound(client, messageId), () => {
      throw unknown(client, messageId);
    });
  }

  async removeAll(client: string): Promise<void> {
    const removed: Array<Promise<void>> = [];
    for await (const { key } of this.#state.entries(this.#state.keys.inbox(client))) {
      removed.push(this.#remove(key, () => undefined));
    }
    await Promise.all(removed);
  }

  #remove(key: string, missing: () => void): Promise<void> {
    return this.#lock.run(key, async () => {
      const entry = await this.#entry(key);
      if (entry === undefined) {
        missing();
        return;
      }
      const writes: MapWrite[] = [{ key, value: undefined }];
      await this.#bodies.release(entry.body, writes);
      await this.#settle([entry.body], () => this.#state.write(writes));
    });
  }

  async #entry(key: string): Promise<QueueEntry | undefined> {
    const found = await this.#state.get(key);
    return found === undefined ? undefined : decodeEntry(key, found.value);
  }

  async #settle<T>(bodies: readonly number[], write: () => Promise<T>): Promise<T> {
    try {
      const result = await write();
      for (const body of bodies) this.#bodies.settled(body);
      return result;
    } catch (error) {
      for (const body of bodies) this.#bodies.settled(body, error);
      throw error;
    }
  }
}

function unknown(client: string, messageId: number): Error {
  return aedesErrors.packetUnknown({ client, packet: messageId });
}
