// QoS 2 evidence: which packet ids of which durable publishers have been taken and not released.
//
// Two views are kept apart. The *decided* view (`owners`) includes what is proposed and not yet
// durable; it exists while a publisher is connected or something of it is on its way, and decides
// new or repeat. The *applied* view is what changed since the last checkpoint (`dirty`) over the
// rows of the shard store.
// Evidence of a message whose body belongs to another database is *routed*: it is here first and
// goes last, and the entry of the body over there has evidence of its own.
// Of a replicated shard, owners are claims of the log: whoever leads next refuses those before them.
// Evidence has no time limit and is never evicted: it ends with its release or its incarnation.

import { assertPresent, type ByteReader, ByteWriter, CodedError } from "../base/index.ts";
import type { KvBatch } from "../kv/index.ts";
import type { PublisherClaim } from "./api.ts";
import { storeErrors } from "./errors.ts";
import { rowPrefix, type ShardStore } from "./shard-store.ts";

export type EvidenceItem = {
  readonly publisher: string;
  readonly incarnation: number;
  readonly ownerEpoch: number;
  readonly packetId: number;
  /** The body is in, or on its way to, another database. */
  readonly routed?: boolean;
};

/** Told when the taking or release of an id is durable, or why it never will be. */
type Waiter = (error: CodedError | undefined) => void;

/** Proposed: somebody may wait for it. Applied: durable. */
type Taking = { applied: boolean; readonly routed: boolean; waiters: Waiter[] };

/** A number is the owner epoch of a claim. */
type Mark = "taken" | "routed" | "released" | number;

type Owner = {
  readonly incarnation: number;
  ownerEpoch: number;
  readonly ids: Map<number, Taking>;
  /** A claim of this incarnation stands in the log, or is proposed. */
  claimed: boolean;
  /** Connections that opened it and have not closed it. */
  opens: number;
  /** Takings and releases that are proposed and not applied. */
  proposed: number;
};

/** By owner (latin1 of the rows' prefix), then by packet id. */
type DirtyRows = Map<string, Map<number, Mark>>;

export type Decision = "new" | "repeat_applied" | "repeat_pending";

export type ReleaseDecision = "new" | "pending" | "unknown";

/** Values of rows. */
const taken = Buffer.from([1]);
const routed = Buffer.from([2]);
/** Before the owner epoch of a claim, in the row of an id that no packet has. */
const claimMark = 3;
const claimId = 0;

export class EvidenceTable {
  readonly #store: ShardStore;
  readonly #owners = new Map<string, Owner>();
  /** Takings on their way, by row name, oldest first: an id may be released before it is durable. */
  readonly #takings = new Map<string, Taking[]>();
  /** Releases on their way, by row name, oldest first, with those who repeated them. */
  readonly #releases = new Map<string, Waiter[][]>();
  /** What the next checkpoint writes. */
  #dirty: DirtyRows = new Map();
  #flushing: DirtyRows | undefined;
  /** Checkpoints that went into the store: whoever scans it meanwhile scans again. */
  #committedCount = 0;

  constructor(store: ShardStore) {
    this.#store = store;
  }

