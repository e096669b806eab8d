// The normative statements of MQTT that have a conformance test, by section: "3.1.2": "1..3 5" are
// [MQTT-3.1.2-1] to -3 and -5 of MQTT 5; "311:" stands before a section of MQTT 3.1.1. Statements
// that bind clients only, and those without a choice for a broker, are not listed.

export const statements: Readonly<Record<string, string>> = {
  "1.5.4": "1..3",
  "1.5.5": "1",
  "2.1.3": "1",
  "2.2.1": "2..6",
  "2.2.2": "1",
  "3.1.0": "1..2",
  "3.1.2": "1..8 10..19 21..29",
  "3.1.3": "1 5..11",
  "3.1.4": "1..3 5..6",
  "3.2.0": "1..2",
  "3.2.2": "1..3 6..10 12..13 16 18..20 22",
  "3.3.1": "1..13",
  "3.3.2": "1..8 11..12 14..18 20",
  "3.3.4": "1..6 9..10",
  "3.6.1": "1",
  "3.8.1": "1",
  "3.8.3": "2..5",
  "3.8.4": "1..8",
  "3.9.3": "1",
  "3.10.1": "1",
  "3.10.3": "2",
  "3.10.4": "1..6",
  "3.11.3": "1..2",
  "3.12.4": "1",
  "3.14.0": "1",
  "3.14.1": "1",
  "3.14.2": "1..2",
  "3.14.4": "1..3",
  "3.15.1": "1",
  "4.1.0": "1..2",
  "4.2.0": "1",
  "4.3.1": "1",
  "4.3.2": "1..5",
  "4.3.3": "1..13",
  "4.4.0": "1..2",
  "4.5.0": "1",
  "4.6.0": "1..6",
  "4.7.1": "1..2",
  "4.7.2": "1",
  "4.7.3": "1..4",
  "4.8.2": "1..6",
  "4.9.0": "1..3",
  "4.12.0": "1..2 4..7",
  "4.12.1": "1..2",
  "4.13.1": "1",
  "4.13.2": "1",
  "6.0.0": "1..4",
  "311:2.2.2": "1..2",
  "311:2.3.1": "1",
  "311:3.1.2": "2 6 22 24",
  "311:3.1.3": "7..8",
  "311:3.1.4": "2",
  "311:3.2.2": "1..3",
  "311:3.3.1": "6 8..9",
  "311:3.3.5": "1..2",
  "311:3.8.3": "4",
  "311:3.9.3": "2",
  "311:3.10.4": "5",
  "311:4.8.0": "1",
};

/** Every id of a text: `[3.1.2-4]`, and `[4.3.3-1..7]` for seven of them. */
export function idsIn(text: string): string[] {
  const ids: string[] = [];
  for (const match of text.matchAll(/\[((?:311:)?\d+\.\d+\.\d+)-(\d+(?:\.\.\d+)?)\]/g)) {
    ids.push(...expand(match[1] as string, match[2] as string));
  }
  return ids;
}

export function idsListed(): string[] {
  return Object.entries(statements).flatMap(([section, numbers]) =>
    numbers.split(" ").flatMap((part) => expand(section, part)),
  );
}

function expand(section: string, range: string): string[] {
  const [first = 0, last = first] = range.split("..").map(Number);
  return Array.from({ length: last - first + 1 }, (_, at) => `${section}-${first + at}`);
}
