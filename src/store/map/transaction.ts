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
/** Reads and preconditions: each is remembered and checked at commit. */
export const transactionReadsMax = 10_000;

/** What a transaction reads from. */
export interface TransactionSource {
  /** Reads from now on see everything applied up to here. */
  readUs(): number;
  get(key: string): Promise<MapEntry | undefined>;
  list(prefix: string, options: { countMax: number }): Promise<MapEntry[]>;
}

export interface TransactionHost extends TransactionSource {
  commit(commit: Commit): Promise<number>;
  /** Resolves when reading again can show something new. */
  afterConflict(): Promise<void>;
}

/**
 * Runs transactions until their commits meet no conflict. The first attempts race; those that lost
 * go on one at a time, in order, so that however many race for a key each of them comes through.
 */
export class TransactionRunner {
  readonly #host: TransactionHost;
  /** The last of those that lost their first attempt. */
  #lane: Promise<unknown> = Promise.resolve();

  constructor(host: TransactionHost) {
    this.#host = host;
  }

  /** @throws STORE_TX_CONFLICT after 8 attempts. */
  async run<T>(body: TransactionBody<T>): Promise<{ timeUs: number; value: T }> {
    const outcome = await this.#attempt(body, 1);
    if (outcome !== "conflict") return outcome;
    const turn = this.#lane.then(() => this.#retry(body));
    this.#lane = turn.catch(() => undefined); // told to the caller of this one
    return turn;
  }

  async #retry<T>(body: TransactionBody<T>): Promise<{ timeUs: number; value: T }> {
    for (let attempt = 2; ; attempt++) {
      await this.#host.afterConflict();
      const outcome = await this.#attempt(body, attempt);
      if (outcome !== "conflict") return outcome;
    }
  }

  async #attempt<T>(
    body: TransactionBody<T>,
    attempt: number,
  ): Promise<{ timeUs: number; value: T } | "conflict"> {
    const tx = new Transaction(this.#host, attempt);
    const value = await body(tx);
    try {
      return { timeUs: await this.#host.commit(tx.finish()), value };
    } catch (error) {
      if (!isCodedError(error, "STORE_TX_CONFLICT") || attempt >= attemptsMax) throw error;
      return "conflict";
    }
  }
}

export type TransactionBody<T> = (tx: MapTransaction) => Promise<T>;

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
    this.#readUs = source.readUs();
  }

  async get(key: string): Promise<MapEntry | undefined> {
    this.#remember(this.#keys, key);
    return this.#source.get(key);
  }

  async list(prefix: string, countMax: number): Promise<MapEntry[]> {
    this.#remember(this.#prefixes, prefix);
    return this.#source.list(prefix, { countMax });
  }

  put(key: string, value: Uint8Array): void {
    this.#schedule(key, value);
  }

  delete(key: string): void {
    this.#schedule(key, undefined);
  }

  assertPresent(key: string): void {
    this.#remember(this.#present, key);
  }

  assertAbsent(key: string): void {
    this.#remember(this.#absent, key);
  }

  #remember(set: Set<string>, name: string): void {
    set.add(name);
    const reads = this.#keys.size + this.#prefixes.size + this.#present.size + this.#absent.size;
    if (reads <= transactionReadsMax) return;
    throw storeErrors.limitReached({ limit: "reads of a transaction", max: transactionReadsMax });
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
