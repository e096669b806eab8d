// Coded errors: every failure that leaves a room carries a code, a kind that tells the caller what
// to do, and facts. Each room declares its codes once, in its own `errors.ts`, with `defineErrors`;
// the reference page and the union type of codes come from that table.
// Mapping a kind to an MQTT reason code, an HTTP status or an exit code is left to upper floors.

/**
 * What the caller can do about an error.
 * - `retry`: the same call may succeed later.
 * - `conflict`: start the transaction again from its reads.
 * - `invalid`: the call itself is wrong; change it.
 * - `closed`: the thing was closed by its owner.
 * - `limit`: a named limit was reached.
 * - `corrupt`: stored bytes are not what was written.
 * - `internal`: a fault of Flagstone itself.
 */
export type ErrorKind =
  | "retry"
  | "conflict"
  | "invalid"
  | "closed"
  | "limit"
  | "corrupt"
  | "internal";

export type ErrorDetails = Readonly<Record<string, unknown>>;

/** An error with a stable code, a kind and the facts that led to it. */
export class CodedError extends Error {
  readonly code: string;
  readonly kind: ErrorKind;
  readonly details: ErrorDetails;

  constructor(
    code: string,
    kind: ErrorKind,
    message: string,
    details: ErrorDetails,
    cause?: unknown,
  ) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "CodedError";
    this.code = code;
    this.kind = kind;
    this.details = details;
  }
}

/** One row of a room's error table. `{name}` in the message is replaced by `details.name`. */
export type ErrorRow = {
  readonly code: string;
  readonly kind: ErrorKind;
  readonly message: string;
  /** One sentence for the operator: what to do. Shown by `flagstone explain CODE`. */
  readonly help: string;
};

export type ErrorTable = Readonly<Record<string, ErrorRow>>;

/** Builds the error of one row; `row` is there for the reference page. */
export type ErrorFactory<Row extends ErrorRow = ErrorRow> = {
  (details?: ErrorDetails, cause?: unknown): CodedError;
  readonly row: Row;
};

export type ErrorFactories<T extends ErrorTable> = {
  readonly [K in keyof T]: ErrorFactory<T[K]>;
};

/** The union of a table's codes: `ErrorCodes<typeof storeErrors>`. */
export type ErrorCodes<F extends Readonly<Record<string, ErrorFactory>>> =
  F[keyof F]["row"]["code"];

/** Makes one factory per row: `storeErrors.slabCorrupt({ slab, key })` builds the `CodedError`. */
export function defineErrors<const T extends ErrorTable>(table: T): ErrorFactories<T> {
  const factories: Record<string, ErrorFactory> = {};
  for (const [name, row] of Object.entries(table)) factories[name] = createFactory(row);
  return factories as ErrorFactories<T>;
}

/** The rows behind some rooms' factories, for `explain` and the reference page. */
export function errorRows(
  ...tables: ReadonlyArray<Readonly<Record<string, ErrorFactory>>>
): ErrorRow[] {
  return tables.flatMap((table) => Object.values(table).map((factory) => factory.row));
}

function createFactory(row: ErrorRow): ErrorFactory {
  const build = (details: ErrorDetails = {}, cause?: unknown): CodedError =>
    new CodedError(row.code, row.kind, fillTemplate(row.message, details), details, cause);
  return Object.assign(build, { row });
}

export function isCodedError(error: unknown, code?: string): error is CodedError {
  return error instanceof CodedError && (code === undefined || error.code === code);
}

/** Any thrown value as an `Error`, so that it can be a `cause` and be logged. */
export function toError(value: unknown): Error {
  return value instanceof Error ? value : new Error(String(value));
}

function fillTemplate(template: string, details: ErrorDetails): string {
  return template.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = details[name];
    return value === undefined ? whole : String(value);
  });
}
