// Every error table of the house, for `flagstone explain` and the reference page. A test compares
// this list with the tables that the source declares, another one counts the modules that it loads.

import { adminErrors } from "../admin/errors.ts";
import { aedesErrors } from "../aedes/errors.ts";
import {
  bytesErrors,
  diskErrors,
  type ErrorFactory,
  type ErrorRow,
  networkErrors,
} from "../base/index.ts";
import { brokerErrors } from "../broker/errors.ts";
import { clusterErrors } from "../cluster/errors.ts";
import { kvErrors } from "../kv/kv.ts";
import { logErrors } from "../log/errors.ts";
import { mqttErrors } from "../mqtt/errors.ts";
import { configErrors, nodeErrors } from "../node/errors.ts";
import { raftErrors } from "../raft/errors.ts";
import { sessionErrors } from "../session/errors.ts";
import { storeErrors } from "../store/errors.ts";
import { topicErrors } from "../topic/errors.ts";
import { cliErrors } from "./errors.ts";

const tables: ReadonlyArray<Readonly<Record<string, ErrorFactory>>> = [
  ...[bytesErrors, diskErrors, networkErrors, topicErrors, kvErrors, logErrors, mqttErrors],
  ...[raftErrors, storeErrors, clusterErrors, sessionErrors, brokerErrors, adminErrors],
  ...[aedesErrors, configErrors, nodeErrors, cliErrors],
];

/** All rows, sorted by code. */
export function errorRows(): ErrorRow[] {
  const rows = tables.flatMap((table) => Object.values(table).map(({ row }) => row));
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
