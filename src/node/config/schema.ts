// What a configuration key can be. The key table (`keys.ts`) is written with these constructors;
// parsing, defaults, the reference page, the JSON Schema and the hot/restart marks all come from
// the same rows. The one home of valibot: each field carries a valibot schema that turns the text
// of a scalar (or the texts of a list) into the typed value, or into an issue.
//
// Names in code end in their unit although keys need not: `publishWait: 15s` in a file is
// `publishWaitMs: 15000` in the settings. A limit that is lifted by 0 is Infinity in the settings,
// so that comparisons need no special case.

import * as v from "valibot";
import { formatDuration, formatSize, parseCount, parseDuration, parseSize } from "./units.ts";

/** Whether a new value takes hold in a running node or needs a restart. */
export type Reload = "hot" | "restart";

/** What a source holds for a field: the text of a scalar, or the texts of a list. */
export type RawValue = string | readonly string[];

export type FieldKind =
  | "duration"
  | "size"
  | "count"
  | "port"
  | "flag"
  | "choice"
  | "text"
  | "secret"
  | "list";

/** What the 0 of a number means. `refused` when the limit cannot be lifted. */
export type ZeroMeaning = "no_limit" | "as_is" | "refused";

export type Field<T = unknown, Unit extends string = string> = {
  readonly node: "field";
  readonly kind: FieldKind;
  readonly unit: Unit;
  readonly schema: v.GenericSchema<unknown, T>;
  readonly doc: string;
  readonly reload: Reload;
  /** Text of the default, as a file would hold it; undefined when the key must be given. */
  readonly fallback: RawValue | undefined;
  /** What is expected, for messages: `a duration such as 15s`. */
  readonly expected: string;
  /** Allowed range, for messages and the reference: `1s to 1d`. */
  readonly range: string | undefined;
  readonly zero: string | undefined;
  readonly choices: readonly string[] | undefined;
  /** Text of a value, as a file would hold it. */
  format(value: unknown): string;
};

export type Group<E extends Entries = Entries> = {
  readonly node: "group";
  readonly doc: string;
  readonly entries: E;
};

export type Named<E extends Entries = Entries> = {
  readonly node: "named";
  readonly doc: string;
  /** Word for a name in paths: `databases.<database>`. */
  readonly label: string;
  readonly entries: E;
  /** Entries that exist without being written, with the values in which they differ. */
  readonly builtIn: Readonly<Record<string, Readonly<Record<string, RawValue>>>>;
  /** `kept`: built-in entries always exist. `replaced`: only while nobody names an entry. */
  readonly builtInWhenNamed: "kept" | "replaced";
};

export type Entry = Field | Group | Named;
export type Entries = { readonly [key: string]: Entry };

type WithUnit<K extends string, U extends string> = U extends ""
  ? K
  : K extends `${string}${U}${string}`
    ? K
    : K extends `${infer Head}Max`
      ? `${Head}${U}Max`
      : `${K}${U}`;

type SettingName<K, E> =
  E extends Field<unknown, infer U> ? WithUnit<K & string, U> : K extends string ? K : never;

type SettingValue<E> =
  E extends Field<infer T, string>
    ? T
    : E extends Group<infer G>
      ? SettingsOf<G>
      : E extends Named<infer N>
        ? Readonly<Record<string, SettingsOf<N>>>
        : never;

/** The typed settings a table yields. */
export type SettingsOf<E extends Entries> = {
  readonly [K in keyof E as SettingName<K, E[K]>]: SettingValue<E[K]>;
};

/** Name of a key in the settings: the key with its unit, before a closing `Max`. */
export function settingName(key: string, field: Entry): string {
  if (field.node !== "field" || field.unit === "" || key.includes(field.unit)) return key;
  return key.endsWith("Max") ? `${key.slice(0, -3)}${field.unit}Max` : `${key}${field.unit}`;
}

export type Parsed =
  | { readonly value: unknown; readonly issue?: undefined }
  | { readonly issue: "form" | "range" };

/** The typed value, or whether its form or its range is wrong. */
export function parseValue(field: Field, raw: RawValue): Parsed {
  const result = v.safeParse(field.schema, raw, { abortPipeEarly: true });
  if (result.success) return { value: result.output };
  return { issue: result.issues[0]?.message === outOfRange ? "range" : "form" };
}

/** `1KiB to 1GiB, 0: no limit`. */
export function describeRange(field: Field): string {
  const zero = field.zero === undefined ? "" : `, 0: ${field.zero}`;
  return `${field.range ?? "anything"}${zero}`;
}

// --- constructors -----------------------------------------------------------------------------

type Doc = { readonly doc: string; readonly reload: Reload };
type NumberOptions = Doc & {
  /** Text of the default; absent when the key must be given. */
  readonly fallback?: string;
  readonly min: number;
  readonly max: number;
  readonly zero?: ZeroMeaning;
  /** What 0 does, where it is `as_is`: `aliases are off`. */
  readonly zeroDoc?: string;
};

const outOfRange = "out of range";

export function group<const E extends Entries>(doc: string, entries: E): Group<E> {
  return { node: "group", doc, entries };
}

export function named<const E extends Entries>(
  options: Omit<Named<E>, "node" | "entries">,
  entries: E,
): Named<E> {
  return { node: "named", ...options, entries };
}

/** A key whose name carries the unit (`flushIntervalMs`) also takes the bare number. */
export function duration(options: NumberOptions): Field<number, "Ms"> {
  return numeric(options, {
    kind: "duration",
    unit: "Ms",
    expected: "a duration such as 500ms, 15s or 7d",
    parse: parseDuration,
    format: formatDuration,
  });
}

