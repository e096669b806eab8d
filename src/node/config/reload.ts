// The configuration of a running node, read again from the same places: by SIGHUP, the command line or
// the HTTP API. With a fault in it nothing changes. Otherwise hot keys take hold now, and the answer
// and the log tell them and those that wait for a restart. Reloads go one after the other: what
// was read last holds in the end.

import { type Logger, toError } from "../../base/index.ts";
import { type ConfigChange, changesBetween, describeChange, withPaths } from "./changes.ts";
import type { Config } from "./config.ts";
import type { Settings } from "./keys.ts";
import { describePlace } from "./place.ts";

export type Reloading = {
  /** @throws CONFIG_INVALID, CONFIG_FILE_UNREADABLE. */
  readonly read: () => Config;
  /** Puts hot keys into force. */
  readonly apply: (settings: Settings) => void;
  readonly logger: Logger;
  readonly nowMs: () => number;
};

export type EffectiveValue = {
  readonly path: string;
  /** As a file would hold it; secrets masked. */
  readonly value: string;
  readonly origin: string;
  readonly reload: ConfigChange["reload"];
};

/** A reload that was refused, until one is not. */
export type ReloadRefusal = { readonly sinceMs: number; readonly reason: string };

export class RunningConfiguration {
  readonly #reloading: Reloading;
  #running: Config;
  #security: () => Promise<void> = async () => undefined;
  #last: Promise<unknown> = Promise.resolve();
  #refusal: ReloadRefusal | undefined;

  constructor(atStart: Config, reloading: Reloading) {
    this.#running = atStart;
    this.#reloading = reloading;
  }

  values(): EffectiveValue[] {
    return [...this.#running.effective.values()].map(({ path, field, value, place }) => ({
      path,
      value: field.format(value),
      origin: describePlace(place),
      reload: field.reload,
    }));
  }

  refusal(): ReloadRefusal | undefined {
    return this.#refusal;
  }

  /** Users, keys, rules and certificates are files of their own: they are read again with it. */
  secureWith(reload: () => Promise<void>): void {
    this.#security = reload;
  }

  /**
   * A dry run reads and compares, and puts nothing into force.
   * @throws as `read`, and what is wrong with users, keys or rules; nothing has changed then.
   */
  reload(dryRun: boolean): Promise<ConfigChange[]> {
    const done = this.#last.then(() => this.#reload(dryRun));
    this.#last = done.then(
      () => {
        if (!dryRun) this.#refusal = undefined;
      },
      (error: unknown) => {
        if (dryRun) return;
        const sinceMs = this.#refusal?.sinceMs ?? this.#reloading.nowMs();
        this.#refusal = { sinceMs, reason: toError(error).message };
        this.#reloading.logger.error("node.reload_refused", { reason: this.#refusal.reason });
      },
    );
    return done;
  }

  async #reload(dryRun: boolean): Promise<ConfigChange[]> {
    const { read, apply, logger } = this.#reloading;
    const next = read();
    const changes = changesBetween(this.#running, next);
    if (dryRun) return changes;
    await this.#security();
    const hot = changes.filter(({ reload }) => reload === "hot");
    this.#running = withPaths(this.#running, next, new Set(hot.map(({ path }) => path)));
    apply(next.settings);
    const waiting = changes.filter(({ reload }) => reload === "restart");
    logger.info("node.reloaded", {
      now: hot.map(describeChange),
      atNextStart: waiting.map(describeChange),
    });
    return changes;
  }

  /** At SIGHUP, where nobody waits for an answer: a fault is in the log, as of every reload. */
  async onSignal(): Promise<void> {
    await this.reload(false).catch(() => undefined);
  }
}
