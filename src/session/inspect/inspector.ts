// The operator's view of durable sessions: find the few in trouble, look into a backlog, drop it, end a
// session. What is found comes from the table; only sessions that are returned are read.
//
// Every change is made in the turn of its client, guarded by the session's claim, and durable when the
// call resolves.

import { Slices } from "../../base/index.ts";
import type { MapWrite, Positions } from "../../store/index.ts";
import type {
  BacklogMessage,
  BacklogPage,
  ChangeRequest,
  PageRequest,
  SessionDetail,
  SessionInspector,
  SessionPage,
  SessionQuery,
  SessionSummary,
  SessionsBehind,
  SessionsChanged,
  Subscription,
} from "../api.ts";
import type { Closing } from "../closing.ts";
import type { SessionContext } from "../context.ts";
import { isExpired } from "../core/choose.ts";
import type { Operation } from "../core/node-words.ts";
import {
  decodeClaim,
  decodeClosed,
  decodeSubscription,
  encodeCursor,
  encodeDue,
  type Owner,
} from "../core/records.ts";
import type { DurableSession } from "../durable.ts";
import { sessionErrors } from "../errors.ts";
import { interestOf } from "../groups/interest.ts";
import { sharedTopicFilter } from "../groups/member.ts";
import { sessionKeys } from "../keys.ts";
import { Lanes } from "../lanes.ts";
import { deleteKey, guarded, readStoredSession, type StoredSession } from "../stored-session.ts";
import type { Turnstile } from "../turnstile.ts";
import { checkedCount, pageCountMax } from "./page.ts";
import { peekBacklog } from "./peek.ts";
import {
  countOf,
  filtersIn,
  hasBacklog,
  isConnectedSomewhere,
  isMatch,
  type SessionTable,
  stateOf,
  type TableEntry,
  waitingBehind,
} from "./table.ts";

export type InspectorParts = {
  readonly context: SessionContext;
  readonly table: SessionTable;
  readonly turnstile: Turnstile;
  readonly closing: Closing;
  /** The durable session of a connected client. */
  readonly attached: (clientId: string) => DurableSession | undefined;
  /** Has the node that serves a session do it. Undefined: none does any more. */
  readonly operate: (owner: Owner, operation: Operation) => Promise<boolean | undefined>;
};

const administrativeAction = 0x98;
/** Sessions read or changed at the same time. */
const lanesMax = 16;
/** Sessions and filters looked at in one turn, some 300 us of work: messages go on meanwhile. */
const rowsPerTurnMax = 1000;
const behindShownMax = 3;

export class Inspector implements SessionInspector {
  readonly #parts: InspectorParts;

  constructor(parts: InspectorParts) {
    this.#parts = parts;
  }

  async list(query: SessionQuery, page: PageRequest): Promise<SessionPage> {
    const { found, next, total } = await this.#find(query, page);
    const sessions: SessionSummary[] = [];
    for (const entry of found) {
      const summary = await this.#summaryOf(entry);
      // Ended since it was found.
      if (summary !== undefined) sessions.push(summary);
    }
    return { sessions, next, total };
  }

  async get(clientId: string): Promise<SessionDetail | undefined> {
    const entry = this.#parts.table.get(clientId);
    if (entry === undefined) return undefined;
    await this.#learn([entry]);
    const stored = await this.#read(clientId);
    const summary = await this.#summaryOf(entry);
    if (stored === undefined || summary === undefined) return undefined;
    const { will, claim } = stored;
    return {
      ...summary,
      protocol: claim.protocol,
      will: will && { topic: will.topic, qos: will.qos, retain: will.retain, delayS: will.delayS },
      filters: stored.subscriptions.map(({ subscription }) => subscription),
    };
  }

  clientIds({ prefix, after, countMax }: Parameters<SessionInspector["clientIds"]>[0]) {
    const clientIds: string[] = [];
    for (const { clientId } of this.#parts.table.behind(prefix, after)) {
      if (clientIds.length === countMax) return { clientIds, hasMore: true };
      clientIds.push(clientId);
    }
    return { clientIds, hasMore: false };
  }

  async subscriptionsOf(clientId: string): Promise<readonly Subscription[]> {
    const { store, settings } = this.#parts.context;
    const prefix = sessionKeys(clientId).subPrefix;
    // No session has more.
    const entries = await store
      .state(clientId)
      .list(prefix, { countMax: settings.subscriptionsMax });
    return entries.map(({ value }) => decodeSubscription(value).subscription);
  }

