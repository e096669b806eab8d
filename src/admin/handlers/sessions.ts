// Clients, durable sessions and their subscriptions.

import { type Clock, sleep } from "../../base/index.ts";
import type { SessionQuery, Subscription } from "../../session/index.ts";
import { matches, parseSubscriptionFilter, splitTopic } from "../../topic/index.ts";
import { limitDefault } from "../contract/values.ts";
import type { AnswerOf, InputOf } from "../contract.ts";
import {
  decodeCursor,
  encodeCursor,
  given,
  type Handlers,
  isPlace,
  missing,
  pageRequest,
  type Running,
} from "../handler-types.ts";
import { messageView, payloadShown } from "../message-view.ts";

export type SessionHandlers = Handlers<
  | "listClients"
  | "getClient"
  | "kickClient"
  | "listSessions"
  | "getSession"
  | "peekBacklog"
  | "purgeSessions"
  | "endSessions"
  | "removeSubscription"
  | "listSubscriptions"
  | "listSharedGroups"
>;

export function sessionHandlers(running: Running, clock: Clock): SessionHandlers {
  return {
    listClients: ({ query }) => {
      const countMax = query.limit ?? limitDefault;
      const { clientIdPrefix: prefix = "", after = "" } = query;
      const { clients, hasMore, total } = running().clients.list({ prefix, after, countMax });
      return given({
        items: [...clients],
        next: hasMore ? clients.at(-1)?.clientId : undefined,
        total,
      });
    },
    getClient: ({ params: { clientId } }) => {
      const client = running().clients.get(clientId);
      if (client === undefined) throw missing("connected client", clientId);
      return client;
    },
    kickClient: ({ params: { clientId } }) => {
      if (!running().clients.kick(clientId)) throw missing("connected client", clientId);
      return { done: true };
    },
    listSessions: async ({ query: { after, limit, ...filters } }) => {
      const page = await running().sessions.list(given(filters), pageRequest({ after, limit }));
      return given({ items: [...page.sessions], next: page.next, total: page.total });
    },
    getSession: async ({ params: { clientId } }) => {
      const detail = await running().sessions.get(clientId);
      if (detail === undefined) throw missing("durable session of client", clientId);
      return { ...detail, filters: detail.filters.map(subscriptionView) };
    },
    peekBacklog: async ({ params: { clientId }, query }, caller) => {
      const show = payloadShown(query.payload, caller);
      const page = await running().sessions.peek(clientId, pageRequest(query));
      if (page === undefined) throw missing("durable session of client", clientId);
      const items = page.messages.map(({ message, qos, inFlight }) => ({
        ...messageView(message, show),
        qos,
        inFlight,
      }));
      return given({ items, next: page.next });
    },
    purgeSessions: ({ body }) => changeSessions(running, "purge", body),
    endSessions: ({ body }) => changeSessions(running, "end", body),
    removeSubscription: async ({ params: { clientId }, query: { filter } }) => {
      const isRemoved = await running().sessions.removeSubscription(clientId, filter);
      if (isRemoved === undefined) throw missing("durable session of client", clientId);
      if (!isRemoved) throw missing("subscription to", filter);
      return { done: true };
    },
    listSubscriptions: ({ query }) => listSubscriptions(running, clock, query),
    listSharedGroups: ({ query: { prefix, backlog, ...page } }) => {
      const asked = given({ prefix, backlog });
      const { groups, next, total } = running().sharedGroups.list(asked, pageRequest(page));
      return given({ items: [...groups], next, total });
    },
  };
}

async function changeSessions(
  running: Running,
  change: "purge" | "end",
  body: InputOf<"purgeSessions">["body"],
): Promise<AnswerOf<"purgeSessions">> {
  const { dryRun, after, limit, all: _all, ...filters } = body;
  const { sessions } = running();
  const query: SessionQuery = given(filters);
  const { clientId } = query;
  if (clientId !== undefined && (await sessions.get(clientId)) === undefined) {
    throw missing("durable session of client", clientId);
  }
  const changed = await sessions[change](query, { ...pageRequest({ after, limit }), dryRun });
  return given({ clientIds: [...changed.clientIds], next: changed.next, dryRun });
}

function subscriptionView(subscription: Subscription) {
  const { filter, qos, noLocal, retainAsPublished, retainHandling, identifier } = subscription;
  return { filter, qos, noLocal, retainAsPublished, retainHandling, identifier };
}

/** Client to begin behind, and how many subscriptions of the next one were answered. */
type SubscriptionPosition = readonly [afterClientId: string, skipped: number];

const isPosition = (value: unknown): value is SubscriptionPosition =>
  Array.isArray(value) && typeof value[0] === "string" && isPlace(value[1]);

/** Clients looked at for one page; a page of a rare filter may come empty with a `next`. */
const clientsPerPageMax = 500;

/** Clients looked at in a row, and how long messages have the node to themselves behind them. */
const clientsInRowMax = 25;
const pauseMs = 2;

async function listSubscriptions(
  running: Running,
  clock: Clock,
  query: InputOf<"listSubscriptions">["query"],
): Promise<AnswerOf<"listSubscriptions">> {
  const { sessions, clients } = running();
  const prefix = query.clientIdPrefix ?? "";
  const countMax = query.limit ?? limitDefault;
  const isWanted = matcherOf(query);
  let looked = 0;
  let [after, skipped] = decodeCursor(query.after, isPosition) ?? (["", 0] as const);
  const look = { prefix, after, countMax: clientsPerPageMax };
  const live = clients.live(look);
  const durable = sessions.clientIds(look);
  // Of those in sight of both lists; behind the end of one the other knows more than is here.
  const ends = [
    live.hasMore ? live.clients.at(-1)?.clientId : undefined,
    durable.hasMore ? durable.clientIds.at(-1) : undefined,
  ].filter((end) => end !== undefined);
  const known = new Map(live.clients.map((each) => [each.clientId, each.subscriptions]));
  const ids = [...new Set([...known.keys(), ...durable.clientIds])]
    .filter((clientId) => ends.every((end) => clientId <= end))
    .sort((a, b) => (a < b ? -1 : 1));
  const isAll = query.filter === undefined && query.topic === undefined;
  const total = isAll ? { total: live.subscriptionCount + sessions.subscriptionCount(prefix) } : {};
  const items: AnswerOf<"listSubscriptions">["items"] = [];
  for (const clientId of ids) {
    if (++looked % clientsInRowMax === 0) await sleep(clock, pauseMs);
    const held = known.get(clientId);
    const mayHave = held !== undefined || isAll || sessions.mayHave(clientId, isWanted);
    const all = !mayHave ? [] : (held ?? (await sessions.subscriptionsOf(clientId)));
    const found = all.filter((each) => isWanted(each.filter));
    const room = countMax - items.length;
    for (const each of found.slice(skipped, skipped + room)) {
      items.push({ clientId, isDurable: held === undefined, ...subscriptionView(each) });
    }
    if (found.length > skipped + room) {
      return { items, next: encodeCursor([after, skipped + room]), ...total };
    }
    after = clientId;
    skipped = 0;
  }
  return given({ items, next: ends.length > 0 ? encodeCursor([after, 0]) : undefined, ...total });
}

function matcherOf({
  filter,
  topic,
}: InputOf<"listSubscriptions">["query"]): (filter: string) => boolean {
  const words = topic === undefined ? undefined : splitTopic(topic);
  return (text) => {
    if (filter !== undefined && text !== filter) return false;
    return words === undefined || matches(parseSubscriptionFilter(text).filter, words);
  };
}
