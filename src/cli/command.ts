// What a command of the command line is: plain data and one function. `program.ts` turns it into
// flags and help pages, `reference.ts` into the reference page; commands know neither.

import type { Readable } from "node:stream";
import type { Clock } from "../base/index.ts";
import { cliErrors } from "./errors.ts";

export type OptionSpec = {
  /** `-h, --host <address>`; without `<...>` a switch. */
  readonly flags: string;
  readonly doc: string;
  /** Text of the default, for the help page and when the flag is absent. */
  readonly fallback?: string;
  readonly choices?: readonly string[];
  /** May be given again; the values are collected. */
  readonly repeats?: true;
};

export type Command = {
  readonly name: string;
  readonly summary: string;
  readonly arguments?: ReadonlyArray<{ readonly name: string; readonly doc: string }>;
  readonly options: readonly OptionSpec[];
  /** Two lines to copy, without the name of the program. */
  readonly examples: readonly [string, string];
  run(input: CommandInput): Promise<number>;
};

/** A command that only holds others: `config check`. */
export type CommandFamily = {
  readonly name: string;
  readonly summary: string;
  /** The first one also runs without its name: `sessions` is `sessions list`. */
  readonly commands: readonly [Command, ...Command[]];
  /** Whether that holds; `config` has no command that is meant by itself. */
  readonly hasDefault?: true;
};

export type CommandInput = {
  readonly arguments: readonly string[];
  readonly options: Options;
  readonly io: Io;
};

/** The process as commands see it; tests put their own in. */
export type Io = {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly stdin: Readable;
  /** Whether standard error is a terminal. */
  readonly isTerminal: boolean;
  /** Whether standard output is one. */
  readonly isScreen: boolean;
  /** How this program was called, for lines to copy. */
  readonly command: string;
  readonly clock: Clock;
  out(text: string | Uint8Array): void;
  /** From now on a reader of standard output that goes away ends nothing. */
  outliveReader(): void;
  error(text: string): void;
  readonly signals: {
    on(signal: NodeJS.Signals, listener: () => void): unknown;
    off(signal: NodeJS.Signals, listener: () => void): unknown;
  };
  /**
   * Ends the process at once, as the signal does where nobody handles it: 128 + its number to a
   * shell. An exit with a code would wait for the threads that a sick disk holds.
   */
  endBy(signal: NodeJS.Signals): void;
  /** As kill -9 would. */
  killNow(): void;
};

/** Parsed flags by their long name in camelCase, with typed reading. */
export class Options {
  readonly #values: Readonly<Record<string, unknown>>;

  constructor(values: Readonly<Record<string, unknown>>) {
    this.#values = values;
  }

  has(name: string): boolean {
    return this.#values[name] !== undefined;
  }

  isOn(name: string): boolean {
    return this.#values[name] === true;
  }

  text(name: string): string | undefined {
    const value = this.#values[name];
    return typeof value === "string" ? value : undefined;
  }

  texts(name: string): readonly string[] {
    const value = this.#values[name];
    return Array.isArray(value) ? value.map(String) : [];
  }

  /** @throws CLI_USAGE when it is absent. */
  needed(name: string, flag: string): string {
    const text = this.text(name);
    if (text === undefined) throw cliErrors.usage({ reason: `${flag} is missing` });
    return text;
  }

  /** @throws CLI_USAGE when it is no whole number in the range. */
  whole(
    name: string,
    flag: string,
    range: readonly [min: number, max: number],
  ): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= range[0] && value <= range[1]) return value;
    throw cliErrors.usage({ reason: `${flag} expects ${range[0]} to ${range[1]}, got "${text}"` });
  }
}
