// Who may do what: the port that an access rule engine implements, and the rules that hold without
// one. Rights are asked for at publish, for wills when they are given and when they are published,
// at subscribe, and again for each delivery, so that a right that was taken away ends at once.

import type { AccessAction, Grant } from "./acl/rules.ts";

export type { AccessAction };

export type Client = {
  readonly clientId: string;
  /** Authenticated user; undefined for anonymous. */
  readonly user: string | undefined;
  /** Rights that came with its login. */
  readonly grants?: readonly Grant[];
};

export interface AccessPort {
  /** `topic` is a filter for `subscribe`. Called for every message: must be quick. */
  authorize(action: AccessAction, client: Client, topic: string): boolean;
  /**
   * At the publication of a will, when what came with its client's login is no longer known.
   * Default: as `publish`.
   */
  authorizeWill?(client: Client, topic: string): boolean;
}

/** Everybody may do everything outside the closed prefixes. */
export const allowAll: AccessPort = { authorize: () => true };

const dollar = 0x24;

/**
 * What bridges of Mosquitto say of themselves, and leave as their wills: refused they would not get
 * in (docs/decisions/025-states-of-bridges.md).
 */
const bridgeState = /^\$SYS\/broker\/connection\/[^/]+\/state$/;

export type Prefixes = {
  /** First levels that clients cannot publish to: the broker's own topics. */
  readonly closedPrefixes: readonly string[];
  /** Those of them that may be read by whom the rules let. */
  readonly readablePrefixes: readonly string[];
};

export class Rights {
  readonly #access: AccessPort;
  readonly #closed: ReadonlySet<string>;
  readonly #readable: ReadonlySet<string>;

  /** What is closed is closed whatever the rules say. */
  constructor(access: AccessPort, { closedPrefixes, readablePrefixes }: Prefixes) {
    this.#access = access;
    this.#closed = new Set(closedPrefixes);
    this.#readable = new Set(readablePrefixes);
  }

  /** Whether it is one of the broker's own topics. */
  isClosed(topic: string): boolean {
    if (topic.charCodeAt(0) !== dollar || !this.#closed.has(firstLevel(topic))) return false;
    return !bridgeState.test(topic);
  }

  may(action: AccessAction, client: Client, topic: string): boolean {
    return !this.#isClosed(action, topic) && this.#access.authorize(action, client, topic);
  }

  mayWill(client: Client, topic: string): boolean {
    if (this.#isClosed("publish", topic)) return false;
    const access = this.#access;
    return access.authorizeWill?.(client, topic) ?? access.authorize("publish", client, topic);
  }

  #isClosed(action: AccessAction, topic: string): boolean {
    if (!this.isClosed(topic)) return false;
    return action === "publish" || !this.#readable.has(firstLevel(topic));
  }
}

function firstLevel(topic: string): string {
  const end = topic.indexOf("/");
  return end < 0 ? topic : topic.slice(0, end);
}
