// The persistence as Aedes before version 1 calls it: with callbacks, and ready when it says so.
// Calls that come before are kept in order until then; each also returns a promise when it is given
// no callback.

import { EventEmitter } from "node:events";
import type { Readable } from "node:stream";
import { systemClock, toError } from "../base/index.ts";
import type { StorePersistence } from "./persistence.ts";
import type { AedesBroker, AedesClient, AedesPacket, AedesSubscription } from "./types.ts";

// biome-ignore lint/suspicious/noExplicitAny: each method has its own arguments.
type Callback = (error: Error | null, ...values: any[]) => void;

type Receiver = { clientId: string };

export class CallbackPersistence extends EventEmitter {
  readonly persistence: StorePersistence;
  ready = false;

  constructor(persistence: StorePersistence) {
    super();
    this.persistence = persistence;
  }

  get broker(): AedesBroker | undefined {
    return this.persistence.broker;
  }

  /** Sets up; emits `ready`, or `error`. */
  set broker(broker: AedesBroker) {
    if (this.ready) return;
    this.setup(broker).catch((error: unknown) => this.emit("error", toError(error)));
  }

  async setup(broker: AedesBroker): Promise<void> {
    await this.persistence.setup(broker);
    this.ready = true;
    this.emit("ready");
  }

  storeRetained(packet: AedesPacket, done?: Callback): Promise<unknown> {
    return this.#call(done, () => this.persistence.storeRetained(packet));
  }

  createRetainedStream(pattern: string): Readable {
    return this.persistence.createRetainedStream(pattern);
  }

  createRetainedStreamCombi(patterns: readonly string[]): Readable {
    return this.persistence.createRetainedStreamCombi(patterns);
  }

  addSubscriptions(
    client: AedesClient,
    subscriptions: readonly AedesSubscription[],
    done?: Callback,
  ): Promise<unknown> {
    const call = () => this.persistence.addSubscriptions(client, subscriptions);
    return this.#call(done, call, () => [client]);
  }

  removeSubscriptions(
    client: AedesClient,
    filters: readonly string[],
    done?: Callback,
  ): Promise<unknown> {
    const call = () => this.persistence.removeSubscriptions(client, filters);
    return this.#call(done, call, () => [client]);
  }

  subscriptionsByClient(client: AedesClient, done?: Callback): Promise<unknown> {
    const call = () => this.persistence.subscriptionsByClient(client);
    return this.#call(done, call, (found) => [found.length === 0 ? null : found, client]);
  }

  countOffline(done?: Callback): Promise<unknown> {
    const call = () => this.persistence.countOffline();
    return this.#call(done, call, ({ subsCount, clientsCount }) => [subsCount, clientsCount]);
  }

  subscriptionsByTopic(topic: string, done?: Callback): Promise<unknown> {
    const call = () => this.persistence.subscriptionsByTopic(topic);
    return this.#call(done, call, (found) => [found]);
  }

  cleanSubscriptions(client: AedesClient, done?: Callback): Promise<unknown> {
    const call = () => this.persistence.cleanSubscriptions(client);
    return this.#call(done, call, () => [client]);
  }

  outgoingEnqueue(receiver: Receiver, packet: AedesPacket, done?: Callback): Promise<unknown> {
    const call = () => this.persistence.outgoingEnqueue(receiver, packet);
    return this.#call(done, call, () => [packet]);
  }

  outgoingEnqueueCombi(
    receivers: readonly Receiver[],
    packet: AedesPacket,
    done?: Callback,
  ): Promise<unknown> {
    const call = () => this.persistence.outgoingEnqueueCombi(receivers, packet);
    return this.#call(done, call, () => [packet]);
  }

  outgoingUpdate(client: AedesClient, packet: AedesPacket, done?: Callback): Promise<unknown> {
    const call = () => this.persistence.outgoingUpdate(client, packet);
    return this.#call(done, call, () => [client, packet]);
  }

  outgoingClearMessageId(
    client: AedesClient,
    packet: AedesPacket,
    done?: Callback,
  ): Promise<unknown> {
    const call = () => this.persistence.outgoingClearMessageId(client, packet);
    return this.#call(done, call, (cleared) => [cleared]);
  }

  outgoingStream(client: AedesClient): Readable {
    return this.persistence.outgoingStream(client);
  }

  incomingStorePacket(client: AedesClient, packet: AedesPacket, done?: Callback): Promise<unknown> {
    const call = () => this.persistence.incomingStorePacket(client, packet);
    return this.#call(done, call, () => [packet]);
  }

  incomingGetPacket(client: AedesClient, packet: AedesPacket, done?: Callback): Promise<unknown> {
    const call = () => this.persistence.incomingGetPacket(client, packet);
    return this.#call(done, call, (found) => [found]);
  }

  incomingDelPacket(client: AedesClient, packet: AedesPacket, done?: Callback): Promise<unknown> {
    return this.#call(done, () => this.persistence.incomingDelPacket(client, packet));
  }

  cleanIncoming(client: AedesClient, done?: Callback): Promise<unknown> {
    const call = () => this.persistence.cleanIncoming(client);
    return this.#call(done, call, () => [client]);
  }

  putWill(client: AedesClient, packet: AedesPacket, done?: Callback): Promise<unknown> {
    const call = () => this.persistence.putWill(client, packet);
    return this.#call(done, call, () => [client]);
  }

  getWill(client: AedesClient, done?: Callback): Promise<unknown> {
    const call = () => this.persistence.getWill(client);
    return this.#call(done, call, (will) => [will, client]);
  }

  delWill(client: AedesClient, done?: Callback): Promise<unknown> {
    const call = () => this.persistence.delWill(client);
    return this.#call(done, call, (will) => [will, client]);
  }

  streamWill(brokers?: Readonly<Record<string, unknown>>): Readable {
    return this.persistence.streamWill(brokers);
  }

  getClientList(filter: string): Readable {
    return this.persistence.getClientList(filter);
  }

  destroy(done?: Callback): Promise<unknown> {
    return this.#call(done, () => this.persistence.destroy());
  }

  async #call<T>(
    done: Callback | undefined,
    call: () => Promise<T>,
    values: (result: T) => readonly unknown[] = () => [],
  ): Promise<unknown> {
    if (!this.ready) await new Promise<void>((resolve) => this.once("ready", resolve));
    if (done === undefined) return call();
    let answer: () => void;
    try {
      const result = await call();
      answer = () => done(null, ...values(result));
    } catch (error) {
      answer = () => done(toError(error));
    }
    // In a turn of its own: what the callback throws is not an error of the call.
    systemClock.soon(answer);
    return undefined;
  }
}
