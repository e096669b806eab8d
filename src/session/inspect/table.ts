// What is known of every durable session without reading anything: enough to find the few that are in
// trouble among very many.
//
// A session costs an entry with its filters and, while its client is away, its cursor: what the
// deadline record of a closed session says, so that a start reads no more keys for it.

import type { Positions, Store } from "../../store/index.ts";
import type { SessionQuery } from "../api.ts";
import { keyLevel } from "../keys.ts";

/** What a closed session leaves behind. */
export type ClosedState = {
  readonly cursor: Positions;
  readonly inFlight: number;
  readonly dropped: number;
};

/** A session with a connection. */
export interface ConnectedState {
  /** Messages wait that were not sent yet. */
  readonly hasBacklog: boolean;
  /** As it would be closed now. */
  readonly closedState: ClosedState;
  readonly subscriptionCount: number;
}

export type TableEntry = {
  clientId: string;
  /** Whose it is; "" = anonymous. */
  user: string;
  /** Above QoS 0 and not shared. */
  readonly filters: Set<string>;
  /** How many it has, of all kinds, while its client is away. */
  subscriptions: number;
  connected: ConnectedState | undefined;
  /** Undefined behind an end without notice, until somebody reads it. */
  closed: ClosedState | undefined;
};

export class SessionTable {
  /** By level in keys. */
  readonly #entries = new Map<string, TableEntry>();
  /** In order of client ids; undefined when it has to be sorted again. */
  #sorted: TableEntry[] | undefined;
  readonly #users = new SessionsByUser();

  get size(): number {
    return this.#entries.size;
  }

  get(clientId: string): TableEntry | undefined {
    return this.#entries.get(keyLevel(clientId));
  }

  /** All that may match, in order of client ids; what has to be read for that is not known here. */
  *matching(query: SessionQuery, store: Store, nowUs: number): Iterable<TableEntry> {
    const { clientId, clientIdPrefix = "", state, backlog, dropped } = query;
    const named = clientId === undefined ? undefined : this.get(clientId);
    const among = clientId === undefined ? this.#inOrder() : named === undefined ? [] : [named];
    for (const entry of among) {
      if (entry.clientId === "" || !entry.clientId.startsWith(clientIdPrefix)) continue;
      if (state !== undefined && (state === "connected") !== (entry.connected !== undefined)) {
        continue;
      }
      if (dropped !== undefined && dropped !== (stateOf(entry)?.dropped ?? 0) > 0) continue;
      if (backlog !== undefined && backlog !== hasBacklog(entry, store, nowUs)) continue;
      yield entry;
    }
  }

  /** Those of which a query needs what only the store knows. */
  unknown(): TableEntry[] {
    const all = [...this.#entries.values()];
    return all.filter(({ connected, closed }) => connected === undefined && closed === undefined);
  }

  // -------------------------------------------------------------- what happens to sessions

  /** A stored subscription, whose session may not have been met yet. */
  loadFilter(level: string, filter: string): void {
    this.#entryAt(level).filters.add(filter);
  }

  /** The same of any kind: counted. */
  loadSubscription(level: string): void {
    this.#entryAt(level).subscriptions++;
  }

  /** Of a session whose client is away. */
  subscriptionRemoved(clientId: string): void {
    const entry = this.get(clientId);
    if (entry !== undefined && entry.subscriptions > 0) entry.subscriptions--;
  }

  subscriptionCount(prefix: string): number {
    let count = 0;
    for (const { clientId, connected, subscriptions } of this.#entries.values()) {
      if (clientId === "" || !clientId.startsWith(prefix)) continue;
      count += connected?.subscriptionCount ?? subscriptions;
    }
    return count;
  }

  load(clientId: string, user: string | undefined, closed: ClosedState | undefined): void {
    const entry = this.#entryAt(keyLevel(clientId));
    this.#name(entry, clientId, user);
    entry.closed = closed;
  }

  /** What was loaded of subscriptions whose session is not there. */
  dropNameless(): void {
    for (const [level, { clientId }] of this.#entries) {
      if (clientId === "") this.#entries.delete(level);
    }
  }

  connected(clientId: string, user: string | undefined, state: ConnectedState): void {
    const entry = this.#entryAt(keyLevel(clientId));
    if (entry.clientId === "") this.#sorted = undefined;
    this.#name(entry, clientId, user);
    entry.connected = state;
    entry.closed = undefined;
  }

  closed(clientId: string, state: ClosedState | undefined): void {
    const entry = this.get(clientId);
    if (entry === undefined) return;
    entry.subscriptions = entry.connected?.subscriptionCount ?? entry.subscriptions;
    entry.connected = undefined;
    entry.closed = state;
  }

  removed(clientId: string): void {
    const entry = this.get(clientId);
    if (entry === undefined) return;
    if (entry.clientId !== "") this.#users.leave(entry.user);
    this.#entries.delete(keyLevel(clientId));
    this.#sorted = undefined;
  }

  /** Sessions of a user. */
  countOf(user: string | undefined): number {
    return this.#users.countOf(user ?? "");
  }

  #name(entry: TableEntry, clientId: string, user: string | undefined): void {
    if (entry.clientId !== "") this.#users.leave(entry.user);
    entry.clientId = clientId;
    entry.user = this.#users.enter(user ?? "");
  }

  addFilter(clientId: string, filter: string): void {
    this.#entryAt(keyLevel(clientId)).filters.add(filter);
  }

  removeFilter(clientId: string, filter: string): void {
    this.get(clientId)?.filters.delete(filter);
  }

  #entryAt(level: string): TableEntry {
    const known = this.#entries.get(level);
    if (known !== undefined) return known;
    const entry = { clientId: "", user: "", filters: new Set<string>(), subscriptions: 0 };
    const added: TableEntry = { ...entry, connected: undefined, closed: undefined };
    this.#entries.set(level, added);
    this.#sorted = undefined;
    return added;
  }

  #inOrder(): readonly TableEntry[] {
    this.#sorted ??= [...this.#entries.values()].sort((a, b) => (a.clientId < b.clientId ? -1 : 1));
    return this.#sorted;
  }
}

type Counted = { readonly user: string; count: number };

/** How many sessions each user has; a user without any is not remembered. */
class SessionsByUser {
  readonly #counts = new Map<string, Counted>();

  countOf(user: string): number {
    return this.#counts.get(user)?.count ?? 0;
  }

  /** The same text for all sessions of a user, however often it was read. */
  enter(user: string): string {
    const known = this.#counts.get(user);
    if (known === undefined) {
      this.#counts.set(user, { user, count: 1 });
      return user;
    }
    known.count++;
    return known.user;
  }

  leave(user: string): void {
    const known = this.#counts.get(user);
    if (known === undefined) return;
    known.count--;
    if (known.count === 0) this.#counts.delete(user);
  }
}

/** Undefined where an end without notice has left it unknown. */
export function stateOf({ connected, closed }: TableEntry): ClosedState | undefined {
  return connected?.closedState ?? closed;
}

/** By what matched last and how long it lasts: false is certain, but for a clock that goes back. */
export function hasBacklog(entry: TableEntry, store: Store, nowUs: number): boolean {
  const { connected, closed, filters } = entry;
  if (connected !== undefined) return connected.hasBacklog;
  if (closed === undefined) return false;
  if (closed.inFlight > 0) return true;
  for (const filter of filters) {
    for (const shard of store.logShards) {
      const when = { afterUs: closed.cursor.get(shard) ?? 0, nowUs };
      // Not known: it has to be looked for.
      if (store.interest.mayWait(filter, shard, when) ?? true) return true;
    }
  }
  return false;
}
