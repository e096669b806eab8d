// `flagstone doctor`: examines a node, or with --data a directory that no node has open, and says
// what to do. `--bundle` writes what somebody else needs to help; no client, topic, address or
// secret is in it.

import { writeFileSync } from "node:fs";
import type { AdminClient, Doctor } from "../../admin/client.ts";
import { toError } from "../../base/index.ts";
import { formatOf, outputOption, printed } from "../admin/output.ts";
import { clientOf, targetOptions } from "../admin/target.ts";
import type { Command, CommandInput } from "../command.ts";
import { cliErrors } from "../errors.ts";
import { exitCodes } from "../exit-codes.ts";

export const doctor: Command = {
  name: "doctor",
  summary: "examine a node and its machine, with advice",
  options: [
    { flags: "--data <dir>", doc: "a data directory on this machine, without asking a node" },
    { flags: "--config <file>", doc: "with --data: the configuration it will be started with" },
    {
      flags: "--bundle <file>",
      doc: "write a report for others; it holds no names and no secrets",
    },
    outputOption,
    ...targetOptions,
  ],
  examples: ["doctor", "doctor --bundle report.json"],
  run: async (input) => {
    const dir = input.options.text("data");
    if (dir === undefined && input.options.has("config")) {
      throw cliErrors.usage({ reason: "--config goes with --data" });
    }
    const found = dir === undefined ? await askNode(input) : await askDirectory(input);
    const bundle = input.options.text("bundle");
    if (bundle !== undefined) writeBundle(bundle, found);
    const written = bundle === undefined ? "" : `the report is in ${bundle}\n`;
    input.io.out(printed(formatOf(input), found.doctor, () => `${text(found.doctor)}${written}`));
    const isSick = found.doctor.checks.some((check) => check.state === "failed");
    return isSick ? exitCodes.failed : exitCodes.ok;
  },
};

type Found = { readonly doctor: Doctor; readonly more: Readonly<Record<string, unknown>> };

async function askNode(input: CommandInput): Promise<Found> {
  const admin = clientOf(input);
  const found = await admin.runDoctor();
  return { doctor: found, more: input.options.has("bundle") ? await details(admin) : {} };
}

/** Of status and configuration only what names nobody. */
async function details(admin: AdminClient): Promise<Record<string, unknown>> {
  const [status, configuration, alarms, tasks] = await Promise.all([
    admin.getStatus(),
    admin.getConfig(),
    admin.listAlarms(),
    admin.listTasks(),
  ]);
  const { listeners, dataDir: _dir, siteId: _site, ...counts } = status;
  const isTelling =
    /(^data\.dir$|\.host$|\.hosts$|\.topics$|patterns$|user|password|secret|token|reference)/i;
  return {
    status: { ...counts, listeners: listeners.length },
    configuration: configuration.items
      .filter(({ path }) => !isTelling.test(path))
      .map(({ path, value, reload }) => ({ path, value, reload })),
    alarms: alarms.items.map(({ name, severity, sinceMs }) => ({ name, severity, sinceMs })),
    tasks: tasks.items.map(({ kind, state, startedMs, endedMs }) => ({
      ...{ kind, state, startedMs, endedMs },
    })),
  };
}

async function askDirectory(input: CommandInput): Promise<Found> {
  // Loaded here: they bring the whole node, which asking one does not need.
  const [{ examineDirectory }, { configOf }] = await Promise.all([
    import("../../node/index.ts"),
    import("../config-options.ts"),
  ]);
  const { settings } = configOf(input);
  return { doctor: await examineDirectory(settings, input.io.clock), more: {} };
}

function writeBundle(path: string, { doctor: found, more }: Found): void {
  try {
    writeFileSync(path, `${JSON.stringify({ ...found, ...more }, null, 2)}\n`, { mode: 0o600 });
  } catch (error) {
    throw cliErrors.unreadableFile({ path, reason: toError(error).message }, error);
  }
}

const marks = { ok: "ok     ", warning: "WARNING", failed: "FAILED " } as const;

function text({ checks }: Doctor): string {
  return checks
    .map(({ name, state, message, help }) => {
      const advice = help === undefined ? "" : `${" ".repeat(9)}${help}\n`;
      return `${marks[state]}  ${name}: ${message}\n${advice}`;
    })
    .join("");
}
