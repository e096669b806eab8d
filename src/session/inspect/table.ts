// What is known of every durable session without reading anything: enough to find the few that are in
// trouble among very many.
//
// A session costs an entry with its filters and, while its client is away, its cursor: what the
// deadline record of a closed session says, so that a start reads no more keys for it.

import type { MatchTimes, Positions, Store } from "../../store/index.ts";
import type { SessionQuery } from "../api.ts";
import type { Owner } from "../core/records.ts";
import { keyLevel } from "../keys.ts";
import { ClientOrder, firstFrom } from "./client-order.ts";

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
}

export type TableEntry = {
  clientId: string;
  /** Whose it is; "" = anonymous. */
  user: string;
  /** Above QoS 0 and not shared; with what the store knows of each. */
  readonly filters: Map<string, MatchTimes>;
  /** Those that keep nothing for this session by themselves: at QoS 0, or shared. */
  others: Set<string> | undefined;
  /** The state shard that it is stored in, as far as filters have told. */
  shard: number;
  connected: ConnectedState | undefined;
  /** Undefined behind an end without notice, until somebody reads it. */
  closed: ClosedState | undefined;
  /** Whose connection its client has, at another node of a cluster. */
  elsewhere: Owner | undefined;
  /** Its rows, where they are followed: nobody else removes it then. */
  isLive: boolean;
  dueUs: number | undefined;
};

/** What a row says of a session, whichever node wrote it. */
export type FollowedRow = {
  readonly clientId: string;
  readonly user: string | undefined;
} & (
  | { readonly isLive: true; readonly elsewhere: Owner | undefined }
  | { readonly dueUs: number; readonly closed: ClosedState }
);

export class SessionTable {
  /** By level in keys. */
  readonly #entries = new Map<string, TableEntry>();
  /** Those that have a name. */
  readonly #order = new ClientOrder<TableEntry>();
  readonly #users = new SessionsByUser();
  /** All whose state may be unknown, and others that were: looked through when somebody asks. */
  readonly #unknown = new Set<TableEntry>();

  get size(): number {
    return this.#entries.size;
  }

  get(clientId: string): TableEntry | undefined {
    return this.#entries.get(keyLevel(clientId));
  }

  /** Where to look for what a query asks for, in order of client ids. */
  among({ clientId, clientIdPrefix = "" }: SessionQuery): Iterable<TableEntry> {
    if (clientId === undefined) return this.behind(clientIdPrefix, "");
    const named = this.get(clientId);
    return named?.clientId.startsWith(clientIdPrefix) ? [named] : [];
  }

  /** Sessions with a prefix from the first behind `after` on, in order of client ids. */
  *behind(prefix: string, after: string): Iterable<TableEntry> {
    const sorted = this.#order.list(this.#named());
    const begin = firstFrom(sorted, ({ clientId }) => clientId >= prefix && clientId > after);
    for (let at = begin; at < sorted.length; at++) {
      const entry = sorted[at] as TableEntry;
      if (!entry.clientId.startsWith(prefix)) return;
      yield entry;
    }
  }

  /** Those of which a query needs what only the store knows. */
  unknown(): TableEntry[] {
    for (const entry of this.#unknown) {
      // What another node does with it shows in its records alone.
      const isKnown = entry.closed !== undefined && entry.elsewhere === undefined;
      if (entry.connected !== undefined || isKnown) this.#unknown.delete(entry);
    }
    return [...this.#unknown];
  }

  // -------------------------------------------------------------- what happens to sessions

  /** A stored subscription, whose session may not have been met yet. `times`: of one that counts. */
  setFilter(shard: number, level: string, filter: string, times: MatchTimes | undefined): void {
    const entry = this.#entryAt(level);
    entry.shard = shard;
    if (times === undefined) {
      entry.filters.delete(filter);
      entry.others ??= new Set();
      entry.others.add(filter);
    } else {
      entry.filters.set(filter, times);
      entry.others?.delete(filter);
    }
  }

  deleteFilter(level: string, filter: string): void {
    const entry = this.#entries.get(level);
    if (entry === undefined) return;
    entry.filters.delete(filter);
    entry.others?.delete(filter);
    if (entry.clientId === "" && countOf(entry) === 0) this.#entries.delete(level);
  }

  /** Undefined: it is not subscribed. */
  isCounted(level: string, filter: string): boolean | undefined {
    const entry = this.#entries.get(level);
    if (entry?.filters.has(filter)) return true;
    return entry?.others?.has(filter) ? false : undefined;
  }

  /** Of one session. */
  filtersAt(level: string): Iterable<string> {
    const entry = this.#entries.get(level);
    return entry === undefined ? [] : filtersIn(entry);
  }

  /** All that is subscribed by the rows of a state shard. */
  *filtersOf(shard: number): Iterable<{ readonly level: string; readonly filter: string }> {
    for (const [level, entry] of this.#entries) {
      if (entry.shard !== shard) continue;
      for (const filter of filtersIn(entry)) yield { level, filter };
    }
  }

  load(clientId: string, user: string | undefined, closed: ClosedState | undefined): void {
    const entry = this.#entryAt(keyLevel(clientId));
    this.#name(entry, clientId, user);
    entry.closed = closed;
    if (closed === undefined) this.#unknown.add(entry);
  }

  followed(shard: number, row: FollowedRow): void {
    const entry = this.#entryAt(keyLevel(row.clientId));
    this.#name(entry, row.clientId, row.user);
    entry.shard = shard;
    if ("isLive" in row) {
      entry.isLive = true;
      entry.elsewhere = row.elsewhere;
      entry.closed = undefined;
      if (entry.connected === undefined) this.#unknown.add(entry);
      return;
    }
    entry.dueUs = row.dueUs;
    entry.elsewhere = undefined;
    if (entry.connected === undefined) entry.closed = row.closed;
  }

  /** True: none is left. Without `dueUs` any deadline is meant. */
  lostRow(level: string, row: { readonly live?: true; readonly dueUs?: number }): boolean {
    const entry = this.#entries.get(level);
    if (entry === undefined) return false;
    if (row.live) entry.isLive = false;
    else if (row.dueUs === undefined || row.dueUs === entry.dueUs) entry.dueUs = undefined;
    return !hasRow(entry);
  }

  dropWithoutRows(level: string): void {
    const entry = this.#entries.get(level);
    if (entry !== undefined && !hasRow(entry)) this.removed(entry.clientId);
  }

  levelsOf(shard: number, row: "live" | "due"): string[] {
    const levels: string[] = [];
    for (const [level, entry] of this.#entries) {
      const has = row === "live" ? entry.isLive : entry.dueUs !== undefined;
      if (has && entry.shard === shard) levels.push(level);
    }
    return levels;
  }

  connected(clientId: string, user: string | undefined, state: ConnectedState): void {
    const entry = this.#entryAt(keyLevel(clientId));
    this.#name(entry, clientId, user);
    entry.connected = state;
    entry.closed = undefined;
  }

  closed(clientId: string, state: ClosedState | undefined): void {
    const entry = this.get(clientId);
    if (entry === undefined) return;
    entry.connected = undefined;
    // Claimed by another node since.
    entry.closed = entry.elsewhere === undefined ? state : undefined;
    if (entry.closed === undefined) this.#unknown.add(entry);
  }

  removed(clientId: string): void {
    const entry = this.get(clientId);
    if (entry === undefined) return;
    if (hasRow(entry)) {
      entry.connected = undefined;
      return;
    }
    if (entry.clientId !== "") {
      this.#users.leave(entry.user);
      this.#order.left(entry);
    }
    const level = keyLevel(clientId);
    this.#entries.delete(level);
    this.#unknown.delete(entry);
    // Rows that are there say so until they are gone.
    if (countOf(entry) > 0) this.#entries.set(level, { ...blank(), ...rowsOf(entry) });
  }

  /** Sessions of a user. */
  countOf(user: string | undefined): number {
    return this.#users.countOf(user ?? "");
  }

  #name(entry: TableEntry, clientId: string, user: string | undefined): void {
    const isNew = entry.clientId === "";
    if (!isNew) this.#users.leave(entry.user);
    entry.clientId = clientId;
    if (isNew) this.#order.came(entry);
    entry.user = this.#users.enter(user ?? "");
  }

