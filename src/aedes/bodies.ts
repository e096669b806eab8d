// Bodies of packets: each is kept once, however many queues it stands in, and goes with its last user.
//
// Invariants: the count of users changes in the same entry as the user, so that a body is never
// without a count that fits; counts of bodies with writes under way are in memory, where the next
// change builds on them. A body that came at QoS 2 is the body of its deliveries too.

import type { MapWrite } from "../store/index.ts";
import { decodeNumber, decodePacket, encodeNumber, encodePacket } from "./records.ts";
import type { AedesState } from "./state.ts";
import type { AedesPacket } from "./types.ts";

type Users = {
  count: number;
  /** Changes that are not durable yet. */
  underWay: number;
};

/** Fields that a packet and its deliveries share; a copy, since Aedes changes its packets. */
type Shared = Pick<AedesPacket, "topic" | "qos" | "retain" | "properties" | "messageExpiry">;

type Known = { readonly number: number; readonly shared: Shared };

/** Counts kept beyond those with writes under way; more are looked up again. */
const countsMax = 10_000;

export class Bodies {
  readonly #state: AedesState;
  readonly #users = new Map<number, Users>();
  readonly #loading = new Map<number, Promise<Users>>();
  /** Bodies by the memory of their payload, which Aedes hands on as it came. */
  readonly #byPayload = new WeakMap<Uint8Array, Known>();

  constructor(state: AedesState) {
    this.#state = state;
  }

  /** A body for so many users: a new one, or that of the same message. Call `settled` after. */
  share(packet: AedesPacket, count: number, writes: MapWrite[]): number {
    const known = this.#knownOf(packet);
    const users = known === undefined ? undefined : this.#users.get(known.number);
    if (known !== undefined && users !== undefined && users.count > 0) {
      this.#change(known.number, users, count, writes);
      return known.number;
    }
    const number = this.#state.takeNumber(writes);
    const { payload } = packet;
    if (payload instanceof Uint8Array) {
      this.#byPayload.set(payload, { number, shared: sharedOf(packet) });
    }
    writes.push({ key: this.#state.keys.body(number), value: encodePacket(bodyOf(packet)) });
    const made: Users = { count: 0, underWay: 0 };
    this.#users.set(number, made);
    this.#change(number, made, count, writes);
    return number;
  }

  /** More users of a body that `share` has just given. */
  addUsers(number: number, count: number, writes: MapWrite[]): void {
    const users = this.#users.get(number);
    if (users !== undefined) this.#change(number, users, count, writes);
  }

  /** One user less; the last one takes the body along. Call `settled` after. */
  async release(number: number, writes: MapWrite[]): Promise<void> {
    const users = this.#users.get(number) ?? (await this.#load(number));
    this.#change(number, users, -1, writes);
  }

  /** The write of a change has ended. After a failure the count is what the store says. */
  settled(number: number, error?: unknown): void {
    const users = this.#users.get(number);
    if (users === undefined) return;
    users.underWay--;
    const isSpare = users.underWay === 0 && (users.count <= 0 || this.#users.size > countsMax);
    if (error !== undefined || isSpare) this.#users.delete(number);
  }

  /** Undefined when it is gone. @throws AEDES_RECORD_CORRUPT. */
  async read(number: number): Promise<AedesPacket | undefined> {
    const key = this.#state.keys.body(number);
    const entry = await this.#state.get(key);
    return entry === undefined ? undefined : decodePacket(key, entry.value);
  }

  #change(number: number, users: Users, delta: number, writes: MapWrite[]): void {
    users.count += delta;
    users.underWay++;
    const { keys } = this.#state;
    if (users.count > 0) {
      const value = users.count === 1 && delta === 1 ? undefined : encodeNumber(users.count);
      if (value !== undefined) writes.push({ key: keys.users(number), value });
      return;
    }
    writes.push({ key: keys.body(number), value: undefined });
    writes.push({ key: keys.users(number), value: undefined });
  }

  #load(number: number): Promise<Users> {
    const before = this.#loading.get(number);
    if (before !== undefined) return before;
    const loading = this.#loadCount(number);
    this.#loading.set(number, loading);
    const ended = (): boolean => this.#loading.delete(number);
    loading.then(ended, ended);
    return loading;
  }

  async #loadCount(number: number): Promise<Users> {
    const key = this.#state.keys.users(number);
    const entry = await this.#state.get(key);
    const count = entry === undefined ? 1 : decodeNumber(key, entry.value);
    const users: Users = { count, underWay: 0 };
    this.#users.set(number, users);
    return users;
  }

  #knownOf(packet: AedesPacket): Known | undefined {
    const { payload } = packet;
    const known = payload instanceof Uint8Array ? this.#byPayload.get(payload) : undefined;
    if (known === undefined) return undefined;
    const { shared } = known;
    const other = sharedOf(packet);
    const isSame =
      shared.topic === other.topic &&
      shared.qos === other.qos &&
      shared.retain === other.retain &&
      shared.properties === other.properties &&
      shared.messageExpiry === other.messageExpiry;
    return isSame ? known : undefined;
  }
}

function sharedOf({ topic, qos, retain, properties, messageExpiry }: AedesPacket): Shared {
  return {
    ...(topic !== undefined && { topic }),
    ...(qos !== undefined && { qos }),
    retain: retain ?? false,
    ...(properties !== undefined && { properties }),
    ...(messageExpiry !== undefined && { messageExpiry }),
  };
}

/** What is the same for all who get the packet. */
function bodyOf(packet: AedesPacket): AedesPacket {
  const { cmd, topic, payload, qos, retain, dup, clientId, nl, properties, messageExpiry } = packet;
  return {
    ...(cmd !== undefined && { cmd }),
    ...(topic !== undefined && { topic }),
    ...(payload !== undefined && { payload }),
    ...(qos !== undefined && { qos }),
    ...(retain !== undefined && { retain }),
    ...(dup !== undefined && { dup }),
    ...(clientId !== undefined && { clientId }),
    ...(nl !== undefined && { nl }),
    ...(properties !== undefined && { properties }),
    ...(messageExpiry !== undefined && { messageExpiry }),
  };
}
