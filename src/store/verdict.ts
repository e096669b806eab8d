// Requests that a shard's leader decides for other nodes, and the numbers of what keeps one from doing
// anything. A decided request is in the log with its number, so that it is decided once.

import { type CodedError, isCodedError } from "../base/index.ts";
import type { AppendRequest, MapGuard, MapWrite } from "./api.ts";
import { storeErrors } from "./errors.ts";
import type { EvidenceItem } from "./evidence.ts";
import type { Commit } from "./map/transaction.ts";

/** What one node asks of the leader of a shard; the first six of a log, the others of a map. */
export type ShardRequest =
  | { readonly kind: "append"; readonly request: AppendRequest }
  /** From now on older owners of a publisher are refused, whoever leads. */
  | { readonly kind: "claim"; readonly item: EvidenceItem }
  | { readonly kind: "release"; readonly item: EvidenceItem }
  | { readonly kind: "open_writer" | "close_writer"; readonly name: string }
  | { readonly kind: "hold"; readonly name: string; readonly afterUs: number }
  | { readonly kind: "release_hold"; readonly name: string }
  | {
      readonly kind: "write";
      readonly writes: readonly MapWrite[];
      readonly guards: readonly MapGuard[];
    }
  | { readonly kind: "commit"; readonly commit: Commit };

/** Told once: not taken now, or decided at `timeUs` to do nothing for a reason; 0 for none. */
export type Decided = (error: CodedError | undefined, timeUs: number, refusal: number) => void;

/** Frozen once shipped: they are in logs. */
export const refusals = {
  none: 0,
  /** Evidence or a stamp shows that it was taken before. */
  repeat: 1,
  /** There is nothing to be released. */
  unknown: 2,
  ownerFenced: 3,
  writerFenced: 4,
  writerGap: 5,
  limit: 6,
  conflict: 7,
  guard: 8,
  present: 9,
  absent: 10,
} as const;

/** A refusal is its kind and, where a key is concerned, the place of that in the request. */
const kindsMax = 16;

const codes: Readonly<Record<string, number>> = {
  STORE_OWNER_FENCED: refusals.ownerFenced,
  STORE_WRITER_FENCED: refusals.writerFenced,
  STORE_WRITER_GAP: refusals.writerGap,
  STORE_LIMIT_REACHED: refusals.limit,
  STORE_TX_CONFLICT: refusals.conflict,
  STORE_GUARD_FAILED: refusals.guard,
};

/** Undefined for what says nothing about the request: it may be asked for again. */
export function refusalOf(error: CodedError, request: ShardRequest): number | undefined {
  const { code, details } = error;
  if (request.kind === "write" && code === "STORE_GUARD_FAILED") {
    const at = request.guards.findIndex(({ key }) => key === details.key);
    return refusals.guard + kindsMax * at;
  }
  if (request.kind === "commit" && code === "STORE_PRECONDITION_FAILED") {
    const { present, absent } = request.commit;
    return details.expected === "present"
      ? refusals.present + kindsMax * present.indexOf(String(details.key))
      : refusals.absent + kindsMax * absent.indexOf(String(details.key));
  }
  return isCodedError(error) ? codes[code] : undefined;
}

/** What whoever asked is told; undefined where a refusal is no error. */
export function errorOf(refusal: number, request: ShardRequest): CodedError | undefined {
  const at = Math.floor(refusal / kindsMax);
  switch (refusal % kindsMax) {
    case refusals.none:
    case refusals.repeat:
    case refusals.unknown:
      return undefined;
    case refusals.ownerFenced:
      return storeErrors.ownerFenced({ publisher: publisherOf(request) });
    case refusals.writerFenced:
      return storeErrors.writerFenced({ writer: writerOf(request)?.name ?? "" });
    case refusals.writerGap: {
      const { name, sequence } = writerOf(request) ?? { name: "", sequence: 0 };
      return storeErrors.writerGap({ writer: name, last: "another", got: sequence });
    }
    case refusals.limit:
      return storeErrors.limitReached({
        limit: `what a shard keeps (${request.kind})`,
        max: "less",
      });
    case refusals.conflict:
      return storeErrors.txConflict({
        attempts: request.kind === "commit" ? request.commit.attempt : 1,
      });
    case refusals.guard:
      return storeErrors.guardFailed({
        key: request.kind === "write" ? request.guards[at]?.key : "",
      });
    case refusals.present:
    case refusals.absent: {
      const isPresent = refusal % kindsMax === refusals.present;
      const commit = request.kind === "commit" ? request.commit : undefined;
      const key = (isPresent ? commit?.present : commit?.absent)?.[at] ?? "";
      return storeErrors.preconditionFailed({ key, expected: isPresent ? "present" : "absent" });
    }
    default:
      return storeErrors.formatNewer({ what: "a refusal", version: refusal });
  }
}

function publisherOf(request: ShardRequest): string {
  if (request.kind === "append") return request.request.publisher;
  return request.kind === "claim" || request.kind === "release" ? request.item.publisher : "";
}

function writerOf(request: ShardRequest) {
  return request.kind === "append" ? request.request.writer : undefined;
}