  mayHave(clientId: string, isWanted: (filter: string) => boolean): boolean {
    const entry = this.#parts.table.get(clientId);
    if (entry === undefined) return false;
    for (const filter of filtersIn(entry)) if (isWanted(filter)) return true;
    return false;
  }

  async subscriptionCount(prefix: string): Promise<number> {
    const slices = this.#slices();
    let count = 0;
    for (const entry of this.#parts.table.behind(prefix, "")) {
      count += countOf(entry);
      const pause = slices.looked(1);
      if (pause !== undefined) await pause;
    }
    return count;
  }

  async behind(untilUs: Positions): Promise<SessionsBehind> {
    const { table, context } = this.#parts;
    const { store, clock } = context;
    const clientIds: string[] = [];
    let count = 0;
    const slices = this.#slices();
    for (const entry of table.behind("", "")) {
      const pause = slices.looked(1 + entry.filters.size);
      if (pause !== undefined) await pause;
      const waiting = waitingBehind(entry, store, clock.wallUs());
      const isBehind = [...waiting].some(([shard, atUs]) => atUs < (untilUs.get(shard) ?? 0));
      if (!isBehind) continue;
      count++;
      if (clientIds.length < behindShownMax) clientIds.push(entry.clientId);
    }
    return { count, clientIds };
  }

  async peek(clientId: string, page: PageRequest): Promise<BacklogPage | undefined> {
    const stored = await this.#read(clientId);
    if (stored === undefined) return undefined;
    const { context, attached } = this.#parts;
    const countMax = checkedCount(page);
    const at = page.after === undefined ? undefined : parsePosition(page.after);
    const inFlight = at === undefined ? await this.#inFlightOf(stored, countMax) : [];
    const restMax = countMax - inFlight.length;
    const positions = at ?? attached(clientId)?.closedState.cursor ?? stored.cursor;
    if (restMax <= 0) return { messages: inFlight, next: formatPosition(positions) };
    const filters = stored.subscriptions.flatMap(({ subscription, start }) => {
      const { filter, qos } = subscription;
      if (qos === 0 || sharedTopicFilter(filter) !== undefined) return [];
      return [{ filter, start, durable: true, context: subscription }];
    });
    const { store, clock } = context;
    const options = { clientId, filters, positions, countMax: restMax };
    const found = await peekBacklog(store, clock, options);
    const next = found.next === undefined ? undefined : formatPosition(found.next);
    return { messages: [...inFlight, ...found.messages], next };
  }

  purge(query: SessionQuery, request: ChangeRequest): Promise<SessionsChanged> {
    return this.#change(query, request, (clientId) => this.#purgeOne(clientId));
  }

  end(query: SessionQuery, request: ChangeRequest): Promise<SessionsChanged> {
    return this.#change(query, request, (clientId) => this.#endOne(clientId));
  }

