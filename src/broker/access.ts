// Who may do what: the port that an access rule engine implements, and the rules that hold without
// one. Rights are asked for at publish, for wills when they are given and when they are published,
// at subscribe, and again for each delivery, so that a right that was taken away ends at once.

export type Client = {
  readonly clientId: string;
  /** Authenticated user; undefined for anonymous. */
  readonly user: string | undefined;
};

export type AccessAction = "publish" | "subscribe" | "receive";

export interface AccessPort {
  /** `topic` is a filter for `subscribe`. Called for every message: must be quick. */
  authorize(action: AccessAction, client: Client, topic: string): boolean;
}

/** Everybody may do everything outside the closed prefixes. */
export const allowAll: AccessPort = { authorize: () => true };

const dollar = 0x24;

export class Rights {
  readonly #access: AccessPort;
  readonly #closed: ReadonlySet<string>;

  /** `closedPrefixes`: first levels of the broker's own topics, closed whatever the rules say. */
  constructor(access: AccessPort, closedPrefixes: readonly string[]) {
    this.#access = access;
    this.#closed = new Set(closedPrefixes);
  }

  isClosed(topic: string): boolean {
    return topic.charCodeAt(0) === dollar && this.#closed.has(firstLevel(topic));
  }

  may(action: AccessAction, client: Client, topic: string): boolean {
    if (this.isClosed(topic)) return false;
    return this.#access.authorize(action, client, topic);
  }
}

function firstLevel(topic: string): string {
  const end = topic.indexOf("/");
  return end < 0 ? topic : topic.slice(0, end);
}
