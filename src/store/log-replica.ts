// A log shard for whoever forwards to its leader: what other nodes ask for, each request once, where
// this node leads.
//
// Keeps: what a request does and that it was decided are one item; evidence counts only for owners that
// claimed it in the log; what says nothing about the request is not decided.

import type { ByteWriter, CodedError } from "../base/index.ts";
import type { WriterStamp } from "./api.ts";
import { storeErrors } from "./errors.ts";
import { asCodedError, type EvidenceItem, writeEvidence } from "./evidence.ts";
import type { LogReplica, ShardCall } from "./fronts.ts";
import { writeHold } from "./holds.ts";
import { appendBytesMax, logItemKind, namesBytesMax } from "./log-items.ts";
import type { LogShard } from "./log-shard.ts";
import { type Decided, refusalOf, refusals, type ShardRequest } from "./verdict.ts";

/** What was said of a request in the turn in which it was taken. */
type Said = { readonly error: CodedError | undefined; readonly refusal: number };

const kinds: ReadonlySet<ShardRequest["kind"]> = new Set<ShardRequest["kind"]>([
  ...(["append", "claim", "release", "open_writer", "close_writer"] as const),
  ...(["hold", "release_hold"] as const),
]);

export class LedLog implements LogReplica {
  readonly #log: LogShard;
  /** Why messages are not taken: the quota of the group, here. */
  readonly #gate: () => CodedError | undefined;

  constructor(log: LogShard, gate: () => CodedError | undefined) {
    this.#log = log;
    this.#gate = gate;
  }

  get number(): number {
    return this.#log.number;
  }

  get appliedUs(): number {
    return this.#log.appliedUs;
  }

  get failure(): CodedError | undefined {
    return this.#log.shard.failure;
  }

  whenApplied(timeUs: number, then: () => void): void {
    this.#log.shard.whenApplied(timeUs, then);
  }

  callSafely(call: () => void): void {
    this.#log.shard.callSafely(call);
  }

  sizeError(sizeBytes: number): CodedError | undefined {
    return this.#log.shard.sizeError(sizeBytes);
  }

  takes(kind: ShardRequest["kind"]): boolean {
    return kinds.has(kind);
  }

  openWriter(name: string): Promise<number> {
    return this.#log.openWriter(name);
  }

  writerResult(stamp: WriterStamp): number | undefined {
    return this.#log.writerResult(stamp);
  }

  takenIds(publisher: string, incarnation: number): Promise<ReadonlyMap<number, boolean>> {
    return this.#log.evidence.taken(publisher, incarnation);
  }

  checkpoint(): Promise<void> {
    return this.#log.shard.checkpoint();
  }

  async call(call: ShardCall): Promise<number> {
    const { refusal } = this.#log.shard;
    if (refusal !== undefined) throw refusal;
    if (call.kind === "drop") return this.#log.dropUntil(call.untilUs, call);
    if (call.kind === "rotate") await this.#log.rotate();
    else await this.#log.endEvidence(call.publisher, call.incarnation);
    return 0;
  }

  prepare(requests: readonly ShardRequest[]): Promise<() => void> | undefined {
    const owners = new Map<string, EvidenceItem>();
    for (const request of requests) {
      const item = evidenceOf(request);
      if (item === undefined) continue;
      const { publisher, incarnation, ownerEpoch } = item;
      owners.set(`${incarnation}/${ownerEpoch}/${publisher}`, item);
    }
    return owners.size === 0 ? undefined : this.#openAll([...owners.values()]);
  }

