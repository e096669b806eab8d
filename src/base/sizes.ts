// Sizes in sentences for people.

const units = [
  ["TiB", 2 ** 40],
  ["GiB", 2 ** 30],
  ["MiB", 2 ** 20],
  ["KiB", 2 ** 10],
] as const;

/** For people, not for the configuration: `12.3 GiB`. */
export function describeSize(sizeBytes: number): string {
  const found = units.find(([, factor]) => sizeBytes >= factor);
  if (found === undefined) return `${sizeBytes} B`;
  const amount = sizeBytes / found[1];
  return `${amount >= 100 ? Math.round(amount) : amount.toFixed(1)} ${found[0]}`;
}
