// An expiry-0 session: everything in memory, served by direct fan-out, gone with its connection.
//
// Messages at QoS 1 and 2 that find no free slot wait in a bounded queue. At the brim the session
// ends with 0x97: a message must not vanish without a word, and a session that ends with its
// connection can say so only that way. QoS 0 never waits and never ends a connection.

import type { Ttv } from "../store/index.ts";
import type {
  DetachCause,
  LiveTarget,
  MessageRun,
  Session,
  SessionLink,
  SubscribeResult,
  Subscription,
  Will,
} from "./api.ts";
import { reachStates } from "./barriers.ts";
import type { SessionContext } from "./context.ts";
import { type Choice, chooseDelivery, chooseRetained, isExpired } from "./core/choose.ts";
import { keepMessage } from "./core/kept-message.ts";
import type { Outbound } from "./core/outbound.ts";
import { PacketIds } from "./core/packet-ids.ts";
import type { InFlightSource } from "./core/records.ts";
import { asksRetained } from "./durable-subscriptions.ts";
import { FilterBudget, filterLimits } from "./filter-budget.ts";
import { SharedMember, sharedTopicFilter } from "./groups/member.ts";
import { Pump } from "./pump.ts";
import type { RetainedJobs } from "./retained-jobs.ts";
import { createJobs, createOutbound } from "./sending.ts";

export type DetachMemory = (session: MemorySession, cause: DetachCause) => Promise<void>;

const quotaExceeded = 0x97;

/** Nothing is read again: the message is gone with the session. */
const nowhere: InFlightSource = {
  kind: "log",
  ref: { shard: 0, generation: 0, stream: 0, timeUs: 0 },
};

type Waiting = { readonly message: Ttv; readonly choice: Choice };

export class MemorySession implements Session, LiveTarget {
  readonly clientId: string;
  readonly durable = false;
  readonly takes = "all";
  readonly claim = undefined;
  readonly user: string | undefined;
  readonly will: Will | undefined;
  /** When its connection came, at a node of a cluster. */
  arrivedUs = 0;
  readonly #context: SessionContext;
  readonly #link: SessionLink;
  readonly #detach: DetachMemory;
  readonly #outbound: Outbound;
  readonly #jobs: RetainedJobs;
  readonly #shared: SharedMember;
  readonly #pumps: Pump;
  readonly #subscriptions = new Map<string, Subscription>();
  #waiting: Waiting[] = [];
  #waitingBytes = 0;
  #turn: "live" | "retained" = "live";
  #stopped = false;

