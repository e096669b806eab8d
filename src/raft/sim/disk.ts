// The disk of a simulated node: what is durable, and writes on their way there in order.
//
// A crash keeps what is durable, and of the writes under way any prefix, the last one torn at any
// entry. The hard state has a file of its own: it survives or not by itself. A snapshot becomes
// durable whole, by rename.

import type { SeededRandom } from "../../base/index.ts";
import type { Configuration, Entry, HardState, Ready, SnapshotMeta } from "../core/types.ts";
import type { FlawName } from "./flaws.ts";
import type { MachineState } from "./machine.ts";

export type DiskWrite = { readonly ready: Ready; readonly contents: MachineState | undefined };

/** Writes under way were none, all or some whole, torn in one, or none kept. */
export type CrashFate = "clean" | "kept" | "torn" | "lost";

export class SimDisk {
  hardState: HardState = { term: 0, vote: 0, commit: 0 };
  snapshot: SnapshotMeta;
  contents: MachineState;
  entries: Entry[] = [];
  /** Not yet durable, oldest first. */
  readonly pending: DiskWrite[] = [];
  // What flawed disks bring back.
  #olderHardState: HardState = this.hardState;
  #replacedLog: Entry[] = [];
  #lost: readonly Entry[] = [];

  constructor(configuration: Configuration, contents: MachineState) {
    this.snapshot = { index: 0, term: 0, configuration, configurationIndex: 0 };
    this.contents = contents;
  }

  /** Whether the entry is durable here, itself or within the snapshot. */
  holds(index: number, term: number): boolean {
    if (index <= this.snapshot.index || this.termAt(index) === term) return true;
    // A leader cannot know of entries lost since they were acknowledged.
    return this.#lost.some((entry) => entry.index === index && entry.term === term);
  }

  /** End of the durable log. */
  get lastIndex(): number {
    return Math.max(this.snapshot.index, this.entries.at(-1)?.index ?? 0);
  }

  termAt(index: number): number | undefined {
    const first = this.entries[0];
    return first === undefined ? undefined : this.entries[index - first.index]?.term;
  }

  /** The oldest write has become durable. */
  complete(flaw: FlawName | undefined): DiskWrite | undefined {
    const write = this.pending.shift();
    if (write === undefined) return undefined;
    const { snapshot } = this;
    this.#store(write, write.ready.entries.length);
    if (write.ready.snapshot) this.#spoilSnapshot(write.ready.snapshot, snapshot, flaw);
    this.#keepHardState(write.ready.hardState);
    return write;
  }

  /** A power cut. Returns what it did to the writes under way. */
  crash(random: SeededRandom, flaw: FlawName | undefined): CrashFate {
    const writes = this.pending.splice(0);
    const fate = writes.length === 0 ? "clean" : this.#tear(writes, random);
    const { term, commit } = this.hardState;
    if (flaw === "vote_not_persisted") this.hardState = { term, vote: 0, commit };
    if (flaw === "stale_hard_state") this.hardState = this.#olderHardState;
    if (flaw === "sync_lies") {
      this.entries.length -= Math.min(this.entries.length, random.below(4));
    }
    if (flaw === "truncation_not_persisted" && this.#replacedLog.length > 0) {
      this.entries = this.#replacedLog;
    }
    return fate;
  }

  /** Loses synced entries from somewhere on; what was committed there is told by others. */
  rot(random: SeededRandom): void {
    this.#lost = this.entries.splice(random.below(this.entries.length + 1));
    // Nothing below the snapshot is left to answer for its entries.
    if (this.lastIndex <= this.snapshot.index) this.entries = [];
  }

  /** A snapshot of our own; the log keeps what lies above `cutIndex`. */
  keepSnapshot(snapshot: SnapshotMeta, contents: MachineState, cutIndex: number): void {
    this.snapshot = snapshot;
    this.contents = contents;
    const first = this.entries[0];
    if (first !== undefined && first.index <= cutIndex) {
      this.entries.splice(0, cutIndex - first.index + 1);
    }
  }

  /** The durable log above the snapshot, as a node wakes up with it. */
  logAboveSnapshot(): Entry[] {
    return this.entries.filter((entry) => entry.index > this.snapshot.index);
  }

  #tear(writes: readonly DiskWrite[], random: SeededRandom): CrashFate {
    const states = writes.flatMap(({ ready }) => (ready.hardState ? [ready.hardState] : []));
    this.#keepHardState(states[random.below(states.length + 1)]);
    const whole = random.below(writes.length + 1);
    for (const write of writes.slice(0, whole)) this.#store(write, write.ready.entries.length);
    const torn = writes[whole];
    if (torn === undefined) return "kept";
    const count = random.below(torn.ready.entries.length + 1);
    if (count === 0 || torn.ready.snapshot) return whole > 0 ? "kept" : "lost";
    this.#store(torn, count);
    return "torn";
  }

  #keepHardState(hardState: HardState | undefined): void {
    if (hardState === undefined) return;
    if (hardState.term > this.hardState.term) this.#olderHardState = this.hardState;
    this.hardState = hardState;
  }

  #spoilSnapshot(taken: SnapshotMeta, before: SnapshotMeta, flaw: FlawName | undefined): void {
    if (flaw === "snapshot_keeps_configuration") {
      this.snapshot = { ...taken, configuration: before.configuration };
    }
    if (flaw === "snapshot_promised_not_kept") this.snapshot = before;
  }

  #store(write: DiskWrite, count: number): void {
    const { ready, contents } = write;
    if (ready.snapshot && contents) {
      this.snapshot = ready.snapshot;
      this.contents = contents;
      this.entries = [];
    }
    const first = ready.entries[0];
    if (first === undefined || count === 0) return;
    const start = this.entries[0]?.index ?? first.index;
    if (first.index - start < this.entries.length) this.#replacedLog = [...this.entries];
    this.entries.length = Math.max(0, Math.min(this.entries.length, first.index - start));
    for (const entry of ready.entries.slice(0, count)) this.entries.push(entry);
  }
}
