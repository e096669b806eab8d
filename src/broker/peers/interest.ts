// What the clients of this node are subscribed to, as the other nodes are told of it: for each filter
// what is wanted, whoever wants it.
//
// Keeps: a node that is reached is told all of it first, then what has changed since, one word at a
// time; whatever happens to a word, what was in it is told again until it is answered, or the node is
// lost.

import { type Cancel, type Clock, isCodedError } from "../../base/index.ts";
import { encodeInterest, type Want, wants } from "./peer-codec.ts";
import type { PeerWords } from "./ports.ts";

type Counts = { readonly all: number; readonly unstored: number; readonly dealt: number };

type Told = {
  readonly node: number;
  /** Not told since they changed. */
  dirty: Set<string>;
  /** Has to forget what it was told before. */
  isAnew: boolean;
  isAsked: boolean;
  /** It knows what was subscribed up to here. */
  revision: number;
  retry: Cancel | undefined;
};

export const interestWord = "live.interest";
/** Bytes of filters in a word; one is always taken. */
const wordBytesMax = 256 * 1024;
const answerMs = 10_000;
const [busyRetryMs, failedRetryMs] = [50, 1_000];

export class OwnInterest {
  readonly #words: PeerWords;
  readonly #clock: Clock;
  readonly #counts = new Map<string, Counts>();
  readonly #told = new Map<number, Told>();
  #revision = 0;
  #waiting: Array<{ readonly revision: number; readonly resolve: () => void }> = [];
  #isPlanned = false;

  constructor(words: PeerWords, clock: Clock) {
    this.#words = words;
    this.#clock = clock;
  }

  /** One more or less wants this of a filter. */
  count(filter: string, kind: keyof Counts, change: 1 | -1): void {
    const before = this.#counts.get(filter) ?? { all: 0, unstored: 0, dealt: 0 };
    const after = { ...before, [kind]: before[kind] + change };
    if (wantOf(after) === wants.nothing) this.#counts.delete(filter);
    else this.#counts.set(filter, after);
    if (wantOf(before) === wantOf(after)) return;
    this.#revision++;
    for (const told of this.#told.values()) told.dirty.add(filter);
    this.#plan();
  }

  reached(node: number): void {
    this.lost(node);
    const dirty = new Set(this.#counts.keys());
    const rest = { isAnew: true, isAsked: false, revision: -1, retry: undefined };
    this.#told.set(node, { node, dirty, ...rest });
    this.#plan();
  }

  lost(node: number): void {
    this.#told.get(node)?.retry?.();
    this.#told.delete(node);
    this.#settle();
  }

  /** Resolves when every node that is reached knows what is wanted now. */
  settled(): Promise<void> | undefined {
    const revision = this.#revision;
    if (this.#knownRevision() >= revision) return undefined;
    return new Promise((resolve) => this.#waiting.push({ revision, resolve }));
  }

  #knownRevision(): number {
    return Math.min(...[...this.#told.values()].map((told) => told.revision), this.#revision);
  }

  #settle(): void {
    const known = this.#knownRevision();
    const settled = this.#waiting.filter(({ revision }) => revision <= known);
    if (settled.length === 0) return;
    this.#waiting = this.#waiting.filter(({ revision }) => revision > known);
    for (const { resolve } of settled) resolve();
  }

  /** What changes in one turn goes in one word. */
  #plan(): void {
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    this.#clock.soon(() => {
      this.#isPlanned = false;
      for (const told of this.#told.values()) this.#tell(told);
    });
  }

  #tell(told: Told): void {
    if (told.isAsked || told.retry !== undefined) return;
    if (told.dirty.size === 0 && !told.isAnew) return;
    const taken: string[] = [];
    const filters: Array<readonly [string, Want]> = [];
    let bytes = 0;
    for (const filter of told.dirty) {
      if (bytes > wordBytesMax) break;
      bytes += filter.length;
      taken.push(filter);
      filters.push([filter, wantOf(this.#counts.get(filter))]);
    }
    for (const filter of taken) told.dirty.delete(filter);
    const [isFirst, isComplete] = [told.isAnew, told.dirty.size === 0];
    const revision = isComplete ? this.#revision : told.revision;
    told.isAsked = true;
    told.isAnew = false;
    const word = encodeInterest({ isFirst, isComplete, filters });
    this.#words.ask(told.node, interestWord, word, answerMs).then(
      () => {
        told.isAsked = false;
        told.revision = revision;
        if (this.#told.get(told.node) !== told) return;
        this.#settle();
        this.#tell(told);
      },
      (error: unknown) => {
        told.isAsked = false;
        if (this.#told.get(told.node) !== told) return;
        for (const filter of taken) told.dirty.add(filter);
        told.isAnew ||= isFirst;
        const isBusy = isCodedError(error) && error.code.endsWith("_BUSY");
        told.retry = this.#clock.schedule(isBusy ? busyRetryMs : failedRetryMs, () => {
          told.retry = undefined;
          this.#tell(told);
        });
      },
    );
  }
}

function wantOf(counts: Counts | undefined): Want {
  if (counts === undefined) return wants.nothing;
  if (counts.dealt > 0) return wants.dealt;
  if (counts.all > 0) return wants.all;
  return counts.unstored > 0 ? wants.unstored : wants.nothing;
}
