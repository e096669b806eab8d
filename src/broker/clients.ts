// Connected clients as an operator sees them: pages in the order of client ids, out of the connections
// that are there at the moment. A page looks at every connection and keeps as many as it has room for,
// so its cost grows with the connections and not with what is sorted; it looks in slices, between which
// messages go on. Who connects or goes meanwhile may be on it or not.

import type { Slices } from "../base/index.ts";
import type { Session, Subscription } from "../session/index.ts";

export type ClientView = {
  readonly clientId: string;
  readonly user: string | undefined;
  readonly remote: string;
  /** Level as sent: 3, 4 or 5. */
  readonly protocol: number;
  /** Since CONNECT was accepted. */
  readonly connectedMs: number;
  readonly keepAliveS: number;
  readonly isDurable: boolean;
  /** The broker does not read it at the moment. */
  readonly isPaused: boolean;
};

/** A client that keeps nothing when it goes, with what it is subscribed to when that is asked. */
export type LiveClient = {
  readonly clientId: string;
  subscriptions(): Iterable<Subscription>;
};

export type LivePage = {
  readonly clients: readonly LiveClient[];
  readonly hasMore: boolean;
  /** Subscriptions of all such clients that have the prefix. */
  readonly subscriptionCount: number;
};

/** What is looked at. */
export type ViewedConnection = {
  readonly client: { readonly clientId: string };
  /** Of an accepted client that keeps nothing. */
  readonly memorySession: Pick<Session, "subscriptions" | "subscriptionCount"> | undefined;
  view(): ClientView | undefined;
  kick(): void;
};

export type ClientQuery = {
  readonly prefix: string;
  /** Only client ids behind it; "" = all. */
  readonly after: string;
  readonly countMax: number;
};

export type ClientPage = {
  readonly clients: readonly ClientView[];
  /** What the page behind begins after, whoever of this one has gone meanwhile. */
  readonly next: string | undefined;
  /** Clients that have the prefix, all pages together. */
  readonly total: number;
};

export class ClientDirectory {
  readonly #connections: () => Iterable<ViewedConnection>;

  constructor(connections: () => Iterable<ViewedConnection>) {
    this.#connections = connections;
  }

  async list({ prefix, after, countMax }: ClientQuery, slices: Slices): Promise<ClientPage> {
    const smallest: ViewedConnection[] = [];
    let total = 0;
    for (const connection of this.#connections()) {
      const pause = slices.looked(1);
      if (pause !== undefined) await pause;
      const { clientId } = connection.client;
      // Before CONNECT is read a connection has no name.
      if (clientId === "" || !clientId.startsWith(prefix)) continue;
      if (connection.view() === undefined) continue;
      total++;
      if (clientId > after) keepSmallest(smallest, connection, countMax + 1);
    }
    const page = smallest.slice(0, countMax);
    const clients = page.flatMap((connection) => connection.view() ?? []);
    const next = smallest.length > countMax ? page.at(-1)?.client.clientId : undefined;
    return { clients, next, total };
  }

  /** Like `list`, of clients without a durable session. */
  async live({ prefix, after, countMax }: ClientQuery, slices: Slices): Promise<LivePage> {
    const smallest: ViewedConnection[] = [];
    let subscriptionCount = 0;
    for (const connection of this.#connections()) {
      const pause = slices.looked(1);
      if (pause !== undefined) await pause;
      const { memorySession, client } = connection;
      if (memorySession === undefined || !client.clientId.startsWith(prefix)) continue;
      subscriptionCount += memorySession.subscriptionCount;
      if (client.clientId > after) keepSmallest(smallest, connection, countMax + 1);
    }
    const clients = smallest.slice(0, countMax).map(({ client: { clientId }, memorySession }) => ({
      clientId,
      subscriptions: () => memorySession?.subscriptions() ?? [],
    }));
    return { clients, hasMore: smallest.length > countMax, subscriptionCount };
  }

  get(clientId: string): ClientView | undefined {
    return this.#find(clientId)?.view();
  }

  /** Ends its connection with 0x98; the session stays. False when nobody is connected so. */
  kick(clientId: string): boolean {
    const connection = this.#find(clientId);
    connection?.kick();
    return connection !== undefined;
  }

  #find(clientId: string): ViewedConnection | undefined {
    for (const connection of this.#connections()) {
      if (connection.client.clientId === clientId && connection.view() !== undefined) {
        return connection;
      }
    }
    return undefined;
  }
}

/** Inserts in order; what falls out at the end is not on this page. */
function keepSmallest(
  list: ViewedConnection[],
  connection: ViewedConnection,
  countMax: number,
): void {
  const { clientId } = connection.client;
  const last = list.at(-1);
  if (list.length >= countMax && last !== undefined && clientId > last.client.clientId) return;
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((list[middle] as ViewedConnection).client.clientId < clientId) low = middle + 1;
    else high = middle;
  }
  list.splice(low, 0, connection);
  if (list.length > countMax) list.pop();
}
