// QoS 2 evidence: which packet ids of which durable publishers have been taken and not released.
//
// Two views are kept apart. The *decided* view (`owners`) includes what is proposed and not yet
// durable; it exists for publishers that are connected and decides new or repeat. The *applied*
// view is what changed since the last checkpoint (`dirty`) over the rows of the shard store.
// Evidence has no time limit and is never evicted: it ends with its release or its incarnation.

import { assertPresent, type ByteReader, type ByteWriter, CodedError } from "../base/index.ts";
import type { KvBatch } from "../kv/index.ts";
import type { PublisherClaim } from "./api.ts";
import { storeErrors } from "./errors.ts";
import { rowPrefix, type ShardStore } from "./shard-store.ts";

export type EvidenceItem = {
  readonly publisher: string;
  readonly incarnation: number;
  readonly ownerEpoch: number;
  readonly packetId: number;
};

type Waiter = () => void;

/** Proposed: somebody may wait for it. Applied: durable. */
type IdState = { applied: boolean; waiters: Waiter[] };

type Owner = {
  incarnation: number;
  ownerEpoch: number;
  readonly ids: Map<number, IdState>;
  /** Connections that opened it and have not closed it. */
  opens: number;
};

export type Decision = "new" | "repeat_applied" | "repeat_pending";

const taken = Buffer.from([1]);

export class EvidenceTable {
  readonly #store: ShardStore;
  readonly #owners = new Map<string, Owner>();
  /** Row key (latin1) -> present after the next checkpoint. */
  #dirty = new Map<string, boolean>();
  #flushing: Map<string, boolean> | undefined;
  /** Checkpoints that moved changes into rows. */
  #commitCount = 0;

  constructor(store: ShardStore) {
    this.#store = store;
  }

  /** Loads the taken ids of an incarnation. Must have resolved before `decide`. */
  async open(publisher: string, claim: PublisherClaim): Promise<void> {
    const known = this.#owners.get(publisher);
    if (known !== undefined && known.incarnation === claim.incarnation) {
      this.#check(publisher, known, claim);
      known.opens++;
      return;
    }
    if (known !== undefined && known.incarnation > claim.incarnation) {
      throw storeErrors.ownerFenced({ publisher });
    }
    const owner: Owner = { ...claim, ids: new Map(), opens: 1 };
    const ids = await this.#loadIds(publisher, claim.incarnation);
    for (const id of ids) owner.ids.set(id, { applied: true, waiters: [] });
    this.#owners.set(publisher, owner);
  }

  close(publisher: string, claim: PublisherClaim): void {
    const owner = this.#owners.get(publisher);
    if (owner === undefined || owner.incarnation !== claim.incarnation) return;
    owner.opens--;
    this.#drop(publisher, owner);
  }

  list(publisher: string, claim: PublisherClaim): number[] {
    const owner = this.#owner(publisher, claim);
    return [...owner.ids.keys()].sort((a, b) => a - b);
  }

  /** New ids are taken from this moment on: the caller proposes the entry in the same turn. */
  decide(item: EvidenceItem, onApplied: Waiter): Decision {
    const owner = this.#owner(item.publisher, item);
    const state = owner.ids.get(item.packetId);
    if (state === undefined) {
      owner.ids.set(item.packetId, { applied: false, waiters: [] });
      return "new";
    }
    if (state.applied) return "repeat_applied";
    state.waiters.push(onApplied);
    return "repeat_pending";
  }

  /** False when the id was not taken. */
  decideRelease(item: EvidenceItem): boolean {
    return this.#owner(item.publisher, item).ids.delete(item.packetId);
  }

  applyTaken(item: EvidenceItem): void {
    this.#dirty.set(rowName(item), true);
    const owner = this.#owners.get(item.publisher);
    const state =
      owner?.incarnation === item.incarnation ? owner.ids.get(item.packetId) : undefined;
    if (owner === undefined || state === undefined) return;
    state.applied = true;
    for (const waiter of state.waiters.splice(0)) waiter();
    this.#drop(item.publisher, owner);
  }

  applyReleased(item: EvidenceItem): void {
    this.#dirty.set(rowName(item), false);
  }

  /** Every row of the incarnation goes: `ids` was listed by `listStored` before the proposal. */
  applyEnded(publisher: string, incarnation: number, ids: readonly number[]): void {
    for (const packetId of ids) {
      this.#dirty.set(rowName({ publisher, incarnation, packetId }), false);
    }
    const owner = this.#owners.get(publisher);
    if (owner?.incarnation === incarnation) this.#owners.delete(publisher);
  }

