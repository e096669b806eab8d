// Who may write to a replicated shard: the leader that claimed it, and nobody of an earlier claim
// (docs/decisions/072-claims.md).
//
// A leader's first proposal is a claim. Everything it cooks afterwards carries the fence of that
// claim, and every replica applies it only while that claim is the newest applied one.
// Keeps: two replicas that applied the same entries hold the same fence; what was cooked on state of
// an earlier claim is applied nowhere, however late it was proposed; a leader cooks only on a state
// that holds its own claim, and so everything committed before it.

import { ByteReader, ByteWriter, isCodedError } from "../../base/index.ts";

/** Names a claim: none has it twice, whoever leads how often. */
export type Fence = {
  /** Of the group: raised by a forced recovery. */
  readonly epoch: number;
  /** Of the leader that claimed. */
  readonly term: number;
  /** Index of the entry of the claim. */
  readonly claimIndex: number;
};

/** Before the first claim: nothing is applied under it. */
export const noFence: Fence = { epoch: 0, term: 0, claimIndex: 0 };

export type ShardCommand =
  | { readonly kind: "claim"; readonly epoch: number; readonly term: number }
  | {
      readonly kind: "batch";
      readonly fence: Fence;
      /** Of the shard's entry, u8. */
      readonly entryKind: number;
      readonly payload: Uint8Array;
    };

const kinds = { claim: 1, batch: 2 } as const;
/** What a batch adds to its payload at most: two kinds and three numbers. */
export const batchOverheadBytes = 32;

export function encodeShardCommand(command: ShardCommand): Buffer {
  if (command.kind === "claim") {
    const writer = new ByteWriter().u8(kinds.claim);
    return writer.varint(command.epoch).varint(command.term).finish();
  }
  const { fence, entryKind, payload } = command;
  const writer = new ByteWriter(payload.length + batchOverheadBytes).u8(kinds.batch);
  writer.varint(fence.epoch).varint(fence.term).varint(fence.claimIndex);
  return writer.u8(entryKind).raw(payload).finish();
}

/** Undefined when the bytes are none. The payload is a view. */
export function decodeShardCommand(bytes: Uint8Array): ShardCommand | undefined {
  try {
    const reader = new ByteReader(bytes);
    const kind = reader.u8();
    if (kind === kinds.claim) {
      const [epoch, term] = [reader.varint(), reader.varint()];
      return reader.remaining === 0 ? { kind: "claim", epoch, term } : undefined;
    }
    if (kind !== kinds.batch) return undefined;
    const fence = { epoch: reader.varint(), term: reader.varint(), claimIndex: reader.varint() };
    const entryKind = reader.u8();
    return { kind: "batch", fence, entryKind, payload: reader.raw(reader.remaining) };
  } catch (error) {
    if (isCodedError(error) && error.kind === "corrupt") return undefined;
    throw error;
  }
}

/** What is to be done with a committed command: the same on every replica. */
export type Verdict =
  /** A leader begins: whatever was cooked before is void from here on. */
  | "claimed"
  | "apply"
  /** Cooked under another claim: it did not happen, and its proposer may try again. */
  | "refused";

/** The newest claim applied to a replica; part of its state, and of its snapshots. */
export class AppliedFence {
  current: Fence;

  constructor(current: Fence = noFence) {
    this.current = current;
  }

  /** REQUIRES: the committed commands, each once, in the order of their indexes. */
  take(
    position: { readonly index: number; readonly term: number },
    command: ShardCommand,
  ): Verdict {
    return command.kind === "claim"
      ? this.#claim(position, command)
      : verdictOf(this.current, command.fence);
  }

  // A claim that was handed to the log in a later term than it was made for is nobody's.
  #claim(
    { index, term }: { readonly index: number; readonly term: number },
    claim: { readonly epoch: number; readonly term: number },
  ): Verdict {
    if (claim.term !== term || claim.epoch < this.current.epoch) return "refused";
    this.current = { epoch: claim.epoch, term, claimIndex: index };
    return "claimed";
  }
}

function verdictOf(current: Fence, { epoch, term, claimIndex }: Fence): Verdict {
  const isCurrent =
    epoch === current.epoch && term === current.term && claimIndex === current.claimIndex;
  return isCurrent && claimIndex > 0 ? "apply" : "refused";
}

/** A leader's side of its claim. */
export class Claimant {
  readonly #epoch: number;
  /** The term led; 0 while this node leads nothing. */
  #term = 0;

  constructor(epoch: number) {
    this.#epoch = epoch;
  }

  /**
   * This node leads in `term`: what is to be proposed before anything else. Undefined when that is
   * known already. Where the log declines it, `deposed` makes it due again.
   */
  elected(term: number): ShardCommand | undefined {
    if (term <= this.#term) return undefined;
    this.#term = term;
    return { kind: "claim", epoch: this.#epoch, term };
  }

  /** This node leads no more: nothing is cooked until it leads again and has claimed again. */
  deposed(): void {
    this.#term = 0;
  }

  /** The fence to cook under; undefined while the own claim is not applied here. */
  fence({ current }: AppliedFence): Fence | undefined {
    const isOwn = this.#term > 0 && current.term === this.#term && current.epoch === this.#epoch;
    return isOwn ? current : undefined;
  }
}
