// When each filter matched last, by shard: a row of numbers for each filter. There may be millions of
// filters: arrays of their own would be most of what a filter costs, and a walk over all filters would
// miss the processor's cache for each shard of each.
//
// Beside the times stands whether the filter's row in the shard store is out of date.

/** Rows come in blocks of so many, so that growing never copies what is there. */
const blockBits = 10;
const blockRows = 1 << blockBits;
/** Of a row and shard: last match, last match that never expires, expiry of the others. */
const columns = 3;
/** Room for so many shards at a time: with more of them all rows are copied once. */
const shardsStep = 4;

/** Of a row in a shard store. */
export const rowState = {
  current: 0,
  /** It is out of date, and there may be one. */
  stale: 1,
  /** There is none, and it needs one. */
  missing: 2,
} as const;

export type RowState = (typeof rowState)[keyof typeof rowState];

/** Times of a filter in a shard, microseconds; 0 = never. */
export type RowTimes = {
  /** Nothing later than this has matched. */
  readonly lastMatchUs: number;
  /** Nothing later than this has matched that never expires. */
  readonly lastLastingUs: number;
  /** All that expires and has matched has expired by then. */
  readonly expiredUs: number;
};

type Block = { readonly times: Float64Array; readonly states: Uint8Array };

export class MatchTimesTable {
  #blocks: Block[] = [];
  /** Shards that a row has room for. */
  #room = shardsStep;
  #shards = 0;
  readonly #dirty: number[] = [];

  /** The ordinal of one more shard: nothing has matched in it, and no row is out of date. */
  addShard(): number {
    const ordinal = this.#shards++;
    this.#dirty.push(0);
    if (ordinal === this.#room) {
      const before = this.#room;
      this.#room += shardsStep;
      this.#blocks = this.#blocks.map((block) => widened(block, before, this.#room));
    }
    return ordinal;
  }

  /** Room for a row that was not used before. */
  reach(row: number): void {
    if (row >>> blockBits < this.#blocks.length) return;
    this.#blocks.push(createBlock(this.#room));
  }

  get(ordinal: number, row: number): RowTimes {
    const { times } = this.#blocks[row >>> blockBits] as Block;
    const at = this.#at(ordinal, row) * columns;
    return {
      lastMatchUs: times[at] as number,
      lastLastingUs: times[at + 1] as number,
      expiredUs: times[at + 2] as number,
    };
  }

  set(ordinal: number, row: number, { lastMatchUs, lastLastingUs, expiredUs }: RowTimes): void {
    const { times } = this.#blocks[row >>> blockBits] as Block;
    const at = this.#at(ordinal, row) * columns;
    times[at] = lastMatchUs;
    times[at + 1] = lastLastingUs;
    times[at + 2] = expiredUs;
  }

  lastMatchUs(ordinal: number, row: number): number {
    const { times } = this.#blocks[row >>> blockBits] as Block;
    return times[this.#at(ordinal, row) * columns] as number;
  }

  /** Something matched at `timeUs`, which never expires, or at `expiryUs`. */
  matched(ordinal: number, row: number, timeUs: number, expiryUs: number): void {
    const { times } = this.#blocks[row >>> blockBits] as Block;
    const at = this.#at(ordinal, row) * columns;
    times[at] = timeUs;
    if (expiryUs === 0) times[at + 1] = timeUs;
    else if (expiryUs > (times[at + 2] as number)) times[at + 2] = expiryUs;
  }

  /** Something that matched after `afterUs` may still wait, not expired at `nowUs`. */
  mayWait(ordinal: number, row: number, afterUs: number, nowUs: number): boolean {
    const { times } = this.#blocks[row >>> blockBits] as Block;
    return waits(times, this.#at(ordinal, row) * columns, afterUs, nowUs);
  }

  /** The same in any shard; `readTo` is by ordinal. */
  anyWaits(row: number, readTo: readonly number[], nowUs: number): boolean {
    const { times } = this.#blocks[row >>> blockBits] as Block;
    let at = this.#at(0, row) * columns;
    for (let ordinal = 0; ordinal < readTo.length; ordinal++, at += columns) {
      if (waits(times, at, readTo[ordinal] as number, nowUs)) return true;
    }
    return false;
  }

  // -------------------------------------------------------------- rows of the shard stores

  /** Rows of a shard that wait for its checkpoint. */
  dirtyCount(ordinal: number): number {
    return this.#dirty[ordinal] as number;
  }

  state(ordinal: number, row: number): RowState {
    const { states } = this.#blocks[row >>> blockBits] as Block;
    return states[this.#at(ordinal, row)] as RowState;
  }

  mark(ordinal: number, row: number, state: RowState): void {
    const { states } = this.#blocks[row >>> blockBits] as Block;
    const at = this.#at(ordinal, row);
    const wasDirty = states[at] === rowState.current ? 0 : 1;
    const isDirty = state === rowState.current ? 0 : 1;
    this.#dirty[ordinal] = this.dirtyCount(ordinal) + isDirty - wasDirty;
    states[at] = state;
  }

  /** If there may be a row, it is no longer right. */
  outdate(ordinal: number, row: number): void {
    if (this.state(ordinal, row) === rowState.current) this.mark(ordinal, row, rowState.stale);
  }

  /** Rows that are not current; all are afterwards. */
  takeDirty(ordinal: number): number[] {
    const rows: number[] = [];
    for (let row = 0; rows.length < this.dirtyCount(ordinal); row++) {
      if (this.state(ordinal, row) !== rowState.current) rows.push(row);
    }
    for (const row of rows) this.mark(ordinal, row, rowState.current);
    return rows;
  }

  #at(ordinal: number, row: number): number {
    return (row & (blockRows - 1)) * this.#room + ordinal;
  }
}

function waits(times: Float64Array, at: number, afterUs: number, nowUs: number): boolean {
  if ((times[at] as number) <= afterUs) return false;
  return (times[at + 1] as number) > afterUs || (times[at + 2] as number) > nowUs;
}

function createBlock(room: number): Block {
  const count = blockRows * room;
  return { times: new Float64Array(count * columns), states: new Uint8Array(count) };
}

function widened({ times, states }: Block, before: number, room: number): Block {
  const block = createBlock(room);
  for (let row = 0; row < blockRows; row++) {
    const from = row * before;
    block.states.set(states.subarray(from, from + before), row * room);
    const values = times.subarray(from * columns, (from + before) * columns);
    block.times.set(values, row * room * columns);
  }
  return block;
}