  constructor(
    context: SessionContext,
    client: { clientId: string; user: string | undefined; will: Will | undefined },
    link: SessionLink,
    detach: DetachMemory,
  ) {
    this.#context = context;
    this.clientId = client.clientId;
    this.user = client.user;
    this.will = client.will;
    this.#link = link;
    this.#detach = detach;
    const host = {
      link,
      durable: false,
      isStopped: () => this.#stopped,
      changed: () => undefined,
    };
    this.#outbound = createOutbound(context, host, new PacketIds());
    this.#pumps = new Pump(context.clock, () => this.#pumpOnce());
    this.#shared = new SharedMember({
      ...{ clientId: this.clientId, durable: false, link, outbound: this.#outbound },
      mayTake: () => !this.#stopped && this.#waiting.length === 0,
      took: () => undefined,
      pump: () => this.#pump(),
    });
    this.#jobs = createJobs(context, host, {
      subscription: (filter) => this.#subscriptions.get(filter),
      send: (message, subscription) => this.#retained(message, subscription),
      ready: () => this.#pump(),
    });
  }

  /** Nothing is owed from before; messages need subscriptions, which come later. */
  open(): void {
    this.#pump();
  }

  subscriptions(): Iterable<Subscription> {
    return this.#subscriptions.values();
  }

  get subscriptionCount(): number {
    return this.#subscriptions.size;
  }

  subscribe(subscriptions: readonly Subscription[]): Promise<readonly SubscribeResult[]> {
    const { settings, counters } = this.#context;
    const budget = new FilterBudget(filterLimits(settings), this.#subscriptions.keys());
    const results = subscriptions.map((subscription) => {
      const { filter } = subscription;
      const isNew = !this.#subscriptions.has(filter);
      if (isNew && !budget.take(filter)) {
        counters.subscriptionsRefused++;
        return { subscription, reasonCode: quotaExceeded, isNew: false };
      }
      this.#subscriptions.set(filter, subscription);
      if (!this.#stopped) this.#listen(subscription);
      if (asksRetained(subscription, isNew)) this.#jobs.create(filter);
      return { subscription, reasonCode: subscription.qos, isNew };
    });
    return this.#retainedReached(results);
  }

  /** What was retained before, at whatever node, is read behind the SUBACK. */
  async #retainedReached(results: readonly SubscribeResult[]): Promise<readonly SubscribeResult[]> {
    const { store, clock } = this.#context;
    if (store.isShared && !this.#jobs.isIdle) {
      await reachStates({ store, clock, isOver: () => this.#stopped });
    }
    return results;
  }

  unsubscribe(filters: readonly string[]): Promise<readonly boolean[]> {
    const existed = filters.map((filter) => {
      if (!this.#subscriptions.delete(filter)) return false;
      if (sharedTopicFilter(filter) === undefined) this.#context.live.remove(this, filter);
      else this.#shared.leave(filter);
      this.#jobs.remove(filter);
      return true;
    });
    return Promise.resolve(existed);
  }

  #listen(subscription: Subscription): void {
    const { filter } = subscription;
    if (sharedTopicFilter(filter) === undefined) this.#context.live.set(this, subscription);
    else this.#shared.join(this.#context.groups.group(filter), subscription);
  }

  sendRetained(results: readonly SubscribeResult[]): void {
    for (const { subscription } of results) this.#jobs.activate(subscription.filter);
  }

  puback(packetId: number, _reasonCode: number): number | undefined {
    return this.#acked(this.#outbound.puback(packetId));
  }

  pubacks(packetIds: Uint16Array, count: number): number | undefined {
    const fault = this.#outbound.pubacks(packetIds, count);
    this.#pump();
    return fault;
  }

  pubrec(packetId: number, reasonCode: number): number | undefined {
    return this.#acked(this.#outbound.pubrec(packetId, reasonCode));
  }

  pubcomp(packetId: number, _reasonCode: number): number | undefined {
    return this.#acked(this.#outbound.pubcomp(packetId));
  }

  drained(): void {
    this.#pump();
  }

  detach(cause: DetachCause): Promise<void> {
    return this.#detach(this, cause);
  }

  /** Idempotent. */
  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#jobs.stop();
    this.#waiting = [];
    this.#context.live.removeAll(this);
    this.#shared.stop();
  }

  endLink(reasonCode: number): void {
    this.#link.end(reasonCode);
  }

  deliver(message: Ttv, subscriptions: readonly Subscription[], _stored: boolean): void {
    if (this.#stopped) return;
    const choice = chooseDelivery(message, subscriptions, this.clientId);
    if (choice === undefined) return;
    if (choice.qos === 0) {
      if (this.#send(message, choice) === "taken") this.#jobs.noteLive(message);
      else this.#context.counters.qos0Dropped++;
      return;
    }
    this.#jobs.noteLive(message);
    const mayGo = this.#waiting.length === 0 && !(this.#turn === "retained" && this.#jobs.ready);
    if (mayGo && this.#send(message, choice) === "taken") {
      if (this.#jobs.ready) this.#turn = "retained";
      return;
    }
    this.#wait(message, choice);
  }

  deliverRun(run: MessageRun, subscriptions: readonly Subscription[]): number {
    if (this.#stopped) return run.count;
    const choice = chooseDelivery(run, subscriptions, this.clientId);
    if (choice === undefined) return run.count;
    if (choice.qos !== run.qos || choice.identifiers.length > 0) return 0;
    // QoS 0 overtakes what waits, also when it comes one by one.
    if (run.qos > 0 && (this.#waiting.length > 0 || this.#jobs.ready)) return 0;
    return this.#outbound.dispatchRun(run);
  }

  #wait(message: Ttv, choice: Choice): void {
    const { settings, counters, logger } = this.#context;
    const bytes = this.#waitingBytes + message.frame.length;
    const isFull =
      this.#waiting.length >= settings.memoryQueueMax ||
      (this.#waiting.length > 0 && bytes > settings.memoryQueueBytesMax);
    if (isFull) {
      counters.memoryQueueFull++;
      logger.warn("session.memory_queue_full", {
        clientId: this.clientId,
        messages: this.#waiting.length,
        bytes: this.#waitingBytes,
      });
      this.stop();
      this.#link.end(quotaExceeded);
      return;
    }
    this.#waitingBytes = bytes;
    this.#waiting.push({ message: keepMessage(message), choice });
  }

  #send(message: Ttv, choice: Choice): "taken" | "wait" {
    return this.#outbound.dispatch({ message, choice, source: nowhere, dup: false });
  }

  #retained(message: Ttv, subscription: Subscription): "taken" | "wait" {
    if (subscription.noLocal && message.publisher === this.clientId) return "taken";
    return this.#send(message, chooseRetained(message, subscription));
  }

  #acked(fault: number | undefined): number | undefined {
    if (fault === undefined) this.#pump();
    return fault;
  }

  #pump(): void {
    if (this.#stopped) return;
    this.#pumps.run();
    this.#shared.freed();
  }

  #pumpOnce(): void {
    if (this.#stopped) return;
    this.#outbound.pump(this.#context.clock.wallUs());
    if (!this.#outbound.blocked) this.#sendByTurns();
  }

  /** Waiting messages and retained ones in turn, while there are slots. */
  #sendByTurns(): void {
    let sent = 0;
    for (;;) {
      const retainedNext =
        this.#jobs.ready && (this.#turn === "retained" || sent === this.#waiting.length);
      if (retainedNext) {
        if (!this.#jobs.sendOne()) break;
        this.#turn = "live";
        continue;
      }
      const next = this.#waiting[sent];
      if (next === undefined) break;
      if (!this.#sendWaiting(next)) break;
      sent++;
      if (this.#jobs.ready) this.#turn = "retained";
    }
    if (sent > 0) this.#waiting.splice(0, sent);
  }

  #sendWaiting({ message, choice }: Waiting): boolean {
    if (isExpired(message, this.#context.clock.wallUs())) {
      this.#context.counters.expiredDropped++;
    } else if (this.#send(message, choice) === "wait") {
      return false;
    }
    this.#waitingBytes -= message.frame.length;
    return true;
  }
}
