// SUBSCRIBE and UNSUBSCRIBE of one connection: an answer per filter, given when the session has made
// the change durable, or as a failure when that takes too long. Neither waits behind acks.
//
// What a client was told has failed is taken back when it succeeds later. Retained messages follow
// the SUBACK.

import type { Clock } from "../base/index.ts";
import {
  noProperties,
  type Properties,
  type ReasonCode,
  reason,
  type ServerConnection,
  type SubscribeRequest,
  type UnsubscribeRequest,
} from "../mqtt/index.ts";
import type { Session, SubscribeResult, Subscription } from "../session/index.ts";
import type { Client, Rights } from "./access.ts";
import type { BrokerCounters } from "./counters.ts";
import type { LimitedLog } from "./limited-log.ts";
import type { LivePeers } from "./peers/ports.ts";
import type { BrokerSettings } from "./settings.ts";
import type { SysTopics } from "./sys-topics.ts";
import type { ConnectionTap } from "./tap.ts";
import { waitFor } from "./waiting.ts";

export type SubscribePathParts = {
  readonly core: ServerConnection;
  readonly session: Session;
  /** Its rights may change with a new login. */
  readonly owner: { readonly client: Client };
  readonly tap: Pick<ConnectionTap, "suback">;
  readonly rights: Rights;
  readonly clock: Clock;
  readonly counters: BrokerCounters;
  readonly log: LimitedLog;
  readonly sys: Pick<SysTopics, "greet">;
  readonly settings: Pick<
    BrokerSettings,
    "subscribeWaitMs" | "subscribesMax" | "denySubscribeCode"
  >;
  /** SUBACK says that other nodes send what is published there. */
  readonly peers: Pick<LivePeers, "settled"> | undefined;
  /** Told what has been granted. */
  readonly subscribed: ((granted: readonly SubscribeResult[]) => void) | undefined;
  /** `blocked` may have changed. */
  readonly blockedChanged: () => void;
};

const failureMin = 0x80;

type RequestedFilter = SubscribeRequest["filters"][number];

export class SubscribePath {
  readonly #parts: SubscribePathParts;
  /** The last request under way that names a filter. */
  readonly #lastAsked = new Map<string, object>();
  /** Subscribed by a request that was answered as a failure. */
  readonly #unwanted = new Set<string>();
  #underWay = 0;

  constructor(parts: SubscribePathParts) {
    this.#parts = parts;
  }

  /** Too many are under way: the client must not be read. */
  get blocked(): boolean {
    return this.#underWay >= this.#parts.settings.subscribesMax;
  }

