// Where a configured value stands: a spot in a file, an environment variable, a flag of the command
// line, an object handed over by an embedding program, or nowhere (the default).
// Faults point at it and `config show --origin` prints it.

export type FilePlace = {
  readonly kind: "file";
  readonly file: string;
  /** From 1. */
  readonly line: number;
  /** From 1, in UTF-16 code units. */
  readonly column: number;
  /** Length of the marked text within its line, at least 1. */
  readonly length: number;
  readonly lineText: string;
};

export type Place =
  | FilePlace
  /** `label` as printed: `environment FLAGSTONE__A__B`, `--set a.b`, `--port`, `settings`. */
  | { readonly kind: "environment" | "flag" | "object"; readonly label: string }
  /** A whole source, where no spot in it can be told. */
  | { readonly kind: "source"; readonly label: string }
  | { readonly kind: "default" };

/** Of a value that nobody gave. */
export const defaultLabel = "default";

export function describePlace(place: Place): string {
  if (place.kind === "default") return defaultLabel;
  return place.kind === "file" ? `${place.file}:${place.line}:${place.column}` : place.label;
}

/** Widest part of a source line that is shown. */
const columnsMax = 100;

/** The source line with a caret under the marked text; nothing for places outside a file. */
export function showSource(place: Place): string[] {
  if (place.kind !== "file") return [];
  const start = Math.max(0, place.column - Math.floor(columnsMax / 2));
  const from = place.lineText.length > columnsMax ? start : 0;
  const shown = printable(withoutSecrets(place.lineText).slice(from, from + columnsMax));
  const at = place.column - 1 - from;
  // Tabs are kept before the caret, so that it stands under its text whatever their width.
  const indent = shown.slice(0, at).replace(/[^\t]/g, " ").padEnd(at);
  const caret = "^".repeat(Math.max(1, Math.min(place.length, shown.length - at)));
  const number = String(place.line);
  const gutter = " ".repeat(number.length);
  return [`  ${number} | ${shown}`, `  ${gutter} | ${indent}${caret}`];
}

/**
 * A fault of the syntax, or of a key that is misspelt, may stand on the line of a secret. As long as
 * before: the caret stays under its text.
 */
function withoutSecrets(line: string): string {
  return line.replace(
    /((?:secr|bearer)\w{0,20}["']?\s{0,9}:\s{0,9})("[^"]*"?|'[^']*'?|[^\s,}][^,}]*)/gi,
    (_all, key: string, value: string) => `${key}${"*".repeat(value.length)}`,
  );
}

/** Sorts places as a reader goes through them: file top to bottom, environment, flags. */
export function comparePlaces(left: Place, right: Place): number {
  const order = ["source", "file", "object", "environment", "flag", "default"];
  const byKind = order.indexOf(left.kind) - order.indexOf(right.kind);
  if (byKind !== 0 || left.kind !== "file" || right.kind !== "file") return byKind;
  return left.line - right.line || left.column - right.column;
}

/** Control characters could rewrite the reader's terminal; a tab is harmless. */
export function printable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  return text.replace(/[\u0000-\u0008\u000a-\u001f\u007f-\u009f]/g, "\u00b7");
}
