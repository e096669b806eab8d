// The process as the command line sees it, on paper: what is printed is collected, signals are
// emitted by the test, time is simulated.

import { EventEmitter } from "node:events";
import { Readable } from "node:stream";
import { SimClock } from "../../src/base/index.ts";
import type { Io } from "../../src/cli/command.ts";

export type FakeIo = Io & {
  readonly clock: SimClock;
  readonly signals: EventEmitter;
  stdout(): string;
  stdoutBytes(): Buffer;
  stderr(): string;
  readonly exits: number[];
};

export function createFakeIo(
  options: { stdin?: string | Buffer | Readable; environment?: Io["environment"] } = {},
): FakeIo {
  const { stdin = "" } = options;
  const out: Buffer[] = [];
  const error: string[] = [];
  const exits: number[] = [];
  return {
    environment: options.environment ?? {},
    stdin: stdin instanceof Readable ? stdin : Readable.from([Buffer.from(stdin)]),
    isTerminal: false,
    isScreen: false,
    command: "flagstone",
    clock: new SimClock(),
    signals: new EventEmitter(),
    out: (text) => out.push(Buffer.from(text)),
    outliveReader: () => undefined,
    error: (text) => error.push(text),
    endBy: (signal) => exits.push(signal === "SIGINT" ? 130 : 143),
    killNow: () => exits.push(137),
    stdout: () => Buffer.concat(out).toString(),
    stdoutBytes: () => Buffer.concat(out),
    stderr: () => error.join(""),
    exits,
  };
}
