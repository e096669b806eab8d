// A log shard at any node of a cluster: whatever is written to it goes to whoever leads it.
//
// Keeps: an owner of evidence is a claim in the log, and what older owners had taken by then is applied
// here before it is open; which ids are taken is known here from then on, since nobody else takes any.

import type { CodedError } from "../base/index.ts";
import type {
  AppendDone,
  AppendRequest,
  EvidenceItem,
  LogFront,
  LogReplica,
  PublisherClaim,
  ShardCall,
  ShardRequest,
  WriterStamp,
} from "../store/index.ts";
import { errorOf, refusals, storeErrors } from "../store/index.ts";
import { requestBytes } from "./core/request-codec.ts";
import type { Ask } from "./map-front.ts";

/** Who publishes at this node. */
type Owner = {
  claim: PublisherClaim;
  opens: number;
  /** Taken, asked for included; whether they are routed. */
  readonly ids: Map<number, boolean>;
};

export type LogFrontParts = {
  readonly replica: LogReplica;
  readonly ask: Ask;
  /** Has it carried out by the leader; resolves when it is applied here. */
  readonly call: (call: ShardCall) => Promise<number>;
};

/** An entry has stamps and numbers beside the request. */
const itemOverheadBytes = 1_024;

export class ForwardedLog implements LogFront {
  readonly #parts: LogFrontParts;
  readonly #owners = new Map<string, Owner>();

  constructor(parts: LogFrontParts) {
    this.#parts = parts;
  }

  get number(): number {
    return this.#parts.replica.number;
  }

  append(request: AppendRequest, done: AppendDone): void {
    const { replica, ask } = this.#parts;
    const { topic, publisher, evidence, writer } = request;
    const asked: ShardRequest = { kind: "append", request };
    // What is learned of a topic comes with it.
    const sizeBytes = requestBytes(asked) + 6 * topic.length + itemOverheadBytes;
    const refusal = replica.failure ?? replica.sizeError(sizeBytes);
    if (refusal !== undefined) return done(refusal, undefined);
    if (evidence !== undefined) {
      const owner = this.#owner(publisher, evidence);
      if (owner === undefined) return done(storeErrors.ownerFenced({ publisher }), undefined);
      const isRouted = owner.ids.get(evidence.packetId) ?? evidence.routed === true;
      owner.ids.set(evidence.packetId, isRouted);
    }
    ask(asked, (lost, timeUs, why) => {
      const error = lost ?? errorOf(why, asked);
      if (error !== undefined) return done(error, undefined);
      if (why !== refusals.repeat) return done(undefined, { kind: "stored", timeUs });
      if (writer === undefined) return done(undefined, { kind: "repeat" });
      const first = replica.writerResult(writer);
      if (first !== undefined) return done(undefined, { kind: "stored", timeUs: first });
      // Opened anew since.
      return done(storeErrors.fateUnknown({ shard: this.number }), undefined);
    });
  }

  release(item: EvidenceItem, done: (error: CodedError | undefined, known: boolean) => void): void {
    const { publisher, packetId } = item;
    const owner = this.#owner(publisher, item);
    if (owner === undefined) return done(storeErrors.ownerFenced({ publisher }), false);
    owner.ids.delete(packetId);
    const asked: ShardRequest = { kind: "release", item };
    this.#parts.ask(asked, (lost, _, why) => {
      done(lost ?? errorOf(why, asked), why === refusals.none);
    });
  }

  async openEvidence(publisher: string, claim: PublisherClaim): Promise<void> {
    const { incarnation, ownerEpoch } = claim;
    await this.#ask({ kind: "claim", item: { publisher, incarnation, ownerEpoch, packetId: 0 } });
    const taken = await this.#parts.replica.takenIds(publisher, incarnation);
    const known = this.#owners.get(publisher);
    if (known?.claim.incarnation === incarnation) {
      // It goes on: what is under way here is known here alone.
      known.opens++;
      if (ownerEpoch > known.claim.ownerEpoch) known.claim = claim;
      return;
    }
    this.#owners.set(publisher, { claim, opens: 1, ids: new Map(taken) });
  }

  closeEvidence(publisher: string, claim: PublisherClaim): void {
    const owner = this.#owners.get(publisher);
    if (owner === undefined || owner.claim.incarnation !== claim.incarnation) return;
    if (--owner.opens <= 0) this.#owners.delete(publisher);
  }

  async endEvidence(publisher: string, incarnation: number): Promise<void> {
    await this.#parts.call({ kind: "end_evidence", publisher, incarnation });
    if (this.#owners.get(publisher)?.claim.incarnation === incarnation) {
      this.#owners.delete(publisher);
    }
  }

  listEvidence(publisher: string, claim: PublisherClaim): number[] {
    const owner = this.#owner(publisher, claim);
    if (owner === undefined) throw storeErrors.ownerFenced({ publisher });
    return [...owner.ids.keys()].sort((a, b) => a - b);
  }

  isTaken({ publisher, incarnation, packetId }: EvidenceItem): boolean {
    const owner = this.#owners.get(publisher);
    return owner?.claim.incarnation === incarnation && owner.ids.has(packetId);
  }

  isRouted({ publisher, packetId }: EvidenceItem): boolean {
    return this.#owners.get(publisher)?.ids.get(packetId) === true;
  }

  /** The commit time of the opening is the writer's epoch. */
  openWriter(name: string): Promise<number> {
    return this.#ask({ kind: "open_writer", name });
  }

  async closeWriter(name: string): Promise<void> {
    await this.#ask({ kind: "close_writer", name });
  }

  writerResult(stamp: WriterStamp): number | undefined {
    return this.#parts.replica.writerResult(stamp);
  }

  /** Sealed, here as well. */
  async rotate(): Promise<void> {
    await this.#parts.call({ kind: "rotate" });
    await this.#parts.replica.checkpoint();
  }

  /** Gone, here as well. */
  async dropUntil(untilUs: number, { force = false }: { force?: boolean } = {}): Promise<number> {
    const count = await this.#parts.call({ kind: "drop", untilUs, force });
    await this.#parts.replica.checkpoint();
    return count;
  }

  async hold(name: string, afterUs: number): Promise<void> {
    await this.#ask({ kind: "hold", name, afterUs });
  }

  async releaseHold(name: string): Promise<void> {
    await this.#ask({ kind: "release_hold", name });
  }

  #owner(publisher: string, claim: PublisherClaim): Owner | undefined {
    const owner = this.#owners.get(publisher);
    if (owner?.claim.incarnation !== claim.incarnation) return undefined;
    return claim.ownerEpoch < owner.claim.ownerEpoch ? undefined : owner;
  }

  #ask(request: ShardRequest): Promise<number> {
    const { replica, ask } = this.#parts;
    return new Promise((resolve, reject) => {
      const refusal = replica.failure ?? replica.sizeError(requestBytes(request));
      if (refusal !== undefined) return reject(refusal);
      ask(request, (lost, timeUs, why) => {
        const error = lost ?? errorOf(why, request);
        if (error === undefined) resolve(timeUs);
        else reject(error);
      });
    });
  }
}
