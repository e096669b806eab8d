// How answers are printed: a table for people, JSON or YAML for programs. Texts from outside cannot
// steer a terminal.

import type { CommandInput, OptionSpec } from "../command.ts";

export const outputOption: OptionSpec = {
  flags: "-o, --output <format>",
  doc: "how to print",
  fallback: "table",
  choices: ["table", "json", "yaml"],
};

export type Column<T> = {
  readonly head: string;
  readonly cell: (row: T) => string | number | boolean | undefined;
  readonly isRight?: true;
};

export type Format = "table" | "json" | "yaml";

export function formatOf({ options }: Pick<CommandInput, "options">): Format {
  return (options.text("output") ?? "table") as Format;
}

/** `table` is what a person gets, `value` what a program does. */
export function printed(format: Format, value: unknown, table: () => string): string {
  if (format === "json") return `${JSON.stringify(value, null, 2)}\n`;
  if (format === "yaml") return `${yamlOf(value, 0)}\n`;
  return table();
}

export function tableOf<T>(rows: readonly T[], columns: readonly Column<T>[]): string {
  const cells = rows.map((row) => columns.map(({ cell }) => safe(cell(row))));
  const widths = columns.map(({ head }, index) =>
    Math.max(head.length, ...cells.map((line) => line[index]?.length ?? 0)),
  );
  const line = (texts: readonly string[]): string =>
    texts
      .map((text, index) =>
        columns[index]?.isRight
          ? text.padStart(widths[index] ?? 0)
          : text.padEnd(widths[index] ?? 0),
      )
      .join("  ")
      .trimEnd();
  return `${[line(columns.map(({ head }) => head)), ...cells.map(line)].join("\n")}\n`;
}

/** Facts of one thing, a line each; what is not there is left out. */
export function factsOf(
  facts: ReadonlyArray<readonly [name: string, value: string | number | boolean | undefined]>,
): string {
  const shown = facts.filter(([, value]) => value !== undefined);
  const width = Math.max(...shown.map(([name]) => name.length));
  return shown.map(([name, value]) => `${name.padEnd(width)}  ${safe(value)}\n`).join("");
}

function safe(value: string | number | boolean | undefined): string {
  if (value === undefined) return "-";
  if (value === true) return "yes";
  if (value === false) return "no";
  return printable(String(value));
}

/** A text from outside that cannot steer a terminal. */
export function printable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: those are what is taken out
  return text.replace(/[\u0000-\u001f\u007f-\u009f]/g, "\u00b7");
}

const payloadShown = 120;

/** A payload as a cell: its beginning, of bytes that are no text in base64. */
export function payloadText(message: {
  readonly payload?: string | undefined;
  readonly payloadBase64?: string | undefined;
}): string | undefined {
  const { payload, payloadBase64 } = message;
  const text = payload ?? (payloadBase64 === undefined ? undefined : `base64:${payloadBase64}`);
  if (text === undefined || text.length <= payloadShown) return text;
  return `${text.slice(0, payloadShown)}...`;
}

const units = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

export function bytes(count: number | undefined): string | undefined {
  if (count === undefined) return undefined;
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** `2d 3h`, `45s`: the two largest parts. */
export function span(ms: number | undefined): string | undefined {
  if (ms === undefined) return undefined;
  if (ms < 1000) return `${Math.round(ms)}ms`;
  const seconds = Math.floor(ms / 1000);
  const parts: ReadonlyArray<readonly [number, string]> = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "m"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count}${unit}`)
    .join(" ");
}

/** What begins with the count of time itself has no beginning: a first generation. */
const epochUs = 1;

export function time(us: number | undefined): string | undefined {
  if (us === undefined || us <= epochUs) return undefined;
  const ms = us / 1000;
  return ms > 8.64e15 ? "never" : `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")}Z`;
}

export function grouped(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** Block style, with every text quoted as JSON quotes it, which YAML takes as it is. */
function yamlOf(value: unknown, depth: number): string {
  const indent = "  ".repeat(depth);
  if (Array.isArray(value)) {
    if (value.length === 0) return "[]";
    return value.map((item) => `${indent}- ${yamlOf(item, depth + 1).trimStart()}`).join("\n");
  }
  if (typeof value !== "object" || value === null) return JSON.stringify(value ?? null);
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  if (entries.length === 0) return "{}";
  return entries
    .map(([key, item]) => {
      const name = /^[A-Za-z_][A-Za-z0-9_]*$/.test(key) ? key : JSON.stringify(key);
      const isBlock = typeof item === "object" && item !== null && Object.keys(item).length > 0;
      const text = yamlOf(item, isBlock && !Array.isArray(item) ? depth + 1 : depth);
      return `${indent}${name}:${isBlock ? `\n${text}` : ` ${text}`}`;
    })
    .join("\n");
}