  #entryAt(level: string): TableEntry {
    const known = this.#entries.get(level);
    if (known !== undefined) return known;
    const added = blank();
    this.#entries.set(level, added);
    return added;
  }

  *#named(): Iterable<TableEntry> {
    for (const entry of this.#entries.values()) if (entry.clientId !== "") yield entry;
  }
}

function blank(): TableEntry {
  // One literal: an object that is put together of several takes more, for each session.
  return {
    clientId: "",
    user: "",
    filters: new Map(),
    others: undefined,
    shard: 0,
    connected: undefined,
    closed: undefined,
    elsewhere: undefined,
    isLive: false,
    dueUs: undefined,
  };
}

function hasRow({ isLive, dueUs }: TableEntry): boolean {
  return isLive || dueUs !== undefined;
}

function rowsOf({ filters, others, shard }: TableEntry) {
  return { filters, others, shard };
}

/** Subscriptions of all kinds. */
export function countOf({ filters, others }: TableEntry): number {
  return filters.size + (others?.size ?? 0);
}

export function* filtersIn({ filters, others }: TableEntry): Iterable<string> {
  yield* filters.keys();
  if (others !== undefined) yield* others;
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

export function isConnectedSomewhere({ connected, elsewhere }: TableEntry): boolean {
  return connected !== undefined || elsewhere !== undefined;
}

/** Whether a session is what a query asks for, as far as is known without reading. */
export function isMatch(
  entry: TableEntry,
  { state, backlog, dropped }: SessionQuery,
  { store, nowUs }: { readonly store: Store; readonly nowUs: number },
): boolean {
  const isConnected = isConnectedSomewhere(entry);
  if (state !== undefined && (state === "connected") !== isConnected) return false;
  if (dropped !== undefined && dropped !== (stateOf(entry)?.dropped ?? 0) > 0) return false;
  return backlog === undefined || backlog === hasBacklog(entry, store, nowUs);
}

/** Where something may wait for a session that was not sent yet: how far it has read there. */
export function waitingBehind(entry: TableEntry, store: Store, nowUs: number): Positions {
  const { cursor } = stateOf(entry) ?? { cursor: new Map<number, number>() };
  const found = new Map<number, number>();
  if (!hasBacklog(entry, store, nowUs)) return found;
  const mayWait = (filter: string, shard: number, afterUs: number): boolean =>
    store.interest.mayWait(filter, shard, { afterUs, nowUs }) ?? true;
  for (const shard of store.logShards) {
    const afterUs = cursor.get(shard) ?? 0;
    for (const filter of entry.filters.keys()) {
      if (!mayWait(filter, shard, afterUs)) continue;
      found.set(shard, afterUs);
      break;
    }
  }
  return found;
}

/** By what matched last and how long it lasts: false is certain, but for a clock that goes back. */
export function hasBacklog(entry: TableEntry, store: Store, nowUs: number): boolean {
  const { connected, closed, filters } = entry;
  if (connected !== undefined) return connected.hasBacklog;
  if (closed === undefined) return false;
  if (closed.inFlight > 0) return true;
  return store.interest.anyWaits(filters.values(), closed.cursor, nowUs);
}
