// Who waits for a group: proposals for their entry to be applied, reads for their index.
//
// Keeps: every promise is settled once: with its result, as replaced (another entry is committed
// there), or as unknown: time is up, it was cut off here, or a snapshot passed over it. Bounded;
// refused at the brim.

import { raftErrors } from "../errors.ts";

type Proposal = {
  readonly term: number;
  readonly bytes: number;
  readonly untilTick: number;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: Error) => void;
};

/** Commands in the log of this leader: where the last one stands, and what comes of them. */
export type Entered = {
  readonly index: number;
  readonly term: number;
  readonly applied: Promise<unknown[]>;
};

type Read = {
  /** Known once a majority has confirmed it. */
  index: number | undefined;
  readonly untilTick: number;
  readonly resolve: (index: number) => void;
  readonly reject: (error: Error) => void;
};

export class Waiters {
  readonly #group: number;
  readonly #limits: { readonly waitersMax: number; readonly waitTicksMax: number };
  readonly #proposals = new Map<number, Proposal>();
  readonly #reads = new Map<string, Read>();
  readonly #onBytes: (delta: number) => void;
  #tick = 0;

  constructor(
    group: number,
    limits: { readonly waitersMax: number; readonly waitTicksMax: number },
    onBytes: (delta: number) => void,
  ) {
    this.#group = group;
    this.#limits = limits;
    this.#onBytes = onBytes;
  }

  get count(): number {
    return this.#proposals.size + this.#reads.size;
  }

  /** @throws RAFT_LIMIT_REACHED. */
  admit(): void {
    const { waitersMax: limit } = this.#limits;
    if (this.count >= limit) throw raftErrors.limit({ what: "waiters of a group", limit });
  }

  propose(index: number, term: number, bytes: number): Promise<unknown> {
    // An earlier one was cut off here; another member that holds it may still commit it.
    this.#lose(index);
    this.#onBytes(bytes);
    return new Promise((resolve, reject) => {
      const untilTick = this.#tick + this.#limits.waitTicksMax;
      this.#proposals.set(index, { term, bytes, untilTick, resolve, reject });
    });
  }

  /** The entry at `index` of `term` was applied. */
  applied(index: number, term: number, result: unknown): void {
    const waiting = this.#proposals.get(index);
    if (waiting === undefined) return;
    if (waiting.term !== term) {
      this.#drop(index);
      return;
    }
    this.#forget(index, waiting);
    waiting.resolve(result);
  }

  /** A snapshot took the place of the entries up to `index`. */
  passedOver(index: number): void {
    for (const at of this.#proposals.keys()) {
      if (at <= index) this.#lose(at);
    }
  }

  read(context: string): Promise<number> {
    return new Promise((resolve, reject) => {
      const untilTick = this.#tick + this.#limits.waitTicksMax;
      this.#reads.set(context, { index: undefined, untilTick, resolve, reject });
    });
  }

  confirmed(context: string, index: number): void {
    const read = this.#reads.get(context);
    if (read) read.index ??= index;
  }

  readLost(context: string, leader: number): void {
    const read = this.#reads.get(context);
    this.#reads.delete(context);
    const reason = "leadership was lost";
    read?.reject(raftErrors.notLeader({ group: this.#group, leader, reason }));
  }

  /** Serves the reads whose index is applied. */
  serve(applied: number): void {
    for (const [context, read] of this.#reads) {
      if (read.index === undefined || read.index > applied) continue;
      this.#reads.delete(context);
      read.resolve(applied);
    }
  }

  tick(): void {
    this.#tick++;
    const group = this.#group;
    for (const [index, waiting] of this.#proposals) {
      if (waiting.untilTick > this.#tick) break;
      this.#forget(index, waiting);
      waiting.reject(raftErrors.unknown({ group, index }));
    }
    for (const [context, read] of this.#reads) {
      if (read.untilTick > this.#tick) break;
      this.#reads.delete(context);
      read.reject(raftErrors.readTimeout({ group }));
    }
  }

  /** The group ends: what was proposed may still happen elsewhere. */
  end(error: Error): void {
    for (const [index, waiting] of this.#proposals) {
      this.#forget(index, waiting);
      waiting.reject(raftErrors.unknown({ group: this.#group, index }, error));
    }
    for (const read of this.#reads.values()) read.reject(error);
    this.#reads.clear();
  }

  #lose(index: number): void {
    const waiting = this.#proposals.get(index);
    if (waiting === undefined) return;
    this.#forget(index, waiting);
    waiting.reject(raftErrors.unknown({ group: this.#group, index }));
  }

  // REQUIRES: another entry is committed there.
  #drop(index: number): void {
    const waiting = this.#proposals.get(index);
    if (waiting === undefined) return;
    this.#forget(index, waiting);
    waiting.reject(raftErrors.dropped({ group: this.#group, index }));
  }

  #forget(index: number, waiting: Proposal): void {
    this.#proposals.delete(index);
    this.#onBytes(-waiting.bytes);
  }
}
