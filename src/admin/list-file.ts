// Lists that the node keeps for its operators: small JSON files of the data directory, replaced as a
// whole. What to do about a damaged one is the caller's to say.

import { type Disk, isCodedError, readFile, replaceFile } from "../base/index.ts";

const format = 1;

/** `{format: 1, NAME: [...]}`. */
export type ListKind<T> = {
  readonly name: string;
  readonly isItem: (value: unknown) => value is T;
};

export function writeList(
  disk: Disk,
  path: string,
  { name }: ListKind<unknown>,
  items: readonly unknown[],
): Promise<void> {
  const text = JSON.stringify({ format, [name]: items }, null, 1);
  return replaceFile(disk, path, Buffer.from(`${text}\n`));
}

/** Empty without a file; undefined when what is there is not what was written. */
export async function readList<T>(
  disk: Disk,
  path: string,
  kind: ListKind<T>,
): Promise<T[] | undefined> {
  let text: string;
  try {
    text = (await readFile(disk, path)).toString("utf8");
  } catch (error) {
    if (isCodedError(error, "DISK_NOT_FOUND")) return [];
    throw error;
  }
  return parseList(text, kind);
}

export function parseList<T>(text: string, { name, isItem }: ListKind<T>): T[] | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    // Not what we wrote: told by undefined.
    return undefined;
  }
  const { format: found, [name]: items } = (parsed ?? {}) as Record<string, unknown>;
  if (found !== format || !Array.isArray(items)) return undefined;
  return items.every(isItem) ? items : undefined;
}
