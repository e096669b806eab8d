// The fields of a key table in order, each with its path as the reference prints it:
// `databases.<database>.shards`.

import type { Entries, Field } from "./schema.ts";

export type TableRow = { readonly path: string; readonly key: string; readonly field: Field };

export function* fieldsOf(entries: Entries, prefix = ""): Generator<TableRow> {
  for (const [key, entry] of Object.entries(entries)) {
    const path = `${prefix}${key}`;
    if (entry.node === "field") yield { path, key, field: entry };
    else if (entry.node === "group") yield* fieldsOf(entry.entries, `${path}.`);
    else yield* fieldsOf(entry.entries, `${path}.<${entry.label}>.`);
  }
}
