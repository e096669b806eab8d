// Keys: durable sessions and shared subscriptions. See `../keys.ts` for the rules.

import { choice, count, duration, group } from "../schema.ts";
import { minute } from "./units.ts";

export const sessions = group("Durable sessions and shared subscriptions.", {
  takeoverWait: duration({
    doc: "How long a takeover waits for the last write of the old connection. Beyond: it goes on.",
    reload: "restart",
    fallback: "2s",
    min: 10,
    max: minute,
  }),
  backlogMax: count({
    doc: "Messages that wait for an absent client. Beyond: the newest are kept at its return.",
    reload: "restart",
    fallback: "0",
    min: 1,
    max: 1_000_000,
    zero: "no_limit",
  }),
  perUserMax: count({
    doc: "Durable sessions of one user, and of all anonymous clients together. Beyond: 0x97.",
    reload: "restart",
    fallback: "100000",
    min: 1,
    max: 100_000_000,
    zero: "no_limit",
  }),
  sharedStrategy: choice(["round_robin", "least_inflight", "sticky", "hash_client", "hash_topic"], {
    doc: "Which member of a shared subscription gets a message.",
    reload: "restart",
    fallback: "round_robin",
  }),
});
