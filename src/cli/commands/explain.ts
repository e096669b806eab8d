// `flagstone explain CODE`: what an error code means and what to do, offline.

import type { Command } from "../command.ts";
import { errorRows, kindHelp } from "../error-tables.ts";
import { cliErrors } from "../errors.ts";
import { exitCodes } from "../exit-codes.ts";

export const explain: Command = {
  name: "explain",
  summary: "explain an error code",
  arguments: [{ name: "[code]", doc: "such as CONFIG_INVALID; without it all codes are listed" }],
  options: [],
  examples: ["explain NODE_DATA_DIR_IN_USE", "explain"],
  run: async ({ arguments: [code], io }) => {
    const rows = errorRows();
    if (code === undefined) {
      const width = Math.max(...rows.map((row) => row.code.length));
      io.out(rows.map((row) => `${row.code.padEnd(width)}  ${row.message}\n`).join(""));
      return exitCodes.ok;
    }
    const wanted = code.toUpperCase();
    const row = rows.find((candidate) => candidate.code === wanted);
    if (row === undefined) {
      const near = rows.filter((candidate) => sharesWords(candidate.code, wanted)).slice(0, 3);
      const hint = near.length === 0 ? "" : `; did you mean ${near.map((r) => r.code).join(", ")}?`;
      throw cliErrors.usage({ reason: `there is no error code "${code}"${hint}` });
    }
    io.out(`${row.code} (${row.kind})\n\n  ${row.message}\n\n${row.help}\n${kindHelp[row.kind]}\n`);
    return exitCodes.ok;
  },
};

function sharesWords(code: string, wanted: string): boolean {
  const words = wanted.split("_").filter((word) => word.length > 2);
  return words.filter((word) => code.includes(word)).length >= Math.max(1, words.length - 1);
}
