// A persistence for Aedes 1.2 (aedes-persistence 11) on Flagstone's store: subscriptions, queues,
// retained packets, wills and QoS 2 packets, all in one shard of `state`.
//
// Every promise resolves when its change is durable. Streams read page by page and are never ahead
// of their reader by more than a page. What is queued for clients that never come back stays: Aedes
// has no session expiry; `cleanSubscriptions` and a clean connect end it.

import { Readable } from "node:stream";
import { isCodedError, type Logger, silentLogger } from "../base/index.ts";
import type { MapWrite, Store } from "../store/index.ts";
import { matches, parseTopicFilter, splitTopic, type TopicFilter } from "../topic/index.ts";
import { Bodies } from "./bodies.ts";
import { EarlyStores, type Stored } from "./early.ts";
import { aedesErrors } from "./errors.ts";
import { Inbox } from "./inbox.ts";
import { Turns } from "./lock.ts";
import { Queues } from "./queues.ts";
import { decodePacket, encodePacket } from "./records.ts";
import { AedesState } from "./state.ts";
import { SubscriptionTable } from "./subscriptions.ts";
import type {
  AedesBroker,
  AedesClient,
  AedesMatch,
  AedesPacket,
  AedesSubscription,
} from "./types.ts";

export type PersistenceOptions = {
  /** Several Aedes may use one store under different names. Default "default". */
  readonly name?: string;
  /**
   * `durable`: a publish is stored as a whole before Aedes acknowledges it, by way of its
   * `authorizePublish`. `early`: as Aedes 1.2 does, which answers QoS 1 first.
   */
  readonly acks?: "durable" | "early";
  readonly logger?: Logger;
};

export type PersistenceComponents = {
  readonly store: Pick<Store, "state">;
  /** Called at the end of `destroy`. */
  readonly close?: () => Promise<void>;
};

const namePattern = /^[A-Za-z0-9_-]{1,64}$/;
const anyFilter = { levelsMax: 65_535, controlCharacters: "allow" } as const;

export class StorePersistence {
  readonly #components: PersistenceComponents;
  readonly #logger: Logger;
  readonly #acks: "durable" | "early";
  readonly #state: AedesState;
  readonly #subscriptions: SubscriptionTable;
  readonly #queues: Queues;
  readonly #inbox: Inbox;
  /** Publishes of one client are stored in their order. */
  readonly #turns = new Turns();
  #broker: AedesBroker | undefined;
  #early: EarlyStores | undefined;
  #destroyed: Promise<void> | undefined;

  /** @throws AEDES_NAME_INVALID. */
  constructor(components: PersistenceComponents, options: PersistenceOptions = {}) {
    const { name = "default", acks = "durable", logger = silentLogger } = options;
    if (!namePattern.test(name)) throw aedesErrors.nameInvalid({ name: JSON.stringify(name) });
    this.#components = components;
    this.#logger = logger;
    this.#acks = acks;
    this.#state = new AedesState(components.store, name);
    const bodies = new Bodies(this.#state);
    this.#subscriptions = new SubscriptionTable(this.#state, logger);
    this.#queues = new Queues(this.#state, bodies, logger);
    this.#inbox = new Inbox(this.#state, bodies);
  }

  /** The broker that `setup` was given. */
  get broker(): AedesBroker | undefined {
    return this.#broker;
  }

  /** Called by Aedes before it listens. */
  async setup(broker: AedesBroker): Promise<void> {
    this.#broker = broker;
    if (!this.#state.isOpen) {
      await this.#state.open();
      await this.#subscriptions.load();
    }
    if (this.#acks === "early" || typeof broker.authorizePublish !== "function") return;
    this.#early = new EarlyStores(broker, (client, packet) => this.#storeEarly(client, packet));
  }

  // -------------------------------------------------------------- retained

  async storeRetained(packet: AedesPacket): Promise<void> {
    const early = this.#early?.of(packet);
    if (early?.isRetained === true) {
      early.isRetained = false;
      return;
    }
    await this.#state.write([this.#retainedWrite(packet)]);
  }

  /** All that match, each once even when several patterns do. */
  createRetainedStreamCombi(patterns: readonly string[]): Readable {
    return Readable.from(this.#retained(patterns));
  }

  createRetainedStream(pattern: string): Readable {
    return this.createRetainedStreamCombi([pattern]);
  }

  #retainedWrite(packet: AedesPacket): MapWrite {
    const { payload, topic = "" } = packet;
    const isEmpty = payload === undefined || payload.length === 0;
    const key = this.#state.keys.retained + topic;
    return { key, value: isEmpty ? undefined : encodePacket(packet) };
  }

  async *#retained(patterns: readonly string[]): AsyncGenerator<AedesPacket> {
    const prefix = this.#state.keys.retained;
    const done: TopicFilter[] = [];
    for (const pattern of patterns) {
      const filter = parseTopicFilter(pattern, anyFilter);
      for await (const { key, value } of this.#state.matching(prefix, pattern)) {
        const words = splitTopic(key.slice(prefix.length));
        if (done.some((before) => matches(before, words))) continue;
        const packet = this.#readable(key, value);
        if (packet !== undefined) yield packet;
      }
      done.push(filter);
    }
  }

  /** One damaged record must not keep its readers from all the others. */
  #readable(key: string, value: Buffer): AedesPacket | undefined {
    try {
      return decodePacket(key, value);
    } catch (error) {
      if (!isCodedError(error) || error.kind !== "corrupt") throw error;
      this.#logger.error("aedes.record_skipped", { key, error });
      return undefined;
    }
  }