  /** Older owners are refused by what is asked for next. */
  async #openAll(owners: readonly EvidenceItem[]): Promise<() => void> {
    const opened: EvidenceItem[] = [];
    for (const item of owners) {
      try {
        await this.#log.openEvidence(item.publisher, item);
        opened.push(item);
      } catch (error) {
        asCodedError(error);
      }
    }
    return () => {
      for (const item of opened) this.#log.closeEvidence(item.publisher, item);
    };
  }

  take(stamp: WriterStamp, request: ShardRequest, done: Decided): void {
    const log = this.#log;
    const notNow = this.#refusal(stamp, request);
    if (notNow !== undefined) return done(notNow, 0, 0);
    if (request.kind === "append" && isPlain(request)) {
      return log.append({ ...request.request, writer: stamp }, (error, outcome) => {
        done(error, outcome?.kind === "stored" ? outcome.timeUs : 0, 0);
      });
    }
    try {
      const known = log.writers.decide(stamp, (error, timeUs, refusal) => {
        log.shard.callSafely(() => done(error, timeUs, refusal));
      });
      if (known === "repeat") return;
    } catch (error) {
      return done(asCodedError(error), 0, 0);
    }
    const decided: Decided = (error, timeUs, refusal) => {
      if (error !== undefined) log.writers.refuse(stamp, error);
      done(error, timeUs, refusal);
    };
    log.stamping.begin({ stamp, decided });
    const { error, refusal } = this.#enter(request);
    const left = log.stamping.end();
    if (left === undefined) return; // its item says the rest
    const why = error === undefined ? refusal : refusalOf(error, request);
    if (why === undefined) {
      log.writers.undecide(stamp);
      return done(error, 0, 0);
    }
    log.shard.cook(log.stamping.item(left, undefined, why));
  }

  #refusal(stamp: WriterStamp, request: ShardRequest): CodedError | undefined {
    const { shard, evidence } = this.#log;
    const item = evidenceOf(request);
    if (item !== undefined && !evidence.isOpen(item.publisher)) {
      // Another led meanwhile.
      const reason = "leaders changed while its evidence was looked up";
      return storeErrors.proposalRefused({ shard: this.number, reason });
    }
    const isKept = request.kind === "append" && request.request.keep;
    const sizeBytes = sizeOf(request) + 2 * namesBytesMax(stamp.name);
    return shard.refusal ?? (isKept ? this.#gate() : undefined) ?? shard.sizeError(sizeBytes);
  }

  /** Cooks an item, or says why not. What is on its way already, and told of before, is a repeat. */
  #enter(request: ShardRequest): Said {
    const log = this.#log;
    let said: Said = { error: undefined, refusal: refusals.repeat };
    try {
      switch (request.kind) {
        case "append":
          this.#checkClaim({ publisher: request.request.publisher, ...request.request.evidence });
          log.append(request.request, (error) => {
            said = { error, refusal: refusals.repeat };
          });
          break;
        case "claim":
          log.evidence.decideClaim(request.item);
          this.#cook(logItemKind.claim, request.item.publisher, (to) =>
            writeEvidence(to, request.item),
          );
          break;
        case "release":
          this.#checkClaim(request.item);
          said = { error: undefined, refusal: refusals.none };
          log.release(request.item, (error, known) => {
            said = { error, refusal: known ? refusals.none : refusals.unknown };
          });
          break;
        case "open_writer":
          log.writers.decideOpen(request.name, log.appliedUs);
          this.#cook(logItemKind.openWriter, request.name, (to) => to.string(request.name));
          break;
        case "close_writer":
          this.#cook(logItemKind.closeWriter, request.name, (to) => to.string(request.name));
          break;
        case "hold":
          log.holds.checkRoom(request.name);
          this.#cook(logItemKind.hold, request.name, (to) =>
            writeHold(to, request.name, request.afterUs),
          );
          break;
        case "release_hold":
          this.#cook(logItemKind.releaseHold, request.name, (to) => to.string(request.name));
          break;
      }
    } catch (error) {
      return { error: asCodedError(error), refusal: 0 };
    }
    return said;
  }

  /** @throws STORE_OWNER_FENCED: an incarnation that nobody claimed has ended. */
  #checkClaim({ publisher, incarnation }: Partial<EvidenceItem> & { publisher: string }): void {
    if (incarnation === undefined || this.#log.evidence.isClaimed(publisher)) return;
    throw storeErrors.ownerFenced({ publisher });
  }

  #cook(kind: number, name: string, encode: (writer: ByteWriter) => unknown): void {
    const item = {
      ...{ kind, sizeBytes: namesBytesMax(name), done: () => undefined },
      encode: (writer: ByteWriter) => void encode(writer),
    };
    this.#log.shard.cook(this.#log.stamping.wrap(item));
  }
}

/** Nothing but the stamp of the node tells its repeats. */
function isPlain({ request }: ShardRequest & { kind: "append" }): boolean {
  return request.evidence === undefined && request.writer === undefined;
}

function evidenceOf(request: ShardRequest): EvidenceItem | undefined {
  if (request.kind === "claim" || request.kind === "release") return request.item;
  if (request.kind !== "append" || request.request.evidence === undefined) return undefined;
  return { publisher: request.request.publisher, ...request.request.evidence };
}

function sizeOf(request: ShardRequest): number {
  if (request.kind === "append") return appendBytesMax(request.request);
  const item = evidenceOf(request);
  if (item !== undefined) return namesBytesMax(item.publisher);
  return "name" in request ? namesBytesMax(request.name) : 0;
}