  /** `refused`: what was decided before, by filter. */
  subscribe(request: SubscribeRequest, refused: ReadonlyArray<ReasonCode | undefined> = []): void {
    const { core, session, subscribed } = this.#parts;
    const refusals = request.filters.map(
      (filter, at) => refused[at] ?? this.#faultOf(filter) ?? this.#unshared(filter),
    );
    const wanted = request.filters.flatMap((filter, index) =>
      refusals[index] === undefined ? [subscriptionOf(filter, request.subscriptionId)] : [],
    );
    const answer = (codes: readonly ReasonCode[]): void => {
      let next = 0;
      const all = refusals.map((refusal) => refusal ?? (codes[next++] as ReasonCode));
      this.#count(all);
      this.#parts.tap.suback(request.packetId, all);
      core.suback(request.packetId, all, reasonsIn(request));
    };
    if (wanted.length === 0) {
      answer([]);
      return;
    }
    this.#begin();
    for (const { filter } of wanted) this.#lastAsked.set(filter, request);
    const { clock, settings } = this.#parts;
    waitFor(clock, settings.subscribeWaitMs, this.#subscribed(session.subscribe(wanted)), {
      value: (results) => {
        for (const { subscription } of results.filter(isGranted)) {
          this.#unwanted.delete(subscription.filter);
        }
        this.#forget(request, wanted);
        answer(results.map((result) => result.reasonCode));
        const granted = results.filter(isGranted);
        session.sendRetained(granted);
        subscribed?.(granted);
        this.#parts.sys.greet(this.#parts.owner.client.clientId, granted);
        this.#end();
      },
      error: (error) => {
        this.#forget(request, wanted);
        this.#failed("subscribe", error);
        answer(wanted.map(() => reason.implementationSpecificError));
      },
      late: () => {
        this.#late("subscribe");
        answer(wanted.map(() => reason.implementationSpecificError));
      },
      valueAfter: (results) => {
        this.#takeBack(request, results);
        this.#forget(request, wanted);
      },
    });
  }

  unsubscribe(request: UnsubscribeRequest): void {
    const { core, session } = this.#parts;
    // A filter that is not legal was never subscribed.
    const filters = request.filters.map((filter) => filter.text);
    const fail = (): void => {
      core.unsuback(
        request.packetId,
        filters.map(() => reason.implementationSpecificError),
      );
    };
    this.#begin();
    const { clock, settings, counters } = this.#parts;
    waitFor(clock, settings.subscribeWaitMs, session.unsubscribe(filters), {
      value: (existed) => {
        counters.unsubscribes += existed.filter((did) => did).length;
        core.unsuback(
          request.packetId,
          existed.map((did) => (did ? reason.success : reason.noSubscriptionExisted)),
        );
        this.#end();
      },
      error: (error) => {
        this.#failed("unsubscribe", error);
        fail();
      },
      late: () => {
        this.#late("unsubscribe");
        fail();
      },
    });
  }

  #subscribed(
    subscribing: Promise<readonly SubscribeResult[]>,
  ): Promise<readonly SubscribeResult[]> {
    const { peers } = this.#parts;
    if (peers === undefined) return subscribing;
    return subscribing.then(async (results) => {
      await peers.settled();
      return results;
    });
  }

  #faultOf({ filter, text }: RequestedFilter): ReasonCode | undefined {
    if (filter === undefined) return reason.topicFilterInvalid;
    const { rights, owner, settings, log } = this.#parts;
    const { client } = owner;
    // Of a shared subscription the filter inside counts.
    if (rights.may("subscribe", client, filter.filter.text)) return undefined;
    log.warn("broker.subscribe_denied", { clientId: client.clientId, filter: text });
    return settings.denySubscribeCode;
  }

  /** Nodes would deal the backlog of one group, each for itself (docs/decisions/093). */
  #unshared({ filter, text, options }: RequestedFilter): ReasonCode | undefined {
    const { peers, session, log, owner } = this.#parts;
    const isOfOne = peers === undefined || filter?.group === undefined;
    if (isOfOne || !session.durable || options.qos === 0) return undefined;
    log.warn("broker.shared_refused", { clientId: owner.client.clientId, filter: text });
    return reason.sharedSubscriptionsNotSupported;
  }

  /** Not what a later request asks for too: its own answer says what becomes of that. */
  #takeBack(request: SubscribeRequest, results: readonly SubscribeResult[]): void {
    const granted = results.filter(isGranted);
    for (const { subscription, isNew } of granted) {
      if (isNew) this.#unwanted.add(subscription.filter);
    }
    const filters = granted
      .map(({ subscription }) => subscription.filter)
      .filter((filter) => this.#lastAsked.get(filter) === request && this.#unwanted.delete(filter));
    if (filters.length === 0) return;
    const { session, owner, log } = this.#parts;
    session.unsubscribe(filters).catch((error) => {
      log.warn("broker.subscribe_not_taken_back", { clientId: owner.client.clientId, error });
    });
  }

  #forget(request: SubscribeRequest, wanted: readonly Subscription[]): void {
    for (const { filter } of wanted) {
      if (this.#lastAsked.get(filter) === request) this.#lastAsked.delete(filter);
    }
  }

  #begin(): void {
    this.#underWay++;
    if (this.blocked) this.#parts.blockedChanged();
  }

  #end(): void {
    const wasBlocked = this.blocked;
    this.#underWay--;
    if (wasBlocked) this.#parts.blockedChanged();
  }

  #failed(what: string, error: unknown): void {
    const { owner, log } = this.#parts;
    log.warn("broker.subscribe_failed", { clientId: owner.client.clientId, what, error });
    this.#end();
  }

  #late(what: string): void {
    const { owner, log, counters, settings } = this.#parts;
    counters.subscribesLate++;
    const { subscribeWaitMs } = settings;
    log.warn("broker.subscribe_late", { clientId: owner.client.clientId, what, subscribeWaitMs });
    this.#end();
  }

  #count(codes: readonly ReasonCode[]): void {
    const { counters } = this.#parts;
    for (const code of codes) {
      if (code < failureMin) counters.subscribes++;
      else counters.subscribesRefused++;
    }
  }
}

/** What is wrong with the first filter that is not legal, for clients that want words. */
function reasonsIn({ filters }: SubscribeRequest): Properties {
  const fault = filters.find((filter) => filter.fault !== undefined)?.fault;
  return fault === undefined ? noProperties : { reasonString: `topic filter: ${fault}` };
}

function subscriptionOf(
  { text, options }: RequestedFilter,
  identifier: number | undefined,
): Subscription {
  return { filter: text, ...options, identifier: identifier ?? 0 };
}

function isGranted(result: SubscribeResult): boolean {
  return result.reasonCode < failureMin;
}