  // -------------------------------------------------------------- subscriptions

  /** @throws TOPIC_FILTER_INVALID; nothing is written then. */
  async addSubscriptions(
    client: AedesClient,
    subscriptions: readonly AedesSubscription[],
  ): Promise<void> {
    await this.#subscriptions.add(client.id, subscriptions);
  }

  async removeSubscriptions(client: AedesClient, filters: readonly string[]): Promise<void> {
    await this.#subscriptions.remove(client.id, filters);
  }

  async cleanSubscriptions(client: AedesClient): Promise<void> {
    await this.#subscriptions.removeAll(client.id);
  }

  async subscriptionsByClient(client: AedesClient): Promise<AedesSubscription[]> {
    return this.#subscriptions.ofClient(client.id);
  }

  /** Those above QoS 0 that match the topic. */
  async subscriptionsByTopic(topic: string): Promise<AedesMatch[]> {
    return this.#subscriptions.matching(topic);
  }

  async countOffline(): Promise<{ readonly subsCount: number; readonly clientsCount: number }> {
    return this.#subscriptions.counts();
  }

  /** Clients that subscribed exactly this filter. */
  getClientList(filter: string): Readable {
    return Readable.from(this.#subscriptions.clientsOf(filter));
  }

  // -------------------------------------------------------------- queues

  async outgoingEnqueue(receiver: { clientId: string }, packet: AedesPacket): Promise<void> {
    await this.#queues.enqueue([receiver.clientId], packet);
  }

  /** One body for all, one copy for each client. */
  async outgoingEnqueueCombi(
    receivers: ReadonlyArray<{ clientId: string }>,
    packet: AedesPacket,
  ): Promise<void> {
    const early = this.#early?.of(packet);
    if (early?.orders !== undefined) {
      this.#queues.rename(early.orders, packet);
      early.orders = undefined;
      return;
    }
    await this.#queues.enqueue(
      receivers.map(({ clientId }) => clientId),
      packet,
    );
  }

  /** @throws AEDES_PACKET_UNKNOWN. */
  async outgoingUpdate(client: AedesClient, packet: AedesPacket): Promise<void> {
    await this.#queues.update(client.id, packet);
  }

  async outgoingClearMessageId(
    client: AedesClient,
    packet: AedesPacket,
  ): Promise<AedesPacket | undefined> {
    return this.#queues.clear(client.id, packet);
  }

