// When the changes of attached sessions are written: eager and coalescing. A change waits about
// 50 ms for others, longer under load (as long as the keys of the last round take at the
// configured rate, at most 1 s); what sending waits for is written in the same turn. All dirty
// sessions of a state shard share its writes.
//
// A failed write keeps the session dirty and is tried again, slower each time; the connection is
// never the victim. A session whose claim was lost is told so (`fenced`).

import type { Cancel, Clock, CodedError, Logger } from "../base/index.ts";
import { isCodedError } from "../base/index.ts";
import type { SessionCounters, SessionSettings } from "./settings.ts";
import type { BuiltWrites, StateWriter } from "./state-writer.ts";

/** A session with changes. */
export interface Checkpointed {
  readonly clientId: string;
  /** Takes the changes since the last call; undefined when there are none. */
  collect(): (BuiltWrites & { settle(error: CodedError | undefined): void }) | undefined;
  /** Another owner holds the session. */
  fenced(): void;
}

export class Checkpointer {
  readonly #writer: StateWriter;
  readonly #clock: Clock;
  readonly #settings: SessionSettings;
  readonly #counters: SessionCounters;
  readonly #logger: Logger;
  readonly #phase: (name: string) => void;
  #dirty = new Set<Checkpointed>();
  #timer: Cancel | undefined;
  #timerDueMs = 0;
  #urgent = new Set<Checkpointed>();
  #lastRoundKeys = 0;
  #failures = 0;

  constructor(
    writer: StateWriter,
    components: {
      clock: Clock;
      counters: SessionCounters;
      logger: Logger;
      phase: (name: string) => void;
    },
    settings: SessionSettings,
  ) {
    this.#writer = writer;
    this.#clock = components.clock;
    this.#counters = components.counters;
    this.#logger = components.logger;
    this.#phase = components.phase;
    this.#settings = settings;
  }

  get writer(): StateWriter {
    return this.#writer;
  }

  /** The session has changes; `urgent` when it waits for them to be durable. */
  mark(session: Checkpointed, urgent: boolean): void {
    // Somebody's write went through: there is no reason to be slow any more.
    if (!this.#writer.failing) this.#failures = 0;
    if (!urgent || this.#failures > 0) {
      this.#dirty.add(session);
      this.#arm(this.#delayMs());
      return;
    }
    const isFirst = this.#urgent.size === 0;
    this.#urgent.add(session);
    if (!isFirst) return;
    this.#clock.soon(() => {
      const sessions = this.#urgent;
      this.#urgent = new Set();
      // Sessions that can wait do wait: at full speed they have little to write in the end.
      for (const each of sessions) {
        this.#dirty.delete(each);
        this.#submit(each);
      }
    });
  }

  /** The session is gone or writes its own last state. */
  forget(session: Checkpointed): void {
    this.#dirty.delete(session);
    this.#urgent.delete(session);
  }

  stop(): void {
    this.#timer?.();
    this.#timer = undefined;
    this.#dirty.clear();
    this.#urgent.clear();
  }

  #delayMs(): number {
    const settings = this.#settings;
    if (this.#failures > 0) {
      const backoff = settings.retryDelayMs * 2 ** Math.min(this.#failures - 1, 16);
      return Math.min(backoff, settings.retryDelayMsMax);
    }
    const paceMs = (this.#lastRoundKeys / settings.checkpointKeysPerS) * 1000;
    return Math.min(settings.checkpointDelayMsMax, Math.max(settings.checkpointDelayMs, paceMs));
  }

  #arm(delayMs: number): void {
    const dueMs = this.#clock.elapsedMs() + delayMs;
    if (this.#timer !== undefined && this.#timerDueMs <= dueMs) return;
    this.#timer?.();
    this.#timerDueMs = dueMs;
    this.#timer = this.#clock.schedule(delayMs, () => {
      this.#timer = undefined;
      this.#round();
    });
  }

  /** Hands every dirty session to the writer. */
  #round(): void {
    const sessions = this.#dirty;
    this.#dirty = new Set();
    this.#lastRoundKeys = 0;
    // What failed has gone with its session.
    if (sessions.size === 0) this.#failures = 0;
    for (const session of sessions) this.#submit(session);
  }

  #submit(session: Checkpointed): void {
    let settle: ((error: CodedError | undefined) => void) | undefined;
    this.#writer.submit({
      build: () => {
        const collected = session.collect();
        if (collected === undefined) return undefined;
        settle = (error) => collected.settle(error);
        this.#lastRoundKeys += collected.writes.length;
        this.#phase("session.checkpoint");
        return collected;
      },
      done: (error) => {
        settle?.(error);
        if (error !== undefined) this.#failed(session, error);
        else if (settle !== undefined) this.#phase("session.checkpointed");
      },
    });
  }

  #failed(session: Checkpointed, error: CodedError): void {
    if (isCodedError(error, "STORE_GUARD_FAILED")) {
      this.#counters.sessionsFenced++;
      this.#logger.warn("session.fenced", { clientId: session.clientId });
      session.fenced();
      return;
    }
    // Every session of a failed write comes here; one step of the backoff is enough.
    if (this.#failures === 0 || this.#clock.elapsedMs() >= this.#timerDueMs) this.#failures++;
    this.#counters.writesFailed++;
    if (this.#timer === undefined) {
      this.#logger.error("session.checkpoint_failed", { attempt: this.#failures, error });
    }
    this.#dirty.add(session);
    this.#arm(this.#delayMs());
  }
}
