// `flagstone trace`: everything that one client does, or that happens to topics of a filter, for some
// minutes; printed as it comes. It is in the node's log as well, and ends there by itself.

import type { AdminClient, Trace, TraceLine } from "../../admin/client.ts";
import { sleep } from "../../base/index.ts";
import { argument, askCommand, pageOptions, pages } from "../admin/ask.ts";
import { formatOf, outputOption, printable, printed, tableOf } from "../admin/output.ts";
import { clientOf, targetOptions } from "../admin/target.ts";
import type { Command, CommandFamily, CommandInput } from "../command.ts";
import { cliErrors } from "../errors.ts";
import { exitCodes } from "../exit-codes.ts";
import { stopSignal } from "../stop-signal.ts";

const start: Command = {
  name: "start",
  summary: "watch a client or a topic filter, and print what happens",
  options: [
    { flags: "--client <id>", doc: "what this client does, from its next CONNECT or packet on" },
    { flags: "--filter <filter>", doc: "what happens to these topics, whoever it is" },
    { flags: "--for <minutes>", doc: "how long, 1 to 1440", fallback: "10" },
    { flags: "--background", doc: "do not wait: the node's log has the lines" },
    outputOption,
    ...targetOptions,
  ],
  examples: ["trace --client device-17 --for 5", "trace --filter 'orders/#' --background"],
  run: startTrace,
};

async function startTrace(input: CommandInput): Promise<number> {
  const { options, io } = input;
  const [client, filter] = [options.text("client"), options.text("filter")];
  if ((client === undefined) === (filter === undefined)) {
    throw cliErrors.usage({ reason: "say what to watch: --client or --filter" });
  }
  const minutes = options.whole("for", "--for", [1, 1440]) ?? 10;
  const admin = clientOf(input);
  const what = client === undefined ? { filter: filter as string } : { clientId: client };
  const trace = await admin.startTrace({ body: { ...what, minutes } });
  if (options.isOn("background")) {
    const text = `trace ${trace.id} runs for ${minutes} minutes; see \`trace show ${trace.id}\`\n`;
    io.out(printed(formatOf(input), trace, () => text));
    return exitCodes.ok;
  }
  await follow(admin, trace, input);
  return exitCodes.ok;
}

const lookMs = 500;

/** Prints lines until the trace ends; a signal ends it. */
async function follow(admin: AdminClient, { id }: Trace, input: CommandInput): Promise<void> {
  const { io } = input;
  const stop = stopSignal(io);
  let after = 0;
  try {
    for (;;) {
      const { items } = await admin.listTraces();
      const isRunning = items.some((each) => each.id === id && each.state === "running");
      after = await printFrom(admin, id, after, input);
      if (!isRunning || stop.isAsked()) return;
      await Promise.race([sleep(io.clock, lookMs), stop.asked]);
    }
  } finally {
    await admin.stopTrace({ params: { trace: id } }).catch(() => undefined); // it may be gone
    stop.remove();
  }
}

/** Returns the number of the last line. */
async function printFrom(
  admin: AdminClient,
  trace: string,
  after: number,
  input: CommandInput,
): Promise<number> {
  let last = after;
  for (;;) {
    const page = await admin.readTrace({ params: { trace }, query: { after: last } });
    for (const line of page.items) {
      input.io.out(lineText(line, formatOf(input)));
      last = line.number;
    }
    if (page.next === undefined) return last;
  }
}

/** One line, or one JSON object a line for programs. */
function lineText(line: TraceLine, format: string): string {
  if (format !== "table") return `${JSON.stringify(line)}\n`;
  const at = new Date(line.timeUs / 1000).toISOString().slice(11, 23);
  const facts = Object.entries(line.facts).map(([key, value]) => `${key}=${String(value)}`);
  const topic = line.topic === undefined ? [] : [line.topic];
  return `${printable([at, line.clientId, line.event, ...topic, ...facts].join(" "))}\n`;
}

const list = askCommand({
  name: "list",
  summary: "traces that run or ended lately",
  examples: ["trace list", "trace list -o json"],
  show: async ({ admin }) => {
    const value = await admin.listTraces();
    const table = (): string =>
      value.items.length === 0
        ? "no traces\n"
        : tableOf(value.items, [
            { head: "TRACE", cell: (row) => row.id },
            { head: "STATE", cell: (row) => row.state },
            { head: "CLIENT", cell: (row) => row.clientId },
            { head: "FILTER", cell: (row) => row.filter },
            { head: "UNTIL", cell: (row) => new Date(row.endsMs).toISOString() },
            { head: "LINES", cell: (row) => row.lines, isRight: true },
            { head: "GONE", cell: (row) => row.linesGone, isRight: true },
            { head: "UNLOGGED", cell: (row) => row.unlogged, isRight: true },
          ]);
    return { value, table };
  },
});

const show = askCommand({
  name: "show",
  summary: "the last lines of a trace",
  arguments: [{ name: "[trace]", doc: "its id" }],
  options: pageOptions,
  examples: ["trace show 1a2b3c4d --all", "trace show 1a2b3c4d -o json"],
  show: async (input) => {
    const trace = argument(input, 0, "the trace");
    const page = await pages(input, ({ limit, after }) =>
      input.admin.readTrace({
        params: { trace },
        query: { limit, ...(after === undefined ? {} : { after: Number(after) }) },
      }),
    );
    const lines = (): string => page.items.map((line) => lineText(line, "table")).join("");
    return { value: page, table: () => (page.items.length === 0 ? "no lines\n" : lines()) };
  },
});

const stop = askCommand({
  name: "stop",
  summary: "end a trace; its lines stay for a while",
  arguments: [{ name: "[trace]", doc: "its id" }],
  examples: ["trace stop 1a2b3c4d", "trace stop 1a2b3c4d -o json"],
  show: async (input) => {
    const trace = argument(input, 0, "the trace");
    const value = await input.admin.stopTrace({ params: { trace } });
    return { value, table: () => `trace ${value.id} has ended after ${value.lines} lines\n` };
  },
});

export const trace: CommandFamily = {
  name: "trace",
  summary: "watch one client or topic for some minutes",
  commands: [start, list, show, stop],
  hasDefault: true,
};
