// What tasks do, by kind. Each work goes in steps, between which it looks whether it is to stop, and
// notes in what is kept of its task how far it is: the next process goes on from there.

import { type Clock, type Disk, isCodedError, joinPath, sleep } from "../base/index.ts";
import type { ShardNumber, StoreOperator, WorkOptions, WorkProgress } from "../store/index.ts";
import type { Task } from "./contract.ts";
import { type ExportPosition, type ExportStore, exportMessages } from "./export.ts";

export type TaskKind = Task["kind"];

export type TaskOptions = {
  readonly database?: string;
  readonly shard?: ShardNumber;
  /** Of `drop`. */
  readonly untilUs?: number;
  readonly force?: boolean;
  /** Of `export`. */
  readonly filter?: string;
  readonly fromUs?: number;
  readonly toUs?: number;
};

/** What the work is done on: the store of a ready node. */
export type TaskStore = {
  readonly operator: Pick<
    StoreOperator,
    "shards" | "generations" | "explain" | "dropUntil" | "verify" | "compact" | "repack"
  >;
  readonly messages: ExportStore;
};

export type Report = { [key: string]: number | string | unknown[] };

/** As a task is kept. */
export type StoredTask = {
  readonly id: string;
  readonly kind: TaskKind;
  readonly options: TaskOptions;
  readonly startedMs: number;
  state: Task["state"];
  shardsLeft: ShardNumber[];
  shardsTotal: number;
  report: Report;
  /** How far an export is. */
  position?: ExportPosition;
  endedMs: number | undefined;
  error: string | undefined;
};

export type TaskRun = {
  readonly stored: StoredTask;
  readonly store: TaskStore;
  readonly clock: Clock;
  readonly disk: Disk;
  /** Where files of exports lie. */
  readonly exportsDir: string;
  readonly isStopped: () => boolean;
  readonly onProgress: (progress: WorkProgress | undefined) => void;
  /** Durable when it resolves, or told in the log. */
  readonly save: () => Promise<void>;
};

/** Ends early, without an error, when it is stopped. */
export function workOff(run: TaskRun): Promise<void> {
  const { kind } = run.stored;
  if (kind === "export") return exportAll(run);
  if (kind === "drop") return dropGenerations(run);
  return eachShard(run, kind);
}

export function exportPath(exportsDir: string, id: string): string {
  return joinPath(exportsDir, `${id}.ndjson`);
}

// ---------------------------------------------------------------- shard by shard

export const shardKinds = ["verify", "compact", "repack"] as const;
type ShardKind = (typeof shardKinds)[number];

async function eachShard(run: TaskRun, kind: ShardKind): Promise<void> {
  const { stored, store, isStopped, onProgress, save } = run;
  for (;;) {
    const [shard] = stored.shardsLeft;
    if (isStopped() || shard === undefined) return;
    onProgress(undefined);
    const options: WorkOptions = { shard, isCancelled: isStopped, onProgress };
    try {
      addTo(stored.report, await store.operator[kind](options));
    } catch (error) {
      if (isStopped() && isCodedError(error, "STORE_WORK_CANCELLED")) return;
      throw error;
    }
    stored.shardsLeft = stored.shardsLeft.slice(1);
    await save();
  }
}

const findingsMax = 1000;

/** Adds counts up and lists together, up to a limit. */
function addTo(report: Report, part: object): void {
  for (const [key, value] of Object.entries(part)) {
    const before = report[key];
    if (typeof value === "number") report[key] = (typeof before === "number" ? before : 0) + value;
    else if (Array.isArray(value)) {
      report[key] = [...(Array.isArray(before) ? before : []), ...value].slice(0, findingsMax);
    }
  }
}

// ---------------------------------------------------------------- dropping

const lookMs = 200;

/** The oldest first, one end of a generation after the other. Then waits until folders are gone. */
async function dropGenerations(run: TaskRun): Promise<void> {
  const { stored, store, clock, isStopped, onProgress, save } = run;
  const { database = "messages", untilUs = 0, force = false } = stored.options;
  const { operator } = store;
  const all = () => operator.shards(database).flatMap(({ number }) => operator.generations(number));
  const left = () =>
    all().filter(({ state, toUs }) => state === "sealed" && (toUs ?? 0) <= untilUs);
  const droppedBefore = Number(stored.report.generations ?? 0);
  const total = droppedBefore + left().length;
  const ends = [...new Set(left().map(({ toUs = 0 }) => toUs))].sort((a, b) => a - b);
  const tell = (what: string): void => {
    const done = Number(stored.report.generations ?? 0);
    onProgress({ done, total, unit: "generations", what });
  };
  for (const endUs of ends) {
    if (isStopped()) return;
    tell("dropping");
    const dropped = await operator.dropUntil(endUs, { database, force });
    addTo(stored.report, { generations: dropped });
    await save();
  }
  stored.report.held = left().length;
  while (!isStopped() && all().some(({ state }) => state === "dropping")) {
    tell("removing folders");
    await sleep(clock, lookMs);
  }
}

// ---------------------------------------------------------------- exporting

async function exportAll(run: TaskRun): Promise<void> {
  const { stored, store, clock, disk, exportsDir, isStopped, onProgress, save } = run;
  const { filter = "#", database, fromUs = 0, toUs = 0 } = stored.options;
  const { operator, messages } = store;
  const found = await operator.explain(filter, database === undefined ? {} : { database });
  const total = found.streams.reduce((sum, { ttvs }) => sum + ttvs, 0);
  const numbers = database === undefined ? undefined : operator.shards(database);
  const shards = numbers?.map(({ number }) => number) ?? messages.logShards;
  await disk.makeDir(exportsDir);
  const position = await exportMessages(
    { store: { ...viewOf(messages), logShards: shards }, clock, disk },
    { path: exportPath(exportsDir, stored.id), filter, fromUs, toUs, position: stored.position },
    {
      isStopped,
      // What streams hold is more than what matches, and grows no more than that.
      reached: (done) =>
        onProgress({ done, total: Math.max(total, done), unit: "messages", what: "exporting" }),
      save: async (reached) => {
        stored.position = reached;
        await save();
      },
    },
  );
  stored.position = position;
  stored.report.messages = position.messages;
  stored.report.bytes = position.bytes;
}

/** A store's methods with other shards. */
function viewOf(store: ExportStore): Pick<ExportStore, "subscribe" | "tail"> {
  return { subscribe: (options) => store.subscribe(options), tail: () => store.tail() };
}
