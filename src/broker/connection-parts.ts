// What connections share, and what belongs to one from its accept on.

import type { ByteConnection, Clock, Random } from "../base/index.ts";
import type { RunReader } from "../mqtt/index.ts";
import type { Sessions } from "../session/index.ts";
import type { Rights } from "./access.ts";
import type { BrokerCounters } from "./counters.ts";
import type { HookRunner } from "./hooks/runner.ts";
import type { LimitedLog } from "./limited-log.ts";
import type { Ticket } from "./limits/admission.ts";
import type { Flapping } from "./limits/flapping.ts";
import type { ListenerTerms } from "./listener-terms.ts";
import type { LivePeers } from "./peers/ports.ts";
import type { PublishPath } from "./publish-path.ts";
import type { BrokerSettings } from "./settings.ts";
import type { SysTopics } from "./sys-topics.ts";
import type { Tap } from "./tap.ts";
import type { WriteTurn } from "./write-path.ts";

export type ConnectionParts = {
  readonly settings: BrokerSettings;
  readonly clock: Clock;
  readonly random: Random;
  readonly rights: Rights;
  readonly counters: BrokerCounters;
  readonly log: LimitedLog;
  readonly turn: WriteTurn;
  readonly runs: RunReader;
  readonly path: PublishPath;
  readonly sessions: Sessions;
  readonly flapping: Flapping;
  readonly isSheddingQos0: () => boolean;
  readonly hooks: HookRunner | undefined;
  readonly sys: SysTopics;
  readonly tap: Tap;
  readonly peers: LivePeers | undefined;
  /** A user that nobody may log in as. */
  readonly reservedUser: string | undefined;
};

/** What belongs to one connection from its accept on. */
export type Admitted = {
  readonly transport: ByteConnection;
  readonly terms: ListenerTerms;
  readonly ticket: Ticket;
};
