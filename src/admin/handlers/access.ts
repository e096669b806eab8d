// API keys, the audit log, tasks.

import type { AuditLog } from "../audit.ts";
import { limitDefault } from "../contract/values.ts";
import { adminErrors } from "../errors.ts";
import { given, type Handlers, listOf, type Running } from "../handler-types.ts";
import type { ApiKeys } from "../keys.ts";
import type { Tasks } from "../tasks.ts";

export type AccessHandlers = Handlers<
  | "listKeys"
  | "createKey"
  | "deleteKey"
  | "listAudit"
  | "listTasks"
  | "getTask"
  | "startTask"
  | "steerTask"
>;

export type AccessParts = {
  readonly keys: ApiKeys;
  readonly audit: AuditLog;
  readonly tasks: Tasks;
  readonly running: Running;
};

export function accessHandlers({ keys, audit, tasks, running }: AccessParts): AccessHandlers {
  return {
    listKeys: () => listOf(keys.list()),
    createKey: ({ body: { name, role } }) => keys.create(name, role),
    deleteKey: async ({ params: { key } }) => {
      await keys.delete(key);
      return { done: true };
    },
    listAudit: async ({ query }) => {
      const after = countOf(query.after);
      const { entries, total } = await audit.list(after, query.limit ?? limitDefault);
      const seen = after + entries.length;
      return given({ items: entries, next: seen < total ? String(seen) : undefined, total });
    },
    listTasks: () => listOf(tasks.list()),
    getTask: ({ params: { task } }) => tasks.get(task),
    startTask: ({ body: { kind, ...options } }) => {
      running();
      return tasks.start(kind, given(options));
    },
    steerTask: ({ params: { task, verb } }) => tasks.steer(task, verb),
  };
}

/** Entries that were answered before this page. */
function countOf(after: string | undefined): number {
  if (after === undefined) return 0;
  if (/^\d{1,9}$/.test(after)) return Number(after);
  throw adminErrors.inputInvalid({ reason: "after: not the `next` of a page" });
}
