// Layers merged by precedence (flag > environment > file > default) and completed with defaults:
// the typed settings, and beside them every effective value with its place.
// Rules between keys are left to `rules.ts`.

import { assert } from "../../base/index.ts";
import type { Fault } from "./fault.ts";
import type { Place } from "./place.ts";
import type { Layer, Leaf } from "./read.ts";
import type { Entries, Field, Group, Named, RawValue } from "./schema.ts";
import { parseValue, settingName } from "./schema.ts";

/** The value of one key as it holds, and where it came from. */
export type Effective = Leaf;

export type Resolved = {
  /** Nested plain object in the shape of `SettingsOf<table>`; incomplete when there are faults. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** In table order, by dotted path. */
  readonly effective: ReadonlyMap<string, Effective>;
};

const byDefault: Place = { kind: "default" };

/** @param layers lowest precedence first. */
export function resolve(table: Entries, layers: readonly Layer[], faults: Fault[]): Resolved {
  const resolver = new Resolver(layers, faults);
  const settings = resolver.build(table, { prefix: "", overrides: {}, place: byDefault });
  return { settings, effective: resolver.effective };
}

/** The names of a named map: built-in ones by its rule, then those the layers give. */
export function namesOf(entry: Named, path: string, layers: readonly Layer[]): string[] {
  const given = layers.flatMap((layer) => [...(layer.names.get(path)?.keys() ?? [])]);
  const builtIn = Object.keys(entry.builtIn);
  const kept = entry.builtInWhenNamed === "kept" || given.length === 0;
  return [...new Set(kept ? [...builtIn, ...given] : given)];
}

type Spot = {
  readonly prefix: string;
  /** Defaults of this named entry that differ from the fields' own. */
  readonly overrides: Readonly<Record<string, RawValue>>;
  /** Where the entry was named: a missing key is reported there. */
  readonly place: Place;
};

class Resolver {
  readonly effective = new Map<string, Effective>();
  readonly #layers: readonly Layer[];
  readonly #faults: Fault[];

  constructor(layers: readonly Layer[], faults: Fault[]) {
    this.#layers = layers;
    this.#faults = faults;
  }

  build(entries: Entries, spot: Spot): Record<string, unknown> {
    const built: Record<string, unknown> = {};
    for (const [key, entry] of Object.entries(entries)) {
      const path = spot.prefix === "" ? key : `${spot.prefix}.${key}`;
      const name = settingName(key, entry);
      if (entry.node === "field") {
        const fallback = spot.overrides[key] ?? entry.fallback;
        built[name] = this.#leaf(entry, path, { fallback, place: spot.place });
      } else {
        built[name] = this.#inner(entry, path, spot);
      }
    }
    return built;
  }

  #inner(entry: Group | Named, path: string, spot: Spot): Record<string, unknown> {
    if (entry.node === "group") {
      return this.build(entry.entries, { prefix: path, overrides: {}, place: spot.place });
    }
    const built: Record<string, unknown> = {};
    for (const name of namesOf(entry, path, this.#layers)) {
      const overrides = Object.hasOwn(entry.builtIn, name) ? (entry.builtIn[name] ?? {}) : {};
      const place = this.#placeOfName(path, name);
      built[name] = this.build(entry.entries, { prefix: `${path}.${name}`, overrides, place });
    }
    return built;
  }

  #leaf(
    field: Field,
    path: string,
    otherwise: { fallback: RawValue | undefined; place: Place },
  ): unknown {
    for (const layer of this.#layers.toReversed()) {
      const leaf = layer.leaves.get(path);
      if (leaf === undefined) continue;
      this.effective.set(path, leaf);
      return leaf.value;
    }
    if (otherwise.fallback === undefined) {
      this.#missing(field, path, otherwise.place);
      return undefined;
    }
    const parsed = parseValue(field, otherwise.fallback);
    assert(parsed.issue === undefined, `the default of ${path} does not fit its own key`);
    this.effective.set(path, { path, field, value: parsed.value, place: byDefault });
    return parsed.value;
  }

  #missing(field: Field, path: string, place: Place): void {
    // A value that is there but wrong has its own fault already.
    if (this.#faults.some((fault) => fault.path === path)) return;
    const message = `is missing, expected ${field.expected}`;
    this.#faults.push({ code: "CONFIG_KEY_MISSING", place, path, message });
  }

  #placeOfName(path: string, name: string): Place {
    for (const layer of this.#layers) {
      const place = layer.names.get(path)?.get(name);
      if (place !== undefined) return place;
    }
    return byDefault;
  }
}
