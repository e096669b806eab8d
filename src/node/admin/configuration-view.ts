// What may be shown and changed of a running node's configuration; the one who started it knows.

import type { ConfigChangeInfo, ConfigValue } from "../../admin/index.ts";

/** What `flagstone start` knows of its configuration and an embedding program does not. */
export type ConfigurationView = {
  values(): readonly ConfigValue[];
  /** All or nothing. @throws CONFIG_INVALID, CONFIG_FILE_UNREADABLE. */
  reload(dryRun: boolean): Promise<readonly ConfigChangeInfo[]>;
  /** Why the last one was refused, if it was. */
  refusal(): { readonly sinceMs: number; readonly reason: string } | undefined;
};
