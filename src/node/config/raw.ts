// What a source holds before the key table is asked: a tree of maps, lists and scalars, each with
// its place. YAML files and embedders' objects become such a tree; environment and flags become
// assignments of one text to one path.

import type { Place } from "./place.ts";

export type RawNode = RawMap | RawList | RawScalar;

export type RawMap = {
  readonly kind: "map";
  readonly place: Place;
  readonly entries: readonly RawEntry[];
};

export type RawEntry = {
  readonly key: string;
  readonly keyPlace: Place;
  readonly value: RawNode;
};

export type RawList = {
  readonly kind: "list";
  readonly place: Place;
  readonly items: readonly RawNode[];
};

export type RawScalar = {
  readonly kind: "scalar";
  readonly place: Place;
  /** As written, without quotes; undefined for nothing at all (`key:`) or null. */
  readonly text: string | undefined;
};

/** One value for one path, from the environment or the command line. */
export type Assignment = {
  readonly path: readonly string[];
  readonly text: string;
  readonly place: Place;
};

/** A plain object of an embedding program, as a tree. Deeper than the key table is never walked. */
export function rawFromObject(value: unknown, label = "settings"): RawNode {
  const place: Place = { kind: "object", label };
  if (Array.isArray(value)) {
    return { kind: "list", place, items: value.map((item) => rawFromObject(item, label)) };
  }
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value).map(([key, inner]) => {
      const path = label === "settings" ? `settings.${key}` : `${label}.${key}`;
      return { key, keyPlace: { kind: "object", label: path } as const, inner, path };
    });
    return {
      kind: "map",
      place,
      entries: entries.map(({ key, keyPlace, inner, path }) => ({
        key,
        keyPlace,
        value: rawFromObject(inner, path),
      })),
    };
  }
  return { kind: "scalar", place, text: value == null ? undefined : String(value) };
}
