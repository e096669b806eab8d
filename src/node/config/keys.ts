// The key table: every configuration key with its default, range, meaning of 0, reload mark and
// reason. Spelling of keys is part of the public contract; so is the one meaning of 0: where a limit
// can be lifted 0 lifts it, where it cannot 0 is refused, and where 0 is an amount like any other
// (a wait, an announcement) its row says what it does.
// A file of `keys/` holds the rows of one room; what stands here is the order of the reference page.

import { admin } from "./keys/admin.ts";
import { authentication, authorization } from "./keys/authentication.ts";
import { cluster } from "./keys/cluster.ts";
import { data } from "./keys/data.ts";
import { databases, groups } from "./keys/databases.ts";
import { listeners } from "./keys/listeners.ts";
import { log } from "./keys/log.ts";
import { logger } from "./keys/logger.ts";
import { mqtt } from "./keys/mqtt.ts";
import { devices, protection } from "./keys/protection.ts";
import { sessions } from "./keys/sessions.ts";
import { store } from "./keys/store.ts";
import type { SettingsOf } from "./schema.ts";

export const keyTable = {
  ...{ data, listeners, authentication, authorization, protection, devices, logger, log },
  ...{ databases, groups, mqtt, sessions, store, admin, cluster },
};

/** The configuration of a node: plain data, all defaults filled in. */
export type Settings = SettingsOf<typeof keyTable>;
