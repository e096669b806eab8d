// `flagstone clients`.

import type { ClientInfo } from "../../admin/client.ts";
import { argument, askCommand, pageOptions, pages, pageTable } from "../admin/ask.ts";
import { type Column, factsOf, span } from "../admin/output.ts";
import type { CommandFamily } from "../command.ts";

const columns: readonly Column<ClientInfo>[] = [
  { head: "CLIENT", cell: (row) => row.clientId },
  { head: "USER", cell: (row) => row.user },
  { head: "FROM", cell: (row) => row.remote },
  { head: "MQTT", cell: (row) => row.protocol },
  { head: "CONNECTED", cell: (row) => span(row.connectedMs), isRight: true },
  { head: "DURABLE", cell: (row) => row.isDurable },
  { head: "PAUSED", cell: (row) => row.isPaused },
];

const list = askCommand({
  name: "list",
  summary: "connected clients",
  watches: true,
  options: [{ flags: "--prefix <text>", doc: "client ids that begin so" }, ...pageOptions],
  examples: ["clients --prefix device-", "clients --all -o json"],
  show: async (input) => {
    const prefix = input.options.text("prefix");
    const filters = prefix === undefined ? {} : { clientIdPrefix: prefix };
    const page = await pages(input, (query) =>
      input.admin.listClients({ query: { ...filters, ...query } }),
    );
    return { value: page, table: () => pageTable(page, columns, "clients") };
  },
});

const show = askCommand({
  name: "show",
  summary: "one connected client",
  watches: true,
  arguments: [{ name: "[client]", doc: "its client id" }],
  examples: ["clients show device-17", "clients show device-17 -o yaml"],
  show: async (input) => {
    const clientId = argument(input, 0, "the client id");
    const client = await input.admin.getClient({ params: { clientId } });
    const facts = columns.map(({ head, cell }) => [head.toLowerCase(), cell(client)] as const);
    return { value: client, table: () => factsOf([...facts, ["keep alive", client.keepAliveS]]) };
  },
});

const kick = askCommand({
  name: "kick",
  summary: "end a client's connection; its session stays",
  arguments: [{ name: "[client]", doc: "its client id" }],
  examples: ["clients kick device-17", "clients kick 'site 4/gateway'"],
  show: async (input) => {
    const clientId = argument(input, 0, "the client id");
    const value = await input.admin.kickClient({ params: { clientId } });
    return { value, table: () => `${clientId} was disconnected\n` };
  },
});

export const clients: CommandFamily = {
  name: "clients",
  summary: "connected clients: list, show, kick",
  commands: [list, show, kick],
  hasDefault: true,
};
