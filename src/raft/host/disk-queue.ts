// The way of one group's entries and snapshots into the shared log, in the order of its readies.
//
// Keeps: steps are begun in order and none before an earlier snapshot is installed; an append that
// the log has no room for waits here, nothing is left out. Truncation is a record: entries replace
// what stands at their index, and a snapshot that replaces a longer log first writes a cut.

import { isCodedError, toError } from "../../base/index.ts";
import type { LogRecord, WriteAheadLog } from "../../log/index.ts";
import { encodeEntryPayload } from "../codec.ts";
import type { Entry, EntryPosition } from "../core/types.ts";

/** Kind of the record that takes the place of a discarded suffix; no entry has it. */
export const cutKind = 255;

const cut = { kind: cutKind, version: 0, payload: new Uint8Array(0) };

export type StepDone = (error: Error | undefined) => void;

type Append = { readonly entry: Entry; readonly done: StepDone | undefined };
type Mark = { readonly term: number; readonly done: StepDone };
type Install = { readonly run: () => Promise<void>; readonly done: StepDone };

export class DiskQueue {
  readonly #log: WriteAheadLog;
  readonly #group: number;
  readonly #epoch: number;
  #steps: Array<Append | Mark | Install> = [];
  #isInstalling = false;
  /** Records in the log that are not durable yet. */
  #underWay = 0;
  #rested: Array<() => void> = [];
  #lastIndex: number;

  constructor(log: WriteAheadLog, group: number, epoch: number, lastIndex: number) {
    this.#log = log;
    this.#group = group;
    this.#epoch = epoch;
    this.#lastIndex = lastIndex;
  }

  /** Steps that wait for room or for a snapshot. */
  get waiting(): number {
    return this.#steps.length;
  }

  /** `done` runs once all are durable. REQUIRES: at least one. */
  append(entries: readonly Entry[], done: StepDone): void {
    for (const [place, entry] of entries.entries()) {
      this.#steps.push({ entry, done: place === entries.length - 1 ? done : undefined });
    }
    this.pump();
  }

  /** `run` makes a snapshot the start of the log. */
  install(run: () => Promise<void>, done: StepDone): void {
    this.#steps.push({ run, done });
    this.pump();
  }

  /** Writes a record behind the last entry that is none itself: the next entry replaces it. */
  mark(term: number, done: StepDone): void {
    this.#steps.push({ term, done });
    this.pump();
  }

  /** Discards, durably, what the log holds above a snapshot about to be installed. */
  async cutAbove(snapshot: EntryPosition): Promise<void> {
    // What is still on its way below the snapshot must not arrive once that is released.
    if (this.#underWay > 0) await new Promise<void>((resolve) => this.#rested.push(resolve));
    const isLonger = this.#lastIndex > snapshot.index;
    if (isLonger) await this.#cutAfter(snapshot);
    this.#lastIndex = snapshot.index;
  }

  async #cutAfter({ index, term }: EntryPosition): Promise<void> {
    const place = { shard: this.#group, epoch: this.#epoch, index: index + 1 };
    for (;;) {
      try {
        await appendDurably(this.#log, { ...place, term, ...cut });
        return;
      } catch (error) {
        if (!isCodedError(error, "LOG_PENDING_FULL")) throw error;
        await this.#log.prove();
      }
    }
  }

  /** Begins what can be begun. Called again when the log may have room. */
  pump(): void {
    let taken = 0;
    for (const step of this.#steps) {
      if (this.#isInstalling) break;
      if ("run" in step) this.#install(step);
      else if (!("entry" in step ? this.#append(step) : this.#mark(step))) break;
      taken++;
    }
    if (taken > 0) this.#steps.splice(0, taken);
  }

  #install({ run, done }: Install): void {
    this.#isInstalling = true;
    run().then(
      () => {
        this.#isInstalling = false;
        done(undefined);
        this.pump();
      },
      (error: unknown) => done(toError(error)),
    );
  }

  #append({ entry, done }: Append): boolean {
    const { index, term } = entry;
    const isTaken = this.#give({ index, term, ...encodeEntryPayload(entry) }, done);
    if (isTaken) this.#lastIndex = index;
    return isTaken;
  }

  #mark({ term, done }: Mark): boolean {
    return this.#give({ index: this.#lastIndex + 1, term, ...cut }, done);
  }

  /** False when the log has no room now. */
  #give(record: Omit<LogRecord, "shard" | "epoch">, done: StepDone | undefined): boolean {
    try {
      this.#log.append({ shard: this.#group, epoch: this.#epoch, ...record }, (error) => {
        this.#underWay--;
        done?.(error);
        if (this.#underWay === 0) for (const resolve of this.#rested.splice(0)) resolve();
      });
    } catch (error) {
      if (isCodedError(error, "LOG_PENDING_FULL")) return false;
      done?.(toError(error));
      return true;
    }
    this.#underWay++;
    return true;
  }
}

function appendDurably(log: WriteAheadLog, record: LogRecord): Promise<void> {
  return new Promise((resolve, reject) => {
    log.append(record, (error) => (error === undefined ? resolve() : reject(error)));
  });
}
