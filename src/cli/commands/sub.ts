// `flagstone sub`: subscribes and prints messages until it is stopped, has seen `-C` of them, or `-W`
// has passed. With `-i` and `-c` its session is durable: what is published while it is away comes
// when it is back, and it reconnects by itself. A message counts as received once it is printed, or
// held while the past is (`--from`, `replay.ts`).

import type { AdminClient } from "../../admin/client.ts";
import { CodedError, sleep } from "../../base/index.ts";
import { subscriptionFilterFault } from "../../topic/index.ts";
import { timeUsOf } from "../admin/ask.ts";
import { clientOf, targetOptions } from "../admin/target.ts";
import {
  checkTopic,
  clientOptionsOf,
  connectOptions,
  qosOf,
  withinTimeout,
} from "../client-options.ts";
import type { Command, CommandInput, Io } from "../command.ts";
import { cliErrors } from "../errors.ts";
import { exitCodes } from "../exit-codes.ts";
import type {
  ClientOptions,
  ConnectClient,
  IncomingMessage,
  OnMessage,
  Qos,
} from "../mqtt-client.ts";
import { connectSocket } from "../mqtt-connection.ts";
import { type MessageFormat, printMessage } from "../render.ts";
import { type Past, Replay } from "../replay.ts";
import { stopSignal } from "../stop-signal.ts";

export const sub: Command = createSub(connectSocket);

export function createSub(connect: ConnectClient): Command {
  return {
    name: "sub",
    summary: "subscribe and print messages",
    options: [
      { flags: "-t, --topic <filter>", doc: "topic filter; may be given again", repeats: true },
      { flags: "-q, --qos <0|1|2>", doc: "quality of service asked for", fallback: "0" },
      { flags: "-C, --count <number>", doc: "end after so many messages" },
      { flags: "-v, --verbose", doc: "print the topic before each message" },
      { flags: "-o, --output <format>", doc: "how to print", choices: ["text", "json"] },
      {
        flags: "--from <time>",
        doc: "first what was stored since then: 1h, 7d or 2026-01-31T12:00:00Z (asks --url)",
      },
      { flags: "-c, --disable-clean-session", doc: "keep the session (needs -i)" },
      ...connectOptions,
      ...targetOptions,
    ],
    examples: ["sub -t 'demo/#' -v --from 1h", "sub -t 'orders/+' -q 1 -i billing -c -o json"],
    run: (input) => runSub(input, connect),
  };
}

type Plan = {
  readonly filters: readonly string[];
  readonly qos: Qos;
  readonly client: ClientOptions;
  /** Whether a lost connection is made again. */
  readonly reconnects: boolean;
  /** What is printed before. */
  past: Past | undefined;
};

async function runSub(input: CommandInput, connect: ConnectClient): Promise<number> {
  const { options, io } = input;
  const plan = planOf(input);
  const countMax = options.whole("count", "-C", [1, Number.MAX_SAFE_INTEGER]);
  const output = options.text("output") === "json" ? "json" : "text";
  const format: MessageFormat = { output, withTopic: options.isOn("verbose") };
  const reader = new Reader(io, format, countMax);
  const admin = plan.past === undefined ? undefined : clientOf(input);
  const stop = stopSignal(io);
  try {
    await withinTimeout(input, () =>
      Promise.race([readMessages(plan, connect, { reader, io, admin }), stop.asked]),
    );
    return exitCodes.ok;
  } finally {
    reader.finish();
    stop.remove();
    await reader.end();
  }
}

function planOf(input: CommandInput): Plan {
  const { options } = input;
  const filters = options.texts("topic");
  if (filters.length === 0) throw cliErrors.usage({ reason: "give a topic filter with -t" });
  for (const filter of filters) checkTopic(filter, "topic filter", subscriptionFilterFault);
  const keepsSession = options.isOn("disableCleanSession");
  if (keepsSession && !options.has("id")) {
    throw cliErrors.usage({ reason: "-c needs a client id to come back to (-i)" });
  }
  const client = clientOptionsOf(input, { isClean: !keepsSession });
  const past = pastOf(input, filters);
  return { filters, qos: qosOf(options), client, reconnects: keepsSession, past };
}

