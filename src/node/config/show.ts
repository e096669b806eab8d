// The effective configuration as YAML text that can be read back, with the origin of each value as a
// comment when asked for. Secrets are masked.

import { describePlace } from "./place.ts";
import type { Effective } from "./resolve.ts";
import type { FieldKind } from "./schema.ts";

export type ShowOptions = { readonly origin: boolean };

export function showConfig(
  effective: ReadonlyMap<string, Effective>,
  options: ShowOptions,
): string {
  const lines: Array<{ text: string; origin: string }> = [];
  let open: readonly string[] = [];
  for (const { path, field, value, place } of effective.values()) {
    const segments = path.split(".");
    const parents = segments.slice(0, -1);
    const shared = parents.findIndex((parent, index) => parent !== open[index]);
    for (let depth = shared < 0 ? parents.length : shared; depth < parents.length; depth++) {
      lines.push({ text: `${indent(depth)}${parents[depth]}:`, origin: "" });
    }
    open = parents;
    const shown = quoteScalar(field.kind, field.format(value));
    const text = `${indent(parents.length)}${segments.at(-1)}: ${shown}`;
    lines.push({ text, origin: describePlace(place) });
  }
  return `${(options.origin ? withOrigins(lines) : lines.map(({ text }) => text)).join("\n")}\n`;
}

/** Column at which origins start, unless a line is longer. */
const originColumn = 44;

function withOrigins(lines: ReadonlyArray<{ text: string; origin: string }>): string[] {
  return lines.map(({ text, origin }) =>
    origin === "" ? text : `${text.padEnd(originColumn - 1)} # ${origin}`,
  );
}

function indent(depth: number): string {
  return "  ".repeat(depth);
}

// Only free texts can look like something else in YAML; a list has quoted its items already.
function quoteScalar(kind: FieldKind, text: string): string {
  if (kind !== "text" && kind !== "secret") return text;
  return /^[A-Za-z./][A-Za-z0-9_./-]*$/.test(text) || /^\d+(\.\d+){3}$/.test(text)
    ? text
    : JSON.stringify(text);
}