export function size(options: NumberOptions): Field<number, "Bytes"> {
  return numeric(options, {
    kind: "size",
    unit: "Bytes",
    expected: "a size such as 64KiB, 256MiB or 2GiB",
    parse: parseSize,
    format: formatSize,
  });
}

export function count(options: NumberOptions): Field<number, ""> {
  return numeric(options, {
    kind: "count",
    unit: "",
    expected: "a whole number",
    parse: parseCount,
    format: String,
  });
}

/** A TCP port; 0 lets the system choose. */
export function port(options: Doc & { fallback?: string }): Field<number, ""> {
  return numeric(
    { ...options, min: 0, max: 65_535, zero: "as_is", zeroDoc: "the system chooses a free port" },
    { kind: "port", unit: "", expected: "a port number", parse: parseCount, format: String },
  );
}

export function flag(options: Doc & { fallback: "true" | "false" }): Field<boolean, ""> {
  return field<boolean, "">(options, {
    kind: "flag",
    unit: "",
    schema: scalar((text) => (text === "true" ? true : text === "false" ? false : undefined)),
    expected: "true or false",
    format: String,
  });
}

export function choice<const C extends string>(
  choices: readonly C[],
  options: Doc & { fallback: NoInfer<C> },
): Field<C, ""> {
  return field<C, "">(options, {
    kind: "choice",
    unit: "",
    schema: v.picklist(choices),
    expected: `one of ${choices.join(", ")}`,
    choices,
    format: String,
  });
}

type TextOptions = Doc & {
  readonly fallback?: string;
  readonly pattern?: RegExp;
  readonly expected?: string;
};

export function text(options: TextOptions): Field<string, ""> {
  return field<string, "">(options, {
    kind: "text",
    unit: "",
    schema: textSchema(options.pattern),
    expected: options.expected ?? "a text",
    format: String,
  });
}

/** A text that is never shown and may come from a file named by `..._FILE` in the environment. */
export function secret(options: TextOptions): Field<string, ""> {
  return field<string, "">(options, {
    kind: "secret",
    unit: "",
    schema: textSchema(options.pattern),
    expected: options.expected ?? "a secret text",
    format: (value) => (value === "" ? "" : "********"),
  });
}

export function list(
  options: Doc & { fallback: readonly string[]; itemsMax: number; expected: string },
): Field<readonly string[], ""> {
  return field<readonly string[], "">(options, {
    kind: "list",
    unit: "",
    schema: v.pipe(
      v.array(v.pipe(v.string(), v.minLength(1))),
      v.maxLength(options.itemsMax, outOfRange),
    ),
    expected: options.expected,
    range: `at most ${options.itemsMax} items`,
    format: (value) => `[${(value as readonly string[]).map(quoteItem).join(", ")}]`,
  });
}

// --- shared pieces ----------------------------------------------------------------------------

/** The value of a limit that 0 has lifted. */
export const noLimit = Number.POSITIVE_INFINITY;

type FieldFacts<T, U extends string> = {
  kind: FieldKind;
  unit: U;
  schema: v.GenericSchema<unknown, T>;
  expected: string;
  range?: string;
  zero?: string;
  choices?: readonly string[];
  format: (value: unknown) => string;
};

function field<T, U extends string>(
  options: Doc & { readonly fallback?: RawValue },
  facts: FieldFacts<T, U>,
): Field<T, U> {
  return {
    node: "field",
    doc: options.doc,
    reload: options.reload,
    fallback: options.fallback,
    range: undefined,
    zero: undefined,
    choices: undefined,
    ...facts,
  };
}

type NumberForm<U extends string> = {
  kind: FieldKind;
  unit: U;
  expected: string;
  parse: (text: string) => number | undefined;
  format: (value: number) => string;
};

function numeric<U extends string>(options: NumberOptions, form: NumberForm<U>): Field<number, U> {
  const zero = options.zero ?? "refused";
  const allowed = (value: number) =>
    value === noLimit || (value === 0 && zero === "as_is") || inRange(value, options);
  const zeroDoc = zero === "no_limit" ? "no limit" : options.zeroDoc;
  return field<number, U>(options, {
    kind: form.kind,
    unit: form.unit,
    schema: v.pipe(
      scalar((text) => {
        const value = form.parse(text);
        return value === 0 && zero === "no_limit" ? noLimit : value;
      }),
      v.check(allowed, outOfRange),
    ),
    expected: form.expected,
    range: `${form.format(options.min)} to ${form.format(options.max)}`,
    ...(zero === "refused" || zeroDoc === undefined ? {} : { zero: zeroDoc }),
    format: (value) => (value === noLimit ? "0" : form.format(value as number)),
  });
}

function inRange(value: number, { min, max }: { min: number; max: number }): boolean {
  return value >= min && value <= max;
}

/** A scalar's text turned into a value by `parse`; undefined means another form was expected. */
function scalar<T>(parse: (text: string) => T | undefined): v.GenericSchema<unknown, T> {
  return v.pipe(
    v.string(),
    v.rawTransform(({ dataset, addIssue, NEVER }) => {
      const value = parse(dataset.value);
      if (value !== undefined) return value;
      addIssue({ message: "form" });
      return NEVER;
    }),
  );
}

function textSchema(pattern: RegExp | undefined): v.GenericSchema<unknown, string> {
  // A pattern says by itself whether nothing is a text.
  if (pattern === undefined) return v.pipe(v.string(), v.minLength(1));
  return v.pipe(v.string(), v.regex(pattern));
}

function quoteItem(item: string): string {
  return /^[A-Za-z0-9_./-]+$/.test(item) ? item : JSON.stringify(item);
}