  /** Ids of an incarnation that is not connected, as durable and applied. */
  listStored(publisher: string, incarnation: number): Promise<number[]> {
    return this.#loadIds(publisher, incarnation);
  }

  /** Takes the rows that changed since the last capture; give them to `finish`. */
  capture(): (batch: KvBatch) => void {
    this.#flushing = this.#dirty;
    this.#dirty = new Map();
    const rows = this.#flushing;
    return (batch) => {
      for (const [name, present] of rows) {
        const key = Buffer.from(name, "latin1");
        if (present) batch.put(key, taken);
        else batch.delete(key);
      }
    };
  }

  finish(committed: boolean): void {
    const rows = assertPresent(this.#flushing, "finish without capture");
    this.#flushing = undefined;
    if (committed) {
      this.#commitCount++;
      return;
    }
    // Newer changes win over what could not be written.
    this.#dirty = new Map([...rows, ...this.#dirty]);
  }

  /**
   * A scan sees the rows of its begin: what a checkpoint moved from memory into rows meanwhile would
   * be in neither, and a repeat be taken for new. Then it is done again.
   */
  async #loadIds(publisher: string, incarnation: number): Promise<number[]> {
    const prefix = rowPrefixOf(publisher, incarnation);
    for (;;) {
      const ids = new Set<number>();
      const commitCount = this.#commitCount;
      await this.#store.scan(prefix, (key) => {
        ids.add(key.readUInt16BE(key.length - 2));
      });
      if (commitCount !== this.#commitCount) continue;
      this.#addChanges(prefix.toString("latin1"), ids);
      return [...ids].sort((a, b) => a - b);
    }
  }

  /** What changed since the last checkpoint goes over what stands in rows. */
  #addChanges(prefixName: string, ids: Set<number>): void {
    for (const rows of [this.#flushing, this.#dirty]) {
      for (const [name, present] of rows ?? []) {
        if (!name.startsWith(prefixName)) continue;
        const id = (name.charCodeAt(name.length - 2) << 8) | name.charCodeAt(name.length - 1);
        if (present) ids.add(id);
        else ids.delete(id);
      }
    }
  }

  #owner(publisher: string, claim: PublisherClaim): Owner {
    const owner = this.#owners.get(publisher);
    if (owner === undefined) throw storeErrors.ownerFenced({ publisher });
    this.#check(publisher, owner, claim);
    return owner;
  }

  #check(publisher: string, owner: Owner, claim: PublisherClaim): void {
    if (claim.incarnation !== owner.incarnation || claim.ownerEpoch < owner.ownerEpoch) {
      throw storeErrors.ownerFenced({ publisher });
    }
    owner.ownerEpoch = claim.ownerEpoch;
  }

  /** Nobody has it open and nothing is in flight: what is known stands in rows. */
  #drop(publisher: string, owner: Owner): void {
    if (owner.opens > 0) return;
    for (const state of owner.ids.values()) if (!state.applied) return;
    if (this.#owners.get(publisher) === owner) this.#owners.delete(publisher);
  }
}

export function writeEvidence(writer: ByteWriter, item: EvidenceItem): void {
  writer.string(item.publisher).u64(item.incarnation).u64(item.ownerEpoch).u16(item.packetId);
}

export function readEvidence(reader: ByteReader): EvidenceItem {
  return {
    publisher: reader.string(),
    incarnation: reader.u64(),
    ownerEpoch: reader.u64(),
    packetId: reader.u16(),
  };
}

/** Any thrown value of a decision as the error its caller gets. */
export function asCodedError(error: unknown): CodedError {
  if (error instanceof CodedError) return error;
  throw error;
}

/** `e` | publisher | 0 | incarnation u64. Client ids hold no U+0000, so prefixes are unambiguous. */
function rowPrefixOf(publisher: string, incarnation: number): Buffer {
  const name = Buffer.from(publisher, "utf8");
  const key = Buffer.alloc(1 + name.length + 1 + 8);
  key[0] = rowPrefix.evidence;
  name.copy(key, 1);
  key.writeBigUInt64BE(BigInt(incarnation), name.length + 2);
  return key;
}

function rowName(item: Pick<EvidenceItem, "publisher" | "incarnation" | "packetId">): string {
  const prefix = rowPrefixOf(item.publisher, item.incarnation).toString("latin1");
  return prefix + String.fromCharCode(item.packetId >>> 8, item.packetId & 0xff);
}
