// `layoutOptions.rootThresholds`: a first level and its thresholds in one text, `metrics=1000/10`.

export type RootThresholds = {
  readonly level: string;
  /** Of the level below it, and of those below that; the last for all further ones. */
  readonly thresholds: readonly [number, ...number[]];
};

const thresholdMax = 100_000;
const levelsMax = 16;

/** Undefined for a text of another form. A level may hold `=`: the last one counts. */
export function parseRootThresholds(text: string): RootThresholds | undefined {
  const at = text.lastIndexOf("=");
  const level = text.slice(0, Math.max(0, at));
  if (level === "" || /[/+#]/.test(level)) return undefined;
  const parts = text.slice(at + 1).split("/");
  if (parts.length > levelsMax || !parts.every((part) => /^[1-9]\d{0,5}$/.test(part))) {
    return undefined;
  }
  const [first, ...others] = parts.map(Number);
  if (first === undefined || Math.max(first, ...others) > thresholdMax) return undefined;
  return { level, thresholds: [first, ...others] };
}

/** By first level. REQUIRES: the texts were checked (`rules.ts`). */
export function rootThresholdsOf(
  texts: readonly string[],
): Record<string, readonly [number, ...number[]]> {
  const found = texts.flatMap((text) => parseRootThresholds(text) ?? []);
  return Object.fromEntries(found.map(({ level, thresholds }) => [level, thresholds]));
}
