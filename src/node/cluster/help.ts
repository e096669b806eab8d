// Help sentences of the cluster's own errors, beside those that every node has.

import { clusterErrors } from "../../cluster/index.ts";

export function helpOfMember(code: string): string | undefined {
  return Object.values(clusterErrors).find(({ row }) => row.code === code)?.row.help;
}
