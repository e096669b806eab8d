// API keys, the audit log, tasks.

import { type AuditLog, type AuditPosition, auditTrails } from "../audit.ts";
import { limitDefault } from "../contract/values.ts";
import {
  decodeCursor,
  encodeCursor,
  given,
  type Handlers,
  listOf,
  type Running,
} from "../handler-types.ts";
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
      const after = decodeCursor(query.after, isPosition);
      const { entries, next, total } = await audit.list(after, query.limit ?? limitDefault);
      return given({ items: [...entries], next: next && encodeCursor(next), total });
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

const isPosition = (value: unknown): value is AuditPosition =>
  Array.isArray(value) &&
  value.length === auditTrails.length &&
  value.every((count) => Number.isSafeInteger(count) && count >= 0);
