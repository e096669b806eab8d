// Optimistic transactions: the body reads applied state and schedules writes; what it read is
// checked for later writes when the shard decides. Reads do not see the transaction's own writes.

import type { CodedError } from "../../base/index.ts";
import { isCodedError } from "../../base/index.ts";
import type { MapEntry, MapTransaction, MapWrite } from "../api.ts";
import { storeErrors } from "../errors.ts";

/** What a transaction wants to commit. */
export type Commit = {
  readonly attempt: number;
  /** Reads saw everything applied up to here. */
  readonly readUs: number;
  readonly reads: ReadSet;
  readonly present: readonly string[];
  readonly absent: readonly string[];
  readonly writes: readonly MapWrite[];
};

export type ReadSet = { readonly keys: readonly string[]; readonly prefixes: readonly string[] };

export const attemptsMax = 8;
export const transactionOperationsMax = 1_000;
export const transactionBytesMax = 1024 * 1024;

/** What a transaction reads from. */
export interface TransactionSource {
  readonly appliedUs: number;
  get(key: string): Promise<MapEntry | undefined>;
  list(prefix: string, options: { countMax: number }): Promise<MapEntry[]>;
}

/**
 * Runs `body` until its commit meets no conflict; `onConflict` resolves when reading again can show
 * something new.
 * @throws STORE_TX_CONFLICT after 8 attempts.
 */
export async function runTransaction<T>(
  source: TransactionSource,
  body: (tx: MapTransaction) => Promise<T>,
  commit: (commit: Commit) => Promise<number>,
  onConflict: () => Promise<void>,
): Promise<{ timeUs: number; value: T }> {
  for (let attempt = 1; ; attempt++) {
    const tx = new Transaction(source, attempt);
    const value = await body(tx);
    try {
      return { timeUs: await commit(tx.finish()), value };
    } catch (error) {
      if (!isCodedError(error, "STORE_TX_CONFLICT") || attempt >= attemptsMax) throw error;
      await onConflict();
    }
  }
}

class Transaction implements MapTransaction {
  readonly #source: TransactionSource;
  readonly #attempt: number;
  readonly #readUs: number;
  readonly #keys = new Set<string>();
  readonly #prefixes = new Set<string>();
  readonly #present = new Set<string>();
  readonly #absent = new Set<string>();
  readonly #writes = new Map<string, Uint8Array | undefined>();
  #bytes = 0;

  constructor(source: TransactionSource, attempt: number) {
    this.#source = source;
    this.#attempt = attempt;
    this.#readUs = source.appliedUs;
  }

  get(key: string): Promise<MapEntry | undefined> {
    this.#keys.add(key);
    return this.#source.get(key);
  }

  list(prefix: string, countMax: number): Promise<MapEntry[]> {
    this.#prefixes.add(prefix);
    return this.#source.list(prefix, { countMax });
  }

  put(key: string, value: Uint8Array): void {
    this.#schedule(key, value);
  }

  delete(key: string): void {
    this.#schedule(key, undefined);
  }

  assertPresent(key: string): void {
    this.#present.add(key);
  }

  assertAbsent(key: string): void {
    this.#absent.add(key);
  }

  finish(): Commit {
    return {
      attempt: this.#attempt,
      readUs: this.#readUs,
      reads: { keys: [...this.#keys], prefixes: [...this.#prefixes] },
      present: [...this.#present],
      absent: [...this.#absent],
      writes: [...this.#writes].map(([key, value]) => ({ key, value })),
    };
  }

  #schedule(key: string, value: Uint8Array | undefined): void {
    this.#writes.set(key, value);
    this.#bytes += key.length + (value?.length ?? 0);
    const error = limitError(this.#writes.size, this.#bytes);
    if (error !== undefined) throw error;
  }
}

/** One operation may be as large as an entry; several share the transaction's bytes. */
function limitError(operations: number, bytes: number): CodedError | undefined {
  if (operations > transactionOperationsMax) {
    return storeErrors.limitReached({
      limit: "operations of a transaction",
      max: transactionOperationsMax,
    });
  }
  if (operations > 1 && bytes > transactionBytesMax) {
    return storeErrors.limitReached({ limit: "bytes of a transaction", max: transactionBytesMax });
  }
  return undefined;
}
