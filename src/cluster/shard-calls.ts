// What the leader of a shard carries out for other nodes in more than one entry, such as ending a
// generation. It is asked for again until it is done, and may so be done twice, which harms nothing.

import { type Clock, toError } from "../base/index.ts";
import { type LogReplica, type ShardCall, storeErrors } from "../store/index.ts";
import type { ForwardMessage } from "./core/forward-codec.ts";
import type { ForwardSettings, SendForward } from "./core/forward-queue.ts";

export type ShardCallsParts = {
  readonly replica: LogReplica;
  /** Of this process. */
  readonly name: string;
  readonly clock: Clock;
  readonly settings: ForwardSettings;
  /** 0: none is known. */
  readonly leader: () => number;
  readonly send: SendForward;
  /** What could not be carried out here now. */
  readonly refused: (error: Error) => void;
};

type Open = {
  readonly call: ShardCall;
  readonly sinceMs: number;
  sentMs: number;
  resolve(value: number): void;
  reject(error: Error): void;
};

/** Calls carried out here whose outcome is remembered. */
const outcomesMax = 256;

export class ShardCalls {
  readonly #parts: ShardCallsParts;
  readonly #open = new Map<number, Open>();
  /** By whom and what, the oldest first. */
  readonly #outcomes = new Map<string, Promise<number>>();
  #lastId = 0;

  constructor(parts: ShardCallsParts) {
    this.#parts = parts;
  }

  /** @throws STORE_FATE_UNKNOWN after the longest wait. */
  ask(call: ShardCall): Promise<number> {
    const { clock, replica } = this.#parts;
    if (replica.failure !== undefined) return Promise.reject(replica.failure);
    return new Promise((resolve, reject) => {
      const sinceMs = clock.elapsedMs();
      const id = ++this.#lastId;
      this.#open.set(id, { call, sinceMs, sentMs: sinceMs, resolve, reject });
      this.#send(id, call);
    });
  }

  tick(): void {
    const { clock, settings } = this.#parts;
    const nowMs = clock.elapsedMs();
    for (const [id, open] of this.#open) {
      if (nowMs - open.sinceMs >= settings.waitMs) this.#lose(id, open);
      else if (nowMs - open.sentMs >= settings.answerMs) {
        open.sentMs = nowMs;
        this.#send(id, open.call);
      }
    }
  }

  returned({ id, value, timeUs }: ForwardMessage & { kind: "returned" }): void {
    this.#parts.replica.whenApplied(timeUs, () => {
      this.#open.get(id)?.resolve(value);
      this.#open.delete(id);
    });
  }

  /** As the leader; whoever is none says nothing, and is asked again when it is. */
  async carryOut(
    from: number,
    { name, id, call }: ForwardMessage & { kind: "call" },
  ): Promise<void> {
    const { replica, send, refused } = this.#parts;
    const asking = `${name}/${id}`;
    const outcome = this.#outcomes.get(asking) ?? replica.call(call);
    this.#outcomes.set(asking, outcome);
    const [oldest] = this.#outcomes.keys();
    if (this.#outcomes.size > outcomesMax && oldest !== undefined) this.#outcomes.delete(oldest);
    try {
      const value = await outcome;
      send(from, { kind: "returned", id, value, timeUs: replica.appliedUs });
    } catch (error) {
      this.#outcomes.delete(asking);
      refused(toError(error));
    }
  }

  close(): void {
    for (const [id, open] of this.#open) this.#lose(id, open);
  }

  #send(id: number, call: ShardCall): void {
    const to = this.#parts.leader();
    if (to !== 0) this.#parts.send(to, { kind: "call", name: this.#parts.name, id, call });
  }

  #lose(id: number, open: Open): void {
    this.#open.delete(id);
    open.reject(storeErrors.fateUnknown({ shard: this.#parts.replica.number }));
  }
}
