// One page of the subscriptions of all clients, durable sessions and others alike, in the order of
// client ids, and of filters within a client. A page begins behind the filter that ended the one
// before, whether or not that is still there: what stays is met once, whatever goes meanwhile.
//
// What may match is known from memory, so a page reads the sessions that may be on it alone. It is
// looked at in slices of some rows, and messages have the node to themselves behind each: however many
// subscriptions there are, nobody's ack waits for more than a slice.

import { createHash } from "node:crypto";
import { type Clock, Slices, sleep } from "../base/index.ts";
import type { Subscription } from "../session/index.ts";
import { filterTextMatches, splitTopic } from "../topic/index.ts";
import { limitDefault } from "./contract/values.ts";
import type { AnswerOf, InputOf } from "./contract.ts";
import { decodeCursor, encodeCursor, given } from "./handler-types.ts";
import type { RunningParts } from "./ports.ts";

type Query = InputOf<"listSubscriptions">["query"];
type Page = AnswerOf<"listSubscriptions">;

/**
 * Client to begin behind; inside of a client, `shortOf` it and of its last filter that was answered.
 * One client id of 64 KiB fits into a cursor, and nothing else of that length.
 */
type Position = readonly [after: string] | readonly [after: string, client: string, filter: string];

const isPosition = (value: unknown): value is Position =>
  Array.isArray(value) &&
  (value.length === 1 || value.length === 3) &&
  value.every((each) => typeof each === "string");

/** In UTF-16 units, each up to 6 bytes in JSON: two of them are small beside a client id. */
const shortLengthMax = 128;

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
  const position = decodeCursor(query.after, isPosition);
  const [, clientBegun, filterBefore = ""] = position ?? [];
  let after = position?.[0] ?? "";
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
    const behind = shortOf(clientId) === clientBegun ? filterBefore : "";
    const found = inOrder(all, wanted.has, behind);
    const shown = found.slice(0, countMax - items.length);
    for (const [, each] of shown) {
      items.push({ clientId, isDurable: held === undefined, ...subscriptionView(each) });
    }
    if (found.length > shown.length) {
      const [filter] = shown.at(-1) ?? [behind];
      return { items, next: encodeCursor([after, shortOf(clientId), filter]), ...total };
    }
    after = clientId;
    await slices.looked(1 + wanted.looked - lookedBefore);
  }
  return given({ items, next: ends.length > 0 ? encodeCursor([after]) : undefined, ...total });
}

export function subscriptionView(subscription: Subscription) {
  const { filter, qos, noLocal, retainAsPublished, retainHandling, identifier } = subscription;
  return { filter, qos, noLocal, retainAsPublished, retainHandling, identifier };
}

/** Those of a client that are asked for and lie behind a filter, each with what it is sorted by. */
function inOrder(
  all: Iterable<Subscription>,
  isWanted: (filter: string) => boolean,
  behind: string,
): (readonly [short: string, Subscription])[] {
  return [...all]
    .filter(({ filter }) => isWanted(filter))
    .map((each) => [shortOf(each.filter), each] as const)
    .filter(([short]) => short > behind)
    .sort(([a], [b]) => (a < b ? -1 : 1));
}

/** Names a text of any length, and no other: no client id or filter holds U+0000. */
function shortOf(text: string): string {
  if (text.length <= shortLengthMax) return text;
  const digest = createHash("sha256").update(text).digest("base64url");
  return `${text.slice(0, shortLengthMax)}\u0000${digest}`;
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
