// `flagstone subscriptions`, `shared`, `retained` and `history`.

import type { AnswerOf, Message } from "../../admin/client.ts";
import {
  argument,
  askCommand,
  pageOptions,
  pages,
  pageTable,
  payloadOption,
  timeUsOf,
} from "../admin/ask.ts";
import { bytes, type Column, grouped, payloadText, time } from "../admin/output.ts";
import type { Command, CommandFamily } from "../command.ts";

export const subscriptions: Command = askCommand({
  name: "subscriptions",
  summary: "subscriptions of durable sessions and connected clients",
  options: [
    { flags: "--filter <filter>", doc: "exactly this filter" },
    { flags: "--topic <topic>", doc: "those that match this topic" },
    { flags: "--prefix <text>", doc: "client ids that begin so" },
    ...pageOptions,
  ],
  examples: ["subscriptions --topic orders/7", "subscriptions --filter 'orders/#' --all -o json"],
  show: async (input) => {
    const { options } = input;
    const [filter, topic, prefix] = ["filter", "topic", "prefix"].map((name) => options.text(name));
    const filters = {
      ...(filter === undefined ? {} : { filter }),
      ...(topic === undefined ? {} : { topic }),
      ...(prefix === undefined ? {} : { clientIdPrefix: prefix }),
    };
    const page = await pages(input, (query) =>
      input.admin.listSubscriptions({ query: { ...filters, ...query } }),
    );
    const columns: readonly Column<AnswerOf<"listSubscriptions">["items"][number]>[] = [
      { head: "CLIENT", cell: (row) => row.clientId },
      { head: "FILTER", cell: (row) => row.filter },
      { head: "QOS", cell: (row) => row.qos, isRight: true },
      { head: "KEPT", cell: (row) => row.isDurable },
      { head: "NO LOCAL", cell: (row) => row.noLocal },
      { head: "ID", cell: (row) => (row.identifier === 0 ? undefined : row.identifier) },
    ];
    return { value: page, table: () => pageTable(page, columns, "subscriptions") };
  },
});

export const shared: Command = askCommand({
  name: "shared",
  summary: "groups of shared subscriptions",
  options: [
    { flags: "--prefix <text>", doc: "shared filters that begin so" },
    { flags: "--backlog", doc: "only those with waiting messages" },
    ...pageOptions,
  ],
  examples: ["shared --backlog", "shared --prefix '$share/workers/' -o json"],
  show: async (input) => {
    const { options } = input;
    const prefix = options.text("prefix");
    const filters = {
      ...(prefix === undefined ? {} : { prefix }),
      ...(options.isOn("backlog") ? { backlog: true } : {}),
    };
    const page = await pages(input, (query) =>
      input.admin.listSharedGroups({ query: { ...filters, ...query } }),
    );
    const columns: readonly Column<AnswerOf<"listSharedGroups">["items"][number]>[] = [
      { head: "GROUP", cell: (row) => row.group },
      { head: "DURABLE", cell: (row) => row.durable },
      { head: "CONNECTED", cell: (row) => grouped(row.connectedMembers), isRight: true },
      { head: "SESSIONS", cell: (row) => grouped(row.durableMembers), isRight: true },
      { head: "IN FLIGHT", cell: (row) => grouped(row.inFlight), isRight: true },
      { head: "RETURNED", cell: (row) => grouped(row.returned), isRight: true },
      { head: "BACKLOG", cell: (row) => row.backlog },
      { head: "DROPPED", cell: (row) => grouped(row.dropped), isRight: true },
    ];
    return { value: page, table: () => pageTable(page, columns, "shared groups") };
  },
});

const messageColumns = (withPayload: boolean): readonly Column<Message>[] => [
  { head: "TIME", cell: (row) => time(row.timeUs) },
  { head: "TOPIC", cell: (row) => row.topic },
  { head: "FROM", cell: (row) => row.publisher },
  { head: "QOS", cell: (row) => row.qos, isRight: true },
  { head: "SIZE", cell: (row) => bytes(row.payloadBytes), isRight: true },
  { head: "EXPIRES", cell: (row) => time(row.expiryUs) },
  ...(withPayload ? [{ head: "PAYLOAD", cell: payloadText }] : []),
];

