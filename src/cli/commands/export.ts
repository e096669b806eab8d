// `flagstone export`: stored messages of a filter as a file of one JSON object a line. The node writes
// them as a task, which can be paused and survives a restart; when it is done they are fetched.

import { closeSync, existsSync, openSync, unlinkSync, writeSync } from "node:fs";
import { downloadExport, type Task } from "../../admin/client.ts";
import { toError } from "../../base/index.ts";
import { type AskInput, argument, askCommand, timeUsOf } from "../admin/ask.ts";
import { bytes, grouped } from "../admin/output.ts";
import { targetOf } from "../admin/target.ts";
import type { Command } from "../command.ts";
import { cliErrors } from "../errors.ts";
import { finished } from "./tasks.ts";

export const exportCommand: Command = askCommand({
  name: "export",
  summary: "stored messages as a file, one JSON object a line",
  arguments: [{ name: "[filter]", doc: "topic filter" }],
  options: [
    { flags: "--from <time>", doc: "1h, 7d or 2026-01-31T12:00:00Z" },
    { flags: "--to <time>", doc: "the same; now, when it is not given" },
    { flags: "--database <name>", doc: "only this database" },
    { flags: "--out <file>", doc: "where to; it must not be there yet" },
    { flags: "--task <id>", doc: "fetch what an export has written, instead of a new one" },
    { flags: "--background", doc: "do not wait; fetch it later with --task" },
  ],
  examples: [
    "export 'orders/#' --from 1d --out orders.ndjson",
    "export '#' --database messages --background",
  ],
  show: async (input) => {
    const { admin, options } = input;
    const known = options.text("task");
    const out = options.text("out");
    if (options.isOn("background")) {
      const begun = await admin.startTask({ body: bodyOf(input) });
      const hint = `export --task ${begun.id} --out FILE`;
      return {
        value: begun,
        table: () => `${begun.id} is running; when it is done: \`${hint}\`\n`,
      };
    }
    if (out === undefined) throw cliErrors.usage({ reason: "--out is missing" });
    // Before the work is begun that would be in vain.
    if (existsSync(out))
      throw cliErrors.unwritableFile({ path: out, reason: "it is there already" });
    const begun =
      known === undefined
        ? await admin.startTask({ body: bodyOf(input) })
        : await admin.getTask({ params: { task: known } });
    const ended = await finished(admin, begun, input.io);
    const sizeBytes = await fetchTo(out, ended, input);
    await admin.removeTask({ params: { task: ended.id } });
    const messages = Number(ended.report?.messages ?? 0);
    const value = { file: out, messages, bytes: sizeBytes };
    return {
      value,
      table: () => `${grouped(messages)} messages, ${bytes(sizeBytes)}, in ${out}\n`,
    };
  },
});

function bodyOf(input: AskInput) {
  const { options, io } = input;
  const filter = argument(input, 0, "the topic filter");
  const timeOf = (name: string): number | undefined => {
    const text = options.text(name);
    return text === undefined ? undefined : timeUsOf(text, `--${name}`, io.clock.wallUs());
  };
  const [fromUs, toUs, database] = [timeOf("from"), timeOf("to"), options.text("database")];
  return {
    kind: "export" as const,
    filter,
    ...(fromUs === undefined ? {} : { fromUs }),
    ...(toUs === undefined ? {} : { toUs }),
    ...(database === undefined ? {} : { database }),
  };
}

/** Messages may be private: the file is its owner's alone. A part of an export is no export. */
async function fetchTo(path: string, { id }: Task, input: AskInput): Promise<number> {
  let file: number;
  try {
    file = openSync(path, "wx", 0o600);
  } catch (error) {
    throw cliErrors.unwritableFile({ path, reason: toError(error).message }, error);
  }
  let sizeBytes = 0;
  let isWhole = false;
  try {
    for await (const chunk of await downloadExport(targetOf(input), id)) {
      writeSync(file, chunk);
      sizeBytes += chunk.length;
    }
    isWhole = true;
  } finally {
    closeSync(file);
    if (!isWhole) unlinkSync(path);
  }
  return sizeBytes;
}
