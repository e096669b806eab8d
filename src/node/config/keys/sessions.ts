// Keys: durable sessions. See `../keys.ts` for the rules.

import { count, duration, group } from "../schema.ts";
import { minute } from "./units.ts";

export const sessions = group("Durable sessions.", {
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
});
