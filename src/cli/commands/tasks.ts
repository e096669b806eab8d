// `flagstone tasks`, `verify`, `compact`, `repack`: long work, with a bar in a terminal. Leaving the
// command does not end the task.

import type { AdminClient, Task } from "../../admin/client.ts";
import { sleep } from "../../base/index.ts";
import { type AskInput, argument, askCommand, type Shown } from "../admin/ask.ts";
import { type Column, factsOf, grouped, span, tableOf } from "../admin/output.ts";
import type { Command, CommandFamily, Io } from "../command.ts";
import { cliErrors } from "../errors.ts";

const percent = ({ done, total }: Task): string =>
  total === 0 ? "-" : `${Math.floor((done / total) * 100)} %`;

const columns: readonly Column<Task>[] = [
  { head: "TASK", cell: (row) => row.id },
  { head: "STATE", cell: (row) => row.state },
  { head: "PHASE", cell: (row) => row.phase },
  {
    head: "DONE",
    cell: (row) => `${grouped(row.done)}/${grouped(row.total)} ${row.unit}`,
    isRight: true,
  },
  { head: "PART", cell: percent, isRight: true },
  { head: "LEFT", cell: (row) => span(row.etaMs), isRight: true },
  { head: "ERROR", cell: (row) => row.error },
];

const list = askCommand({
  name: "list",
  summary: "long work: running, paused, ended lately",
  watches: true,
  examples: ["tasks", "tasks --watch 1"],
  show: async ({ admin }) => {
    const value = await admin.listTasks();
    return {
      value,
      table: () => (value.items.length === 0 ? "no tasks\n" : tableOf(value.items, columns)),
    };
  },
});

const show = askCommand({
  name: "show",
  summary: "one task with what it found",
  watches: true,
  arguments: [{ name: "[task]", doc: "its id" }],
  examples: ["tasks show verify-1a2b3c4d", "tasks show verify-1a2b3c4d -o json"],
  show: async (input) => {
    const task = argument(input, 0, "the task");
    const value = await input.admin.getTask({ params: { task } });
    return { value, table: () => taskText(value) };
  },
});

function taskText(task: Task): string {
  const facts = columns.map(({ head, cell }) => [head.toLowerCase(), cell(task)] as const);
  const report = Object.entries(task.report ?? {}).map(
    ([key, value]) => [key, Array.isArray(value) ? JSON.stringify(value) : String(value)] as const,
  );
  return factsOf([...facts, ...report]);
}

const steer = (verb: "pause" | "resume" | "cancel", summary: string): Command =>
  askCommand({
    name: verb,
    summary,
    arguments: [{ name: "[task]", doc: "its id" }],
    examples: [`tasks ${verb} verify-1a2b3c4d`, `tasks ${verb} compact-1a2b3c4d -o json`],
    show: async (input) => {
      const task = argument(input, 0, "the task");
      const value = await input.admin.steerTask({ params: { task, verb } });
      return { value, table: () => `${value.id}: ${value.state}\n` };
    },
  });

const forget = askCommand({
  name: "forget",
  summary: "forget a task that has ended, with the file of an export",
  arguments: [{ name: "[task]", doc: "its id" }],
  examples: ["tasks forget verify-1a2b3c4d", "tasks forget compact-1a2b3c4d -o json"],
  show: async (input) => {
    const task = argument(input, 0, "the task");
    const value = await input.admin.removeTask({ params: { task } });
    return { value, table: () => `${task} was forgotten\n` };
  },
});

export const tasks: CommandFamily = {
  name: "tasks",
  summary: "long work: list, show, pause, resume, cancel, forget",
  commands: [
    list,
    show,
    steer("pause", "pause a task between two steps"),
    steer("resume", "go on with a paused task"),
    steer("cancel", "end a task; what it did stays, but for an export"),
    forget,
  ],
  hasDefault: true,
};

// ---------------------------------------------------------------- starting

const startCommand = (kind: "verify" | "compact" | "repack", summary: string): Command =>
  askCommand({
    name: kind,
    summary,
    options: [
      { flags: "--database <name>", doc: "only this database" },
      { flags: "--shard <number>", doc: "only this shard" },
      { flags: "--background", doc: "do not wait for the end" },
    ],
    examples: [kind, `${kind} --shard 6 --background`],
    show: (input) => runTask(input, kind),
  });

export const verify: Command = startCommand("verify", "read every stored block and check it");
export const compact: Command = startCommand("compact", "give back the room of what was deleted");
export const repack: Command = startCommand(
  "repack",
  "pack sealed slabs anew: full blocks, nothing that expired",
);

async function runTask(input: AskInput, kind: "verify" | "compact" | "repack"): Promise<Shown> {
  const { admin, options, io } = input;
  const database = options.text("database");
  const shard = options.whole("shard", "--shard", [0, 2 ** 32 - 1]);
  const body = {
    kind,
    ...(database === undefined ? {} : { database }),
    ...(shard === undefined ? {} : { shard }),
  };
  const begun = await admin.startTask({ body });
  if (options.isOn("background")) {
    return {
      value: begun,
      table: () => `${begun.id} is running; see \`tasks show ${begun.id}\`\n`,
    };
  }
  const ended = await finished(admin, begun, io);
  const findings = ended.report?.findings;
  if (Array.isArray(findings) && findings.length > 0) {
    io.error(`${taskText(ended)}`);
    throw cliErrors.taskFailed({ task: ended.id, reason: `${findings.length} findings` });
  }
  return { value: ended, table: () => taskText(ended) };
}

/** Waits with a bar in a terminal. @throws CLI_TASK_FAILED. */
export async function finished(admin: AdminClient, begun: Task, io: Io): Promise<Task> {
  const ended = await untilEnded(admin, begun, io);
  if (ended.state === "failed") {
    throw cliErrors.taskFailed({ task: ended.id, reason: ended.error ?? "see the node's log" });
  }
  if (ended.state === "cancelled") {
    throw cliErrors.taskFailed({ task: ended.id, reason: "it was cancelled" });
  }
  return ended;
}

const lookMs = 300;
const barWidth = 30;

async function untilEnded(admin: AdminClient, begun: Task, io: Io): Promise<Task> {
  let task = begun;
  while (task.state === "running" || task.state === "paused") {
    if (io.isTerminal) io.error(`\r${bar(task)}`);
    await sleep(io.clock, lookMs);
    task = await admin.getTask({ params: { task: task.id } });
  }
  if (io.isTerminal) io.error(`\r${" ".repeat(barWidth + 50)}\r`);
  return task;
}

function bar(task: Task): string {
  const share = task.total === 0 ? 0 : task.done / task.total;
  const filled = Math.round(share * barWidth);
  const left = span(task.etaMs);
  const drawn = "#".repeat(filled).padEnd(barWidth, ".");
  return `[${drawn}] ${task.phase}${left === undefined ? "" : `, ${left} left`}`.padEnd(
    barWidth + 50,
  );
}
