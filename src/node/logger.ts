// The node's logger: NDJSON to a pipe, one short coloured line on a terminal. The one home of pino.
//
// Never payloads or secrets: bytes print as their length, and fields with telling names are cut.
// Text from outside (client ids, topics) is bounded and cannot steer a terminal. Repeats of one
// event are folded: the first few of a window print, the rest become one line with their count. Traces
// are neither folded nor bound to a level: they have limits of their own.
// Bounded: 1 MiB waiting for a slow reader, then lines are dropped and counted.

import { type DestinationStream, pino } from "pino";
import { type Clock, CodedError, type LogFields, type Logger, systemClock } from "../base/index.ts";

export type LogLevel = "debug" | "info" | "warn" | "error";

export type LoggerOptions = {
  readonly level: LogLevel;
  readonly format: "pretty" | "json";
  /** Takes whole lines. */
  readonly write: (line: string) => void;
  readonly clock?: Clock;
};

export type NodeLogger = Logger & {
  /** From the next line on. */
  setLevel(level: LogLevel): void;
  /** Writes what is folded so far and pushes everything out; for the last moments of a process. */
  flush(): void;
};

const tracePrefix = "trace.";
/** Each of these says how far something is: a folded one would say nothing. */
const counted: ReadonlySet<string> = new Set(["broker.draining"]);
const levels = ["debug", "info", "warn", "error"] as const;

