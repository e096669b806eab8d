// `flagstone databases`, `groups`, `slabs`, `streams` and `holds`: what is stored and how.

import type { AnswerOf } from "../../admin/client.ts";
import { argument, askCommand, timeUsOf } from "../admin/ask.ts";
import { bytes, type Column, grouped, span, tableOf, time } from "../admin/output.ts";
import type { Command, CommandFamily, CommandInput, OptionSpec } from "../command.ts";
import { cliErrors } from "../errors.ts";
import { finished } from "./tasks.ts";

type ItemOf<
  K extends
    | "listDatabases"
    | "listGroups"
    | "listGenerations"
    | "listStreams"
    | "listHolds"
    | "listShards",
> = AnswerOf<K>["items"][number];

const databaseOption: OptionSpec = { flags: "--database <name>", doc: "only this database" };

// ---------------------------------------------------------------- databases

const databaseColumns: readonly Column<ItemOf<"listDatabases">>[] = [
  { head: "DATABASE", cell: (row) => row.name },
  { head: "LAYOUT", cell: (row) => row.layout },
  { head: "SHARDS", cell: (row) => row.shards.length, isRight: true },
  { head: "GROUP", cell: (row) => row.group },
  {
    head: "KEEPS",
    cell: (row) => (row.retention.ageMs === 0 ? "for ever" : span(row.retention.ageMs)),
  },
  { head: "MESSAGES", cell: (row) => grouped(row.ttvs), isRight: true },
  { head: "LOGICAL", cell: (row) => bytes(row.logicalBytes), isRight: true },
  { head: "ON DISK", cell: (row) => bytes(row.physicalBytes), isRight: true },
  { head: "TOPICS", cell: (row) => row.topics.join(" ") || undefined },
];

const listDatabases = askCommand({
  name: "list",
  summary: "databases with their sizes",
  watches: true,
  examples: ["databases", "databases -o yaml"],
  show: async ({ admin }) => {
    const value = await admin.listDatabases();
    return { value, table: () => tableOf(value.items, databaseColumns) };
  },
});

const changeOptions: readonly OptionSpec[] = [
  { flags: "--keep <time>", doc: "how long messages are kept, such as 7d; 0 for no limit" },
  {
    flags: "--topics <filter>",
    doc: "topic filter routed here; may be given again",
    repeats: true,
  },
];

function changeOf(input: CommandInput) {
  const keep = input.options.text("keep");
  const topics = input.options.texts("topics");
  return {
    ...(keep === undefined ? {} : { retention: { ageMs: keepMsOf(keep) } }),
    ...(topics.length === 0 ? {} : { topics: [...topics] }),
  };
}

/** @throws CLI_USAGE. */
function keepMsOf(text: string): number {
  if (text === "0") return 0;
  const found = /^(\d{1,6})(s|m|h|d)$/.exec(text);
  if (found === null)
    throw cliErrors.usage({ reason: `--keep expects 12h, 7d or 0, got "${text}"` });
  const unit = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }[found[2] as "s"];
  return Number(found[1]) * unit;
}

const createDatabase = askCommand({
  name: "create",
  summary: "create a database",
  arguments: [{ name: "[name]", doc: "its name" }],
  options: [{ flags: "--shards <number>", doc: "hash partitions, fixed" }, ...changeOptions],
  examples: ["databases create metrics --keep 30d --topics 'metrics/#'", "databases create audit"],
  show: async (input) => {
    const name = argument(input, 0, "the name");
    const shards = input.options.whole("shards", "--shards", [1, 256]);
    const body = { name, ...(shards === undefined ? {} : { shards }), ...changeOf(input) };
    const value = await input.admin.createDatabase({ body });
    return { value, table: () => tableOf([value], databaseColumns) };
  },
});

const alterDatabase = askCommand({
  name: "alter",
  summary: "change what a database keeps and which topics go there",
  arguments: [{ name: "[name]", doc: "its name" }],
  options: changeOptions,
  examples: ["databases alter messages --keep 3d", "databases alter metrics --topics 'm/#'"],
  show: async (input) => {
    const database = argument(input, 0, "the name");
    const value = await input.admin.alterDatabase({ params: { database }, body: changeOf(input) });
    return { value, table: () => tableOf([value], databaseColumns) };
  },
});

const dropDatabase = askCommand({
  name: "drop",
  summary: "drop a database with all it holds",
  arguments: [{ name: "[name]", doc: "its name" }],
  options: [{ flags: "--yes", doc: "needed: nothing of it comes back" }],
  examples: ["databases drop metrics --yes", "databases drop audit --yes -o json"],
  show: async (input) => {
    const database = argument(input, 0, "the name");
    if (!input.options.isOn("yes")) {
      throw cliErrors.usage({ reason: `dropping "${database}" cannot be undone; say --yes` });
    }
    const value = await input.admin.dropDatabase({ params: { database } });
    return { value, table: () => `database ${database} was dropped\n` };
  },
});

