// Long work that is watched and steered: it can be paused, goes on after a restart, and tells how far
// it is. What a task has found and where it stands is in one small file of the data directory, written
// after each step (`task-work.ts`); a step that was begun is begun again.
//
// Bounded: tasks at work, tasks remembered, findings kept of one task. A cancelled or paused task stops
// between two steps. The file of an export goes with its task.

import {
  type Clock,
  type Disk,
  joinPath,
  type Logger,
  type Random,
  toError,
} from "../base/index.ts";
import type { WorkProgress } from "../store/index.ts";
import type { Task } from "./contract.ts";
import { adminErrors } from "./errors.ts";
import { type ListKind, readList, writeList } from "./list-file.ts";
import {
  exportPath,
  type StoredTask,
  shardKinds,
  type TaskKind,
  type TaskOptions,
  type TaskStore,
  workOff,
} from "./task-work.ts";

export type TaskVerb = "pause" | "resume" | "cancel";

export type TaskComponents = {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
};

const fileName = "tasks.json";
const activeMax = 4;
const keptMax = 100;
const exportsFolder = "exports";

type Live = {
  readonly stored: StoredTask;
  progress: WorkProgress | undefined;
  /** Of the shard at work. */
  sinceMs: number;
  work: Promise<void> | undefined;
  /** Tells the work that is under way to stop, whatever the task is asked to do next. */
  stop: () => void;
};

export class Tasks {
  readonly #path: string;
  readonly #exportsDir: string;
  readonly #components: TaskComponents;
  readonly #tasks = new Map<string, Live>();
  #store: TaskStore | undefined;
  #saving: Promise<void> = Promise.resolve();
  #stopped = false;

  private constructor(dir: string, components: TaskComponents) {
    this.#path = joinPath(dir, fileName);
    this.#exportsDir = joinPath(dir, exportsFolder);
    this.#components = components;
  }

