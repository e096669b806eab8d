// Work that is done in slices: a reload of a large file must not keep the clients waiting. It goes
// on when its owner asks for the next slice; what it comes to exists only at its end.

export type Slices<T> = Generator<undefined, T, undefined>;

/** About 3 ms of reading hashes, the slowest of the files. */
const sliceChars = 128 * 1024;

/** Hands on the lines of a text one by one, numbered from 1 on. */
export function* eachLine(
  text: string,
  take: (line: string, number: number) => void,
): Slices<void> {
  let pause = sliceChars;
  for (let from = 0, number = 1; from <= text.length; number++) {
    const end = text.indexOf("\n", from);
    const next = end < 0 ? text.length : end;
    take(text.slice(from, next), number);
    from = next + 1;
    if (from < pause) continue;
    pause = from + sliceChars;
    yield;
  }
}

/** Without a break, where nobody waits. */
export function atOnce<T>(slices: Slices<T>): T {
  for (;;) {
    const slice = slices.next();
    if (slice.done) return slice.value;
  }
}
