// Long work: one shard after the other, so that it can be paused, go on after a restart, and tell how
// far it is. What a task has found and which shards are behind it is in one small file of the data
// directory, written after each shard; a shard that was begun is begun again.
//
// Bounded: tasks at work, tasks remembered, findings kept of one task. A cancelled or paused task stops
// between two steps of the store's work.

import {
  type Clock,
  type Disk,
  isCodedError,
  joinPath,
  type Logger,
  type Random,
  toError,
} from "../base/index.ts";
import type { ShardNumber, StoreOperator, WorkOptions, WorkProgress } from "../store/index.ts";
import type { Task } from "./contract.ts";
import { adminErrors } from "./errors.ts";
import { type ListKind, readList, writeList } from "./list-file.ts";

export type TaskKind = Task["kind"];
export type TaskOptions = { readonly database?: string; readonly shard?: ShardNumber };
export type TaskVerb = "pause" | "resume" | "cancel";

/** What the work is done on: the store of a ready node. */
export type TaskStore = Pick<StoreOperator, "shards" | "verify" | "compact" | "repack">;

export type TaskComponents = {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
};

const fileName = "tasks.json";
const activeMax = 4;
const keptMax = 100;
const findingsMax = 1000;

type Report = { [key: string]: number | unknown[] };

/** As it is kept. */
type Stored = {
  readonly id: string;
  readonly kind: TaskKind;
  readonly options: TaskOptions;
  readonly startedMs: number;
  state: Task["state"];
  shardsLeft: ShardNumber[];
  shardsTotal: number;
  report: Report;
  endedMs: number | undefined;
  error: string | undefined;
};

type Live = {
  readonly stored: Stored;
  progress: WorkProgress | undefined;
  /** Of the shard at work. */
  sinceMs: number;
  work: Promise<void> | undefined;
};

export class Tasks {
  readonly #path: string;
  readonly #components: TaskComponents;
  readonly #tasks = new Map<string, Live>();
  #store: TaskStore | undefined;
  #saving: Promise<void> = Promise.resolve();
  #stopped = false;

  private constructor(path: string, components: TaskComponents) {
    this.#path = path;
    this.#components = components;
  }

  /** Reads what a former process left; nothing runs before `begin`. */
  static async open(dir: string, components: TaskComponents): Promise<Tasks> {
    const tasks = new Tasks(joinPath(dir, fileName), components);
    for (const stored of await readTasks(tasks.#path, components)) tasks.#add(stored);
    return tasks;
  }

  /** The node is ready: what was running goes on. */
  begin(store: TaskStore): void {
    this.#store = store;
    for (const live of this.#tasks.values()) {
      if (live.stored.state === "running") this.#run(live, store);
    }
  }

  get activeCount(): number {
    return this.#active().length;
  }

  /** Newest first. */
  list(): Task[] {
    return [...this.#tasks.values()].map((live) => this.#view(live)).toReversed();
  }

  /** @throws ADMIN_THING_NOT_FOUND. */
  get(id: string): Task {
    return this.#view(this.#find(id));
  }

  /** Durable when it resolves. @throws ADMIN_BUSY, STORE_DATABASE_NOT_FOUND. */
  async start(kind: TaskKind, options: TaskOptions): Promise<Task> {
    const store = this.#store;
    if (store === undefined || this.#stopped) throw adminErrors.starting({ state: "not ready" });
    if (this.#active().length >= activeMax)
      throw adminErrors.busy({ what: "tasks", max: activeMax });
    const { random, clock } = this.#components;
    const all = store.shards(options.database).map(({ number }) => number);
    const shards = options.shard === undefined ? all : all.filter((each) => each === options.shard);
    if (options.shard !== undefined && shards.length === 0) {
      throw adminErrors.thingMissing({ thing: "shard", name: options.shard });
    }
    const live = this.#add({
      id: `${kind}-${random.bytes(4).toString("hex")}`,
      kind,
      options,
      startedMs: Math.floor(clock.wallUs() / 1000),
      state: "running",
      shardsLeft: shards,
      shardsTotal: shards.length,
      report: {},
      endedMs: undefined,
      error: undefined,
    });
    this.#forgetOld();
    await this.#save();
    this.#run(live, store);
    return this.#view(live);
  }

  /** @throws ADMIN_THING_NOT_FOUND, ADMIN_TASK_STATE. */
  async steer(id: string, verb: TaskVerb): Promise<Task> {
    const live = this.#find(id);
    const { state } = live.stored;
    const next = steps[verb][state];
    if (next === undefined) throw adminErrors.taskState({ task: id, state, verb });
    live.stored.state = next;
    if (verb === "cancel") live.stored.endedMs = Math.floor(this.#components.clock.wallUs() / 1000);
    await this.#save();
    if (verb === "resume" && this.#store !== undefined) {
      await live.work;
      this.#run(live, this.#store);
    }
    return this.#view(live);
  }

  /** Stops the work between two steps; the next process goes on with it. */
  async close(): Promise<void> {
    this.#stopped = true;
    await Promise.all([...this.#tasks.values()].map(({ work }) => work));
    await this.#saving;
  }

  #active(): Live[] {
    return [...this.#tasks.values()].filter(({ stored: { state } }) =>
      ["running", "paused"].includes(state),
    );
  }

  #find(id: string): Live {
    const live = this.#tasks.get(id);
    if (live === undefined) throw adminErrors.thingMissing({ thing: "task", name: id });
    return live;
  }

  #add(stored: Stored): Live {
    const live: Live = { stored, progress: undefined, sinceMs: 0, work: undefined };
    this.#tasks.set(stored.id, live);
    return live;
  }

  #forgetOld(): void {
    for (const [id, { stored }] of this.#tasks) {
      if (this.#tasks.size <= keptMax) return;
      if (stored.endedMs !== undefined) this.#tasks.delete(id);
    }
  }

  #run(live: Live, store: TaskStore): void {
    const { logger } = this.#components;
    const { id, kind } = live.stored;
    live.work = this.#workOff(live, store).catch(async (error: unknown) => {
      logger.error("admin.task_failed", { task: id, kind, error: toError(error) });
      live.stored.error = toError(error).message;
      await this.#end(live, "failed");
    });
  }

