// `flagstone status` and `flagstone alarms`: how a node does, at a glance.

import type { AnswerOf, Status } from "../../admin/client.ts";
import { askCommand } from "../admin/ask.ts";
import { bytes, factsOf, grouped, span, tableOf } from "../admin/output.ts";
import type { Command } from "../command.ts";

export const status: Command = askCommand({
  name: "status",
  summary: "what runs there and how it does",
  watches: true,
  examples: ["status", "status --watch 5 --url http://broker:18083"],
  show: async ({ admin }) => {
    const [value, health] = await Promise.all([admin.getStatus(), admin.getHealth()]);
    return { value: { ...value, checks: health.checks }, table: () => text(value, health) };
  },
});

function text(now: Status, { checks }: AnswerOf<"getHealth">): string {
  const space = `${bytes(now.freeBytes)} free of ${bytes(now.totalBytes)}`;
  const listeners = now.listeners.map(({ name, host, port }) => `${name} ${host}:${port}`);
  const facts = factsOf([
    ["state", now.state],
    ["version", now.version],
    ["up", span(now.uptimeMs)],
    ["mqtt", listeners.join(", ") || "none"],
    ["data", `${now.dataDir} (${space})`],
    ["durability", now.durability],
    ["clients", grouped(now.clients)],
    ["sessions", grouped(now.sessions)],
    ["received", `${grouped(now.received)} (${now.receivedPerS}/s)`],
    ["delivered", `${grouped(now.delivered)} (${now.deliveredPerS}/s)`],
    ["memory", bytes(now.memoryBytes)],
    ["log", bytes(now.logBytes)],
    ["tasks", now.tasks],
    ["alarms", now.alarms],
  ]);
  const trouble = checks.filter((check) => check.state !== "ok");
  const lines = trouble.map((check) => `[${check.state}] ${check.name}: ${check.message}\n`);
  return lines.length === 0 ? facts : `${facts}\n${lines.join("")}`;
}

export const alarms: Command = askCommand({
  name: "alarms",
  summary: "what somebody should look at now",
  watches: true,
  examples: ["alarms", "alarms -o json"],
  show: async ({ admin }) => {
    const value = await admin.listAlarms();
    const table = (): string =>
      value.items.length === 0
        ? "no alarms\n"
        : tableOf(value.items, [
            { head: "ALARM", cell: (row) => row.name },
            { head: "ABOUT", cell: (row) => row.subject },
            { head: "SEVERITY", cell: (row) => row.severity },
            { head: "SINCE", cell: (row) => new Date(row.sinceMs).toISOString() },
            { head: "WHAT", cell: (row) => row.message },
            { head: "DO", cell: (row) => row.help },
          ]);
    return { value, table };
  },
});
