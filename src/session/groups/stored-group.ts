// Reading what is stored of durable shared groups, and which of their messages members have bound.

import { isCodedError } from "../../base/index.ts";
import type { MapEntry, MapShard, Positions } from "../../store/index.ts";
import {
  type AssignedRecord,
  decodeAssigned,
  decodeCursor,
  decodeGroup,
  decodeIds,
  decodeInFlight,
  type IdsRecord,
  type InFlightSource,
} from "../core/records.ts";
import { groupKeys, groupPrefix, sendNumberOfKey, sessionKeys } from "../keys.ts";
import { eachEntry } from "../stored-session.ts";

export type StoredGroup = {
  /** The whole shared filter. */
  readonly name: string;
  readonly epoch: number;
  readonly cursor: Positions;
  readonly dropped: number;
  readonly ids: IdsRecord | undefined;
  /** In the order in which they were dealt. */
  readonly assigned: ReadonlyArray<{ readonly number: number; readonly record: AssignedRecord }>;
};

/** Names of the groups of a state shard. Damaged ones are told to `onCorrupt` and left out. */
export async function listGroups(
  shard: MapShard,
  onCorrupt: (key: string, error: unknown) => void,
): Promise<string[]> {
  const names: string[] = [];
  await eachEntry(shard, groupPrefix, ({ key, value }) => {
    if (!key.endsWith("/claim")) return;
    try {
      names.push(decodeGroup(value));
    } catch (error) {
      onCorrupt(key, error);
    }
  });
  return names;
}

/** Undefined when the group is not stored. A damaged record of a message is passed over. */
export async function readStoredGroup(
  shard: MapShard,
  name: string,
  onCorrupt: (key: string, error: unknown) => void,
): Promise<StoredGroup | undefined> {
  const keys = groupKeys(name);
  const claim = await shard.get(keys.claim);
  if (claim === undefined) return undefined;
  const cursorEntry = await shard.get(keys.cursor);
  const idsEntry = await shard.get(keys.ids);
  const cursor = cursorEntry === undefined ? undefined : decodeCursor(cursorEntry.value);
  const assigned: Array<{ number: number; record: AssignedRecord }> = [];
  await eachEntry(shard, keys.outPrefix, ({ key, value }) => {
    const record = readable(() => decodeAssigned(value), key, onCorrupt);
    if (record !== undefined) assigned.push({ number: sendNumberOfKey(key), record });
  });
  return {
    name,
    epoch: claim.timeUs,
    cursor: cursor?.positions ?? new Map(),
    dropped: cursor?.dropped ?? 0,
    ids: idsEntry === undefined ? undefined : decodeIds(idsEntry.value),
    assigned,
  };
}

/** What shared groups have dealt to a client and its session has bound, as `boundName` names it. */
export async function boundRefs(
  shard: MapShard,
  clientId: string,
  onCorrupt: (key: string, error: unknown) => void,
): Promise<Set<string>> {
  const bound = new Set<string>();
  await eachEntry(shard, sessionKeys(clientId).outPrefix, ({ key, value }: MapEntry) => {
    const record = readable(() => decodeInFlight(value), key, onCorrupt);
    const name = record === undefined ? undefined : boundName(record.source);
    if (name !== undefined) bound.add(name);
  });
  return bound;
}

/** Undefined for what no group has dealt. */
export function boundName(source: InFlightSource): string | undefined {
  if (source.kind !== "log" || source.group === undefined) return undefined;
  return `${source.ref.shard}:${source.ref.timeUs} ${source.group}`;
}

function readable<T>(
  decode: () => T,
  key: string,
  onCorrupt: (key: string, error: unknown) => void,
): T | undefined {
  try {
    return decode();
  } catch (error) {
    if (!isCodedError(error) || error.kind !== "corrupt") throw error;
    onCorrupt(key, error);
    return undefined;
  }
}
