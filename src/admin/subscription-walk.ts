// One page of the subscriptions of all clients, durable sessions and others alike, in the order of
// client ids.
//
// What may match is known from memory, so a page reads the sessions that may be on it alone. It is
// looked at in slices of some rows, and messages have the node to themselves behind each: however many
// subscriptions there are, nobody's ack waits for more than a slice.

import { type Clock, Slices, sleep } from "../base/index.ts";
import type { Subscription } from "../session/index.ts";
import { filterTextMatches, splitTopic } from "../topic/index.ts";
import { limitDefault } from "./contract/values.ts";
import type { AnswerOf, InputOf } from "./contract.ts";
import { decodeCursor, encodeCursor, given, isPlace } from "./handler-types.ts";
import type { RunningParts } from "./ports.ts";

type Query = InputOf<"listSubscriptions">["query"];
type Page = AnswerOf<"listSubscriptions">;

/** Client to begin behind, and how many subscriptions of the next one were answered. */
type Position = readonly [afterClientId: string, skipped: number];

const isPosition = (value: unknown): value is Position =>
  Array.isArray(value) && typeof value[0] === "string" && isPlace(value[1]);

/** Clients looked at for one page; a page of a rare filter may come empty with a `next`. */
const clientsPerPageMax = 2000;

/** A client is a row, and so is each of its filters: some 50 us of work. */
export const rowsPerTurnMax = 500;
const pauseMs = 1;

export function walkSlices(clock: Clock): Slices {
  return new Slices(rowsPerTurnMax, () => sleep(clock, pauseMs));
}

export async function subscriptionPage(
  { sessions, clients }: Pick<RunningParts, "sessions" | "clients">,
  clock: Clock,
  query: Query,
): Promise<Page> {
  const slices = walkSlices(clock);
  const prefix = query.clientIdPrefix ?? "";
  const countMax = query.limit ?? limitDefault;
  let [after, skipped] = decodeCursor(query.after, isPosition) ?? (["", 0] as const);
  const look = { prefix, after, countMax: clientsPerPageMax };
  const live = await clients.live(look, slices);
  const durable = sessions.clientIds(look);
  // Of those in sight of both lists; behind the end of one the other knows more than is here.
  const ends = [
    live.hasMore ? live.clients.at(-1)?.clientId : undefined,
    durable.hasMore ? durable.clientIds.at(-1) : undefined,
  ].filter((end) => end !== undefined);
  const known = new Map(live.clients.map((each) => [each.clientId, each]));
  const ids = [...new Set([...known.keys(), ...durable.clientIds])]
    .filter((clientId) => ends.every((end) => clientId <= end))
    .sort((a, b) => (a < b ? -1 : 1));
  const isAll = query.filter === undefined && query.topic === undefined;
  const total = isAll
    ? { total: live.subscriptionCount + (await sessions.subscriptionCount(prefix)) }
    : {};
  const wanted = new Wanted(query);
  const items: Page["items"] = [];
  for (const clientId of ids) {
    const held = known.get(clientId);
    const lookedBefore = wanted.looked;
    const mayHave = held !== undefined || isAll || sessions.mayHave(clientId, wanted.has);
    const all = !mayHave
      ? []
      : (held?.subscriptions() ?? (await sessions.subscriptionsOf(clientId)));
    const found = [...all].filter((each) => wanted.has(each.filter));
    const room = countMax - items.length;
    for (const each of found.slice(skipped, skipped + room)) {
      items.push({ clientId, isDurable: held === undefined, ...subscriptionView(each) });
    }
    if (found.length > skipped + room) {
      return { items, next: encodeCursor([after, skipped + room]), ...total };
    }
    after = clientId;
    skipped = 0;
    await slices.looked(1 + wanted.looked - lookedBefore);
  }
  return given({ items, next: ends.length > 0 ? encodeCursor([after, 0]) : undefined, ...total });
}

export function subscriptionView(subscription: Subscription) {
  const { filter, qos, noLocal, retainAsPublished, retainHandling, identifier } = subscription;
  return { filter, qos, noLocal, retainAsPublished, retainHandling, identifier };
}

/** Which filters are asked for, and how many were looked at to know. */
class Wanted {
  looked = 0;
  readonly #filter: string | undefined;
  readonly #words: readonly string[] | undefined;

  constructor({ filter, topic }: Query) {
    this.#filter = filter;
    this.#words = topic === undefined ? undefined : splitTopic(topic);
  }

  readonly has = (text: string): boolean => {
    this.looked++;
    if (this.#filter !== undefined && text !== this.#filter) return false;
    return this.#words === undefined || filterTextMatches(text, this.#words);
  };
}