const rotate = askCommand({
  name: "rotate",
  summary: "end the current generation of every shard",
  arguments: [{ name: "[name]", doc: "database; messages when it is not given" }],
  examples: ["databases rotate", "databases rotate metrics"],
  show: async (input) => {
    const database = input.arguments[0] ?? "messages";
    const value = await input.admin.rotateDatabase({ params: { database } });
    return { value, table: () => `${database}: new generations begun\n` };
  },
});

const trim = askCommand({
  name: "trim",
  summary: "drop sealed generations that ended before a time",
  arguments: [{ name: "[name]", doc: "database; messages when it is not given" }],
  options: [
    { flags: "--before <time>", doc: "1h, 7d or 2026-01-31T12:00:00Z" },
    { flags: "--force", doc: "also what holds keep; they are told" },
  ],
  examples: ["databases trim --before 3d", "databases trim metrics --before 1h --force"],
  show: async (input) => {
    const database = input.arguments[0] ?? "messages";
    const before = input.options.needed("before", "--before");
    const untilUs = timeUsOf(before, "--before", input.io.clock.wallUs());
    const force = input.options.isOn("force");
    const body = { kind: "drop" as const, database, untilUs, force };
    const begun = await input.admin.startTask({ body });
    const value = await finished(input.admin, begun, input.io);
    const { generations = 0, held = 0 } = value.report ?? {};
    const kept = held === 0 ? "" : `, ${held} are held`;
    return { value, table: () => `${generations} generations dropped${kept}\n` };
  },
});

export const databases: CommandFamily = {
  name: "databases",
  summary: "databases: list, create, alter, drop, rotate, trim",
  commands: [listDatabases, createDatabase, alterDatabase, dropDatabase, rotate, trim],
  hasDefault: true,
};

// ---------------------------------------------------------------- groups, slabs, streams

const groupColumns: readonly Column<ItemOf<"listGroups">>[] = [
  { head: "GROUP", cell: (row) => row.name },
  { head: "STATE", cell: (row) => row.state },
  { head: "ON DISK", cell: (row) => bytes(row.physicalBytes), isRight: true },
  {
    head: "QUOTA",
    cell: (row) => (row.quotaBytes === 0 ? "none" : bytes(row.quotaBytes)),
    isRight: true,
  },
  { head: "WHEN FULL", cell: (row) => row.onFull },
  { head: "FSYNC", cell: (row) => row.fsync },
  {
    head: "WRITE BUFFER",
    cell: (row) => `${bytes(row.writeBufferBytes)} of ${bytes(row.writeBufferBytesMax)}`,
  },
  { head: "WORK", cell: (row) => `${row.workSlotsUsed}/${row.workSlots}`, isRight: true },
  { head: "DATABASES", cell: (row) => row.databases.join(" ") },
];

export const groups: Command = askCommand({
  name: "groups",
  summary: "groups with quota and use",
  watches: true,
  examples: ["groups", "groups --watch 10"],
  show: async ({ admin }) => {
    const value = await admin.listGroups();
    return { value, table: () => tableOf(value.items, groupColumns) };
  },
});

const shardColumns: readonly Column<ItemOf<"listShards">>[] = [
  { head: "SHARD", cell: (row) => row.number, isRight: true },
  { head: "DATABASE", cell: (row) => row.database },
  { head: "GENERATIONS", cell: (row) => row.generations, isRight: true },
  { head: "MESSAGES", cell: (row) => grouped(row.ttvs), isRight: true },
  { head: "ON DISK", cell: (row) => bytes(row.physicalBytes), isRight: true },
  { head: "TO REPLAY", cell: (row) => bytes(row.logBytes), isRight: true },
  { head: "LAST", cell: (row) => time(row.appliedUs) },
  { head: "MISSING", cell: (row) => row.missing, isRight: true },
  { head: "FAILURE", cell: (row) => row.failure },
];

export const shards: Command = askCommand({
  name: "shards",
  summary: "shards with positions and sizes",
  watches: true,
  options: [databaseOption],
  examples: ["shards", "shards --database messages -o json"],
  show: async (input) => {
    const database = input.options.text("database");
    const query = database === undefined ? {} : { database };
    const value = await input.admin.listShards({ query });
    return { value, table: () => tableOf(value.items, shardColumns) };
  },
});

const slabColumns: readonly Column<ItemOf<"listGenerations">>[] = [
  { head: "SHARD", cell: (row) => row.shard, isRight: true },
  { head: "GENERATION", cell: (row) => row.number, isRight: true },
  { head: "STATE", cell: (row) => row.state },
  { head: "FROM", cell: (row) => time(row.fromUs) },
  { head: "TO", cell: (row) => time(row.toUs) },
  { head: "MESSAGES", cell: (row) => grouped(row.ttvs), isRight: true },
  { head: "ON DISK", cell: (row) => bytes(row.physicalBytes), isRight: true },
  { head: "STREAMS", cell: (row) => row.streams, isRight: true },
  { head: "OPEN", cell: (row) => row.isOpen },
  { head: "HELD BY", cell: (row) => row.heldBy.join(" ") || undefined },
];

