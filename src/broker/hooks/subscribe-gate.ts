// Between a client's SUBSCRIBEs and their path, where hooks decide filter by filter. SUBSCRIBE and
// UNSUBSCRIBE keep their order.

import { toError } from "../../base/index.ts";
import {
  type ReasonCode,
  reason,
  type SubscribeRequest,
  type UnsubscribeRequest,
} from "../../mqtt/index.ts";
import type { SubscribePath } from "../subscribe-path.ts";
import type { HookRunner } from "./runner.ts";
import type { HookClient } from "./types.ts";

export type SubscribeGateParts = {
  readonly hooks: HookRunner;
  readonly client: HookClient;
  readonly path: Pick<SubscribePath, "subscribe" | "unsubscribe" | "blocked">;
  readonly waitingMax: number;
  readonly hasEnded: () => boolean;
  readonly blockedChanged: () => void;
  readonly failed: (error: Error) => void;
};

export class SubscribeGate {
  readonly #parts: SubscribeGateParts;
  #waiting = 0;
  #turn: Promise<void> = Promise.resolve();

  constructor(parts: SubscribeGateParts) {
    this.#parts = parts;
  }

  get blocked(): boolean {
    return this.#waiting >= this.#parts.waitingMax || this.#parts.path.blocked;
  }

  subscribe(request: SubscribeRequest): void {
    this.#inTurn(() => this.#decide(request));
  }

  unsubscribe(request: UnsubscribeRequest): void {
    this.#inTurn(() => this.#parts.path.unsubscribe(request));
  }

  async #decide(request: SubscribeRequest): Promise<void> {
    const { hooks, client, path } = this.#parts;
    const refusals: Array<ReasonCode | undefined> = [];
    const filters: Array<SubscribeRequest["filters"][number]> = [];
    for (const wanted of request.filters) {
      const { filter, text, options } = wanted;
      const subscription = Object.freeze({ filter: text, qos: options.qos });
      const decided =
        filter === undefined
          ? { value: subscription }
          : await hooks.authorizeSubscribe(client, subscription);
      if ("refusal" in decided) {
        const isSaid = decided.refusal === "refused";
        refusals.push(isSaid ? reason.notAuthorized : reason.implementationSpecificError);
        filters.push(wanted);
      } else {
        refusals.push(undefined);
        filters.push({ ...wanted, options: { ...options, qos: decided.value.qos } });
      }
    }
    path.subscribe({ ...request, filters }, refusals);
  }

  #inTurn(task: () => Promise<void> | void): void {
    this.#waiting++;
    if (this.blocked) this.#parts.blockedChanged();
    this.#turn = this.#turn
      .then(() => (this.#parts.hasEnded() ? undefined : task()))
      .catch((error: unknown) => this.#parts.failed(toError(error)))
      .then(() => {
        const wasBlocked = this.blocked;
        this.#waiting--;
        if (wasBlocked) this.#parts.blockedChanged();
      });
  }
}