  async #workOff(live: Live, store: TaskStore): Promise<void> {
    const { stored } = live;
    const isStopped = (): boolean => this.#stopped || stored.state !== "running";
    for (;;) {
      const [shard] = stored.shardsLeft;
      if (isStopped()) return;
      if (shard === undefined) break;
      live.sinceMs = this.#components.clock.elapsedMs();
      live.progress = undefined;
      const options: WorkOptions = {
        shard,
        isCancelled: isStopped,
        onProgress: (progress) => {
          live.progress = progress;
        },
      };
      try {
        addTo(stored.report, await store[stored.kind](options));
      } catch (error) {
        if (isStopped() && isCodedError(error, "STORE_WORK_CANCELLED")) return;
        throw error;
      }
      stored.shardsLeft = stored.shardsLeft.slice(1);
      await this.#save();
    }
    await this.#end(live, "done");
  }

  async #end(live: Live, state: "done" | "failed"): Promise<void> {
    live.stored.state = state;
    live.stored.endedMs = Math.floor(this.#components.clock.wallUs() / 1000);
    await this.#save();
  }

  #view({ stored, progress, sinceMs }: Live): Task {
    const { id, kind, options, state, startedMs, endedMs, shardsLeft, shardsTotal } = stored;
    const shardsDone = shardsTotal - shardsLeft.length;
    const isRunning = state === "running";
    const elapsedS = (this.#components.clock.elapsedMs() - sinceMs) / 1000;
    const done = progress?.done ?? 0;
    const total = progress?.total ?? 0;
    const ratePerS = isRunning && elapsedS > 0 ? Math.round((done / elapsedS) * 10) / 10 : 0;
    // Shards are of much the same size: what this one takes, the others will take.
    const left = Math.max(0, total - done) + Math.max(0, shardsLeft.length - 1) * total;
    return {
      ...{ id, kind, state, options: { ...options }, startedMs, endedMs },
      phase: phaseOf(stored, shardsDone),
      done: isRunning ? done : shardsDone,
      total: isRunning ? total : shardsTotal,
      unit: isRunning ? (progress?.unit ?? "steps") : "shards",
      ratePerS,
      etaMs: isRunning && ratePerS > 0 ? Math.round((left / ratePerS) * 1000) : undefined,
      report: { ...stored.report },
      error: stored.error,
    };
  }

  /** One write after the other, always of what is true then. */
  #save(): Promise<void> {
    this.#saving = this.#saving
      .then(async () => {
        const tasks = [...this.#tasks.values()].map(({ stored }) => stored);
        await writeList(this.#components.disk, this.#path, kind, tasks);
      })
      .catch((error: unknown) => {
        // A task that a restart forgets, or begins again, is no reason to stop one.
        this.#components.logger.warn("admin.tasks_not_saved", { error: toError(error) });
      });
    return this.#saving;
  }
}

const steps: Readonly<Record<TaskVerb, Partial<Record<Task["state"], Task["state"]>>>> = {
  pause: { running: "paused" },
  resume: { paused: "running" },
  cancel: { running: "cancelled", paused: "cancelled" },
};

function phaseOf({ state, shardsTotal }: Stored, shardsDone: number): string {
  return state === "running" ? `shard ${shardsDone + 1} of ${shardsTotal}` : state;
}

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

async function readTasks(path: string, { disk, logger }: TaskComponents): Promise<Stored[]> {
  const tasks = await readList(disk, path, kind);
  if (tasks !== undefined) return tasks;
  logger.warn("admin.tasks_damaged", {
    path,
    advice: "former tasks are forgotten; start them anew",
  });
  return [];
}

function isStored(value: unknown): value is Stored {
  const task = value as Partial<Stored> | null;
  return typeof task?.id === "string" && Array.isArray(task.shardsLeft);
}

const kind: ListKind<Stored> = { name: "tasks", isItem: isStored };
