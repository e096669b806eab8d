// What one client's durable subscriptions are counted with: plain filters at the store, shared ones at
// their groups, which count once for all of their members.

import type { InterestFace, Positions } from "../../store/index.ts";
import type { SessionTable } from "../inspect/table.ts";
import { type Groups, sharedTopicFilter } from "./member.ts";

export interface Interest {
  add(filter: string, start: Positions): void;
  remove(filter: string): void;
  /** Resolves when what `add` made is durable; undefined when there is nothing to wait for. */
  settled(filter: string): Promise<void> | undefined;
}

export function interestOf(
  parts: {
    readonly store: { readonly interest: InterestFace };
    readonly groups: Groups;
    readonly table: SessionTable;
  },
  clientId: string,
): Interest {
  const { groups, table } = parts;
  const { interest } = parts.store;
  const isShared = (filter: string): boolean => sharedTopicFilter(filter) !== undefined;
  return {
    add: (filter, start) => {
      if (isShared(filter)) {
        groups.addInterest(clientId, filter, start);
        return;
      }
      interest.add(filter, start);
      table.addFilter(clientId, filter, interest.timesOf(filter));
    },
    remove: (filter) => {
      if (isShared(filter)) {
        groups.removeInterest(clientId, filter);
        return;
      }
      interest.remove(filter);
      table.removeFilter(clientId, filter);
    },
    settled: (filter) => (isShared(filter) ? groups.created(filter) : undefined),
  };
}