export const slabs: Command = askCommand({
  name: "slabs",
  summary: "slabs: each generation of each shard",
  options: [{ flags: "--shard <number>", doc: "only this shard" }, databaseOption],
  examples: ["slabs", "slabs --shard 6 -o json"],
  show: async (input) => {
    const one = input.options.whole("shard", "--shard", [0, 2 ** 32 - 1]);
    const numbers = one === undefined ? await logShards(input) : [one];
    const items: ItemOf<"listGenerations">[] = [];
    for (const shard of numbers) {
      items.push(...(await input.admin.listGenerations({ params: { shard } })).items);
    }
    return { value: { items }, table: () => tableOf(items, slabColumns) };
  },
});

/** Shards that have generations: those of layout `log`. */
async function logShards({
  admin,
  options,
}: Parameters<Parameters<typeof askCommand>[0]["show"]>[0]) {
  const [databases, only] = [await admin.listDatabases(), options.text("database")];
  return databases.items
    .filter(({ layout, name }) => layout === "log" && (only === undefined || name === only))
    .flatMap((database) => database.shards);
}

export const streams: Command = askCommand({
  name: "streams",
  summary: "streams of a slab with their learned structure",
  arguments: [
    { name: "[shard]", doc: "number of the shard" },
    { name: "[generation]", doc: "number of the generation" },
  ],
  examples: ["streams 6 1", "streams 6 1 -o json"],
  show: async (input) => {
    const [shard, generation] = [0, 1].map((index) =>
      wholeArgument(input, index, ["the shard", "the generation"][index] ?? ""),
    );
    const params = { shard: shard ?? 0, generation: generation ?? 0 };
    const value = await input.admin.listStreams({ params });
    const columns: readonly Column<ItemOf<"listStreams">>[] = [
      { head: "STREAM", cell: (row) => row.stream, isRight: true },
      { head: "STRUCTURE", cell: (row) => row.structure },
      { head: "MESSAGES", cell: (row) => grouped(row.ttvs), isRight: true },
      { head: "LOGICAL", cell: (row) => bytes(row.logicalBytes), isRight: true },
    ];
    return { value, table: () => tableOf(value.items, columns) };
  },
});

/** @throws CLI_USAGE. */
function wholeArgument(input: CommandInput, index: number, name: string): number {
  const text = argument(input, index, name);
  if (/^\d{1,10}$/.test(text)) return Number(text);
  throw cliErrors.usage({ reason: `${name} is a number, got "${text}"` });
}

// ---------------------------------------------------------------- holds

const holdColumns: readonly Column<ItemOf<"listHolds">>[] = [
  { head: "HOLD", cell: (row) => row.name },
  { head: "DATABASE", cell: (row) => row.database },
  {
    head: "KEEPS AFTER",
    cell: ({ afterUs }) => time(Math.min(...afterUs.map((each) => each.timeUs))) ?? "everything",
  },
  { head: "LOST", cell: (row) => row.lostTtvs, isRight: true },
];

const listHolds = askCommand({
  name: "list",
  summary: "holds that keep generations",
  examples: ["holds", "holds -o json"],
  show: async ({ admin }) => {
    const value = await admin.listHolds();
    const table = (): string =>
      value.items.length === 0 ? "no holds\n" : tableOf(value.items, holdColumns);
    return { value, table };
  },
});

const putHold = askCommand({
  name: "put",
  summary: "keep what is later than a time, whoever has read it",
  arguments: [{ name: "[name]", doc: "name of the hold" }],
  options: [
    { flags: "--after <time>", doc: "1h, 7d or a time; everything without it" },
    databaseOption,
  ],
  examples: ["holds put audit --after 1d", "holds put all --database metrics"],
  show: async (input) => {
    const hold = argument(input, 0, "the name");
    const after = input.options.text("after");
    const database = input.options.text("database");
    const body = {
      ...(database === undefined ? {} : { database }),
      ...(after === undefined
        ? {}
        : { afterUs: timeUsOf(after, "--after", input.io.clock.wallUs()) }),
    };
    const value = await input.admin.putHold({ params: { hold }, body });
    return { value, table: () => tableOf([value], holdColumns) };
  },
});

const releaseHold = askCommand({
  name: "release",
  summary: "release a hold",
  arguments: [{ name: "[name]", doc: "name of the hold" }],
  options: [databaseOption],
  examples: ["holds release audit", "holds release all --database metrics"],
  show: async (input) => {
    const hold = argument(input, 0, "the name");
    const database = input.options.text("database");
    const query = database === undefined ? {} : { database };
    const value = await input.admin.releaseHold({ params: { hold }, query });
    return { value, table: () => `hold ${hold} was released\n` };
  },
});

export const holds: CommandFamily = {
  name: "holds",
  summary: "holds: list, put, release",
  commands: [listHolds, putHold, releaseHold],
  hasDefault: true,
};
