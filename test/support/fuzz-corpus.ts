// The corpus of the codec's fuzzing: for each kind of outcome the shortest stream that came to it.
// One line each, parted by tabs: version, sender, stream in hex, outcome.

export type Kept = {
  readonly version: 4 | 5;
  readonly sender: "client" | "server";
  readonly hex: string;
  readonly outcome: string;
};

export function parseCorpus(text: string): Kept[] {
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const [version, sender, hex = "", outcome = ""] = line.split("\t");
      return {
        version: version === "5" ? 5 : 4,
        sender: sender === "server" ? "server" : "client",
        hex,
        outcome,
      };
    });
}

export class Corpus {
  /** Kinds that were not in it at first. */
  added = 0;
  readonly #kept = new Map<string, Kept>();
  readonly #known = new Set<string>();

  constructor(text: string) {
    for (const kept of parseCorpus(text)) {
      this.#kept.set(keyOf(kept), kept);
      this.#known.add(keyOf(kept));
    }
  }

  get size(): number {
    return this.#kept.size;
  }

  /** Keeps the shortest stream of a kind that is new; streams of several packets are not kept. */
  add(stream: Buffer, version: 4 | 5, sender: Kept["sender"], outcome: string): void {
    if (outcome === "" || outcome.includes(" | ")) return;
    const key = keyOf({ version, sender, outcome });
    if (this.#known.has(key)) return;
    const kept = this.#kept.get(key);
    if (kept !== undefined && kept.hex.length <= 2 * stream.length) return;
    if (kept === undefined) this.added++;
    this.#kept.set(key, { version, sender, hex: stream.toString("hex"), outcome });
  }

  text(): string {
    const lines = [...this.#kept.values()].map(({ version, sender, hex, outcome }) =>
      [version, sender, hex, outcome].join("\t"),
    );
    return `${lines.sort().join("\n")}\n`;
  }
}

function keyOf({ version, sender, outcome }: Omit<Kept, "hex">): string {
  return `${version} ${sender} ${outcome}`;
}
