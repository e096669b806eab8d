// What a publish does, whoever publishes: rights, the retained write, the store, fan-out.
//
// Order of effects: rights, then the retained put, then the append right behind it (one flush of the
// log carries both, the put first), then, when all of it is durable, the ack and the live fan-out.
// Whether a message is stored is decided once, in `planOf`, and travels with it: a stored message
// reaches durable sessions by their cursor only, an unstored one only from here. Where other nodes take
// subscriptions too, `decide` comes before: the retained put is durable then, and what nobody wants is
// known to be wanted by nobody.
// In which order the publishes of one client finish is `publish-queue.ts`.

import type { Clock, CodedError } from "../base/index.ts";
import {
  createFrame,
  framePayload,
  type InboundPublish,
  type PublishRun,
  type StoredFrame,
} from "../mqtt/index.ts";
import type { Qos, Retained, Will, WillPublisher } from "../session/index.ts";
import type { AppendOutcome, AppendRequest, Store, Ttv, WriterStamp } from "../store/index.ts";
import type { Client, Rights } from "./access.ts";
import type { BrokerCounters } from "./counters.ts";
import { brokerErrors } from "./errors.ts";
import { hookPublishOf } from "./hooks/content.ts";
import type { HookRunner } from "./hooks/runner.ts";
import type { HookClient } from "./hooks/types.ts";
import type { LimitedLog } from "./limited-log.ts";
import { LiveRun } from "./live-run.ts";
import type { LiveMatch, LiveTrie } from "./live-subscriptions.ts";
import type { LivePeers } from "./peers/ports.ts";
import { UnwantedCheck } from "./unwanted-check.ts";

/** A message on its way; its commit time is filled in when it has one. */
export type Message = Omit<Ttv, "timeUs"> & { timeUs: number };

/** What a message takes over from its PUBLISH or will. */
type Published = Pick<InboundPublish, "topic" | "qos" | "retain" | "version" | "messageExpiryS">;

/** What has to be written before a publish counts. */
export type PublishPlan = {
  readonly retained: "put" | "clear" | undefined;
  readonly append: Pick<AppendRequest, "keep" | "evidence" | "writer"> | undefined;
};

export type RecordDone = (
  error: CodedError | undefined,
  outcome: AppendOutcome | undefined,
) => void;

export type PublishPathParts = {
  readonly store: Store;
  /** Sessions are made after this path, which they publish wills through. */
  readonly retained: () => Retained;
  readonly live: LiveTrie;
  readonly rights: Rights;
  readonly hooks?: HookRunner | undefined;
  readonly clock: Clock;
  readonly counters: BrokerCounters;
  readonly log: LimitedLog;
  readonly storeQos0: boolean;
  readonly peers?: LivePeers | undefined;
  readonly publishWaitMs: number;
};

/** Publishes of one client. */
type RegisteredQueue = { idle(): Promise<void>; roomAgain?(): void };

/** Nothing has to be written, as far as is known here. */
const undecided: PublishPlan = { retained: undefined, append: undefined };

const usPerS = 1_000_000;

export class PublishPath implements WillPublisher {
  readonly #parts: PublishPathParts;
  /** By client id, while publishes are under way: a will must not overtake them. */
  readonly #queues = new Map<string, Set<RegisteredQueue>>();

  readonly #run = new LiveRun();
  /** Undefined on a single node. */
  readonly #unwanted: UnwantedCheck | undefined;

  constructor(parts: PublishPathParts) {
    this.#parts = parts;
    const { store, clock, publishWaitMs: waitMs } = parts;
    this.#unwanted = store.isShared ? new UnwantedCheck({ store, clock, waitMs }) : undefined;
  }

  get store(): Store {
    return this.#parts.store;
  }

  mayPublish(client: Client, topic: string): boolean {
    return this.#parts.rights.may("publish", client, topic);
  }