  outgoingStream(client: AedesClient): Readable {
    return Readable.from(this.#queues.packets(client.id));
  }

  // -------------------------------------------------------------- QoS 2

  async incomingStorePacket(client: AedesClient, packet: AedesPacket): Promise<void> {
    const early = this.#early?.of(packet);
    if (early?.isInbound === true) {
      early.isInbound = false;
      return;
    }
    await this.#inbox.store(client.id, packet);
  }

  /** @throws AEDES_PACKET_UNKNOWN. */
  async incomingGetPacket(client: AedesClient, packet: AedesPacket): Promise<AedesPacket> {
    // Stored a moment ago by this very call of Aedes: to it the packet is new.
    if (this.#early?.of(packet)?.isInbound === true) {
      throw aedesErrors.packetUnknown({ client: client.id, packet: packet.messageId });
    }
    return this.#inbox.get(client.id, packet);
  }

  /** @throws AEDES_PACKET_UNKNOWN. */
  async incomingDelPacket(client: AedesClient, packet: AedesPacket): Promise<void> {
    await this.#inbox.remove(client.id, packet);
  }

  async cleanIncoming(client: AedesClient): Promise<void> {
    await this.#inbox.removeAll(client.id);
  }

  /** All that a publish leaves behind, in one entry of the log. */
  async #storeEarly(client: AedesClient, packet: AedesPacket): Promise<Stored | undefined> {
    const isRetained = packet.retain === true;
    const isInbound = packet.qos === 2;
    const store = async (writes: MapWrite[]): Promise<Stored> => {
      if (isRetained) writes.push(this.#retainedWrite(packet));
      const receivers = this.#subscriptions.matching(packet.topic ?? "");
      const clients = receivers.map(({ clientId }) => clientId);
      const orders = await this.#queues.enqueue(clients, packet, writes);
      return { isRetained, isInbound, orders };
    };
    const turn = this.#turns.take(client.id);
    if (isInbound) return this.#inbox.storeWith(client.id, packet, turn, store);
    if (turn.before !== undefined) await turn.before;
    const stored = store([]);
    turn.begun();
    return stored;
  }

  // -------------------------------------------------------------- wills

  /** Notes the broker and the client in the packet too, as Aedes expects. */
  async putWill(client: AedesClient, packet: AedesPacket): Promise<void> {
    packet.brokerId = this.#broker?.id;
    packet.clientId = client.id;
    await this.#state.write([
      { key: this.#state.keys.will(client.id), value: encodePacket(packet) },
    ]);
  }

  /** A will as another persistence had it: the broker that it names is that of then. */
  async restoreWill(clientId: string, packet: AedesPacket): Promise<void> {
    const value = encodePacket({ ...packet, clientId });
    await this.#state.write([{ key: this.#state.keys.will(clientId), value }]);
  }

  async getWill(client: AedesClient): Promise<AedesPacket | undefined> {
    const found = await this.#state.get(this.#state.keys.will(client.id));
    return found === undefined ? undefined : decodePacket(found.key, found.value);
  }

  /** A will that another broker has put since then stays. */
  async delWill(client: AedesClient): Promise<AedesPacket | undefined> {
    const will = await this.getWill(client);
    const { brokerId } = client;
    if (will === undefined || (brokerId !== undefined && will.brokerId !== brokerId))
      return undefined;
    await this.#state.write([{ key: this.#state.keys.will(client.id), value: undefined }]);
    return will;
  }

  /** Wills of brokers that are not among those given. */
  streamWill(brokers: Readonly<Record<string, unknown>> = {}): Readable {
    return Readable.from(this.#wills(brokers));
  }

  async *#wills(brokers: Readonly<Record<string, unknown>>): AsyncGenerator<AedesPacket> {
    for await (const { key, value } of this.#state.entries(this.#state.keys.wills)) {
      const will = this.#readable(key, value);
      if (will === undefined || isAlive(brokers, will.brokerId)) continue;
      yield will;
    }
  }

  // -------------------------------------------------------------- the end

  /** Waits for what is being written, then gives the store back. Once; later calls wait with it. */
  async destroy(): Promise<void> {
    this.#destroyed ??= this.#destroy();
    await this.#destroyed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.destroy();
  }

  async #destroy(): Promise<void> {
    this.#early?.release();
    await this.#state.close();
    await this.#components.close?.();
  }
}

function isAlive(brokers: Readonly<Record<string, unknown>>, id: string | undefined): boolean {
  return id !== undefined && Object.hasOwn(brokers, id) && Boolean(brokers[id]);
}
