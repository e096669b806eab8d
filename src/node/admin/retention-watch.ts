// An alarm before retention drops what a durable session has not read yet. Looked for now and then, and
// among sessions only while a generation is close to its end.
//
// What quotas drop is not foreseen: they have alarms of their own.

import type { RunningParts } from "../../admin/index.ts";
import type { Cancel, Clock } from "../../base/index.ts";
import type { Alarm } from "../../store/index.ts";

type Watched = Pick<RunningParts, "operator" | "sessions">;

const everyMs = 60_000;
/** Part of the retention that is left when the alarm comes. */
const shareLeft = 0.1;

export class RetentionWatch {
  readonly #watched: Watched;
  readonly #clock: Clock;
  #cancel: Cancel | undefined;
  #isClosed = false;
  #alarm: Alarm | undefined;

  constructor(watched: Watched, clock: Clock) {
    this.#watched = watched;
    this.#clock = clock;
    this.#arm();
  }

  alarms(): readonly Alarm[] {
    return this.#alarm === undefined ? [] : [this.#alarm];
  }

  close(): void {
    this.#isClosed = true;
    this.#cancel?.();
  }

  #arm(): void {
    this.#cancel = this.#clock.schedule(everyMs, () => {
      void this.look()
        .catch(() => undefined) // a store that is going down; the next look tells
        .finally(() => {
          if (!this.#isClosed) this.#arm();
        });
    });
  }

  async look(): Promise<void> {
    const untilUs = this.#endingUs();
    const behind = untilUs.size === 0 ? undefined : await this.#watched.sessions.behind(untilUs);
    if (behind === undefined || behind.count === 0) {
      this.#alarm = undefined;
      return;
    }
    const { count, clientIds } = behind;
    const among = `${clientIds.join(", ")}${count > clientIds.length ? " and others" : ""}`;
    this.#alarm = {
      name: "retention_overtakes",
      subject: "durable sessions",
      severity: "warning",
      sinceMs: this.#alarm?.sinceMs ?? Math.floor(this.#clock.wallUs() / 1000),
      message: `retention is about to drop what may wait for ${count} sessions (${among})`,
      help: "Let them read, purge or end them (`flagstone sessions --backlog`), or keep more (`flagstone databases alter`).",
    };
  }

  /** By shard: the end of what will be dropped soon. */
  #endingUs(): Map<number, number> {
    const { operator } = this.#watched;
    const nowUs = this.#clock.wallUs();
    const found = new Map<number, number>();
    for (const { layout, retention, shards } of operator.databases()) {
      if (layout !== "log" || retention.ageMs === 0) continue;
      const ageUs = retention.ageMs * 1000;
      for (const shard of shards) {
        for (const { state, toUs } of operator.generations(shard)) {
          if (state !== "sealed" || toUs === undefined) continue;
          if (toUs + ageUs * (1 - shareLeft) < nowUs) {
            found.set(shard, Math.max(found.get(shard) ?? 0, toUs));
          }
        }
      }
    }
    return found;
  }
}
