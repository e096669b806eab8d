// API keys, the audit log, tasks, traces.

import { parseTopicFilter } from "../../topic/index.ts";
import { type AuditLog, type AuditPosition, auditTrails } from "../audit.ts";
import { limitDefault } from "../contract/values.ts";
import { checkRole } from "../guard.ts";
import {
  decodeCursor,
  encodeCursor,
  given,
  type Handlers,
  isPlace,
  listOf,
  type Running,
} from "../handler-types.ts";
import type { ApiKeys } from "../keys.ts";
import type { Tasks } from "../tasks.ts";
import type { Traces } from "../traces.ts";

export type AccessHandlers = Handlers<
  | "listKeys"
  | "createKey"
  | "deleteKey"
  | "listAudit"
  | "listTasks"
  | "getTask"
  | "startTask"
  | "removeTask"
  | "steerTask"
  | "listTraces"
  | "startTrace"
  | "readTrace"
  | "stopTrace"
>;

export type AccessParts = {
  readonly keys: ApiKeys;
  readonly audit: AuditLog;
  readonly tasks: Tasks;
  readonly traces: Traces;
  readonly running: Running;
};

export function accessHandlers(parts: AccessParts): AccessHandlers {
  const { keys, audit, tasks, traces, running } = parts;
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
    startTask: ({ body: { kind, ...options } }, caller) => {
      running();
      if (kind === "drop") checkRole(caller, "admin", "to drop what is stored");
      if (options.filter !== undefined) parseTopicFilter(options.filter);
      return tasks.start(kind, given(options));
    },
    removeTask: async ({ params: { task } }) => {
      await tasks.remove(task);
      return { done: true };
    },
    listTraces: () => listOf(traces.list()),
    startTrace: ({ body: { minutes, ...what } }) =>
      traces.start(running().tap, { ...given(what), minutes }),
    readTrace: ({ params: { trace }, query: { after = 0, limit = limitDefault } }) => {
      const { lines, hasMore } = traces.lines(trace, after, limit);
      return given({ items: lines, next: hasMore ? String(lines.at(-1)?.number) : undefined });
    },
    stopTrace: ({ params: { trace } }) => traces.stop(trace),
    steerTask: ({ params: { task, verb } }, caller) => {
      const begins = verb === "resume" && tasks.get(task).kind === "drop";
      if (begins) checkRole(caller, "admin", "to drop what is stored");
      return tasks.steer(task, verb);
    },
  };
}

const isPosition = (value: unknown): value is AuditPosition =>
  Array.isArray(value) && value.length === auditTrails.length && value.every(isPlace);