export function createLogger(options: LoggerOptions): NodeLogger {
  const clock = options.clock ?? systemClock;
  const destination: DestinationStream = {
    write: (json) => {
      options.write(options.format === "json" ? json : prettyLine(JSON.parse(json)));
    },
  };
  const sink = pino(
    {
      // What is printed is decided below.
      level: "debug",
      base: null,
      messageKey: "event",
      timestamp: () => `,"time":"${new Date(clock.wallUs() / 1000).toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
    },
    destination,
  );
  let threshold = levels.indexOf(options.level);
  const fold = new Fold(clock, (level, event, fields) => sink[level](fields, event));
  const at =
    (level: LogLevel) =>
    (event: string, fields: LogFields = {}): void => {
      // Somebody asked for every line of it.
      if (event.startsWith(tracePrefix)) sink[level](clean(fields), event);
      else if (levels.indexOf(level) < threshold) return;
      else if (counted.has(event)) sink[level](clean(fields), event);
      else fold.take(level, event, clean(fields));
    };
  return {
    debug: at("debug"),
    info: at("info"),
    warn: at("warn"),
    error: at("error"),
    flush: () => fold.flush(),
    setLevel: (level) => {
      threshold = levels.indexOf(level);
    },
  };
}

/**
 * Lines for a file descriptor, written in order and without blocking the process.
 * Beyond 1 MiB waiting, new lines are dropped and counted.
 */
export function createLineWriter(fd: number): {
  write(line: string): void;
  flush(): void;
  /** Resolves when all lines are written, those of a write under way too, or cannot be. */
  flushed(): Promise<void>;
  readonly droppedCount: number;
} {
  const stream = pino.destination({ fd, sync: false, minLength: 0, maxLength: waitingBytesMax });
  let droppedCount = 0;
  let waitingBytes = 0;
  let onWritten = (): void => undefined;
  const settle = (sizeBytes: number): void => {
    waitingBytes -= sizeBytes;
    if (waitingBytes <= 0) onWritten();
  };
  stream.on("write", settle);
  stream.on("drop", (line) => {
    droppedCount++;
    settle(Buffer.byteLength(line));
  });
  // The reader went away: there is nobody left to tell, and the broker must not stop for it.
  stream.on("error", () => {
    droppedCount++;
    settle(waitingBytes);
  });
  return {
    write: (line) => {
      waitingBytes += Buffer.byteLength(line);
      stream.write(line);
    },
    flushed: () =>
      new Promise((resolve) => {
        onWritten = resolve;
        settle(0);
      }),
    flush: () => {
      try {
        stream.flushSync();
      } catch {
        // Same as above: the lines are lost with their reader.
        droppedCount++;
      }
    },
    get droppedCount() {
      return droppedCount;
    },
  };
}

const waitingBytesMax = 1024 * 1024;

// --- folding of repeats -----------------------------------------------------------------------

const foldWindowMs = 10_000;
const printedPerWindow = 5;
/** Event names are fixed, so this is only a guard against a caller that builds them. */
const foldKeysMax = 1000;

type Emit = (level: LogLevel, event: string, fields: LogFields) => void;
type Repeats = { level: LogLevel; event: string; count: number; last: LogFields };

class Fold {
  readonly #clock: Clock;
  readonly #emit: Emit;
  readonly #open = new Map<string, Repeats>();

  constructor(clock: Clock, emit: Emit) {
    this.#clock = clock;
    this.#emit = emit;
  }

  take(level: LogLevel, event: string, fields: LogFields): void {
    const key = `${level} ${event} ${String(fields.code ?? "")}`;
    const repeats = this.#open.get(key);
    if (repeats !== undefined) {
      repeats.count++;
      repeats.last = fields;
      if (repeats.count <= printedPerWindow) this.#emit(level, event, fields);
      return;
    }
    this.#emit(level, event, fields);
    if (this.#open.size >= foldKeysMax) return;
    this.#open.set(key, { level, event, count: 1, last: fields });
    this.#clock.schedule(foldWindowMs, () => this.#end(key));
  }

  flush(): void {
    for (const key of [...this.#open.keys()]) this.#end(key);
  }

  #end(key: string): void {
    const repeats = this.#open.get(key);
    this.#open.delete(key);
    if (repeats === undefined || repeats.count <= printedPerWindow) return;
    const repeated = repeats.count - printedPerWindow;
    this.#emit(repeats.level, repeats.event, { ...repeats.last, repeated });
  }
}

// --- what may be said -------------------------------------------------------------------------

const textLengthMax = 500;
const itemsMax = 20;
const depthMax = 4;
const telling = /password|passphrase|secret|token|credential|payload|authdata|privatekey/i;

function clean(fields: LogFields): LogFields {
  return cleanRecord(fields, 0);
}

function cleanRecord(record: object, depth: number): Record<string, unknown> {
  const cleaned: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(record).slice(0, itemsMax)) {
    cleaned[name] = telling.test(name) ? "[hidden]" : cleanValue(value, depth);
  }
  return cleaned;
}

function cleanValue(value: unknown, depth: number): unknown {
  if (typeof value === "string") return clip(value);
  if (typeof value === "bigint" || typeof value === "symbol") return String(value);
  if (typeof value === "function") return "[function]";
  if (typeof value !== "object" || value === null) return value;
  if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`;
  if (depth >= depthMax) return "[deeper]";
  if (value instanceof Error) return cleanError(value, depth);
  if (Array.isArray(value)) {
    const items = value.slice(0, itemsMax).map((item) => cleanValue(item, depth + 1));
    return value.length > itemsMax ? [...items, `[${value.length - itemsMax} more]`] : items;
  }
  return cleanRecord(value, depth + 1);
}

function cleanError(error: Error, depth: number): Record<string, unknown> {
  const coded = error instanceof CodedError;
  return {
    ...(coded ? { code: error.code, kind: error.kind } : { name: error.name }),
    message: clip(error.message),
    ...(coded && error.kind !== "internal" ? {} : { stack: clip(error.stack ?? "", 2000) }),
    ...(error.cause === undefined ? {} : { cause: cleanValue(error.cause, depth + 1) }),
  };
}

function clip(text: string, lengthMax = textLengthMax): string {
  return text.length <= lengthMax ? text : `${text.slice(0, lengthMax)}[${text.length} characters]`;
}

// --- a line for people ------------------------------------------------------------------------

const colours: Readonly<Record<string, string>> = {
  debug: "\u001b[90m",
  info: "\u001b[36m",
  warn: "\u001b[33m",
  error: "\u001b[31m",
};
const reset = "\u001b[0m";
const dim = "\u001b[90m";

/** `12:00:01.234 warn  broker.connection_closed client="a" reason=0x8d`. */
function prettyLine(record: Readonly<Record<string, unknown>>): string {
  const { level, time, event, ...fields } = record;
  const name = String(level);
  const clockTime = String(time).slice(11, 23);
  const facts = Object.entries(fields).map(
    ([key, value]) => `${dim}${key}=${reset}${shown(value)}`,
  );
  const head = `${dim}${clockTime}${reset} ${colours[name] ?? ""}${name.padEnd(5)}${reset}`;
  return `${[head, String(event), ...facts].join(" ")}\n`;
}

function shown(value: unknown): string {
  // JSON escapes C0 controls; the C1 ones that some terminals obey are left to us.
  const text =
    typeof value === "object" || typeof value === "string" ? JSON.stringify(value) : value;
  return String(text).replace(/[\u007f-\u009f]/g, "\u00b7");
}
