// The machine's side of a group: committed entries and snapshots, one after the other.
//
// Keeps: tasks run in order and never overlap; what the machine holds durably is not applied again;
// `base` is the position and configuration of what is in the machine. The first fault ends it.

import { toError } from "../../base/index.ts";
import type { CommandEntry, Entry, SnapshotMeta } from "../core/types.ts";
import type { StateMachine } from "./ports.ts";

export type Applied = {
  /** Each entry once it is applied, with the machine's result for a command. */
  readonly onEntry: (index: number, term: number, result: unknown) => void;
  /** A batch of them is done. */
  readonly onBatch: () => void;
  readonly onFailure: (error: Error) => void;
};

export class MachineRun {
  readonly #machine: StateMachine;
  readonly #applied: Applied;
  #tasks: Array<() => undefined | Promise<void>> = [];
  readonly #restWaiters: Array<() => void> = [];
  #isBusy = false;
  #isEnded = false;
  base: SnapshotMeta;

  constructor(machine: StateMachine, base: SnapshotMeta, applied: Applied) {
    this.#machine = machine;
    this.base = base;
    this.#applied = applied;
  }

  /** A task is under way: the machine is between two states. */
  get isBusy(): boolean {
    return this.#isBusy;
  }

  end(): void {
    this.#isEnded = true;
    this.#tasks = [];
    this.#rest();
  }

  /** Resolves when nothing is under way, or nothing will be any more. */
  rested(): Promise<void> {
    if (!this.#isBusy) return Promise.resolve();
    return new Promise((resolve) => this.#restWaiters.push(resolve));
  }

  #rest(): void {
    for (const resolve of this.#restWaiters.splice(0)) resolve();
  }

  apply(entries: readonly Entry[]): void {
    this.run(() => this.#apply(entries));
  }

  /** Runs at once when nothing is under way, else behind all that is. */
  run(task: () => undefined | Promise<void>): void {
    this.#tasks.push(task);
    if (!this.#isBusy) this.#runNext();
  }

  #runNext(): void {
    for (;;) {
      const task = this.#tasks.shift();
      if (task === undefined || this.#isEnded) {
        this.#rest();
        return;
      }
      let running: undefined | Promise<void>;
      try {
        running = task();
      } catch (error) {
        this.#fail(error);
        return;
      }
      if (running === undefined) continue;
      this.#isBusy = true;
      running.then(
        () => {
          this.#isBusy = false;
          this.#runNext();
        },
        (error: unknown) => this.#fail(error),
      );
      return;
    }
  }

  #fail(error: unknown): void {
    this.end();
    this.#applied.onFailure(toError(error));
  }

  #apply(entries: readonly Entry[]): undefined | Promise<void> {
    const { durableIndex } = this.#machine;
    const commands = entries.filter(
      (entry): entry is CommandEntry => entry.kind === "command" && entry.index > durableIndex,
    );
    const results = commands.length === 0 ? [] : this.#machine.apply(commands);
    if (!(results instanceof Promise)) {
      this.#note(entries, commands, results);
      return undefined;
    }
    return results.then((settled) => this.#note(entries, commands, settled));
  }

  #note(entries: readonly Entry[], commands: readonly Entry[], results: readonly unknown[]): void {
    if (this.#isEnded) return;
    let at = 0;
    for (const entry of entries) {
      this.base = positionAfter(this.base, entry);
      const result = commands[at] === entry ? results[at++] : undefined;
      this.#applied.onEntry(entry.index, entry.term, result);
    }
    this.#applied.onBatch();
  }
}

export function positionAfter(before: SnapshotMeta, entry: Entry): SnapshotMeta {
  const { index, term } = entry;
  if (entry.kind !== "membership") return { ...before, index, term };
  return { index, term, configuration: entry.configuration, configurationIndex: index };
}
