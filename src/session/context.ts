// What every part of the session room needs: components apart from settings.

import type { Clock, Logger } from "../base/index.ts";
import type { MapShard, Store } from "../store/index.ts";
import type { LiveSubscriptions, WillPublisher } from "./api.ts";
import type { Checkpointer } from "./checkpointer.ts";
import type { Owner } from "./core/records.ts";
import type { Groups } from "./groups/member.ts";
import type { SessionTable } from "./inspect/table.ts";
import type { RetainedStore } from "./retained.ts";
import type { SessionCounters, SessionSettings } from "./settings.ts";

export type SessionContext = {
  readonly store: Store;
  readonly clock: Clock;
  /** This start of this node, where several nodes share the store. */
  readonly owner: Owner | undefined;
  readonly logger: Logger;
  readonly live: LiveSubscriptions;
  readonly wills: WillPublisher;
  readonly retained: RetainedStore;
  readonly settings: SessionSettings;
  readonly counters: SessionCounters;
  readonly groups: Groups;
  readonly table: SessionTable;
  /** One per state shard. */
  checkpointer(shard: MapShard): Checkpointer;
};
