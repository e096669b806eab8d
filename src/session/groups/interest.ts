// What one client's durable subscriptions are counted with beside their rows: plain filters at the
// store while their rows are on their way, shared ones at their groups, which count once for all
// members.

import type { InterestFace, Positions } from "../../store/index.ts";
import { type Groups, sharedTopicFilter } from "./member.ts";

export interface Interest {
  /** A plain filter is to be written: it counts from now on, until `release`. */
  hold(filter: string, start: Positions): void;
  /** Its row says whether it counts. */
  release(filter: string): void;
  /** The client becomes a durable member of the group of a shared filter. */
  join(filter: string, start: Positions): void;
  /** It is none any more. */
  leave(filter: string): void;
  /** Resolves when what `join` made is durable; undefined when there is nothing to wait for. */
  settled(filter: string): Promise<void> | undefined;
}

export function interestOf(
  parts: { readonly store: { readonly interest: InterestFace }; readonly groups: Groups },
  clientId: string,
): Interest {
  const { groups, store } = parts;
  const isShared = (filter: string): boolean => sharedTopicFilter(filter) !== undefined;
  return {
    hold: (filter, start) => {
      if (!isShared(filter)) store.interest.add(filter, start);
    },
    release: (filter) => {
      if (!isShared(filter)) store.interest.remove(filter);
    },
    join: (filter, start) => {
      if (isShared(filter)) groups.addInterest(clientId, filter, start);
    },
    leave: (filter) => {
      if (isShared(filter)) groups.removeInterest(clientId, filter);
    },
    settled: (filter) => (isShared(filter) ? groups.created(filter) : undefined),
  };
}
