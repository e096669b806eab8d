// Every error table of the house, for `flagstone explain` and the reference page. A test compares
// this list with the tables that the source declares.

import { aedesErrors } from "../aedes/index.ts";
import type { ErrorRow } from "../base/index.ts";
import { errorTables } from "../node/index.ts";
import { cliErrors } from "./errors.ts";

/** All rows, sorted by code. */
export function errorRows(): ErrorRow[] {
  const rows = [...errorTables, aedesErrors, cliErrors].flatMap((table) =>
    Object.values(table).map(({ row }) => row),
  );
  return rows.sort((left, right) => (left.code < right.code ? -1 : 1));
}

/** What the caller can do about each kind, in a sentence for people. */
export const kindHelp: Readonly<Record<ErrorRow["kind"], string>> = {
  retry: "The same call may succeed later.",
  conflict: "Start the transaction again from its reads.",
  invalid: "The call, the command or the configuration has to change.",
  closed: "It was closed by its owner.",
  limit: "A named limit was reached.",
  corrupt: "Stored bytes are not what was written.",
  internal: "The machine or Flagstone itself is at fault.",
};