  /** Whether a plain publish would be stored. */
  isWanted(topic: string, qos: Qos): boolean {
    const { store, storeQos0 } = this.#parts;
    return (qos > 0 || storeQos0) && store.interest.wants(topic);
  }

  /** Whether what is not wanted, as far as is known here, may be wanted all the same. */
  isUnsure(qos: Qos): boolean {
    return qos > 0 && this.#unwanted !== undefined;
  }

  /** Undefined: nothing has to be written. */
  planOf(
    message: { readonly topic: string; readonly qos: Qos; readonly retain: boolean },
    isEmpty: boolean,
    evidence: AppendRequest["evidence"],
  ): PublishPlan | undefined {
    const keep = this.isWanted(message.topic, message.qos);
    const append = keep || evidence !== undefined ? { keep, evidence } : undefined;
    if (append === undefined && !message.retain) {
      return this.isUnsure(message.qos) ? undecided : undefined;
    }
    const retained = message.retain ? (isEmpty ? "clear" : "put") : undefined;
    return { retained, append };
  }

  messageOf(publish: Published, frame: StoredFrame, publisher: string): Message {
    const { topic, qos, retain, version, messageExpiryS } = publish;
    return {
      topic,
      timeUs: 0,
      publisher,
      form: version === 5 ? "v5" : "v4",
      qos,
      retain,
      expiryUs: this.#deadlineUs(messageExpiryS),
      expiryOffset: frame.expiryOffset,
      frame: frame.bytes,
    };
  }

  /** Whether `decide` has to come before `record`, and what is published later has to wait for it. */
  mustDecide({ qos }: Message, { retained, append }: PublishPlan): boolean {
    return this.isUnsure(qos) && (retained !== undefined || append?.keep !== true);
  }

