// The terms on which a listener takes connections: whom it asks who they are, and its own limits
// beside the broker's.

import { AuthChain, everybody } from "./auth/chain.ts";
import type { AuthPort } from "./auth/types.ts";

export type ListenerLimits = {
  /** Connections at once; Infinity: as many as the broker takes. */
  readonly connectionsMax: number;
  /** New connections in a second. */
  readonly connectsPerS: number;
  /** Of each client; beyond, it is not read for as long as it takes. */
  readonly messagesPerS: number;
  readonly bytesPerS: number;
};

export type ListenerTerms = {
  readonly name: string;
  readonly auth: AuthPort;
  readonly limits: ListenerLimits;
};

export const listenerLimitsDefault: ListenerLimits = {
  connectionsMax: Number.POSITIVE_INFINITY,
  connectsPerS: Number.POSITIVE_INFINITY,
  messagesPerS: Number.POSITIVE_INFINITY,
  bytesPerS: Number.POSITIVE_INFINITY,
};

/** Everybody, without a name: for embedding and tests. */
export const openTerms: ListenerTerms = {
  name: "open",
  auth: new AuthChain([everybody]),
  limits: listenerLimitsDefault,
};
