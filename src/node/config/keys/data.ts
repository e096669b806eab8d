// Keys: where data lies. See `../keys.ts` for the rules.

import { group, size, text } from "../schema.ts";
import { gib, mib } from "./units.ts";

export const data = group("Where everything durable lives.", {
  dir: text({
    doc: "Data directory; created with mode 0700. One node per directory, on a local volume.",
    reload: "restart",
    fallback: "./data",
  }),
  ballast: size({
    doc: "File kept to be given up when the volume is full; at most a sixteenth of the volume.",
    reload: "restart",
    fallback: "64MiB",
    min: mib,
    max: 64 * gib,
    zero: "as_is",
    zeroDoc: "none is kept",
  }),
});
