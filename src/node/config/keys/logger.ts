// Keys: what the node says about itself. See `../keys.ts` for the rules.

import { choice, group } from "../schema.ts";

export const logger = group("What the node says about itself, on standard error.", {
  level: choice(["debug", "info", "warn", "error"], {
    doc: "Least severity that is written.",
    reload: "hot",
    fallback: "info",
  }),
  format: choice(["auto", "pretty", "json"], {
    doc: "`auto`: a short line on a terminal, one JSON object a line to a pipe.",
    reload: "restart",
    fallback: "auto",
  }),
});
