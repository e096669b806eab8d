// What commands that ask a node have in common: where it is, how the answer is printed, how often it is
// asked again, and how a list is paged.

import type { AdminClient } from "../../admin/client.ts";
import { sleep } from "../../base/index.ts";
import type { Command, CommandInput, Io, OptionSpec } from "../command.ts";
import { cliErrors } from "../errors.ts";
import { exitCodes } from "../exit-codes.ts";
import { type Column, formatOf, grouped, outputOption, printed, tableOf } from "./output.ts";
import { clientOf, targetOptions } from "./target.ts";

const watchOption: OptionSpec = {
  flags: "--watch [seconds]",
  doc: "ask again every so often (default 2), until stopped",
};

export type AskInput = CommandInput & { readonly admin: AdminClient };
/** `value` is printed as JSON or YAML, `table` for people. */
export type Shown = { readonly value: unknown; readonly table: () => string };

type Spec = Omit<Command, "run" | "options"> & {
  readonly options?: readonly OptionSpec[];
  /** Looks only: may be asked again. */
  readonly watches?: true;
  readonly show: (input: AskInput) => Promise<Shown>;
};

export function askCommand({ show, watches, options = [], ...spec }: Spec): Command {
  return {
    ...spec,
    options: [...options, outputOption, ...(watches ? [watchOption] : []), ...targetOptions],
    run: async (input) => {
      const ask = { ...input, admin: clientOf(input) };
      const once = async (): Promise<string> => {
        const { value, table } = await show(ask);
        return printed(formatOf(input), value, table);
      };
      const everyMs = watches ? watchMsOf(input) : undefined;
      if (everyMs === undefined) input.io.out(await once());
      else await watch(once, everyMs, input.io);
      return exitCodes.ok;
    },
  };
}

function watchMsOf({ options }: CommandInput): number | undefined {
  if (options.isOn("watch")) return 2000;
  const seconds = options.whole("watch", "--watch", [1, 86_400]);
  return seconds === undefined ? undefined : seconds * 1000;
}

const clearScreen = "\u001b[H\u001b[2J";

async function watch(once: () => Promise<string>, everyMs: number, io: Io): Promise<void> {
  let isStopped = false;
  const stopped = new Promise<void>((resolve) => {
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      io.signals.on(signal, () => {
        isStopped = true;
        resolve();
      });
    }
  });
  while (!isStopped) {
    const text = await once();
    io.out(io.isScreen ? `${clearScreen}${text}` : text);
    await Promise.race([sleep(io.clock, everyMs), stopped]);
  }
}

// ---------------------------------------------------------------- lists

export const pageOptions: readonly OptionSpec[] = [
  { flags: "--limit <number>", doc: "so many at most", fallback: "100" },
  { flags: "--all", doc: "all of them, page by page" },
];

/** Of lists of messages. */
export const payloadOption: OptionSpec = {
  flags: "--payload",
  doc: "payloads as well (role operator); -o json has 64 KiB of each, a table less",
};

type Page<T> = {
  readonly items: readonly T[];
  readonly next?: string | undefined;
  readonly total?: number | undefined;
};
type PageQuery = { readonly limit: number; readonly after?: string };

const pageItemsMax = 1000;

/** Pages until the limit is reached, or to the end with `--all`. */
export async function pages<T>(
  { options }: Pick<CommandInput, "options">,
  read: (query: PageQuery) => Promise<Page<T>>,
): Promise<Page<T>> {
  const isAll = options.isOn("all");
  const wanted = isAll
    ? Number.POSITIVE_INFINITY
    : (options.whole("limit", "--limit", [1, 1_000_000]) ?? 100);
  const items: T[] = [];
  let next: string | undefined;
  let total: number | undefined;
  do {
    const limit = Math.min(pageItemsMax, wanted - items.length);
    const page = await read(next === undefined ? { limit } : { limit, after: next });
    items.push(...page.items);
    next = page.next;
    total = page.total ?? total;
  } while (next !== undefined && items.length < wanted);
  return {
    items,
    ...(next === undefined ? {} : { next }),
    ...(total === undefined ? {} : { total }),
  };
}

/** A table with what it leaves out below. */
export function pageTable<T>(page: Page<T>, columns: readonly Column<T>[], what: string): string {
  const { items, next, total } = page;
  if (items.length === 0)
    return next === undefined ? `no ${what}\n` : `none so far; more with --all\n`;
  const table = tableOf(items, columns);
  if (next === undefined) return table;
  const of = total === undefined ? "more" : grouped(total);
  return `${table}${grouped(items.length)} of ${of} ${what}; the rest with --all\n`;
}

// ---------------------------------------------------------------- arguments

/** The argument at a place. @throws CLI_USAGE. */
export function argument(input: CommandInput, index: number, name: string): string {
  const text = input.arguments[index];
  if (text === undefined) throw cliErrors.usage({ reason: `${name} is missing` });
  return text;
}

/** `>0`, `0` and the like, as people write whether there is any. @throws CLI_USAGE. */
export function someOrNone(input: CommandInput, name: string, flag: string): boolean | undefined {
  if (input.options.isOn(name)) return true;
  const text = input.options.text(name)?.replaceAll(" ", "");
  if (text === undefined) return undefined;
  if (text === ">0" || text === "yes") return true;
  if (text === "0" || text === "=0" || text === "no") return false;
  throw cliErrors.usage({ reason: `${flag} expects '>0' or 0, got "${text}"` });
}

const unitMs: Readonly<Record<string, number>> = {
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** `1h` ago, or a time such as 2026-01-31T12:00:00Z, in microseconds. @throws CLI_USAGE. */
export function timeUsOf(text: string, flag: string, nowUs: number): number {
  const ago = /^(\d{1,6})(s|m|h|d)$/.exec(text);
  if (ago !== null) return Math.max(0, nowUs - Number(ago[1]) * (unitMs[ago[2] ?? ""] ?? 0) * 1000);
  const ms = /^\d{4}-\d\d-\d\d/.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isFinite(ms) && ms >= 0) return ms * 1000;
  const reason = `${flag} expects 15m, 1h, 7d or 2026-01-31T12:00:00Z, got "${text}"`;
  throw cliErrors.usage({ reason });
}
