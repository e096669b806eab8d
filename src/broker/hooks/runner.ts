// Asks the hooks, one set after the other, each within a bounded time. Answers without a promise are
// taken without a turn of the event loop.

import { type Clock, type Logger, toError } from "../../base/index.ts";
import { createFrame, type Properties, publishPropertiesFault } from "../../mqtt/index.ts";
import type { Qos } from "../../session/index.ts";
import { topicNameFault } from "../../topic/index.ts";
import type { BrokerCounters } from "../counters.ts";
import { checkHooks } from "./check.ts";
import { frozen } from "./content.ts";
import type {
  HookClient,
  HookLogin,
  HookName,
  HookOrigin,
  HookPublish,
  HookSubscription,
  Hooks,
  PublishChange,
} from "./types.ts";

export type HookParts = {
  readonly clock: Clock;
  readonly counters: BrokerCounters;
  readonly logger: Logger;
  /** For one hook. */
  readonly timeoutMs: number;
};

/** `refused`: by a hook that said so. `failed`: none could be had that makes sense. */
export type Refusal = "refused" | "failed";

export type Decided<T> = { readonly value: T } | { readonly refusal: Refusal };

export type UserDecision =
  | { readonly kind: "in"; readonly user: string | undefined }
  | { readonly kind: "next" };

const refused = { refusal: "refused" } as const;
const failed = { refusal: "failed" } as const;

/** What the answer of one hook makes of the value. */
type Read<T> = (answer: unknown, value: T) => Decided<T> | "nonsense";

export class HookRunner {
  readonly #sets: readonly Hooks[];
  readonly #parts: HookParts;

  /** @throws BROKER_HOOKS_INVALID. */
  constructor(sets: readonly Hooks[], parts: HookParts) {
    checkHooks(sets);
    this.#sets = sets;
    this.#parts = parts;
  }

  has(name: HookName): boolean {
    return this.#sets.some((hooks) => typeof hooks[name] === "function");
  }

  preConnect(login: HookLogin): Decided<undefined> | Promise<Decided<undefined>> {
    return this.#ask("preConnect", (hooks) => hooks.preConnect?.(login), undefined, readPass);
  }

  authenticate(login: HookLogin): Decided<UserDecision> | Promise<Decided<UserDecision>> {
    const ask = (hooks: Hooks, value: UserDecision) =>
      // Who is in is in: the others are not asked.
      value.kind === "in" ? undefined : hooks.authenticate?.(login);
    const next: UserDecision = { kind: "next" };
    return this.#ask("authenticate", ask, next, readUser(login));
  }

  authorizePublish(
    client: HookClient,
    publish: HookPublish,
  ): Decided<HookPublish> | Promise<Decided<HookPublish>> {
    const ask = (hooks: Hooks, value: HookPublish) => hooks.authorizePublish?.(client, value);
    return this.#ask("authorizePublish", ask, publish, readPublish);
  }

  authorizeSubscribe(
    client: HookClient,
    subscription: HookSubscription,
  ): Decided<HookSubscription> | Promise<Decided<HookSubscription>> {
    const ask = (hooks: Hooks, value: HookSubscription) =>
      hooks.authorizeSubscribe?.(client, value);
    return this.#ask("authorizeSubscribe", ask, subscription, readSubscription);
  }

  authorizeForward(
    client: HookClient,
    message: HookPublish & HookOrigin,
  ): Decided<undefined> | Promise<Decided<undefined>> {
    const ask = (hooks: Hooks) => hooks.authorizeForward?.(client, message);
    return this.#ask("authorizeForward", ask, undefined, readPass);
  }

  /** Tells the observers, one after the other. What they answer, and their errors, decide nothing. */
  async tell(
    name: "connected" | "published" | "subscribed" | "closed",
    call: (hooks: Hooks) => unknown,
  ): Promise<void> {
    for (const hooks of this.#named(name)) {
      try {
        await this.#inTime(name, call(hooks));
      } catch (error) {
        this.#failed(name, error);
      }
    }
  }

  // -------------------------------------------------------------- asking

