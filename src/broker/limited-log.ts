// Log lines that clients can cause: at most so many of one event in a second, so that a crowd of
// faulty clients neither fills the disk nor hides the first of them. What was left out is told with
// the next line of that event.

import type { Clock, LogFields, Logger } from "../base/index.ts";

type Budget = { startMs: number; lines: number; suppressed: number };

const windowMs = 1000;

export class LimitedLog {
  readonly #logger: Logger;
  readonly #clock: Clock;
  readonly #linesMax: number;
  readonly #budgets = new Map<string, Budget>();

  constructor(logger: Logger, clock: Clock, linesPerSMax: number) {
    this.#logger = logger;
    this.#clock = clock;
    this.#linesMax = linesPerSMax;
  }

  warn(event: string, fields: LogFields): void {
    const budget = this.#budgetOf(event);
    if (budget.lines >= this.#linesMax) {
      budget.suppressed++;
      return;
    }
    budget.lines++;
    const { suppressed } = budget;
    budget.suppressed = 0;
    this.#logger.warn(event, suppressed === 0 ? fields : { ...fields, suppressed });
  }

  debug(event: string, fields: LogFields): void {
    this.#logger.debug(event, fields);
  }

  #budgetOf(event: string): Budget {
    const nowMs = this.#clock.elapsedMs();
    let budget = this.#budgets.get(event);
    if (budget === undefined) {
      budget = { startMs: nowMs, lines: 0, suppressed: 0 };
      this.#budgets.set(event, budget);
    } else if (nowMs - budget.startMs >= windowMs) {
      budget.startMs = nowMs;
      budget.lines = 0;
    }
    return budget;
  }
}
