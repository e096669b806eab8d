// Clients, durable sessions and their subscriptions.

import type { Clock } from "../../base/index.ts";
import type { SessionQuery } from "../../session/index.ts";
import { limitDefault } from "../contract/values.ts";
import type { AnswerOf, InputOf } from "../contract.ts";
import { given, type Handlers, missing, pageRequest, type Running } from "../handler-types.ts";
import { messageView, payloadShown } from "../message-view.ts";
import { subscriptionPage, subscriptionView, walkSlices } from "../subscription-walk.ts";

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
    listClients: async ({ query }) => {
      const countMax = query.limit ?? limitDefault;
      const { clientIdPrefix: prefix = "", after = "" } = query;
      const { clients, next, total } = await running().clients.list(
        { prefix, after, countMax },
        walkSlices(clock),
      );
      return given({ items: [...clients], next, total });
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
    listSubscriptions: ({ query }) => subscriptionPage(running(), clock, query),
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
