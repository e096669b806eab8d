// Values with units, as people write them in the configuration: `15s`, `256MiB`.
// Parsing gives whole milliseconds or bytes, or undefined for text of another form; formatting
// gives the shortest exact text, so that `parse(format(x)) === x` for every whole x >= 0.
// What is allowed for a key (range, meaning of 0) is the key table's matter.

const durationUnits = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1000],
  ["ms", 1],
] as const;

const sizeUnits = [
  ["TiB", 2 ** 40],
  ["GiB", 2 ** 30],
  ["MiB", 2 ** 20],
  ["KiB", 2 ** 10],
  ["B", 1],
] as const;

type Units = ReadonlyArray<readonly [name: string, factor: number]>;

/** `15s`, `1h30m`, `1.5s`, `0`; undefined for anything else or for parts of a millisecond. */
export function parseDuration(text: string): number | undefined {
  if (text === "0") return 0;
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text)) return undefined;
  let totalMs = 0;
  for (const [, amount, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)) {
    totalMs += Number(amount) * factorOf(durationUnits, unit);
  }
  return asWhole(totalMs);
}

export function formatDuration(durationMs: number): string {
  return formatWith(durationUnits, durationMs);
}

/** `64KiB`, `1.5GiB`, `10B`, `0`; undefined for anything else or for parts of a byte. */
export function parseSize(text: string): number | undefined {
  if (text === "0") return 0;
  const match = /^(\d+(?:\.\d+)?)(B|KiB|MiB|GiB|TiB)$/.exec(text);
  if (match === null) return undefined;
  return asWhole(Number(match[1]) * factorOf(sizeUnits, match[2]));
}

export function formatSize(sizeBytes: number): string {
  return formatWith(sizeUnits, sizeBytes);
}

/** Digits only: no sign, exponent, separator or fraction. */
export function parseCount(text: string): number | undefined {
  return /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

function factorOf(units: Units, name: string | undefined): number {
  return units.find(([unit]) => unit === name)?.[1] ?? Number.NaN;
}

function asWhole(amount: number): number | undefined {
  // 1.1s is 1100.0000000000002 in binary: near enough to a whole number counts as one.
  const whole = Math.round(amount);
  return Math.abs(amount - whole) < 1e-6 && Number.isSafeInteger(whole) ? whole : undefined;
}

function formatWith(units: Units, amount: number): string {
  if (amount === 0) return "0";
  const unit = units.find(([, factor]) => amount % factor === 0);
  return unit === undefined ? String(amount) : `${amount / unit[1]}${unit[0]}`;
}
