// What a configuration that was read again changes in a running node, key by key. Hot keys take hold
// now; the others are told at every reload until a restart takes them.

import type { Config } from "./config.ts";
import type { Effective } from "./resolve.ts";
import type { Reload } from "./schema.ts";

export type ConfigChange = {
  readonly path: string;
  /** As a file would hold them; secrets masked. Undefined where the key is not there at all. */
  readonly from: string | undefined;
  readonly to: string | undefined;
  readonly reload: Reload;
};

export function changesBetween(running: Config, next: Config): ConfigChange[] {
  const paths = new Set([...running.effective.keys(), ...next.effective.keys()]);
  const changes: ConfigChange[] = [];
  for (const path of paths) {
    const before = running.effective.get(path);
    const after = next.effective.get(path);
    const field = (after ?? before)?.field;
    if (field === undefined || sameValue(before, after)) continue;
    const [from, to] = [before, after].map((leaf) => leaf && field.format(leaf.value));
    changes.push({ path, from, to, reload: field.reload });
  }
  return changes;
}

/** What runs after a reload: the keys named from the new configuration, the rest from the old one. */
export function withPaths(running: Config, next: Config, paths: ReadonlySet<string>): Config {
  const effective = new Map(running.effective);
  for (const path of paths) {
    const leaf = next.effective.get(path);
    if (leaf === undefined) effective.delete(path);
    else effective.set(path, leaf);
  }
  return { settings: running.settings, effective };
}

/** `logger.level: info -> debug`. */
export function describeChange({ path, from, to }: ConfigChange): string {
  return `${path}: ${from ?? "none"} -> ${to ?? "none"}`;
}

// By value, not by text: two secrets print alike.
function sameValue(before: Effective | undefined, after: Effective | undefined): boolean {
  if (before === undefined || after === undefined) return before === after;
  return JSON.stringify(before.value) === JSON.stringify(after.value);
}
