// Sessions in the order of their client ids, kept while sessions come and go: what changed since the
// last look is sorted and merged in, so that a look at very many sessions does not sort all of them
// again because one has come.

type Named = { readonly clientId: string };

/** Changes that are remembered: with more of them all are sorted anew. */
const changesMax = 10_000;

export class ClientOrder<T extends Named> {
  /** Never changed: whoever reads it goes on with what was there. Undefined before the first look. */
  #sorted: readonly T[] | undefined;
  readonly #came = new Set<T>();
  readonly #left = new Set<T>();

  came(one: T): void {
    if (this.#sorted === undefined) return;
    this.#came.add(one);
    this.#limitChanges();
  }

  left(one: T): void {
    if (this.#sorted === undefined || this.#came.delete(one)) return;
    this.#left.add(one);
    this.#limitChanges();
  }

  /** `all` is read when there was no look yet, or too much has changed since. */
  list(all: Iterable<T>): readonly T[] {
    if (this.#sorted === undefined) {
      this.#sorted = [...all].sort(byClientId);
    } else if (this.#came.size + this.#left.size > 0) {
      const kept =
        this.#left.size === 0 ? this.#sorted : this.#sorted.filter((one) => !this.#left.has(one));
      this.#sorted = merged(kept, [...this.#came].sort(byClientId));
      this.#forgetChanges();
    }
    return this.#sorted;
  }

  #limitChanges(): void {
    if (this.#came.size + this.#left.size <= changesMax) return;
    this.#sorted = undefined;
    this.#forgetChanges();
  }

  #forgetChanges(): void {
    this.#came.clear();
    this.#left.clear();
  }
}

const byClientId = (a: Named, b: Named): number => (a.clientId < b.clientId ? -1 : 1);

/** Compares each of the few that are added with some of the many, and the many not with each other. */
function merged<T extends Named>(many: readonly T[], few: readonly T[]): readonly T[] {
  if (few.length === 0) return many;
  const all: T[] = [];
  let at = 0;
  for (const one of few) {
    const end = firstFrom(many, ({ clientId }) => clientId > one.clientId, at);
    for (; at < end; at++) all.push(many[at] as T);
    all.push(one);
  }
  for (; at < many.length; at++) all.push(many[at] as T);
  return all;
}

/** Where those begin that `isBehind` is true of: they are the last ones of the list. */
export function firstFrom<T>(
  list: readonly T[],
  isBehind: (one: T) => boolean,
  fromIndex = 0,
): number {
  let low = fromIndex;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (isBehind(list[middle] as T)) high = middle;
    else low = middle + 1;
  }
  return low;
}