  #ask<T>(
    name: HookName,
    ask: (hooks: Hooks, value: T) => unknown,
    first: T,
    read: Read<T>,
  ): Decided<T> | Promise<Decided<T>> {
    return this.#askFrom({ name, ask, read, sets: this.#named(name) }, 0, first);
  }

  #askFrom<T>(question: Question<T>, from: number, first: T): Decided<T> | Promise<Decided<T>> {
    const { name, ask, read, sets } = question;
    let value = first;
    for (let at = from; at < sets.length; at++) {
      let decided: Decided<T>;
      try {
        const answer = ask(sets[at] as Hooks, value);
        if (isPromise(answer)) return this.#askLater(question, at, value, answer);
        decided = this.#read(name, read, answer, value);
      } catch (error) {
        this.#failed(name, error);
        return failed;
      }
      if ("refusal" in decided) return decided;
      value = decided.value;
    }
    return { value };
  }

  async #askLater<T>(
    question: Question<T>,
    at: number,
    value: T,
    answer: PromiseLike<unknown>,
  ): Promise<Decided<T>> {
    const { name, read } = question;
    let decided: Decided<T>;
    try {
      decided = this.#read(name, read, await this.#inTime(name, answer), value);
    } catch (error) {
      this.#failed(name, error);
      return failed;
    }
    return "refusal" in decided ? decided : this.#askFrom(question, at + 1, decided.value);
  }

  #read<T>(name: HookName, read: Read<T>, answer: unknown, value: T): Decided<T> {
    const decided = read(answer, value);
    if (decided === "nonsense") {
      this.#failed(name, new TypeError(`an answer that means nothing: ${typeof answer}`));
      return failed;
    }
    if ("refusal" in decided) this.#parts.counters.hooksRefused++;
    return decided;
  }

  #inTime(name: HookName, answer: unknown): unknown {
    if (!isPromise(answer)) return answer;
    const { clock, timeoutMs } = this.#parts;
    return new Promise((resolve, reject) => {
      const cancel = clock.schedule(timeoutMs, () => {
        reject(new Error(`no answer of ${name} within ${timeoutMs} ms`));
      });
      // Adopted first: what a thenable answers may be another one, which has no more time.
      Promise.resolve(answer).then(
        (value) => {
          cancel();
          resolve(value);
        },
        (error: unknown) => {
          cancel();
          reject(toError(error));
        },
      );
    });
  }

  #failed(name: HookName, error: unknown): void {
    this.#parts.counters.hooksFailed++;
    this.#parts.logger.error("broker.hook_failed", { hook: name, reason: toError(error).message });
  }

  #named(name: HookName): readonly Hooks[] {
    return this.#sets.filter((hooks) => typeof hooks[name] === "function");
  }
}

type Question<T> = {
  readonly name: HookName;
  readonly ask: (hooks: Hooks, value: T) => unknown;
  readonly read: Read<T>;
  readonly sets: readonly Hooks[];
};

function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | undefined | null)?.then === "function";
}

function passes(answer: unknown): boolean {
  return answer === undefined || answer === true;
}

function readPass<T>(answer: unknown, value: T): Decided<T> | "nonsense" {
  if (answer === false) return refused;
  return passes(answer) ? { value } : "nonsense";
}

function readUser(login: HookLogin): Read<UserDecision> {
  return (answer, value) => {
    if (answer === undefined) return { value };
    if (answer === false) return refused;
    if (answer === true) return { value: { kind: "in", user: login.userName } };
    const { user } = (answer ?? {}) as { user?: unknown };
    const isUser = user === undefined || (typeof user === "string" && user !== "");
    if (typeof answer !== "object" || answer === null || !("user" in answer) || !isUser) {
      return "nonsense";
    }
    return { value: { kind: "in", user } };
  };
}

function readSubscription(
  answer: unknown,
  value: HookSubscription,
): Decided<HookSubscription> | "nonsense" {
  if (answer === false) return refused;
  if (passes(answer)) return { value };
  const { qos, filter = value.filter } = (answer ?? {}) as { qos?: unknown; filter?: unknown };
  if (!isQos(qos) || qos > value.qos || filter !== value.filter) return "nonsense";
  return { value: Object.freeze({ ...value, qos }) };
}

function readPublish(answer: unknown, value: HookPublish): Decided<HookPublish> | "nonsense" {
  if (answer === false) return refused;
  if (passes(answer)) return { value };
  if (typeof answer !== "object" || answer === null) return "nonsense";
  // What it may have meant by a field that is none, such as `allow: false`, is not guessed.
  if (Object.keys(answer).some((field) => !Object.hasOwn(value, field))) return "nonsense";
  const changed = { ...value, ...(answer as PublishChange) };
  const { topic, payload, qos, retain, properties } = changed as Record<string, unknown>;
  if (typeof topic !== "string" || topicNameFault(topic) !== undefined) return "nonsense";
  // At another QoS the client could not finish what it began.
  if (!(payload instanceof Uint8Array) || qos !== value.qos) return "nonsense";
  if (typeof retain !== "boolean" || typeof properties !== "object") return "nonsense";
  const bytes = Buffer.from(payload);
  const read = { topic, payload: bytes, qos: value.qos, retain };
  const publish = { ...read, properties: (properties ?? {}) as Properties };
  return isPublish(publish) ? { value: frozen(publish) } : "nonsense";
}

/** A frame can be made of it. */
function isPublish(publish: HookPublish): boolean {
  if (publishPropertiesFault(publish.properties) !== undefined) return false;
  try {
    createFrame(publish);
    return true;
  } catch {
    return false; // what it throws is why the answer means nothing, which is told
  }
}

function isQos(value: unknown): value is Qos {
  return value === 0 || value === 1 || value === 2;
}
