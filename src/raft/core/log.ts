// The log as the core sees it: the entries above the last cut, and how far each stage has come.
//
// Keeps: indexes without a gap; terms never fall; applied <= handedOut <= commit <= last; persisted
// <= handedToDisk <= last; start <= commit (and start <= applied once a received snapshot is
// installed); nothing at or below `commit` is ever replaced.
// Leaves to others: which entries belong here (follower, leader) and where they are stored (host).

import { assert } from "../../base/index.ts";
import type { Entry, EntryPosition } from "./types.ts";

/** What an entry costs beside its data; keeps windows honest about empty ones. */
export const entryOverheadBytes = 32;

export function entryBytes(entry: Entry): number {
  return entryOverheadBytes + (entry.kind === "command" ? entry.data.length : 0);
}

export class RaftLog {
  #entries: Entry[];
  #start: EntryPosition;
  /** Highest index known to be committed. */
  commit: number;
  /** Highest committed index handed to the host. */
  handedOut: number;
  /** Highest index in the state machine, as the host reported. */
  applied: number;
  /** Highest index given to the host for its disk. */
  handedToDisk: number;
  /** Highest index durable here, as the host reported. */
  persisted: number;

  constructor(start: EntryPosition, entries: readonly Entry[]) {
    this.#start = { index: start.index, term: start.term };
    this.#entries = [...entries];
    let before: EntryPosition = start;
    for (const entry of entries) {
      const fits = entry.index === before.index + 1 && entry.term >= before.term;
      assert(fits, `log has ${entry.index}/${entry.term} after ${before.index}/${before.term}`);
      before = entry;
    }
    this.commit = start.index;
    this.handedOut = start.index;
    this.applied = start.index;
    this.handedToDisk = this.lastIndex;
    this.persisted = this.lastIndex;
  }

  /** Last index cut off; its term still answers for it. */
  get startIndex(): number {
    return this.#start.index;
  }

  get lastIndex(): number {
    return this.#start.index + this.#entries.length;
  }

  get lastTerm(): number {
    return this.#entries.at(-1)?.term ?? this.#start.term;
  }

  /** Undefined below the cut and above the end. */
  termAt(index: number): number | undefined {
    if (index === this.#start.index) return this.#start.term;
    return this.#entries[index - this.#start.index - 1]?.term;
  }

  entryAt(index: number): Entry | undefined {
    return this.#entries[index - this.#start.index - 1];
  }

  /** Whether a log that ends so may lead this one: later term, or same term and no shorter. */
  isUpToDate(lastIndex: number, lastTerm: number): boolean {
    if (lastTerm !== this.lastTerm) return lastTerm > this.lastTerm;
    return lastIndex >= this.lastIndex;
  }

  /** Entries from `from` up to `to`, at least one if there is one, within the caps. */
  slice(from: number, to: number, limits: { entries: number; bytes: number }): Entry[] {
    assert(from > this.#start.index, `entry ${from} was cut at ${this.#start.index}`);
    const taken: Entry[] = [];
    let bytes = 0;
    for (let index = from; index <= Math.min(to, this.lastIndex); index++) {
      const entry = this.entryAt(index) as Entry;
      bytes += entryBytes(entry);
      if (taken.length > 0 && (bytes > limits.bytes || taken.length >= limits.entries)) break;
      taken.push(entry);
    }
    return taken;
  }

  /** All entries from `from` on. */
  tail(from: number): Entry[] {
    return this.#entries.slice(Math.max(0, from - this.#start.index - 1));
  }

  append(entry: Entry): void {
    assert(entry.index === this.lastIndex + 1, `append of ${entry.index} at ${this.lastIndex}`);
    assert(entry.term >= this.lastTerm, `term ${entry.term} appended after ${this.lastTerm}`);
    this.#entries.push(entry);
  }

  truncateFrom(index: number): void {
    assert(index > this.commit, `truncation at ${index} would cut committed ${this.commit}`);
    this.#entries.length = Math.min(this.#entries.length, index - this.#start.index - 1);
    this.handedToDisk = Math.min(this.handedToDisk, index - 1);
    this.persisted = Math.min(this.persisted, index - 1);
  }

  commitTo(index: number): void {
    if (index <= this.commit) return;
    assert(index <= this.lastIndex, `commit ${index} above last ${this.lastIndex}`);
    this.commit = index;
  }

  /**
   * The highest index at or below `index` whose term is at most `term`: all above it in this log
   * cannot agree with a log that holds `term` at `index`.
   */
  lastIndexWithin(index: number, term: number): EntryPosition {
    let at = Math.min(index, this.lastIndex);
    for (; at > this.#start.index; at--) {
      const held = this.termAt(at) as number;
      if (held <= term) return { index: at, term: held };
    }
    return { index: at, term: this.termAt(at) ?? 0 };
  }

  /** Cuts everything up to `index`, which must be applied. */
  compactTo(index: number): void {
    assert(index <= this.applied, `cut at ${index} above applied ${this.applied}`);
    const term = this.termAt(index);
    assert(term !== undefined && index > this.#start.index, `cut at ${index} is not in the log`);
    this.#entries.splice(0, index - this.#start.index);
    this.#start = { index, term };
  }

  /** Replaces everything by a snapshot that is not yet durable. */
  restore(snapshot: EntryPosition): void {
    assert(snapshot.index > this.commit, `snapshot ${snapshot.index} below ${this.commit}`);
    this.persisted = Math.min(this.persisted, this.commit);
    this.#entries = [];
    this.#start = { index: snapshot.index, term: snapshot.term };
    this.commit = snapshot.index;
    this.handedOut = snapshot.index;
    this.handedToDisk = snapshot.index;
  }
}
