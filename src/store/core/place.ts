// Where the TTVs of a topic are, and what a block that takes one of them needs to know of the topic:
// looked up once a topic, not once a TTV.
//
// What blocks note here (`block`, `topicId`, `keys`, and those of words) is theirs alone, and true
// only while the number beside it is their own. Nothing here keeps a block in memory.

/** A varying word that many topics have in common: one object, as long as its table lasts. */
export type Word = {
  readonly text: string;
  /** The dictionary it was put into last, and its id there. */
  dictionary: number;
  id: number;
};

/** A stream, and the words that its structure leaves open. */
export type Place = {
  readonly stream: number;
  readonly varying: readonly string[];
  /** `varying` as words of a table; undefined where one of them is not kept there. */
  readonly words: readonly Word[] | undefined;
  /** Number of that table: words of two tables may have the same text. */
  readonly table: number;
  /** The block that took a TTV of the topic last, and the topic's id in it. */
  block: number;
  topicId: number;
  /** What summaries hold of the topic, made with the first. */
  keys: readonly number[] | undefined;
};

/** Longer words are seldom the same. */
const wordMax = 64;
const noWords: readonly never[] = [];

let numbersGiven = 0;

/** A number that no table, block or dictionary of this process has; never 0. */
export function nextNumber(): number {
  numbersGiven++;
  return numbersGiven;
}

/** Makes places whose words are one object for each text, up to a number of them. */
export class WordTable {
  readonly #words = new Map<string, Word>();
  readonly #wordsMax: number;
  #number = nextNumber();

  constructor(wordsMax: number) {
    this.#wordsMax = wordsMax;
  }

  /** `isKept`: the place is remembered, so that the topic has no other meanwhile. */
  place(stream: number, varying: readonly string[], isKept: boolean): Place {
    const words = isKept ? this.#wordsOf(varying) : undefined;
    return {
      stream,
      varying: words === undefined ? varying : textsOf(words),
      words,
      table: this.#number,
      block: 0,
      topicId: 0,
      keys: undefined,
    };
  }

  clear(): void {
    this.#words.clear();
    this.#number = nextNumber();
  }

  #wordsOf(varying: readonly string[]): readonly Word[] | undefined {
    if (varying.length === 0) return noWords;
    if (varying.some((text) => text.length > wordMax)) return undefined;
    if (this.#words.size + varying.length > this.#wordsMax) this.clear();
    return varying.map((text) => this.#word(text));
  }

  #word(text: string): Word {
    const known = this.#words.get(text);
    if (known !== undefined) return known;
    const word = { text, dictionary: 0, id: 0 };
    this.#words.set(text, word);
    return word;
  }
}

/** The texts of the words themselves: blocks compare them by the million. */
function textsOf(words: readonly Word[]): readonly string[] {
  return words.length === 0 ? noWords : words.map(({ text }) => text);
}