const listRetained = askCommand({
  name: "list",
  summary: "retained messages by topic filter",
  arguments: [{ name: "[filter]", doc: "topic filter; # for all" }],
  options: [payloadOption, ...pageOptions],
  examples: ["retained list 'sensors/+/state'", "retained --all -o json"],
  show: async (input) => {
    const filter = input.arguments[0] ?? "#";
    const payload = input.options.isOn("payload");
    const page = await pages(input, (query) =>
      input.admin.listRetained({ query: { filter, ...(payload ? { payload } : {}), ...query } }),
    );
    return { value: page, table: () => pageTable(page, messageColumns(payload), "messages") };
  },
});

const getRetained = askCommand({
  name: "get",
  summary: "the retained message of a topic, with its payload",
  arguments: [{ name: "[topic]", doc: "the topic" }],
  examples: ["retained get sensors/7/state", "retained get sensors/7/state -o json"],
  show: async (input) => {
    const topic = argument(input, 0, "the topic");
    const value = await input.admin.getRetained({ query: { topic, payload: true } });
    return { value, table: () => `${value.payload ?? value.payloadBase64 ?? ""}\n` };
  },
});

const deleteRetained = askCommand({
  name: "delete",
  summary: "clear retained messages by topic filter",
  arguments: [{ name: "[filter]", doc: "topic filter" }],
  options: [{ flags: "--yes", doc: "do it; without it, tell what would be done" }],
  examples: ["retained delete 'old/#'", "retained delete 'old/#' --yes"],
  show: async (input) => {
    const filter = argument(input, 0, "the topic filter");
    const dryRun = !input.options.isOn("yes");
    const topics: string[] = [];
    let after: string | undefined;
    do {
      const page = after === undefined ? { limit: 1000 } : { limit: 1000, after };
      const changed = await input.admin.deleteRetained({ body: { filter, dryRun, ...page } });
      topics.push(...changed.topics);
      after = changed.next;
    } while (after !== undefined);
    const did = dryRun ? "would be cleared; do it with --yes" : "cleared";
    const names = topics
      .slice(0, 20)
      .map((topic) => `  ${topic}\n`)
      .join("");
    return {
      value: { topics, dryRun },
      table: () => `${names}${grouped(topics.length)} retained messages ${did}\n`,
    };
  },
});

export const retained: CommandFamily = {
  name: "retained",
  summary: "retained messages: list, get, delete",
  commands: [listRetained, getRetained, deleteRetained],
  hasDefault: true,
};

export const history: Command = askCommand({
  name: "history",
  summary: "stored messages by topic filter and time",
  arguments: [{ name: "[filter]", doc: "topic filter" }],
  options: [
    { flags: "--from <time>", doc: "1h, 7d or 2026-01-31T12:00:00Z" },
    { flags: "--to <time>", doc: "the same" },
    payloadOption,
    ...pageOptions,
  ],
  examples: [
    "history 'orders/#' --from 1h",
    "history orders/7 --from 7d --to 1d --payload -o json",
  ],
  show: async (input) => {
    const filter = argument(input, 0, "the topic filter");
    const nowUs = input.io.clock.wallUs();
    const { options } = input;
    const payload = options.isOn("payload");
    const [from, to] = ["from", "to"].map((name) => {
      const text = options.text(name);
      return text === undefined ? undefined : timeUsOf(text, `--${name}`, nowUs);
    });
    const range = {
      ...(from === undefined ? {} : { fromUs: from }),
      ...(to === undefined ? {} : { toUs: to }),
      ...(payload ? { payload } : {}),
    };
    const page = await pages(input, (query) =>
      input.admin.queryHistory({ query: { filter, ...range, ...query } }),
    );
    return { value: page, table: () => pageTable(page, messageColumns(payload), "messages") };
  },
});
