// Calls on a simulated thing that outlives the processes using it: when each completes, which fault
// hits it, and what becomes of those under way when the process dies.
//
// Invariants: a call's effect happens in one piece when it completes, never inside the call that
// started it; a call cut off by the end of its process runs `cut` instead, and its caller never
// hears of it. Everything follows from the delays drawn and the order of calls.

import type { Cancel, Clock } from "./clock.ts";
import { toError } from "./errors.ts";
import { type FaultRule, type SimErrno, SimFaults } from "./sim-faults.ts";

export type SimCall<Operation extends string, T> = {
  readonly operation: Operation;
  readonly path: string;
  /** Runs at completion; what it throws is the caller's error. */
  readonly effect: () => T;
  /** What may have happened when the process or the power ended during the call. */
  readonly cut?: (() => void) | undefined;
  /** What an injected error leaves behind. */
  readonly damage?: (() => void) | undefined;
  readonly done: (error: Error | undefined, value?: T) => void;
};

export type SimCallsOptions<Operation extends string> = {
  readonly clock: Clock;
  /** Drawn per call; at 0 it completes in this turn of the event loop. */
  readonly delayMs: (operation: Operation) => number;
  /** The error an injected errno becomes. */
  readonly injected: (operation: Operation, path: string, errno: SimErrno) => Error;
};

type AnyCall<Operation extends string> = SimCall<Operation, unknown>;

export class SimCalls<Operation extends string> {
  readonly #options: SimCallsOptions<Operation>;
  readonly #faults = new SimFaults<Operation>();
  readonly #pending = new Map<AnyCall<Operation>, Cancel>();
  #generation = 0;
  /** Calls that an injected fault hit. */
  faultCount = 0;

  constructor(options: SimCallsOptions<Operation>) {
    this.#options = options;
  }

  /** Number of the process that may call now; older ones are dead. */
  get generation(): number {
    return this.#generation;
  }

  /** Calls of a dead process are taken and never complete. */
  start<T>(generation: number, call: SimCall<Operation, T>): void {
    if (generation !== this.#generation) return;
    this.#begin(call as AnyCall<Operation>);
  }

  promise<T>(generation: number, call: Omit<SimCall<Operation, T>, "done">): Promise<T> {
    return new Promise((resolve, reject) => {
      const done = (error: Error | undefined, value?: T): void =>
        error === undefined ? resolve(value as T) : reject(error);
      this.start<T>(generation, { ...call, done });
    });
  }

  /** The process ends; `cut` of the calls under way runs in the order they were started. */
  cutOff(): void {
    this.#generation++;
    const caught = [...this.#pending];
    this.#pending.clear();
    for (const [call, cancel] of caught) {
      cancel();
      call.cut?.();
    }
  }

  /** Makes matching calls fail, hang or take longer. The result withdraws the rule. */
  inject(rule: FaultRule<Operation>): Cancel {
    return this.#faults.add(rule);
  }

  /** Withdraws all rules and lets the calls that hang complete. */
  heal(): void {
    for (const resume of this.#faults.clear()) resume();
  }

  #begin(call: AnyCall<Operation>): void {
    const fault = this.#faults.match(call.operation, call.path);
    if (fault !== undefined) this.faultCount++;
    if (fault?.hangs !== true) {
      this.#schedule(call, fault);
      return;
    }
    this.#pending.set(call, () => undefined);
    this.#faults.hang(() => {
      if (this.#pending.has(call)) this.#schedule(call, fault);
    });
  }

  #schedule(call: AnyCall<Operation>, fault: FaultRule<Operation> | undefined): void {
    const delayMs = this.#options.delayMs(call.operation) + (fault?.delayMs ?? 0);
    const run = (): void => this.#finish(call, fault?.fails);
    if (delayMs > 0) {
      this.#pending.set(call, this.#options.clock.schedule(delayMs, run));
      return;
    }
    this.#pending.set(call, () => undefined);
    this.#options.clock.soon(run);
  }

  #finish(call: AnyCall<Operation>, fails: SimErrno | undefined): void {
    if (!this.#pending.delete(call)) return;
    if (fails !== undefined) {
      call.damage?.();
      call.done(this.#options.injected(call.operation, call.path, fails));
      return;
    }
    let value: unknown;
    try {
      value = call.effect();
    } catch (error) {
      call.done(toError(error));
      return;
    }
    call.done(undefined, value);
  }
}
