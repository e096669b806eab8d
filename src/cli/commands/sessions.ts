// `flagstone sessions`: finds durable sessions in trouble, looks into them, and clears them. What
// removes anything tells first what it would remove: it acts with --yes.

import type { AnswerOf, CallOf } from "../../admin/client.ts";
import {
  type AskInput,
  argument,
  askCommand,
  pageOptions,
  pages,
  pageTable,
  payloadOption,
  type Shown,
  someOrNone,
} from "../admin/ask.ts";
import {
  bytes,
  type Column,
  factsOf,
  grouped,
  payloadText,
  span,
  tableOf,
  time,
} from "../admin/output.ts";
import type { CommandFamily, CommandInput, OptionSpec } from "../command.ts";
import { cliErrors } from "../errors.ts";

type Session = AnswerOf<"listSessions">["items"][number];

const filterOptions: readonly OptionSpec[] = [
  { flags: "--prefix <text>", doc: "client ids that begin so" },
  { flags: "--backlog [count]", doc: "'>0': messages wait; 0: none does" },
  { flags: "--dropped [count]", doc: "'>0': messages were lost; 0: none was" },
  { flags: "--offline", doc: "only those without a connection" },
  { flags: "--online", doc: "only those with one" },
];

const expiryNever = 4_294_967_295;
const expiry = ({ expiryS }: Session): string | undefined =>
  expiryS === expiryNever ? "never" : span(expiryS * 1000);

const columns: readonly Column<Session>[] = [
  { head: "CLIENT", cell: (row) => row.clientId },
  { head: "USER", cell: (row) => row.user },
  { head: "STATE", cell: (row) => row.state },
  { head: "BACKLOG", cell: (row) => row.backlog },
  { head: "LAG", cell: (row) => span(row.lagMs), isRight: true },
  { head: "IN FLIGHT", cell: (row) => row.inFlight, isRight: true },
  { head: "DROPPED", cell: (row) => row.dropped, isRight: true },
  { head: "FILTERS", cell: (row) => row.subscriptions, isRight: true },
  { head: "AWAY SINCE", cell: (row) => time(row.closedUs) },
  { head: "EXPIRES", cell: expiry, isRight: true },
];

/** @throws CLI_USAGE. */
function filtersOf(input: CommandInput) {
  const { options } = input;
  if (options.isOn("offline") && options.isOn("online")) {
    throw cliErrors.usage({ reason: "--offline and --online exclude each other" });
  }
  const prefix = options.text("prefix");
  const backlog = someOrNone(input, "backlog", "--backlog");
  const dropped = someOrNone(input, "dropped", "--dropped");
  return {
    ...(prefix === undefined ? {} : { clientIdPrefix: prefix }),
    ...(backlog === undefined ? {} : { backlog }),
    ...(dropped === undefined ? {} : { dropped }),
    ...(options.isOn("offline") ? { state: "offline" as const } : {}),
    ...(options.isOn("online") ? { state: "connected" as const } : {}),
  };
}

const list = askCommand({
  name: "list",
  summary: "durable sessions, by filter",
  watches: true,
  options: [...filterOptions, ...pageOptions],
  examples: ["sessions --backlog '>0' --offline", "sessions --dropped '>0' -o json"],
  show: async (input) => {
    const filters = filtersOf(input);
    const page = await pages(input, (query) =>
      input.admin.listSessions({ query: { ...filters, ...query } }),
    );
    return { value: page, table: () => pageTable(page, columns, "sessions") };
  },
});

const show = askCommand({
  name: "show",
  summary: "one session with its subscriptions",
  watches: true,
  arguments: [{ name: "[client]", doc: "its client id" }],
  examples: ["sessions show billing", "sessions show billing -o yaml"],
  show: async (input) => {
    const clientId = argument(input, 0, "the client id");
    const value = await input.admin.getSession({ params: { clientId } });
    return { value, table: () => detailText(value) };
  },
});

function detailText(session: AnswerOf<"getSession">): string {
  const facts = columns.map(({ head, cell }) => [head.toLowerCase(), cell(session)] as const);
  const { will, filters } = session;
  const willText = will && `${will.topic} (QoS ${will.qos}, after ${will.delayS} s)`;
  return `${factsOf([...facts, ["created", time(session.createdUs)], ["will", willText]])}\n${tableOf(
    filters,
    [
      { head: "FILTER", cell: (row) => row.filter },
      { head: "QOS", cell: (row) => row.qos, isRight: true },
      { head: "NO LOCAL", cell: (row) => row.noLocal },
      { head: "ID", cell: (row) => (row.identifier === 0 ? undefined : row.identifier) },
    ],
  )}`;
}

