// Reading a durable session's records, and removing all of them.
//
// A removal ends the QoS 2 evidence first, then the records; a session with many records is marked
// as being removed before the first of them goes, so that a crash in between is finished later and
// never leaves half a session.

import type { MapEntry, MapGuard, MapShard, MapWrite, Positions, Store } from "../store/index.ts";
import type { Will } from "./api.ts";
import type { CollectedChanges } from "./core/in-flight.ts";
import {
  type ClaimRecord,
  type ClosedRecord,
  type CursorRecord,
  decodeClaim,
  decodeClosed,
  decodeCursor,
  decodeIds,
  decodeInFlight,
  decodeJob,
  decodeSubscription,
  decodeWill,
  encodeClaim,
  encodeClosed,
  encodeCursor,
  encodeDue,
  encodeIds,
  encodeInFlight,
  encodeJob,
  type IdsRecord,
  type InFlightRecord,
  type JobRecord,
  type SubscriptionRecord,
} from "./core/records.ts";
import type { Interest } from "./groups/interest.ts";
import { type SessionKeys, sendNumberOfKey, sessionKeys } from "./keys.ts";
import type { CollectedJobs } from "./retained-jobs.ts";
import type { BuiltWrites, StateWriter } from "./state-writer.ts";

export type StoredSession = {
  readonly keys: SessionKeys;
  readonly claim: ClaimRecord;
  /** Commit time of the claim record: the owner epoch. */
  readonly epoch: number;
  readonly incarnation: number;
  readonly closed: ClosedRecord | undefined;
  /** Commit time of that record. */
  readonly closedAtUs: number | undefined;
  readonly will: Will | undefined;
  readonly cursor: Positions;
  /** Messages that were lost to it. */
  readonly dropped: number;
  readonly ids: IdsRecord | undefined;
  readonly subscriptions: readonly SubscriptionRecord[];
  /** In send order. */
  readonly inFlight: ReadonlyArray<{
    readonly sendNumber: number;
    readonly record: InFlightRecord;
  }>;
  readonly jobs: readonly JobRecord[];
  /** Every key read, for the removal. */
  readonly allKeys: readonly string[];
};

const pageMax = 1000;
/** Deletes of one write of a removal: below the store's limit with what goes along. */
const deletesMax = 900;

export async function listAll(shard: MapShard, prefix: string): Promise<MapEntry[]> {
  const all: MapEntry[] = [];
  let afterKey: string | undefined;
  for (;;) {
    const from = afterKey === undefined ? {} : { afterKey };
    const page = await shard.list(prefix, { ...from, countMax: pageMax });
    for (const entry of page) all.push(entry);
    if (page.length < pageMax) return all;
    afterKey = (page[page.length - 1] as MapEntry).key;
  }
}

/** Visits page by page and keeps nothing: what lies in the store may be much. */
export async function eachEntry(
  shard: MapShard,
  prefix: string,
  visit: (entry: MapEntry) => void | Promise<void>,
): Promise<void> {
  let from: { afterKey?: string } = {};
  for (;;) {
    const page = await shard.list(prefix, { ...from, countMax: pageMax });
    for (const entry of page) {
      const waiting = visit(entry);
      if (waiting !== undefined) await waiting;
    }
    const last = page.at(-1);
    if (last === undefined || page.length < pageMax) return;
    from = { afterKey: last.key };
  }
}

/** What has changed of an attached session. */
export type ChangedState = {
  readonly changes: CollectedChanges;
  readonly jobs: CollectedJobs;
  readonly ids: IdsRecord | undefined;
  readonly cursor: CursorRecord;
};

/** Undefined when there is no durable session of this client. */
export async function readStoredSession(
  shard: MapShard,
  clientId: string,
): Promise<StoredSession | undefined> {
  const keys = sessionKeys(clientId);
  // Most clients have none: one key, which is remembered as absent, costs far less than a listing.
  if ((await shard.get(keys.claim)) === undefined) return undefined;
  const entries = await listAll(shard, keys.prefix);
  const byKey = new Map(entries.map((entry) => [entry.key, entry]));
  const claimEntry = byKey.get(keys.claim);
  if (claimEntry === undefined) return undefined;
  const claim = decodeClaim(claimEntry.value);
  const subEntries = await listAll(shard, keys.subPrefix);
  const read = <T>(key: string, decode: (bytes: Uint8Array) => T): T | undefined => {
    const entry = byKey.get(key);
    return entry === undefined ? undefined : decode(entry.value);
  };
  const cursor = read(keys.cursor, decodeCursor);
  const under = (prefix: string) => entries.filter((entry) => entry.key.startsWith(prefix));
  return {
    keys,
    claim,
    epoch: claimEntry.timeUs,
    incarnation: claim.incarnation === 0 ? claimEntry.timeUs : claim.incarnation,
    closed: read(keys.closed, decodeClosed),
    closedAtUs: byKey.get(keys.closed)?.timeUs,
    will: read(keys.will, decodeWill),
    cursor: cursor?.positions ?? new Map(),
    dropped: cursor?.dropped ?? 0,
    ids: read(keys.ids, decodeIds),
    subscriptions: subEntries.map((entry) => decodeSubscription(entry.value)),
    inFlight: under(keys.outPrefix).map((entry) => ({
      sendNumber: sendNumberOfKey(entry.key),
      record: decodeInFlight(entry.value),
    })),
    jobs: under(keys.jobPrefix).map((entry) => decodeJob(entry.value)),
    allKeys: [...entries, ...subEntries].map((entry) => entry.key),
  };
}