function pastOf({ options, io }: CommandInput, filters: readonly string[]): Past | undefined {
  const from = options.text("from");
  if (from === undefined) return undefined;
  const [filter = "", second] = filters;
  if (second !== undefined) throw cliErrors.usage({ reason: "--from goes with one -t" });
  if (filter.startsWith("$share/")) {
    throw cliErrors.usage({ reason: "--from goes with no shared subscription" });
  }
  return { filter, fromUs: timeUsOf(from, "--from", io.clock.wallUs()) };
}

/** Prints messages until there were enough, and knows the connection to leave at the end. */
class Reader {
  readonly done: Promise<void>;
  readonly #io: Io;
  readonly #format: MessageFormat;
  #left: number;
  #replay: Replay | undefined;
  #finish: () => void = () => undefined;
  #end: () => Promise<void> = async () => undefined;

  constructor(io: Io, format: MessageFormat, countMax: number | undefined) {
    this.#io = io;
    this.#format = format;
    this.#left = countMax ?? Number.POSITIVE_INFINITY;
    this.done = new Promise((resolve) => {
      this.#finish = resolve;
    });
  }

  readonly onMessage: OnMessage = (message) =>
    this.#replay === undefined ? this.#print(message) : this.#replay.take(message);

  /** Holds messages from now on, until `replay` has printed the past. */
  hold(): void {
    this.#replay = new Replay((message) => this.#print(message));
  }

  async replay(admin: AdminClient, past: Past): Promise<void> {
    await this.#replay?.run(admin, past);
    this.#replay = undefined;
  }

  #print(message: IncomingMessage): boolean {
    if (this.#left <= 0) return false;
    this.#left--;
    this.#io.out(printMessage(message, this.#format));
    if (this.#left === 0) this.#finish();
    return true;
  }

  /** Takes no more messages. */
  finish(): void {
    this.#left = 0;
  }

  owns(end: () => Promise<void>): void {
    this.#end = end;
  }

  end(): Promise<void> {
    return this.#end();
  }
}

const reconnectMsFirst = 500;
const reconnectMsMax = 15_000;

type Reading = {
  readonly reader: Reader;
  readonly io: Io;
  /** Where there is a past to print. */
  readonly admin: AdminClient | undefined;
};

async function readMessages(
  plan: Plan,
  connect: ConnectClient,
  { reader, io, admin }: Reading,
): Promise<void> {
  let delayMs = reconnectMsFirst;
  let wasConnected = false;
  for (;;) {
    try {
      if (plan.past !== undefined) reader.hold();
      const client = await connect(plan.client, reader.onMessage);
      reader.owns(() => client.end());
      // A lost connection must not reject unseen while the subscription is still asked for.
      const lost = client.closed;
      lost.catch(() => undefined);
      await Promise.race([client.subscribe(plan.filters, plan.qos), lost]);
      wasConnected = true;
      if (plan.past !== undefined && admin !== undefined) {
        await Promise.race([reader.replay(admin, plan.past), lost]);
        plan.past = undefined;
      }
      delayMs = reconnectMsFirst;
      await Promise.race([reader.done, lost]);
      return;
    } catch (error) {
      // A refusal stays one: coming back after a takeover would throw the other client out again.
      const mayPass = error instanceof CodedError && error.kind === "retry";
      if (!plan.reconnects || !wasConnected || !mayPass) throw error;
      io.error(`${error.message}; trying again in ${delayMs / 1000} s\n`);
      await sleep(io.clock, delayMs);
      delayMs = Math.min(reconnectMsMax, delayMs * 2);
    }
  }
}
