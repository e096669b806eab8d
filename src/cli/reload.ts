// SIGHUP: the configuration is read again, from the same places. With a fault in it nothing changes.
// Otherwise hot keys take hold now, and the log tells them and those that wait for a restart.

import { isCodedError } from "../base/index.ts";
import {
  type Config,
  changesBetween,
  describeChange,
  type NodeLogger,
  type Settings,
} from "../node/index.ts";

export type Reloading = {
  /** @throws CONFIG_INVALID, CONFIG_FILE_UNREADABLE. */
  readonly read: () => Config;
  /** Puts hot keys into force. */
  readonly apply: (settings: Settings) => void;
  readonly logger: NodeLogger;
};

/** Called at each SIGHUP. */
export function createReload(atStart: Config, { read, apply, logger }: Reloading): () => void {
  let running = atStart;
  return () => {
    let next: Config;
    try {
      next = read();
    } catch (error) {
      if (!isCodedError(error)) throw error;
      logger.error("node.reload_refused", { reason: error.message });
      return;
    }
    const changes = changesBetween(running, next);
    const hot = changes.filter(({ reload }) => reload === "hot");
    running = withPaths(running, next, new Set(hot.map(({ path }) => path)));
    apply(next.settings);
    const waiting = changes.filter(({ reload }) => reload === "restart");
    logger.info("node.reloaded", {
      now: hot.map(describeChange),
      atNextStart: waiting.map(describeChange),
    });
  };
}

/** What runs now: the keys named from the new configuration, the rest from the old one. */
function withPaths(running: Config, next: Config, paths: ReadonlySet<string>): Config {
  const effective = new Map(running.effective);
  for (const path of paths) {
    const leaf = next.effective.get(path);
    if (leaf === undefined) effective.delete(path);
    else effective.set(path, leaf);
  }
  return { settings: running.settings, effective };
}