  async removeSubscription(clientId: string, filter: string): Promise<boolean | undefined> {
    const attached = this.#parts.attached(clientId);
    if (attached !== undefined) return (await attached.unsubscribe([filter]))[0] ?? false;
    const there = await this.#operate({ what: "unsubscribe", clientId, filter });
    if (there !== undefined) return there;
    return this.#inTurn(clientId, async (stored) => {
      const known = stored.subscriptions.find(({ subscription }) => subscription.filter === filter);
      if (known === undefined) return false;
      const { keys, epoch } = stored;
      const writes = [deleteKey(keys.sub(filter)), deleteKey(keys.job(filter))];
      await this.#write(clientId, () => guarded(keys, epoch, writes));
      if (known.subscription.qos > 0) interestOf(this.#parts.context, clientId).leave(filter);
      return true;
    });
  }

  /** Of a session that this node serves; undefined where it does not. */
  async operateHere({ what, clientId, filter }: Operation): Promise<boolean | undefined> {
    if (this.#parts.attached(clientId) === undefined) return undefined;
    if (what === "unsubscribe") return this.removeSubscription(clientId, filter);
    await (what === "end" ? this.#endOne(clientId) : this.#purgeOne(clientId));
    return true;
  }

  async #operate(operation: Operation): Promise<boolean | undefined> {
    const { table, operate } = this.#parts;
    const owner = table.get(operation.clientId)?.elsewhere;
    return owner === undefined ? undefined : operate(owner, operation);
  }

  // -------------------------------------------------------------- finding

  async #find(query: SessionQuery, page: PageRequest) {
    const { table, context } = this.#parts;
    const countMax = checkedCount(page);
    if (query.backlog !== undefined || query.dropped !== undefined) {
      await this.#learn(table.unknown());
    }
    const found: TableEntry[] = [];
    let total = 0;
    let next: string | undefined;
    const slices = this.#slices();
    const { store, clock } = context;
    const at = { store, nowUs: clock.wallUs() };
    for (const entry of table.among(query)) {
      const pause = slices.looked(1 + entry.filters.size);
      if (pause !== undefined) {
        await pause;
        at.nowUs = clock.wallUs();
      }
      if (!isMatch(entry, query, at)) continue;
      total++;
      if (page.after !== undefined && entry.clientId <= page.after) continue;
      if (found.length < countMax) found.push(entry);
      else next ??= found.at(-1)?.clientId;
    }
    return { found, next, total };
  }

  #slices(): Slices {
    const { clock } = this.#parts.context;
    return new Slices(rowsPerTurnMax, () => new Promise((resolve) => clock.soon(resolve)));
  }

  /** Reads what an end without notice has left unknown: once for each such session. */
  async #learn(entries: readonly TableEntry[]): Promise<void> {
    const lanes = new Lanes(lanesMax);
    for (const entry of entries) {
      const isKnown = entry.closed !== undefined && entry.elsewhere === undefined;
      if (entry.connected !== undefined || isKnown) continue;
      await lanes.run(async () => {
        const stored = await this.#read(entry.clientId).catch(() => undefined);
        if (stored !== undefined && entry.connected === undefined) {
          entry.closed = closedStateOf(stored);
        }
      });
    }
    await lanes.idle();
  }

  async #summaryOf(entry: TableEntry): Promise<SessionSummary | undefined> {
    const { clientId } = entry;
    const { store, clock } = this.#parts.context;
    const shard = store.state(clientId);
    const keys = sessionKeys(clientId);
    const claimEntry = await shard.get(keys.claim);
    if (claimEntry === undefined) return undefined;
    const claim = decodeClaim(claimEntry.value);
    const closedEntry = await shard.get(keys.closed);
    const closed = closedEntry === undefined ? undefined : decodeClosed(closedEntry.value);
    const countMax = this.#parts.context.settings.subscriptionsMax;
    const subs = await shard.list(keys.subPrefix, { countMax });
    const { connected } = entry;
    const state = stateOf(entry);
    const nowUs = clock.wallUs();
    const createdUs = claim.incarnation === 0 ? claimEntry.timeUs : claim.incarnation;
    const waiting = [...waitingBehind(entry, store, nowUs).values()];
    // What is older than the session does not wait for it.
    const fromUs = Math.max(createdUs, Math.min(...waiting));
    return {
      clientId,
      user: claim.user,
      state: isConnectedSomewhere(entry) ? "connected" : "offline",
      node: entry.elsewhere?.node,
      createdUs,
      closedUs: connected === undefined ? closed?.closedUs : undefined,
      expiryS: closed?.expiryS ?? claim.expiryS,
      subscriptions: subs.length,
      inFlight: state?.inFlight ?? 0,
      backlog: hasBacklog(entry, store, nowUs),
      lagMs: waiting.length === 0 ? undefined : Math.max(0, Math.round((nowUs - fromUs) / 1000)),
      dropped: state?.dropped ?? 0,
    };
  }

  async #inFlightOf(stored: StoredSession, countMax: number): Promise<BacklogMessage[]> {
    const { store, clock } = this.#parts.context;
    const records = stored.inFlight.slice(0, countMax).filter(({ record }) => !record.released);
    const refs = records.flatMap(({ record: { source } }) =>
      source.kind === "log" ? [source.ref] : [],
    );
    const bodies = await store.fetch(refs);
    const messages: BacklogMessage[] = [];
    let at = 0;
    for (const { record } of records) {
      const { source, qos } = record;
      const message = source.kind === "log" ? bodies[at++] : source.message;
      if (message === undefined || isExpired(message, clock.wallUs())) continue;
      messages.push({ message, qos, inFlight: true });
    }
    return messages;
  }

  // -------------------------------------------------------------- changing

  async #change(
    query: SessionQuery,
    request: ChangeRequest,
    changeOne: (clientId: string) => Promise<void>,
  ): Promise<SessionsChanged> {
    const { found, next } = await this.#find(query, request);
    const clientIds = found.map(({ clientId }) => clientId);
    if (request.dryRun) return { clientIds, next };
    const { table, context } = this.#parts;
    const { store, clock } = context;
    const lanes = new Lanes(lanesMax);
    const spared = new Set<string>();
    let failure: unknown;
    for (const clientId of clientIds) {
      await lanes.run(async () => {
        // Who has come back, or has read on, since it was found is not what was asked for.
        const entry = table.get(clientId);
        if (entry === undefined || !isMatch(entry, query, { store, nowUs: clock.wallUs() })) {
          spared.add(clientId);
          return;
        }
        try {
          await changeOne(clientId);
        } catch (error) {
          failure ??= error;
        }
      });
    }
    await lanes.idle();
    if (failure !== undefined) throw failure;
    return { clientIds: clientIds.filter((clientId) => !spared.has(clientId)), next };
  }

  async #purgeOne(clientId: string): Promise<void> {
    const attached = this.#parts.attached(clientId);
    if (attached !== undefined) {
      await attached.skipBacklog();
      return;
    }
    if ((await this.#operate({ what: "purge", clientId, filter: "" })) !== undefined) return;
    const { context, table } = this.#parts;
    await this.#inTurn(clientId, async (stored) => {
      const { keys, epoch, incarnation, dropped, closed, claim } = stored;
      const cursor = context.store.tail();
      // This replica may be behind what another node has dispatched.
      for (const [shard, timeUs] of stored.cursor) {
        cursor.set(shard, Math.max(timeUs, cursor.get(shard) ?? 0));
      }
      // An exchange that has begun at QoS 2 has to be completed.
      const kept = stored.inFlight.filter(({ record }) => record.qos === 2 && record.sent);
      const gone = stored.inFlight.filter((one) => !kept.includes(one));
      const state = { cursor, inFlight: kept.length, dropped };
      const writes: MapWrite[] = [
        { key: keys.cursor, value: encodeCursor({ positions: cursor, dropped }) },
        ...stored.jobs.map(({ filter }) => deleteKey(keys.job(filter))),
        ...gone.map(({ sendNumber }) => deleteKey(keys.out(sendNumber))),
      ];
      if (closed !== undefined && closed.dueUs !== 0) {
        const due = encodeDue({ clientId, user: claim.user, incarnation, ...state });
        writes.push({ key: keys.due(closed.dueUs), value: due });
      }
      await this.#write(clientId, () => guarded(keys, epoch, writes));
      table.closed(clientId, state);
    });
  }

  async #endOne(clientId: string): Promise<void> {
    const attached = this.#parts.attached(clientId);
    if (attached !== undefined) {
      const done = attached.detach({ kind: "lost", expiryS: 0 });
      attached.endLink(administrativeAction);
      await done;
      return;
    }
    // Where its node cannot be asked, what that still writes is refused.
    const ended = this.#operate({ what: "end", clientId, filter: "" }).catch(() => undefined);
    if ((await ended) !== undefined) return;
    await this.#inTurn(clientId, (stored) => this.#parts.closing.remove(stored, true));
  }

  /** Undefined when the session is gone, or its client has connected since. */
  #inTurn<T>(
    clientId: string,
    task: (stored: StoredSession) => Promise<T>,
  ): Promise<T | undefined> {
    const { turnstile, attached } = this.#parts;
    return turnstile.run(clientId, async () => {
      if (attached(clientId) !== undefined) return undefined;
      const stored = await this.#read(clientId);
      return stored === undefined || stored.claim.removing ? undefined : task(stored);
    });
  }

  #read(clientId: string): Promise<StoredSession | undefined> {
    return readStoredSession(this.#parts.context.store.state(clientId), clientId);
  }

  #write(clientId: string, build: () => ReturnType<typeof guarded>): Promise<number> {
    const { context } = this.#parts;
    return context.checkpointer(context.store.state(clientId)).writer.write(build);
  }
}

/** As a session stands in the store. */
export function closedStateOf({ cursor, inFlight, dropped }: StoredSession) {
  return { cursor, inFlight: inFlight.length, dropped };
}

/** `shard:time` pairs. */
function formatPosition(positions: Positions): string {
  return [...positions].map(([shard, timeUs]) => `${shard}:${timeUs}`).join(",");
}

function parsePosition(text: string): Positions {
  const positions = new Map<number, number>();
  for (const pair of text === "" ? [] : text.split(",")) {
    const [shard, timeUs] = pair.split(":").map(Number);
    if (!Number.isSafeInteger(shard) || !Number.isSafeInteger(timeUs)) {
      throw sessionErrors.pageInvalid({ what: "after", max: pageCountMax });
    }
    positions.set(shard as number, timeUs as number);
  }
  return positions;
}