  /** Reads what a former process left; nothing runs before `begin`. */
  static async open(dir: string, components: TaskComponents): Promise<Tasks> {
    const tasks = new Tasks(dir, components);
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
    const all = store.operator.shards(options.database).map(({ number }) => number);
    const shards = options.shard === undefined ? all : all.filter((each) => each === options.shard);
    if (options.shard !== undefined && shards.length === 0) {
      throw adminErrors.thingMissing({ thing: "shard", name: options.shard });
    }
    const live = this.#add({
      id: `${kind}-${random.bytes(4).toString("hex")}`,
      kind,
      // An export ends: what comes later is not in it.
      options: kind === "export" ? { toUs: Math.floor(clock.wallUs()), ...options } : options,
      startedMs: Math.floor(clock.wallUs() / 1000),
      state: "running",
      shardsLeft: shards,
      shardsTotal: shards.length,
      report: {},
      endedMs: undefined,
      error: undefined,
    });
    await this.#forgetOld();
    await this.#save();
    this.#run(live, store);
    return this.#view(live);
  }

  /**
   * Forgets a task that has ended, with the file of an export.
   * @throws ADMIN_THING_NOT_FOUND, ADMIN_TASK_STATE.
   */
  async remove(id: string): Promise<void> {
    const { stored } = this.#find(id);
    if (stored.endedMs === undefined) {
      throw adminErrors.taskState({ task: id, state: stored.state, verb: "forget" });
    }
    await this.#forget(id);
    await this.#save();
  }

  /** The file of an export that is done. @throws ADMIN_THING_NOT_FOUND, ADMIN_TASK_STATE. */
  exported(id: string): { readonly path: string; readonly bytes: number } {
    const { stored } = this.#find(id);
    if (stored.kind !== "export" || stored.state !== "done") {
      throw adminErrors.taskState({ task: id, state: stored.state, verb: "download" });
    }
    return { path: exportPath(this.#exportsDir, id), bytes: stored.position?.bytes ?? 0 };
  }

  /** @throws ADMIN_THING_NOT_FOUND, ADMIN_TASK_STATE. */
  async steer(id: string, verb: TaskVerb): Promise<Task> {
    const live = this.#find(id);
    const { state } = live.stored;
    const next = steps[verb][state];
    if (next === undefined) throw adminErrors.taskState({ task: id, state, verb });
    live.stored.state = next;
    if (verb !== "resume") live.stop();
    if (verb === "cancel") live.stored.endedMs = Math.floor(this.#components.clock.wallUs() / 1000);
    await this.#save();
    if (next === "cancelled") {
      await live.work;
      await this.#removeFile(live.stored);
    }
    if (verb === "resume" && this.#store !== undefined) this.#run(live, this.#store);
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

  #add(stored: StoredTask): Live {
    const idle = { progress: undefined, sinceMs: 0, work: undefined, stop: () => undefined };
    const live: Live = { stored, ...idle };
    this.#tasks.set(stored.id, live);
    return live;
  }

  async #forgetOld(): Promise<void> {
    for (const [id, { stored }] of this.#tasks) {
      if (this.#tasks.size <= keptMax) return;
      if (stored.endedMs !== undefined) await this.#forget(id);
    }
  }

  async #forget(id: string): Promise<void> {
    const { stored } = this.#find(id);
    this.#tasks.delete(id);
    await this.#removeFile(stored);
  }

  async #removeFile({ id, kind }: StoredTask): Promise<void> {
    if (kind !== "export") return;
    const { disk, logger } = this.#components;
    try {
      await disk.remove(exportPath(this.#exportsDir, id));
    } catch (error) {
      logger.warn("admin.export_not_removed", { task: id, error: toError(error) });
    }
  }

  /** Behind what is under way, which has been told to stop: never two at one task. */
  #run(live: Live, store: TaskStore): void {
    const { logger } = this.#components;
    const { id, kind } = live.stored;
    let isStopped = false;
    live.stop = () => {
      isStopped = true;
    };
    const work = async (): Promise<void> => {
      try {
        await this.#workOff(live, store, () => this.#stopped || isStopped);
      } catch (error) {
        logger.error("admin.task_failed", { task: id, kind, error: toError(error) });
        if (live.stored.endedMs !== undefined) return;
        live.stored.error = toError(error).message;
        await this.#end(live, "failed");
        await this.#removeFile(live.stored);
      }
    };
    live.work = live.work === undefined ? work() : live.work.then(work);
  }

  async #workOff(live: Live, store: TaskStore, isStopped: () => boolean): Promise<void> {
    const { stored } = live;
    const { clock, disk } = this.#components;
    if (isStopped()) return;
    live.sinceMs = clock.elapsedMs();
    live.progress = undefined;
    await workOff({
      ...{ stored, store, clock, disk, exportsDir: this.#exportsDir, isStopped },
      onProgress: (progress) => {
        if (progress === undefined) live.sinceMs = clock.elapsedMs();
        live.progress = progress;
      },
      save: () => this.#save(),
    });
    if (!isStopped()) await this.#end(live, "done");
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
    const isByShard = shardKinds.some((each) => each === kind);
    const shardsBehind = isByShard ? Math.max(0, shardsLeft.length - 1) : 0;
    const left = Math.max(0, total - done) + shardsBehind * total;
    return {
      ...{ id, kind, state, options: { ...options }, startedMs, endedMs },
      phase: isRunning && !isByShard ? (progress?.what ?? "starting") : phaseOf(stored, shardsDone),
      done: isRunning || !isByShard ? done : shardsDone,
      total: isRunning || !isByShard ? total : shardsTotal,
      unit: isRunning || !isByShard ? (progress?.unit ?? "steps") : "shards",
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

function phaseOf({ state, shardsTotal }: StoredTask, shardsDone: number): string {
  return state === "running" ? `shard ${shardsDone + 1} of ${shardsTotal}` : state;
}

async function readTasks(path: string, { disk, logger }: TaskComponents): Promise<StoredTask[]> {
  const tasks = await readList(disk, path, kind);
  if (tasks !== undefined) return tasks;
  logger.warn("admin.tasks_damaged", {
    path,
    advice: "former tasks are forgotten; start them anew",
  });
  return [];
}

function isStored(value: unknown): value is StoredTask {
  const task = value as Partial<StoredTask> | null;
  return typeof task?.id === "string" && Array.isArray(task.shardsLeft);
}

const kind: ListKind<StoredTask> = { name: "tasks", isItem: isStored };
