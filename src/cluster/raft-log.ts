// A shard's log that is a Raft group: what the shard proposes becomes an entry of the group, and what
// the group commits comes back, fenced (docs/decisions/090-raft-log.md).
//
// Keeps: a shard proposes only under its own claim, with the fence of it in every batch; what was
// cooked under another claim is handed on nowhere; each proposal hears one word; entries at or below
// the shard's checkpoint are judged again after a start, for the fence, and not applied again. An
// entry is in the shared log once: nothing of it is written a second time.

import { asBuffer, type Clock, type CodedError, isCodedError, toError } from "../base/index.ts";
import type { CommandEntry, Group, SnapshotHead, StateMachine } from "../raft/index.ts";
import {
  type CopySource,
  type ShardEntry,
  type ShardLog,
  type ShardLogHandlers,
  storeErrors,
} from "../store/index.ts";
import {
  AppliedFence,
  batchOverheadBytes,
  Claimant,
  decodeShardCommand,
  encodeShardCommand,
  type Fence,
} from "./core/claims.ts";
import { type Fate, Fates } from "./core/fates.ts";
import { defaultKeepSettings, type KeepSettings, KeptLog } from "./core/kept-log.ts";
import type { ClusterCounters } from "./counters.ts";
import { clusterErrors } from "./errors.ts";
import { LogBytes } from "./log-bytes.ts";
import { ReadRounds } from "./read-rounds.ts";
import type { RemoteCopy } from "./remote-copy.ts";
import { decodeMark, encodeMark } from "./snapshot-mark.ts";

export type RaftLogParts = {
  readonly clock: Clock;
  readonly counters: ClusterCounters;
  /** Of the write-ahead log. */
  readonly recordBytesMax: number;
  /** Opens the group with this log as its machine, or makes it. */
  readonly openGroup: (log: RaftLog) => Promise<Group>;
  /** Another member says something about the shard. */
  readonly onTold?: (shard: number, from: number, data: Uint8Array) => void;
  /** The replica of the shard at another node. */
  readonly copyFrom?: (shard: number, node: number) => RemoteCopy;
  readonly keep?: KeepSettings | undefined;
};

/** Proposals whose fate is open; the group refuses long before it. */
const openMax = 100_000;
/** Wait before a claim that the group refused is proposed again. */
const claimRetryMs = 100;
/** Entries of kind `none`. */
const nothing = Buffer.alloc(0);

type Visit = (entry: ShardEntry) => void | Promise<void>;

export class RaftLog implements ShardLog, StateMachine {
  readonly shard: number;
  readonly version = 1;
  /** Entries above the snapshot come again after a start: the fence is found by them. */
  readonly durableIndex = 0;
  readonly gaps = [];
  readonly pins = false;
  readonly #parts: RaftLogParts;
  readonly #fence = new AppliedFence();
  readonly #fates = new Fates(openMax, (_, fate, index) => this.#tell(fate, index));
  readonly #bytes = new LogBytes();
  readonly #kept: KeptLog;
  readonly #reads: ReadRounds;
  /** Claims above the last snapshot, oldest first. */
  #fences: Fence[] = [];
  #claimant: Claimant | undefined;
  #group: Group | undefined;
  #handlers: ShardLogHandlers | undefined;
  #visit: Visit | undefined;
  #isLeading = false;
  #isEnded = false;
  #proposals = 0;
  /** Handed on, or passed because the shard has it. */
  #takenIndex = 0;
  #checkpointIndex = 0;
  /** No start asks for entries up to here; the checkpoint may be above it. */
  #releasedIndex = 0;
  #snapshotIndex = 0;
  /** Entries wait for somebody who takes them. */
  #waiting: Array<() => void> = [];
  /** What is being copied from. */
  #source: RemoteCopy | undefined;
  /** The state is another replica's in a moment. */
  #held: Promise<void> | undefined;
  /** Who waits for the own claim. */
  #claiming: { resolve(): void; reject(error: Error): void } | undefined;

  constructor(shard: number, parts: RaftLogParts) {
    this.shard = shard;
    this.#parts = parts;
    this.#kept = new KeptLog(parts.keep ?? defaultKeepSettings);
    const late = (): Error => this.#notLeader();
    const read = async () => this.#group?.read() ?? Promise.reject(late());
    this.#reads = new ReadRounds({ clock: parts.clock, read, late });
  }

  /** What another replica may copy; undefined before the shard is open. */
  get supply(): CopySource | undefined {
    return this.#handlers?.supply;
  }

