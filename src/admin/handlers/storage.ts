// Databases, groups, shards, generations, streams, holds: views of the store and changes to it.

import type { HoldInfo, StoreOperator } from "../../store/index.ts";
import { parseTopicFilter } from "../../topic/index.ts";
import type { AnswerOf } from "../contract.ts";
import { adminErrors } from "../errors.ts";
import { given, type Handlers, listOf, type Running } from "../handler-types.ts";

export type StorageHandlers = Handlers<
  | "listDatabases"
  | "createDatabase"
  | "alterDatabase"
  | "dropDatabase"
  | "rotateDatabase"
  | "dropGenerations"
  | "listGroups"
  | "listShards"
  | "listGenerations"
  | "listStreams"
  | "explainFilter"
  | "listHolds"
  | "putHold"
  | "releaseHold"
>;

export function storageHandlers(running: Running): StorageHandlers {
  const operator = (): StoreOperator => running().operator;
  return {
    listDatabases: () => listOf(operator().databases().map(databaseView)),
    createDatabase: async ({ body }) => {
      refuseFixed(running, "databases are made at the first start");
      const { retention, layoutOptions, ...rest } = given(body);
      const spec = { ...rest, ...changeOf({ retention, layoutOptions }) };
      return databaseView(await operator().createDatabase(spec));
    },
    alterDatabase: async ({ params: { database }, body }) => {
      const { topics } = body;
      const change = { ...given({ topics }), ...changeOf(body) };
      return databaseView(await operator().alterDatabase(database, change));
    },
    dropDatabase: async ({ params: { database } }) => {
      refuseFixed(running, "databases are not dropped");
      await operator().dropDatabase(database);
      return { done: true };
    },
    rotateDatabase: async ({ params: { database } }) => {
      await operator().rotate(database);
      return { done: true };
    },
    dropGenerations: async ({ params: { database }, body: { untilUs, force } }) => ({
      generations: await operator().dropUntil(untilUs, { database, force }),
    }),
    listGroups: () => {
      const groups = operator().groups();
      return listOf(
        groups.map((group) => ({
          ...group,
          databases: [...group.databases],
          counters: { ...group.counters },
          // A quota that is lifted is no number of JSON.
          quotaBytes: Number.isFinite(group.quotaBytes) ? group.quotaBytes : 0,
        })),
      );
    },
    listShards: ({ query: { database } }) => listOf(operator().shards(database)),
    listGenerations: ({ params: { shard } }) => {
      const generations = operator().generations(shard);
      return listOf(generations.map((each) => ({ ...each, heldBy: [...each.heldBy] })));
    },
    listStreams: async ({ params: { shard, generation } }) =>
      listOf(await operator().streams(shard, generation)),
    explainFilter: async ({ query }) => {
      const { filter, ...options } = query;
      const found = await operator().explain(parseTopicFilter(filter).text, given(options));
      return {
        ...found,
        databases: [...found.databases],
        streams: found.streams.map((stream) => ({ ...stream })),
        advice: [...found.advice],
      };
    },
    listHolds: () => listOf(operator().holds().map(holdView)),
    putHold: async ({ params: { hold }, body }) => {
      const { afterUs } = body;
      const shards = running().store.logShards;
      const after =
        afterUs === undefined ? undefined : new Map(shards.map((shard) => [shard, afterUs]));
      const options = given({ database: body.database, afterUs: after });
      return holdView(await operator().hold(hold, options));
    },
    releaseHold: async ({ params: { hold }, query: { database } }) => {
      await operator().releaseHold(hold, database);
      return { done: true };
    },
  };
}

function refuseFixed(running: Running, what: string): void {
  if (running().areDatabasesFixed === true) throw adminErrors.databasesFixed({ what });
}

type Thresholds = [number, ...number[]];
type ChangeInput = {
  readonly retention?: { ageMs?: number | undefined; bytes?: number | undefined } | undefined;
  readonly layoutOptions?:
    | {
        thresholds?: number[] | undefined;
        rootThresholds?: Record<string, number[]> | undefined;
        patterns?: string[] | undefined;
        streamsMax?: number | undefined;
        trieBytesMax?: number | undefined;
      }
    | undefined;
};

function changeOf({ retention, layoutOptions }: ChangeInput) {
  return given({
    retention: retention === undefined ? undefined : given(retention),
    layoutOptions: layoutOptions === undefined ? undefined : layoutOptionsOf(layoutOptions),
  });
}

function layoutOptionsOf(options: NonNullable<ChangeInput["layoutOptions"]>) {
  const { thresholds, rootThresholds, patterns, streamsMax, trieBytesMax } = options;
  const roots = Object.entries(rootThresholds ?? {}).map(([root, list]) => [root, someOf(list)]);
  return given({
    thresholds: thresholds === undefined ? undefined : someOf(thresholds),
    rootThresholds:
      rootThresholds === undefined
        ? undefined
        : (Object.fromEntries(roots) as Record<string, Thresholds>),
    patterns: patterns?.map((pattern) => parseTopicFilter(pattern).text),
    streamsMax,
    trieBytesMax,
  });
}

/** @throws ADMIN_INPUT_INVALID for an empty list. */
function someOf([first, ...rest]: readonly number[]): Thresholds {
  if (first === undefined)
    throw adminErrors.inputInvalid({ reason: "thresholds: give one at least" });
  return [first, ...rest];
}

type DatabaseInfo = ReturnType<StoreOperator["databases"]>[number];

function databaseView(info: DatabaseInfo): AnswerOf<"createDatabase"> {
  const { layoutOptions: options, ...rest } = info;
  const { thresholds, rootThresholds, patterns, ...sizes } = options;
  const roots = Object.entries(rootThresholds ?? {}).map(([root, list]) => [root, [...list]]);
  return {
    ...rest,
    shards: [...info.shards],
    topics: [...info.topics],
    layoutOptions: given({
      ...sizes,
      thresholds: thresholds === undefined ? undefined : [...thresholds],
      patterns: patterns === undefined ? undefined : [...patterns],
      rootThresholds: rootThresholds === undefined ? undefined : Object.fromEntries(roots),
    }),
  };
}

function holdView({ name, database, afterUs, lostTtvs }: HoldInfo): AnswerOf<"putHold"> {
  const after = [...afterUs].map(([shard, timeUs]) => ({ shard, timeUs }));
  return { name, database, afterUs: after, lostTtvs };
}
