// Keys: where data lies. See `../keys.ts` for the rules.

import { group, text } from "../schema.ts";

export const data = group("Where everything durable lives.", {
  dir: text({
    doc: "Data directory; created with mode 0700. One node per directory, on a local volume.",
    reload: "restart",
    fallback: "./data",
  }),
});