export type Removal = {
  /** Other nodes may resume the session meanwhile: it is marked before anything of it goes. */
  readonly isShared: boolean;
  /** Its will is not to be published, also where the removal is finished after a crash. */
  readonly dropsWill: boolean;
  readonly store: Store;
  readonly interest: Interest;
  readonly writer: StateWriter;
  readonly session: StoredSession;
  /** Written together with the last deletes: a will that the end of the session sets off. */
  readonly lastWrites: readonly MapWrite[];
};

/** Resolves when nothing of the session is left, with the commit time of the last write. */
export async function removeStoredSession(removal: Removal): Promise<number> {
  const { store, interest, writer, session, lastWrites, isShared } = removal;
  const { clientId, removing } = session.claim;
  const { keys, closed } = session;
  // The will goes with the last ones: until then it may have to be published.
  const single = new Set([keys.claim, keys.closed, keys.live, keys.will]);
  const many = session.allKeys.filter((key) => !single.has(key));
  let guards = guardsOf(session);
  const mark = async (): Promise<void> => {
    const timeUs = await markRemoving(removal);
    guards = [{ key: keys.claim, timeUs }];
  };
  if (isShared && !removing) await mark();
  await store.evidence.end(clientId, session.incarnation);
  if (!isShared && many.length > deletesMax) await mark();
  while (many.length > deletesMax) {
    const part = many.splice(0, deletesMax);
    await writer.write(() => ({ writes: part.map(deleteKey), guards }));
  }
  const dues = [...(closed === undefined ? [] : [closed.dueUs]), 0].map(keys.due);
  // What it is guarded by goes last, should it have to be cut in parts.
  const rest = [...many, ...dues, ...single].map(deleteKey);
  const timeUs = await writer.write(() => ({ writes: [...lastWrites, ...rest], guards }));
  for (const { subscription } of session.subscriptions) {
    if (subscription.qos > 0) interest.leave(subscription.filter);
  }
  return timeUs;
}

/**
 * Removes a session whose records cannot be read, key by key; what its subscriptions say is taken as
 * far as it can be read. QoS 2 evidence of the lost incarnation stays behind, unused.
 */
export async function eraseStoredSession(
  interest: Interest,
  writer: StateWriter,
  clientId: string,
): Promise<void> {
  const { shard } = writer;
  const keys = sessionKeys(clientId);
  const subEntries = await listAll(shard, keys.subPrefix);
  const entries = [...(await listAll(shard, keys.prefix)), ...subEntries];
  // The claim goes last: until then the session is there, and whoever reads it sees the damage.
  const order = [
    ...entries.map((entry) => entry.key).filter((key) => key !== keys.claim),
    keys.live,
  ];
  while (order.length > 0) {
    const part = order.splice(0, deletesMax).map(deleteKey);
    await writer.write(() => ({ writes: part, guards: [] }));
  }
  await writer.write(() => ({ writes: [deleteKey(keys.claim)], guards: [] }));
  for (const entry of subEntries) {
    const filter = readableFilter(entry.value);
    if (filter !== undefined) interest.leave(filter);
  }
}

/** The filter of a subscription that counts as interest; undefined where it cannot be read. */
export function readableFilter(value: Uint8Array): string | undefined {
  try {
    const { subscription } = decodeSubscription(value);
    return subscription.qos > 0 ? subscription.filter : undefined;
  } catch {
    // Counted where it was first met, at the start.
    return undefined;
  }
}

/** From here on the session only waits for its removal, also after a restart: it is due at 0. */
async function markRemoving({ writer, session, dropsWill }: Removal): Promise<number> {
  const { keys, claim, closed, incarnation } = session;
  const state = { cursor: session.cursor, inFlight: session.inFlight.length, dropped: 0 };
  const { clientId, user } = claim;
  const due = encodeDue({ clientId, user, incarnation, ...state });
  return writer.write(() => {
    const writes: MapWrite[] = [deleteKey(keys.live)];
    if (dropsWill) writes.push(deleteKey(keys.will));
    if (closed !== undefined) writes.push(deleteKey(keys.due(closed.dueUs)));
    writes.push(
      { key: keys.claim, value: encodeClaim({ ...claim, incarnation, removing: true }) },
      { key: keys.closed, value: encodeClosed({ closedUs: 0, expiryS: 0, dueUs: 0 }) },
      { key: keys.due(0), value: due },
    );
    return { writes, guards: guardsOf(session) };
  });
}

/** Puts of in-flight records first and deletes last: such a write may be cut off anywhere. */
export function changeWrites(keys: SessionKeys, changed: ChangedState): MapWrite[] {
  const { changes, jobs, ids, cursor } = changed;
  const writes: MapWrite[] = changes.puts.map(({ entry, record }) => ({
    key: keys.out(entry.sendNumber),
    value: encodeInFlight(record),
  }));
  writes.push({ key: keys.cursor, value: encodeCursor(cursor) });
  if (ids !== undefined) writes.push({ key: keys.ids, value: encodeIds(ids) });
  for (const { filter, record } of jobs) {
    const value = record === undefined ? undefined : encodeJob(record);
    writes.push({ key: keys.job(filter), value });
  }
  for (const sendNumber of changes.deletes) writes.push(deleteKey(keys.out(sendNumber)));
  return writes;
}

export function deleteKey(key: string): MapWrite {
  return { key, value: undefined };
}

/** Of whoever has no connection to it: neither an owner has come nor another end since it was read. */
export function guardsOf({ keys, epoch, closedAtUs }: StoredSession): MapGuard[] {
  return [
    { key: keys.claim, timeUs: epoch },
    { key: keys.closed, timeUs: closedAtUs },
  ];
}

/** Of its owner. */
export function guarded(
  keys: SessionKeys,
  epoch: number,
  writes: readonly MapWrite[],
): BuiltWrites {
  return { writes, guards: [{ key: keys.claim, timeUs: epoch }] };
}
