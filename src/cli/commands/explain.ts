// `flagstone explain CODE`: what an error code means and what to do, offline. `flagstone explain
// FILTER`: which streams and blocks of a node a topic filter would read.

import { askCommand, type Shown } from "../admin/ask.ts";
import { grouped, tableOf } from "../admin/output.ts";
import { clientOf } from "../admin/target.ts";
import type { Command, CommandInput } from "../command.ts";
import { cliErrors } from "../errors.ts";

export const explain: Command = askCommand({
  name: "explain",
  summary: "explain an error code, or what reading a topic filter costs",
  arguments: [{ name: "[code-or-filter]", doc: "such as CONFIG_INVALID, or 'metrics/+/cpu'" }],
  options: [{ flags: "--database <name>", doc: "of a filter: only this database" }],
  examples: ["explain NODE_DATA_DIR_IN_USE", "explain 'metrics/+/cpu/#'"],
  show: async (input) => {
    const [wanted] = input.arguments;
    if (wanted === undefined || (await isCode(wanted))) return codes(wanted);
    return filterCost(wanted, input);
  },
});

/** Topics have underscores too: in small letters only a code that there is counts as one. */
async function isCode(text: string): Promise<boolean> {
  if (/^[A-Z]+(_[A-Z0-9]+)+$/.test(text)) return true;
  if (!/^[A-Za-z]+(_[A-Za-z0-9]+)+$/.test(text)) return false;
  const { errorRows } = await import("../error-tables.ts");
  return errorRows().some(({ code }) => code === text.toUpperCase());
}

async function codes(code: string | undefined): Promise<Shown> {
  // Loaded here: the tables bring every room with them.
  const { errorRows, kindHelp } = await import("../error-tables.ts");
  const rows = errorRows();
  if (code === undefined) {
    const width = Math.max(...rows.map((row) => row.code.length));
    const lines = rows.map((row) => `${row.code.padEnd(width)}  ${row.message}\n`);
    return { value: rows, table: () => lines.join("") };
  }
  const wanted = code.toUpperCase();
  const row = rows.find((candidate) => candidate.code === wanted);
  if (row === undefined) {
    const near = rows.filter((candidate) => sharesWords(candidate.code, wanted)).slice(0, 3);
    const hint = near.length === 0 ? "" : `; did you mean ${near.map((r) => r.code).join(", ")}?`;
    throw cliErrors.usage({ reason: `there is no error code "${code}"${hint}` });
  }
  const text = `${row.code} (${row.kind})\n\n  ${row.message}\n\n${row.help}\n${kindHelp[row.kind]}\n`;
  return { value: row, table: () => text };
}

function sharesWords(code: string, wanted: string): boolean {
  const words = wanted.split("_").filter((word) => word.length > 2);
  return words.filter((word) => code.includes(word)).length >= Math.max(1, words.length - 1);
}

async function filterCost(filter: string, input: CommandInput): Promise<Shown> {
  const database = input.options.text("database");
  const query = { filter, ...(database === undefined ? {} : { database }) };
  const value = await clientOf(input).explainFilter({ query });
  const { streams, streamsTotal, blocks, blocksToRead, isComplete, advice } = value;
  const table = tableOf(streams, [
    { head: "SHARD", cell: (row) => row.shard, isRight: true },
    { head: "GENERATION", cell: (row) => row.generation, isRight: true },
    { head: "STRUCTURE", cell: (row) => row.structure },
    { head: "COMPARED", cell: (row) => row.residual },
    { head: "BLOCKS", cell: (row) => grouped(row.blocks), isRight: true },
    { head: "TO READ", cell: (row) => grouped(row.blocksToRead), isRight: true },
  ]);
  const least = isComplete ? "" : "at least ";
  const sum = `${least}${grouped(blocksToRead)} of ${grouped(blocks)} blocks to read, in ${streams.length} of ${streamsTotal} streams\n`;
  return { value, table: () => `${table}${sum}${advice.map((line) => `${line}\n`).join("")}` };
}
