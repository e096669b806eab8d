// The consumed floor of each log shard: up to which commit time nobody is owed anything by the
// stored sessions. Asked near a disk quota, to find what can go without being missed.
//
// A durable shared group is owed like a session: what its members hold, and what lies above its cursor.
// A session is owed what its in-flight records name, and what lies above its cursor, as far as one of
// its filters has matched since: a sparse session whose filters have not matched is at the tail,
// however old its cursor. Sessions that are made meanwhile begin at the tail, above all floors.
// What cannot be read counts as owed everything.
// Reads all stored sessions in pages: memory does not grow with them.

import type { MapEntry, MapShard, ShardNumber, Store } from "../store/index.ts";
import {
  decodeAssigned,
  decodeCursor,
  decodeGroup,
  decodeInFlight,
  decodeSubscription,
} from "./core/records.ts";
import { sharedTopicFilter } from "./groups/member.ts";
import { groupPrefix, subscriptionPrefix } from "./keys.ts";

const sessionPrefix = "session/";
const pageMax = 1_000;

type Floors = Map<ShardNumber, number>;

export async function consumedFloors(
  store: Pick<Store, "stateShards" | "interest" | "tail">,
): Promise<Floors> {
  const floors: Floors = new Map(store.tail());
  // Whoever was promised something below is read below, also where another node has taken it in.
  await Promise.all(store.stateShards.map((shard) => shard.barrier()));
  for (const shard of store.stateShards) {
    await lowerByShard(shard, store, floors);
    await lowerByGroups(shard, store, floors);
  }
  return floors;
}

async function lowerByShard(
  shard: MapShard,
  { interest }: Pick<Store, "interest">,
  floors: Floors,
): Promise<void> {
  const subscriptions = new Clients(shard, subscriptionPrefix);
  for await (const session of new Clients(shard, sessionPrefix)) {
    const filters = await subscriptions.of(session.client);
    try {
      lowerBySession(session.entries, filters, interest, floors);
    } catch {
      // A damaged record: what it is owed is not known. The session room tells of it when it is met.
      for (const number of floors.keys()) floors.set(number, 0);
      return;
    }
  }
}

async function lowerByGroups(
  shard: MapShard,
  { interest }: Pick<Store, "interest">,
  floors: Floors,
): Promise<void> {
  for await (const { entries } of new Clients(shard, groupPrefix)) {
    try {
      lowerByGroup(entries, interest, floors);
    } catch {
      // As with a session that cannot be read.
      for (const number of floors.keys()) floors.set(number, 0);
      return;
    }
  }
}

function lowerByGroup(
  entries: readonly MapEntry[],
  interest: Store["interest"],
  floors: Floors,
): void {
  let cursor: ReadonlyMap<ShardNumber, number> = new Map();
  let filter: string | undefined;
  for (const { key, value } of entries) {
    const field = key.split("/")[2];
    if (field === "claim") filter = sharedTopicFilter(decodeGroup(value));
    if (field === "cursor") cursor = decodeCursor(value).positions;
    if (field !== "out") continue;
    const { ref } = decodeAssigned(value);
    lower(floors, ref.shard, ref.timeUs - 1);
  }
  // Without a claim it is on its way out.
  if (filter !== undefined) lowerByFilter(filter, cursor, interest, floors);
}

function lowerByFilter(
  filter: string,
  positions: ReadonlyMap<ShardNumber, number>,
  interest: Store["interest"],
  floors: Floors,
): void {
  for (const number of floors.keys()) {
    const positionUs = positions.get(number) ?? 0;
    const lastMatchUs = interest.lastMatchUs(filter, number);
    if (lastMatchUs === undefined || lastMatchUs > positionUs) lower(floors, number, positionUs);
  }
}

function lowerBySession(
  entries: readonly MapEntry[],
  subscriptions: readonly MapEntry[],
  interest: Store["interest"],
  floors: Floors,
): void {
  let cursor: ReadonlyMap<ShardNumber, number> = new Map();
  for (const { key, value } of entries) {
    const field = key.split("/")[2];
    if (field === "cursor") cursor = decodeCursor(value).positions;
    if (field !== "out") continue;
    const { source } = decodeInFlight(value);
    if (source.kind === "log") lower(floors, source.ref.shard, source.ref.timeUs - 1);
  }
  for (const { value } of subscriptions) {
    const { subscription, start } = decodeSubscription(value);
    // A shared group counts for all its members.
    if (subscription.qos === 0 || sharedTopicFilter(subscription.filter) !== undefined) continue;
    for (const number of floors.keys()) {
      const positionUs = Math.max(cursor.get(number) ?? 0, start.get(number) ?? 0);
      const lastMatchUs = interest.lastMatchUs(subscription.filter, number);
      if (lastMatchUs === undefined || lastMatchUs > positionUs) lower(floors, number, positionUs);
    }
  }
}

function lower(floors: Floors, shard: ShardNumber, timeUs: number): void {
  const floorUs = floors.get(shard);
  if (floorUs !== undefined && timeUs < floorUs) floors.set(shard, timeUs);
}

type ClientEntries = { readonly client: string; readonly entries: readonly MapEntry[] };

/** The entries under a prefix, client by client, in the order of their keys. */
class Clients implements AsyncIterable<ClientEntries> {
  readonly #shard: MapShard;
  readonly #prefix: string;
  #page: MapEntry[] = [];
  #afterKey: string | undefined;
  #isEnd = false;

  constructor(shard: MapShard, prefix: string) {
    this.#shard = shard;
    this.#prefix = prefix;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ClientEntries> {
    for (let first = await this.#peek(); first !== undefined; first = await this.#peek()) {
      const client = this.#clientOf(first);
      yield { client, entries: await this.#take(client) };
    }
  }

  /** The entries of one client. REQUIRES: asked in the order of keys. */
  async of(client: string): Promise<readonly MapEntry[]> {
    for (let first = await this.#peek(); first !== undefined; first = await this.#peek()) {
      const next = this.#clientOf(first);
      if (next === client) return this.#take(client);
      // Keys sort level by level, as text does where a level holds no "/".
      if (Buffer.compare(Buffer.from(next), Buffer.from(client)) > 0) return [];
      this.#page.shift();
    }
    return [];
  }

  async #take(client: string): Promise<MapEntry[]> {
    const entries: MapEntry[] = [];
    for (let first = await this.#peek(); first !== undefined; first = await this.#peek()) {
      if (this.#clientOf(first) !== client) break;
      entries.push(first);
      this.#page.shift();
    }
    return entries;
  }

  async #peek(): Promise<MapEntry | undefined> {
    if (this.#page.length === 0 && !this.#isEnd) {
      const from = this.#afterKey === undefined ? {} : { afterKey: this.#afterKey };
      this.#page = await this.#shard.list(this.#prefix, { ...from, countMax: pageMax });
      this.#afterKey = this.#page.at(-1)?.key ?? this.#afterKey;
      this.#isEnd = this.#page.length < pageMax;
    }
    return this.#page[0];
  }

  #clientOf({ key }: MapEntry): string {
    const rest = key.slice(this.#prefix.length);
    const end = rest.indexOf("/");
    return end < 0 ? rest : rest.slice(0, end);
  }
}