  /** Loads the taken ids of an incarnation. Must have resolved before `decide`. */
  async open(publisher: string, claim: PublisherClaim): Promise<void> {
    if (this.#reopen(publisher, claim)) return;
    const { ids, claimUs } = await this.#load(publisher, claim.incarnation);
    // Somebody else may have opened it meanwhile, and decided since.
    if (this.#reopen(publisher, claim)) return;
    if (claim.ownerEpoch < claimUs) throw storeErrors.ownerFenced({ publisher });
    const claimed = claimUs > 0;
    const owner: Owner = { ...claim, ids: new Map(), claimed, opens: 1, proposed: 0 };
    for (const [id, isRouted] of ids) {
      owner.ids.set(id, { applied: true, routed: isRouted, waiters: [] });
    }
    this.#owners.set(publisher, owner);
  }

  close(publisher: string, claim: PublisherClaim): void {
    const owner = this.#owners.get(publisher);
    if (owner === undefined || owner.incarnation !== claim.incarnation) return;
    owner.opens--;
    this.#drop(publisher, owner);
  }

  list(publisher: string, claim: PublisherClaim): number[] {
    return sortedIds(this.#owner(publisher, claim).ids.keys());
  }

  /**
   * New ids are taken from this moment on: the caller proposes the entry in the same turn.
   * `onDurable` is for "repeat_pending" alone.
   */
  decide(item: EvidenceItem, onDurable: Waiter): Decision {
    const owner = this.#owner(item.publisher, item);
    const known = owner.ids.get(item.packetId);
    if (known?.applied === true) return "repeat_applied";
    if (known !== undefined) {
      known.waiters.push(onDurable);
      return "repeat_pending";
    }
    const taking: Taking = { applied: false, routed: item.routed === true, waiters: [] };
    owner.ids.set(item.packetId, taking);
    owner.proposed++;
    const name = itemName(item);
    const takings = this.#takings.get(name);
    if (takings === undefined) this.#takings.set(name, [taking]);
    else takings.push(taking);
    return "new";
  }

  /**
   * "new": the caller proposes the release in the same turn. A repeat of one that is on its way is
   * told by `onDurable`, and not before: the publisher may use the id again when it is told.
   */
  decideRelease(item: EvidenceItem, onDurable: Waiter): ReleaseDecision {
    const owner = this.#owner(item.publisher, item);
    const name = itemName(item);
    const releases = this.#releases.get(name);
    if (owner.ids.delete(item.packetId)) {
      owner.proposed++;
      if (releases === undefined) this.#releases.set(name, [[]]);
      else releases.push([]);
      return "new";
    }
    const last = releases?.at(-1);
    if (last === undefined) return "unknown";
    last.push(onDurable);
    return "pending";
  }

  /** Whether somebody has it open; of a later incarnation, or an earlier one, it may be. */
  isOpen(publisher: string): boolean {
    return this.#owners.has(publisher);
  }

  /** Whether the incarnation that is open was claimed in the log. */
  isClaimed(publisher: string): boolean {
    return this.#owners.get(publisher)?.claimed === true;
  }

  /** The caller proposes the claim in the same turn. @throws STORE_OWNER_FENCED. */
  decideClaim(item: EvidenceItem): void {
    const owner = this.#owner(item.publisher, item);
    owner.claimed = true;
    owner.proposed++;
  }

  applyClaimed(item: EvidenceItem): void {
    this.#mark(item, claimId, item.ownerEpoch);
    this.#countDown(item);
  }

  /** What is applied, by packet id: whether it is routed. */
  async taken(publisher: string, incarnation: number): Promise<ReadonlyMap<number, boolean>> {
    return (await this.#load(publisher, incarnation)).ids;
  }

  /** Whether this id is taken, and its body belongs to another database. */
  isRouted({ publisher, packetId }: EvidenceItem): boolean {
    return this.#owners.get(publisher)?.ids.get(packetId)?.routed === true;
  }

  /** Whether this id is known to be taken. REQUIRES: the publisher is open. */
  isTaken({ publisher, incarnation, packetId }: EvidenceItem): boolean {
    const owner = this.#owners.get(publisher);
    return owner?.incarnation === incarnation && owner.ids.has(packetId);
  }

  /** Ids to be removed with an incarnation that has ended; from now on it has to be opened again. */
  async decideEnd(publisher: string, incarnation: number): Promise<number[]> {
    const { ids, claimUs } = await this.#load(publisher, incarnation);
    const ended = new Set(ids.keys());
    const owner = this.#owners.get(publisher);
    const isOpen = owner?.incarnation === incarnation;
    if (claimUs > 0 || (isOpen && owner.claimed)) ended.add(claimId);
    if (!isOpen) return sortedIds(ended);
    this.#owners.delete(publisher);
    for (const id of owner.ids.keys()) ended.add(id);
    return sortedIds(ended);
  }

  applyTaken(item: EvidenceItem): void {
    this.#mark(item, item.packetId, item.routed === true ? "routed" : "taken");
    this.#settle(item, undefined);
  }

  /** The entry of a taking will never be applied: those who repeated it are told. */
  refuseTaken(item: EvidenceItem, error: CodedError): void {
    this.#settle(item, error);
  }

  applyReleased(item: EvidenceItem): void {
    this.#mark(item, item.packetId, "released");
    this.#settleRelease(item, undefined);
  }

  refuseReleased(item: EvidenceItem, error: CodedError): void {
    this.#settleRelease(item, error);
  }

  /** `ids` are those of `decideEnd`. */
  applyEnded(publisher: string, incarnation: number, ids: readonly number[]): void {
    for (const packetId of ids) {
      this.#mark({ publisher, incarnation }, packetId, "released");
    }
  }

  /** Forgets what is decided: whoever has a publisher open has to open it again. */
  depose(reason: CodedError): void {
    const waiting = [...this.#takings.values()].flat().flatMap(({ waiters }) => waiters);
    waiting.push(...[...this.#releases.values()].flat(2));
    this.#owners.clear();
    this.#takings.clear();
    this.#releases.clear();
    for (const waiter of waiting) waiter(reason);
  }

  /** Takes the rows that changed since the last capture; give them to `finish`. */
  capture(): (batch: KvBatch) => void {
    this.#flushing = this.#dirty;
    this.#dirty = new Map();
    const rows = this.#flushing;
    return (batch) => {
      for (const [owner, ids] of rows) {
        for (const [packetId, mark] of ids) {
          const key = Buffer.from(rowName(owner, packetId), "latin1");
          if (mark === "released") batch.delete(key);
          else if (typeof mark === "number") batch.put(key, encodeClaim(mark));
          else batch.put(key, mark === "routed" ? routed : taken);
        }
      }
    };
  }

  finish(committed: boolean): void {
    const rows = assertPresent(this.#flushing, "finish without capture");
    this.#flushing = undefined;
    if (committed) {
      this.#committedCount++;
      return;
    }
    // Newer changes win over what could not be written.
    for (const [owner, ids] of this.#dirty) {
      rows.set(owner, new Map([...(rows.get(owner) ?? []), ...ids]));
    }
    this.#dirty = rows;
  }

  /** By packet id: whether it is routed; and the owner epoch of the claim, 0 for none. */
  async #load(
    publisher: string,
    incarnation: number,
  ): Promise<{ ids: Map<number, boolean>; claimUs: number }> {
    const prefix = rowPrefixOf(publisher, incarnation);
    const ids = new Map<number, boolean>();
    let claimUs = 0;
    for (let count = -1; count !== this.#committedCount; ) {
      count = this.#committedCount;
      ids.clear();
      claimUs = 0;
      await this.#store.scan(prefix, (key, value) => {
        const id = key.readUInt16BE(key.length - 2);
        if (id === claimId) claimUs = Number(value.readBigUInt64BE(1));
        else ids.set(id, value.equals(routed));
      });
    }
    const owner = prefix.toString("latin1");
    for (const rows of [this.#flushing, this.#dirty]) {
      for (const [packetId, mark] of rows?.get(owner) ?? []) {
        if (packetId === claimId) claimUs = typeof mark === "number" ? mark : 0;
        else if (mark === "released") ids.delete(packetId);
        else ids.set(packetId, mark === "routed");
      }
    }
    return { ids, claimUs };
  }

  #mark(owner: RowOwner, packetId: number, mark: Mark): void {
    const name = rowPrefixOf(owner.publisher, owner.incarnation).toString("latin1");
    const ids = this.#dirty.get(name);
    if (ids === undefined) this.#dirty.set(name, new Map([[packetId, mark]]));
    else ids.set(packetId, mark);
  }

  /** True when the owner is known: one more connection has it open. */
  #reopen(publisher: string, claim: PublisherClaim): boolean {
    const known = this.#owners.get(publisher);
    if (known === undefined || known.incarnation < claim.incarnation) return false;
    this.#check(publisher, known, claim);
    known.opens++;
    return true;
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

  #settle(item: EvidenceItem, error: CodedError | undefined): void {
    const name = itemName(item);
    const takings = this.#takings.get(name);
    const taking = takings?.shift();
    if (takings === undefined || taking === undefined) return; // replayed
    if (takings.length === 0) this.#takings.delete(name);
    taking.applied = error === undefined;
    for (const waiter of taking.waiters.splice(0)) waiter(error);
    this.#countDown(item);
  }

  #settleRelease(item: EvidenceItem, error: CodedError | undefined): void {
    const name = itemName(item);
    const releases = this.#releases.get(name);
    const waiters = releases?.shift();
    if (releases === undefined || waiters === undefined) return; // replayed
    if (releases.length === 0) this.#releases.delete(name);
    for (const waiter of waiters) waiter(error);
    this.#countDown(item);
  }

  #countDown(item: EvidenceItem): void {
    const owner = this.#owners.get(item.publisher);
    if (owner === undefined || owner.incarnation !== item.incarnation) return;
    if (owner.proposed > 0) owner.proposed--;
    this.#drop(item.publisher, owner);
  }

  /** Nobody has it open and nothing is on its way: what is known stands in rows. */
  #drop(publisher: string, owner: Owner): void {
    if (owner.opens > 0 || owner.proposed > 0) return;
    if (this.#owners.get(publisher) === owner) this.#owners.delete(publisher);
  }
}

function sortedIds(ids: Iterable<number>): number[] {
  return [...ids].sort((a, b) => a - b);
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

function encodeClaim(ownerEpoch: number): Buffer {
  return new ByteWriter(9).u8(claimMark).u64(ownerEpoch).finish();
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

type RowOwner = Pick<EvidenceItem, "publisher" | "incarnation">;

function itemName(item: EvidenceItem): string {
  return rowName(rowPrefixOf(item.publisher, item.incarnation).toString("latin1"), item.packetId);
}

function rowName(owner: string, packetId: number): string {
  return owner + String.fromCharCode(packetId >>> 8, packetId & 0xff);
}