  // ---------------------------------------------------------------- the shard's side

  get lastIndex(): number {
    return this.#group?.lastIndex ?? 0;
  }

  get payloadBytesMax(): number {
    return this.#parts.recordBytesMax - batchOverheadBytes;
  }

  get bytesSinceRelease(): number {
    return this.#bytes.sinceRelease;
  }

  get refusal(): CodedError | undefined {
    return this.#isLeading ? undefined : this.#notLeader();
  }

  /**
   * Opens the group. A member that is alone hands on here all that it has committed; one among others
   * leaves that to `onForeign`, since it does not know what is committed before it hears from them.
   */
  async replay(fromIndex: number, visit: Visit): Promise<void> {
    this.#checkpointIndex = fromIndex - 1;
    const group = await this.#parts.openGroup(this);
    this.#group = group;
    this.#claimant = new Claimant(group.epoch);
    if (!this.#isAlone(group)) return;
    const claimed = new Promise<void>((resolve, reject) => {
      this.#claiming = { resolve, reject };
    });
    this.#receive(visit);
    group.campaign();
    await claimed;
  }

  start(_nextIndex: number, handlers: ShardLogHandlers): void {
    this.#handlers = handlers;
    this.#receive(undefined);
    if (this.#isLeading) handlers.onClaimed?.();
  }

  propose(kind: number, version: number, payload: Buffer): void {
    if (this.#isEnded) return; // its owner knows already
    const group = this.#group;
    const fence = this.#claimant?.fence(this.#fence);
    if (!this.#isLeading || group === undefined || fence === undefined) {
      this.#handlers?.onLost?.(this.lastIndex + 1, this.#notLeader());
      return;
    }
    const data = encodeShardCommand({ kind: "batch", fence, entryKind: kind, payload });
    try {
      if (!this.#fates.hasRoom)
        throw storeErrors.limitReached({ limit: "proposals", max: openMax });
      const { index, term, applied } = group.enter([{ version, data }]);
      const id = ++this.#proposals;
      this.#fates.proposed(id, index, term);
      applied.catch((error: unknown) => this.#giveUp(id, toError(error)));
    } catch (error) {
      this.#parts.counters.proposalsRefused++;
      const { message: reason } = toError(error);
      const { shard } = this;
      this.#handlers?.onLost?.(this.lastIndex + 1, storeErrors.proposalRefused({ shard, reason }));
      // What is cooked on top of it would be void.
      this.#beginAnew();
    }
  }

  release(index: number): void {
    this.#releasedIndex = Math.max(this.#releasedIndex, index);
    this.#bytes.release(index);
    this.#kept.checkpointed(index, this.#nowMs);
    this.#takeSnapshot();
  }

  /** Behind it everything that was acked before the call, wherever, is applied here. */
  barrier(): Promise<void> {
    return this.#reads.join();
  }

  /** Its entries stand in nobody's way: members that are behind need them. */
  async copyBacklog(): Promise<undefined> {
    return undefined;
  }

  // ---------------------------------------------------------------- the group's side

  apply(entries: readonly CommandEntry[]): readonly unknown[] | Promise<readonly unknown[]> {
    const waits = this.#applyFrom(entries, 0);
    return waits === undefined ? entries.map(() => undefined) : waits.then(() => []);
  }

  led(term: number | undefined): void {
    // Whoever leads again has been deposed in between, seen or not.
    this.#depose();
    if (term !== undefined) this.#claim(term);
  }

  told(from: number, data: Uint8Array): void {
    this.#parts.onTold?.(this.shard, from, data);
  }

  ended(reason: Error): void {
    this.#isEnded = true;
    this.#isLeading = false;
    this.#fates.end();
    this.#source?.close();
    this.#claiming?.reject(reason);
    for (const go of this.#waiting.splice(0)) go();
    this.#handlers?.onFailed(reason);
  }

  wantSnapshot(): void {
    const group = this.#group;
    // Its damage is covered by a snapshot of what it holds now, or is found again at each start.
    if (group?.status().repairing === true) this.#handlers?.onWantCheckpoint?.();
    this.#takeSnapshot();
  }

  /**
   * Copies what this replica lacks of the state at `meta`, from who offers it. Before that the group
   * gives up nothing of what is here.
   */
  async prepare({ meta }: SnapshotHead, from: number): Promise<void> {
    if (this.#checkpointIndex >= meta.index) return;
    const { counters, copyFrom } = this.#parts;
    const adopt = this.#handlers?.onAdopt;
    if (copyFrom === undefined || adopt === undefined || this.#isEnded) throw storeErrors.closed();
    const source = copyFrom(this.shard, from);
    this.#source = source;
    try {
      await adopt(source, (work) => this.#exclusively(work));
      counters.copiesAdopted++;
    } catch (error) {
      counters.copiesFailed++;
      throw error;
    }
    if (this.#checkpointIndex >= meta.index) return;
    throw storeErrors.copyGone({ what: `its state up to ${meta.index}` });
  }

  /** Entries wait meanwhile. */
  async #exclusively(work: () => Promise<number>): Promise<void> {
    let end = (): void => undefined;
    this.#held = new Promise((resolve) => {
      end = resolve;
    });
    try {
      const index = await work();
      this.#checkpointIndex = Math.max(this.#checkpointIndex, index);
      // Whatever was proposed here and is covered by it: nobody can say any more.
      this.#fates.passedOver(this.#checkpointIndex);
    } finally {
      this.#held = undefined;
      end();
    }
  }

  /**
   * A mark: the state is in the slabs. A member that is alone needs nothing of its log below it; one
   * among others keeps what they may lack, unless it has to cover damage.
   */
  #takeSnapshot(): void {
    const group = this.#group;
    if (group === undefined || this.#isEnded) return;
    const cutIndex =
      this.#isAlone(group) || group.status().repairing
        ? this.#releasedIndex
        : this.#kept.cutIndex(this.#nowMs);
    const index = Math.min(cutIndex, this.#releasedIndex, group.appliedIndex, this.#takenIndex);
    if (index <= this.#snapshotIndex) return;
    const before = this.#snapshotIndex;
    this.#snapshotIndex = index;
    if (group.snapshotAt(index)) this.#fences = this.#fencesFrom(index);
    else this.#snapshotIndex = before;
  }

  get #nowMs(): number {
    return this.#parts.clock.elapsedMs();
  }

  capture(): Iterable<Uint8Array> {
    return [encodeMark(this.#fenceAt(this.#snapshotIndex))];
  }

  async install({ meta }: SnapshotHead, pieces: AsyncIterable<Uint8Array>): Promise<void> {
    const { shard } = this;
    const parts: Uint8Array[] = [];
    for await (const piece of pieces) parts.push(Uint8Array.from(piece));
    const fence = decodeMark(Buffer.concat(parts));
    if (fence === undefined) throw clusterErrors.snapshotForeign({ shard });
    if (this.#checkpointIndex < meta.index) {
      throw clusterErrors.stateLost({ shard, held: this.#checkpointIndex, base: meta.index });
    }
    this.#fence.current = fence;
    this.#fences = [fence];
    this.#fates.passedOver(meta.index);
    this.#takenIndex = meta.index;
    this.#snapshotIndex = meta.index;
  }

  // ---------------------------------------------------------------- entries

  #applyFrom(entries: readonly CommandEntry[], from: number): undefined | Promise<void> {
    for (let at = from; at < entries.length; at++) {
      const waits = this.#take(entries[at] as CommandEntry);
      if (waits !== undefined) return waits.then(() => this.#applyFrom(entries, at + 1));
    }
    return undefined;
  }

  #take(entry: CommandEntry): undefined | Promise<void> {
    if (this.#isEnded) return undefined;
    if (this.#held !== undefined) return this.#held.then(() => this.#take(entry));
    if (this.#visit === undefined && this.#handlers === undefined) {
      const taken = new Promise<void>((resolve) => this.#waiting.push(resolve));
      return taken.then(() => this.#take(entry));
    }
    // Entries of the group itself, such as changes of its members.
    while (this.#takenIndex + 1 < entry.index) {
      const waits = this.#pass(this.#takenIndex + 1);
      if (waits !== undefined) return waits.then(() => this.#take(entry));
    }
    const { index, term } = entry;
    const command = decodeShardCommand(entry.data);
    if (command === undefined) throw clusterErrors.commandCorrupt({ shard: this.shard, index });
    const verdict = this.#fence.take({ index, term }, command);
    if (verdict === "claimed") {
      this.#fences.push(this.#fence.current);
      const waits = this.#pass(index);
      if (waits === undefined) this.#noteClaim();
      return waits?.then(() => this.#noteClaim());
    }
    if (verdict === "refused" || command.kind === "claim") {
      this.#parts.counters.batchesRefused++;
      return this.#pass(index);
    }
    const { entryKind: kind, payload } = command;
    this.#bytes.add(index, payload.length);
    this.#kept.add(payload.length);
    return this.#hand({ index, kind, version: entry.version, payload: asBuffer(payload) }, term);
  }

  /** Nothing of this entry is for the shard. */
  #pass(index: number): undefined | Promise<void> {
    return this.#hand({ index, kind: 0, version: 0, payload: nothing }, 0);
  }

  #hand(entry: ShardEntry, term: number): undefined | Promise<void> {
    const { index } = entry;
    this.#takenIndex = index;
    if (index <= this.#checkpointIndex) return undefined;
    if (this.#visit !== undefined) return this.#visit(entry) ?? undefined;
    if (!this.#fates.has(index, term)) {
      this.#fates.applied(index, term, "refused");
      return this.#handlers?.onForeign?.(entry);
    }
    this.#parts.counters.batchesApplied++;
    this.#handlers?.onCommitted(entry);
    this.#fates.applied(index, term, "apply");
    return undefined;
  }

  /** From now on entries go there; undefined: to the handlers, once there are some. */
  #receive(visit: Visit | undefined): void {
    this.#visit = visit;
    for (const go of this.#waiting.splice(0)) go();
  }

  // ---------------------------------------------------------------- claims

  #claim(term: number): void {
    const claim = this.#claimant?.elected(term);
    const group = this.#group;
    if (claim === undefined || group === undefined) return;
    try {
      const { applied } = group.enter([{ version: 1, data: encodeShardCommand(claim) }]);
      this.#parts.counters.claims++;
      applied.catch(() => undefined); // then another leads, and this node is told so
    } catch (error) {
      if (!isCodedError(error)) throw error;
      this.#claimant?.deposed();
      this.#parts.clock.schedule(claimRetryMs, () => this.#claimAgain());
    }
  }

  #claimAgain(): void {
    const group = this.#group;
    if (this.#isEnded || this.#isLeading || group?.role !== "leader") return;
    this.#claim(group.status().term);
  }

  #noteClaim(): void {
    if (this.#claimant?.fence(this.#fence) === undefined) return this.#depose(false);
    this.#isLeading = true;
    if (this.#claiming !== undefined) {
      // Whatever comes next is for the handlers.
      this.#visit = undefined;
      this.#claiming.resolve();
      this.#claiming = undefined;
    }
    this.#handlers?.onClaimed?.();
  }

  /** With `forgets`, the next claim is due as soon as this node leads. */
  #depose(forgets = true): void {
    if (forgets) this.#claimant?.deposed();
    if (!this.#isLeading) return;
    this.#isLeading = false;
    this.#parts.counters.depositions++;
    this.#handlers?.onDeposed?.(this.#notLeader());
  }

  #beginAnew(): void {
    this.#depose();
    this.#claimAgain();
  }

  #giveUp(id: number, error: Error): void {
    if (!isCodedError(error, "RAFT_PROPOSAL_UNKNOWN")) return; // the entry at its index says it
    if (this.#fates.giveUp(id) && this.#isLeading) this.#beginAnew();
  }

  #tell(fate: Fate, index: number): void {
    if (fate === "committed") return; // told as it was applied
    const { shard } = this;
    const { counters } = this.#parts;
    if (fate === "unknown") {
      counters.fatesUnknown++;
      this.#handlers?.onLost?.(index, storeErrors.fateUnknown({ shard }));
      return;
    }
    counters.fatesRetry++;
    const reason = "another leader's entry stands in its place";
    this.#handlers?.onLost?.(index, storeErrors.proposalRefused({ shard, reason }));
  }

  #fenceAt(index: number): Fence {
    return this.#fencesFrom(index)[0] ?? this.#fence.current;
  }

  /** The claim in force at `index`, and all after it. */
  #fencesFrom(index: number): Fence[] {
    const at = this.#fences.findLastIndex(({ claimIndex }) => claimIndex <= index);
    return this.#fences.slice(Math.max(0, at));
  }

  #isAlone(group: Group): boolean {
    const { voters, learners } = group.status().configuration;
    return voters.length === 1 && learners.length === 0 && voters[0] === group.node;
  }

  #notLeader(): CodedError {
    const leader = this.#group?.leader ?? 0;
    const { shard } = this;
    return storeErrors.notLeader({ shard, leader: leader === 0 ? "none known" : `node ${leader}` });
  }
}