  /**
   * Makes the retained put durable, then asks whether a message that nobody wants here is wanted. The
   * plan that comes back has `append` left to be recorded. In this order: a subscription that is made
   * meanwhile gets either the retained message or the stored one.
   */
  decide(
    message: Message,
    plan: PublishPlan,
    done: (error: CodedError | undefined, plan: PublishPlan) => void,
  ): void {
    const { topic, qos } = message;
    const ask = (): void => {
      if (plan.append?.keep === true || this.#unwanted === undefined) return done(undefined, plan);
      this.#unwanted.ask((error) => {
        if (error !== undefined) return done(error, plan);
        const keep = this.isWanted(topic, qos);
        const append =
          plan.append === undefined
            ? keep
              ? { keep, evidence: undefined }
              : undefined
            : { ...plan.append, keep };
        done(undefined, { retained: plan.retained, append });
      });
    };
    if (plan.retained === undefined) return ask();
    this.#parts.retained().put(message, plan.retained === "clear", (error) => {
      if (error === undefined) ask();
      else done(error, plan);
    });
  }

  /** Writes what the plan says. `done` when all of it is durable, or with the first error. */
  record(message: Message, plan: PublishPlan, done: RecordDone): void {
    const { retained, append } = plan;
    if (retained === undefined && append !== undefined) {
      this.append(message, append, done);
      return;
    }
    const parts = new Parts((retained ? 1 : 0) + (append ? 1 : 0), done);
    if (retained !== undefined) {
      this.#parts.retained().put(message, retained === "clear", (error) => parts.finish(error));
      // Refused before it was written: then the message is not stored either.
      if (parts.error !== undefined && append !== undefined) {
        parts.finish(undefined);
        return;
      }
    }
    if (append !== undefined) {
      this.append(message, append, (error, outcome) => parts.finish(error, outcome));
    }
  }

  /** The part of a plan that goes to the log. */
  // Spelled out: a spread of two objects for every message shows in profiles.
  append(message: Message, append: NonNullable<PublishPlan["append"]>, done: RecordDone): void {
    const request: AppendRequest = {
      topic: message.topic,
      publisher: message.publisher,
      form: message.form,
      qos: message.qos,
      retain: message.retain,
      expiryUs: message.expiryUs,
      expiryOffset: message.expiryOffset,
      frame: message.frame,
      keep: append.keep,
      evidence: append.evidence,
    };
    const { writer } = append;
    const stamped = writer === undefined ? request : { ...request, writer };
    this.#parts.store.append(stamped, (error, outcome) => {
      if (outcome?.kind === "stored") message.timeUs = outcome.timeUs;
      done(error, outcome);
    });
  }

  match(topic: string): readonly LiveMatch[] {
    return this.#parts.live.match(topic);
  }

  deliver(matches: readonly LiveMatch[], message: Message, stored: boolean): void {
    for (const { target, subscriptions } of matches) {
      target.deliver(message, subscriptions, stored);
    }
  }

  /** Unstored, to those who are connected. */
  deliverRun(matches: readonly LiveMatch[], frames: PublishRun, publisher: string): void {
    const run = this.#run;
    run.begin(frames, publisher);
    for (const { target, subscriptions } of matches) {
      let index = target.deliverRun?.(run, subscriptions) ?? 0;
      for (; index < run.count; index++) target.deliver(run.message(index), subscriptions, false);
    }
    run.end();
  }

  /** Too much waits for another node: clients must not be read. */
  get isCrowded(): boolean {
    return this.#parts.peers?.isCrowded === true;
  }

  /** It is over. */
  roomAgain(): void {
    for (const set of this.#queues.values()) for (const queue of set) queue.roomAgain?.();
  }

  register(clientId: string, queue: RegisteredQueue): void {
    const queues = this.#queues.get(clientId) ?? new Set();
    queues.add(queue);
    this.#queues.set(clientId, queues);
  }

  unregister(clientId: string, queue: RegisteredQueue): void {
    const queues = this.#queues.get(clientId);
    queues?.delete(queue);
    if (queues?.size === 0) this.#queues.delete(clientId);
  }

  /** What earlier connections of this client have published is finished. */
  async idleOf(clientId: string): Promise<void> {
    const queues = this.#queues.get(clientId);
    if (queues !== undefined) await Promise.all([...queues].map((queue) => queue.idle()));
  }

  /** Everything taken from clients so far is finished. */
  async idle(): Promise<void> {
    const queues = [...this.#queues.values()].flatMap((set) => [...set]);
    await Promise.all(queues.map((queue) => queue.idle()));
  }

  async publishWill(
    will: Will,
    clientId: string,
    user: string | undefined,
    stamp: WriterStamp | undefined,
  ): Promise<void> {
    const { counters, log, store } = this.#parts;
    await this.idleOf(clientId);
    // By a process that ended before it could note that. The log has the retained write before it.
    if (stamp !== undefined && store.writerResult(stamp, clientId, will.topic) !== undefined)
      return;
    const { topic } = will;
    if (!this.#parts.rights.mayWill({ clientId, user }, topic)) {
      counters.willsDenied++;
      log.warn("broker.will_denied", { clientId, topic });
      throw brokerErrors.publishDenied({ clientId, topic: JSON.stringify(topic) });
    }
    const allowed = await this.#hooked(will, Object.freeze({ clientId, user, remote: "" }));
    await this.#publishWhole(allowed, clientId, stamp);
  }

  /** A will is asked for when it is published: hooks of today decide. */
  async #hooked(will: Will, client: HookClient): Promise<Will> {
    const { hooks, rights, counters } = this.#parts;
    if (hooks?.has("authorizePublish") !== true) return will;
    const { topic, frame, version, expiryOffset } = will;
    const form = version === 5 ? "v5" : "v4";
    const publish = hookPublishOf({ ...will, frame, form, expiryOffset });
    const decided = await hooks.authorizePublish(client, publish);
    if ("refusal" in decided || rights.isClosed(decided.value.topic)) {
      counters.willsDenied++;
      const { clientId } = client;
      throw brokerErrors.publishDenied({ clientId, topic: JSON.stringify(topic) });
    }
    const { value } = decided;
    if (value === publish) return will;
    const changed = createFrame(value);
    const { messageExpiryS } = value.properties;
    const content = { frame: changed.bytes, version: 5, messageExpiryS } as const;
    const { expiryOffset: offset } = changed;
    return { ...will, topic: value.topic, retain: value.retain, ...content, expiryOffset: offset };
  }

  /**
   * What the operator or the program around publishes: rules for clients do not bind it, closed
   * prefixes do. Resolves when durable. @throws BROKER_PUBLISH_DENIED, why the store takes nothing.
   */
  async publishOwn(message: Will): Promise<void> {
    const { topic } = message;
    if (this.#parts.rights.isClosed(topic)) {
      throw brokerErrors.publishDenied({ clientId: "the operator", topic: JSON.stringify(topic) });
    }
    await this.#publishWhole(message, "", undefined);
  }

  async #publishWhole(will: Will, clientId: string, stamp: WriterStamp | undefined): Promise<void> {
    const { store } = this.#parts;
    const { topic, qos, retain } = will;
    const { version, frame, expiryOffset } = will;
    const message = this.messageOf(will, { bytes: frame, version, expiryOffset }, clientId);
    const isEmpty = framePayload({ ...will, bytes: will.frame }).length === 0;
    const wanted = this.planOf({ topic, qos, retain }, isEmpty, undefined);
    const plan = this.#willPlan(topic, wanted, stamp);
    if (plan === undefined) {
      this.deliver(this.match(topic), message, false);
      return;
    }
    const refusal = plan === undecided ? undefined : store.refusalOf(topic);
    if (refusal !== undefined) throw refusal;
    await new Promise<void>((resolve, reject) => {
      this.#recordWhole(message, plan, (error, decided) => {
        if (error !== undefined) {
          reject(error);
          return;
        }
        this.count(decided);
        this.deliver(this.match(topic), message, decided.append?.keep === true);
        resolve();
      });
    });
  }

  /** Decides where that is needed, and records what is left. */
  #recordWhole(
    message: Message,
    plan: PublishPlan,
    done: (error: CodedError | undefined, plan: PublishPlan) => void,
  ): void {
    if (!this.mustDecide(message, plan)) {
      this.record(message, plan, (error) => done(error, plan));
      return;
    }
    this.decide(message, plan, (error, decided) => {
      const { append } = decided;
      if (error !== undefined || append === undefined) done(error, decided);
      else this.append(message, append, (failure) => done(failure, decided));
    });
  }

  /**
   * The stamp is written also where nothing else has to be: a will that went to who was connected
   * does not go out again after a crash. Not while the store refuses: such a will needs no store.
   */
  #willPlan(
    topic: string,
    plan: PublishPlan | undefined,
    stamp: WriterStamp | undefined,
  ): PublishPlan | undefined {
    if (stamp === undefined) return plan;
    if (plan === undefined && this.#parts.store.refusalOf(topic) !== undefined) return undefined;
    const append = { keep: false, evidence: undefined, ...plan?.append, writer: stamp };
    return { retained: plan?.retained, append };
  }

  count(plan: PublishPlan): void {
    const { counters } = this.#parts;
    if (plan.append?.keep === true) counters.publishesStored++;
    if (plan.retained !== undefined) counters.publishesRetained++;
  }

  #deadlineUs(messageExpiryS: number | undefined): number {
    return messageExpiryS === undefined ? 0 : this.#parts.clock.wallUs() + messageExpiryS * usPerS;
  }
}

/** Waits for the parts of one publish. */
class Parts {
  error: CodedError | undefined;
  #left: number;
  #outcome: AppendOutcome | undefined;
  readonly #done: RecordDone;

  constructor(count: number, done: RecordDone) {
    this.#left = count;
    this.#done = done;
  }

  finish(error: CodedError | undefined, outcome?: AppendOutcome): void {
    this.error ??= error;
    this.#outcome ??= outcome;
    this.#left--;
    if (this.#left === 0) this.#done(this.error, this.#outcome);
  }
}
