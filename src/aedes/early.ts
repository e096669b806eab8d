// Acknowledged means durable, under Aedes: version 1.2 answers a QoS 1 publish before it hands the
// message to its persistence, and notes a QoS 2 publish before it queues it. This stores all that a
// publish has to leave behind, in one entry, where Aedes asks whether the client may publish; the
// calls that come later for the same message find it stored.
//
// A message is known again by the memory of its payload, which Aedes hands on as it is. Without
// rights nothing is stored. A message whose later calls never come is delivered from its queues.

import type { AedesBroker, AedesClient, AedesPacket, AuthorizePublish } from "./types.ts";

/** What was stored of a message; each mark is taken once. */
export type Stored = {
  isRetained: boolean;
  isInbound: boolean;
  /** Where it stands in the queue of each client. */
  orders: ReadonlyMap<string, number> | undefined;
};

/** Undefined: it came before, and is not to be stored. */
export type StoreEarly = (client: AedesClient, packet: AedesPacket) => Promise<Stored | undefined>;

export class EarlyStores {
  readonly #broker: AedesBroker;
  readonly #store: StoreEarly;
  readonly #stored = new WeakMap<Uint8Array, Stored>();
  #authorize: AuthorizePublish;

  /** REQUIRES: the broker has `authorizePublish`. Setting another one later works as before. */
  constructor(broker: AedesBroker, store: StoreEarly) {
    this.#broker = broker;
    this.#store = store;
    this.#authorize = broker.authorizePublish as AuthorizePublish;
    Object.defineProperty(broker, "authorizePublish", {
      configurable: true,
      enumerable: true,
      get: () => this.#authorizeAndStore,
      set: (authorize: AuthorizePublish) => {
        this.#authorize = authorize;
      },
    });
  }

  /** What was stored of this message, if anything was. */
  of({ payload }: AedesPacket): Stored | undefined {
    return payload instanceof Uint8Array ? this.#stored.get(payload) : undefined;
  }

  /** Gives the broker its own function back. */
  release(): void {
    const value = this.#authorize;
    const own = { configurable: true, enumerable: true, writable: true, value };
    Object.defineProperty(this.#broker, "authorizePublish", own);
  }

  readonly #authorizeAndStore: AuthorizePublish = (client, packet, done) => {
    this.#authorize.call(this.#broker, client, packet, (error) => {
      if ((error !== undefined && error !== null) || client === null || !isAnswered(packet)) {
        done(error);
        return;
      }
      this.#storeEarly(client, packet).then(
        () => done(null),
        (failure: Error) => done(failure),
      );
    });
  };

  async #storeEarly(client: AedesClient, packet: AedesPacket): Promise<void> {
    // Memory of its own: the parser may give the same empty payload to several packets.
    const payload = Buffer.from(packet.payload ?? "");
    packet.payload = payload;
    const stored = await this.#store(client, packet);
    if (stored !== undefined) this.#stored.set(payload, stored);
  }
}

/** A client's publish that is acknowledged; wills and the broker's own messages are not. */
function isAnswered({ cmd, qos, messageId }: AedesPacket): boolean {
  return cmd === "publish" && qos !== undefined && qos > 0 && messageId !== undefined;
}
