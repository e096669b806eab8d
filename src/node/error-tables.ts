// The error tables of all rooms up to this floor: for `flagstone explain`, the reference page, and the
// help sentences that the HTTP API sends along.

import { adminErrors } from "../admin/index.ts";
import { bytesErrors, diskErrors, type ErrorFactory, networkErrors } from "../base/index.ts";
import { brokerErrors } from "../broker/index.ts";
import { kvErrors } from "../kv/index.ts";
import { logErrors } from "../log/index.ts";
import { mqttErrors } from "../mqtt/index.ts";
import { raftErrors } from "../raft/index.ts";
import { sessionErrors } from "../session/index.ts";
import { storeErrors } from "../store/index.ts";
import { topicErrors } from "../topic/index.ts";
import { configErrors, nodeErrors } from "./errors.ts";

export const errorTables: ReadonlyArray<Readonly<Record<string, ErrorFactory>>> = [
  bytesErrors,
  diskErrors,
  networkErrors,
  topicErrors,
  kvErrors,
  logErrors,
  mqttErrors,
  raftErrors,
  storeErrors,
  sessionErrors,
  brokerErrors,
  adminErrors,
  configErrors,
  nodeErrors,
];

/** What to do about an error, by its code; "" for an unknown one. */
export function helpOfCode(code: string): string {
  for (const table of errorTables) {
    for (const { row } of Object.values(table)) if (row.code === code) return row.help;
  }
  return "";
}