const peek = askCommand({
  name: "peek",
  summary: "messages that wait for a session, consuming none",
  arguments: [{ name: "[client]", doc: "its client id" }],
  options: [payloadOption, { flags: "--limit <number>", doc: "so many at most", fallback: "20" }],
  examples: ["sessions peek billing", "sessions peek billing --payload --limit 5 -o json"],
  show: async (input) => {
    const clientId = argument(input, 0, "the client id");
    const payload = input.options.isOn("payload");
    const page = await pages(input, (query) =>
      input.admin.peekBacklog({
        params: { clientId },
        query: { ...query, ...(payload ? { payload } : {}) },
      }),
    );
    const shown: readonly Column<AnswerOf<"peekBacklog">["items"][number]>[] = [
      { head: "TIME", cell: (row) => time(row.timeUs) },
      { head: "TOPIC", cell: (row) => row.topic },
      { head: "FROM", cell: (row) => row.publisher },
      { head: "QOS", cell: (row) => row.qos, isRight: true },
      { head: "SIZE", cell: (row) => bytes(row.payloadBytes), isRight: true },
      { head: "IN FLIGHT", cell: (row) => row.inFlight },
      ...(payload ? [{ head: "PAYLOAD", cell: payloadText }] : []),
    ];
    return { value: page, table: () => pageTable(page, shown, "waiting messages") };
  },
});

const changeOptions: readonly OptionSpec[] = [
  ...filterOptions,
  { flags: "--all-sessions", doc: "every session" },
  { flags: "--yes", doc: "do it; without it, tell what would be done" },
];

type Change = "purgeSessions" | "endSessions";

/** Page by page until all that match were met. */
async function change(input: AskInput, operation: Change, verb: string): Promise<Shown> {
  const dryRun = !input.options.isOn("yes");
  const [clientId] = input.arguments;
  const body: CallOf<Change>["body"] = {
    ...filtersOf(input),
    ...(clientId === undefined ? {} : { clientId }),
    ...(input.options.isOn("allSessions") ? { all: true as const } : {}),
    dryRun,
  };
  const clientIds: string[] = [];
  let after: string | undefined;
  do {
    const page = after === undefined ? { limit: 1000 } : { limit: 1000, after };
    const changed = await input.admin[operation]({ body: { ...body, ...page } });
    clientIds.push(...changed.clientIds);
    after = changed.next;
  } while (after !== undefined);
  const did = dryRun ? `would be ${verb}; do it with --yes` : `${verb}`;
  const sum = `${grouped(clientIds.length)} ${clientIds.length === 1 ? "session" : "sessions"} ${did}\n`;
  const names = clientIds
    .slice(0, 20)
    .map((id) => `  ${id}\n`)
    .join("");
  return { value: { clientIds, dryRun }, table: () => `${names}${sum}` };
}

const purge = askCommand({
  name: "purge",
  summary: "drop what waits for sessions",
  arguments: [{ name: "[client]", doc: "one client id, instead of filters" }],
  options: changeOptions,
  examples: ["sessions purge billing --yes", "sessions purge --offline --backlog '>0'"],
  show: (input) => change(input, "purgeSessions", "purged"),
});

const end = askCommand({
  name: "end",
  summary: "end sessions for good; wills are published",
  arguments: [{ name: "[client]", doc: "one client id, instead of filters" }],
  options: changeOptions,
  examples: ["sessions end old-device --yes", "sessions end --prefix test- --offline"],
  show: (input) => change(input, "endSessions", "ended"),
});

const unsubscribe = askCommand({
  name: "unsubscribe",
  summary: "drop one subscription of a session and what waits because of it",
  arguments: [
    { name: "[client]", doc: "its client id" },
    { name: "[filter]", doc: "the filter, as it was subscribed" },
  ],
  examples: ["sessions unsubscribe billing 'orders/#'", "sessions unsubscribe x '$share/g/a/+'"],
  show: async (input) => {
    const clientId = argument(input, 0, "the client id");
    const filter = argument(input, 1, "the filter");
    const value = await input.admin.removeSubscription({ params: { clientId }, query: { filter } });
    return { value, table: () => `${clientId} is not subscribed to ${filter} any more\n` };
  },
});

export const sessions: CommandFamily = {
  name: "sessions",
  summary: "durable sessions: list, show, peek, purge, end, unsubscribe",
  commands: [list, show, peek, purge, end, unsubscribe],
  hasDefault: true,
};
