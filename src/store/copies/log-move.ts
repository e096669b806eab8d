// A log shard on its way from its own state to what was copied from another replica. Readers of slabs
// wait meanwhile; those that had one open find it closed, and ask anew.

import type { LogState } from "../log-state.ts";
import type { StagedLog } from "./log-staging.ts";
import type { StagedState } from "./staged.ts";

export type LogMoveParts = {
  /** Closes the slabs that are here. */
  readonly leave: () => Promise<void>;
  /** Loads what the stores hold by then. */
  readonly load: () => Promise<LogState>;
  readonly put: (state: LogState) => void;
};

export class LogMove {
  /** Resolves when it is over; undefined while there is none. */
  over: Promise<void> | undefined;

  to({ rows, counts }: StagedLog, parts: LogMoveParts): StagedState {
    let end = (): void => undefined;
    const nothing = async (): Promise<void> => undefined;
    return {
      ...{ rows, counts, settle: nothing, abandon: nothing },
      leave: () => {
        this.over = new Promise((resolve) => {
          end = resolve;
        });
        return parts.leave();
      },
      enter: async () => {
        const state = await parts.load();
        return () => {
          parts.put(state);
          this.over = undefined;
          end();
        };
      },
    };
  }
}
