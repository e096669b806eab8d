// The hooks of one client: its gates, and what observers are told of it. Exists only where the broker
// has hooks.

import { type AckToken, reason } from "../../mqtt/index.ts";
import type { Delivery, Session, SessionLink, SubscribeResult } from "../../session/index.ts";
import type { Client, Rights } from "../access.ts";
import type { PublishPath } from "../publish-path.ts";
import type { PublishQueue } from "../publish-queue.ts";
import type { BrokerSettings } from "../settings.ts";
import type { SubscribePath } from "../subscribe-path.ts";
import { ForwardGate } from "./forward-gate.ts";
import { PublishGate, type PublishGateParts } from "./publish-gate.ts";
import type { HookRunner } from "./runner.ts";
import { SubscribeGate } from "./subscribe-gate.ts";

/** What a connection does for its hooks. */
export interface HookedConnection {
  readonly client: Client;
  readonly remote: string;
  /** A PUBLISH may not be: answers it, where it is to be answered. */
  denied(token: AckToken, topic: string): void;
  /** Nobody could say whether a PUBLISH may be. */
  undecided(token: AckToken, topic: string): void;
  hasEnded(): boolean;
  blockedChanged(): void;
  /** The client cannot be served on. */
  hooksFailed(error: Error): void;
}

type ClientHooksParts = Omit<PublishGateParts, "queue" | "ended"> & {
  readonly path: PublishPath;
  readonly subscribesMax: number;
  readonly hasEnded: () => boolean;
};

/** What all connections have. */
type Shared = {
  readonly hooks: HookRunner | undefined;
  readonly settings: Pick<BrokerSettings, "publishBytesMax" | "subscribesMax">;
  readonly rights: Rights;
  readonly path: PublishPath;
};

/** Undefined where the broker has no hooks. REQUIRES: the client is known. */
export function createClientHooks(
  { hooks, settings, rights, path }: Shared,
  connection: HookedConnection,
): ClientHooks | undefined {
  if (hooks === undefined) return undefined;
  const { remote } = connection;
  const { clientId, user } = connection.client;
  return new ClientHooks({
    ...{ hooks, path, client: Object.freeze({ clientId, user, remote }) },
    bytesMax: settings.publishBytesMax,
    subscribesMax: settings.subscribesMax,
    isClosed: (topic) => rights.isClosed(topic),
    refuse: (token, topic) => connection.denied(token, topic),
    undecided: (token, topic) => connection.undecided(token, topic),
    hasEnded: () => connection.hasEnded(),
    blockedChanged: () => connection.blockedChanged(),
    failed: (error) => connection.hooksFailed(error),
  });
}

/** What the client is served by; the gates stand before it. */
export type Served = {
  readonly session: Session;
  readonly queue: PublishQueue;
  readonly subscribes: SubscribePath;
};

export class ClientHooks {
  readonly #parts: ClientHooksParts;
  #session: Session | undefined;
  #publishes: PublishGate | undefined;
  #forwards: ForwardGate | undefined;

  constructor(parts: ClientHooksParts) {
    this.#parts = parts;
  }

  /** What the session is given as its connection. */
  linkOf(link: SessionLink): SessionLink {
    const { hooks, client, bytesMax, failed } = this.#parts;
    if (!hooks.has("authorizeForward")) return link;
    const complete = (delivery: Delivery): void => this.#complete(delivery);
    const room = (): void => this.#session?.drained();
    this.#forwards = new ForwardGate({ hooks, client, link, bytesMax, complete, room, failed });
    return this.#forwards;
  }

  /** The client is let in. */
  accept({ session, queue, subscribes }: Served): {
    readonly publishes: PublishGate;
    readonly subscribes: Pick<SubscribePath, "subscribe" | "unsubscribe" | "blocked">;
  } {
    const { hooks, client, subscribesMax } = this.#parts;
    this.#session = session;
    const { path } = this.#parts;
    const publishes: PublishGate = new PublishGate({
      ...{ ...this.#parts, queue },
      ended: () => path.unregister(client.clientId, publishes),
    });
    // A will waits for what stands before hooks too.
    path.register(client.clientId, publishes);
    this.#publishes = publishes;
    this.#tell("connected");
    const gated = { ...this.#parts, path: subscribes, waitingMax: subscribesMax };
    return {
      publishes,
      subscribes: hooks.has("authorizeSubscribe") ? new SubscribeGate(gated) : subscribes,
    };
  }

  readonly published: PublishGate["published"] = (message) => this.#publishes?.published(message);

  readonly subscribed = (granted: readonly SubscribeResult[]): void => {
    const { hooks, client } = this.#parts;
    if (granted.length === 0 || !hooks.has("subscribed")) return;
    const subscriptions = granted.map(({ subscription: { filter, qos } }) => ({ filter, qos }));
    hooks
      .tell("subscribed", (set) => set.subscribed?.(client, subscriptions))
      .catch(this.#parts.failed);
  };

  /** The connection has room again. */
  drained(): void {
    this.#forwards?.drained();
  }

  closed(cause: string): void {
    this.#tell("closed", cause);
  }

  #tell(name: "connected" | "closed", cause = ""): void {
    const { hooks, client, failed } = this.#parts;
    if (!hooks.has(name)) return;
    hooks
      .tell(name, (set) =>
        name === "connected" ? set.connected?.(client) : set.closed?.(client, cause),
      )
      .catch(failed);
  }

  #complete({ qos, packetId }: Delivery): void {
    if (qos === 1) this.#session?.puback(packetId, reason.success);
    else this.#session?.pubrec(packetId, reason.notAuthorized);
  }
}
