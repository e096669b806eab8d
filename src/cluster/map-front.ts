// A map shard at any node of a cluster: reads are of the replica here, writes go to whoever leads it.
//
// Keeps: a transaction reads what the replica has applied; the leader judges its reads against all that
// was written since, wherever; whoever is told of a write finds it in the next read here.

import type { Cancel } from "../base/index.ts";
import type {
  Decided,
  MapEntry,
  MapGuard,
  MapReplica,
  MapShard,
  MapTransaction,
  MapWatcher,
  MapWrite,
  ShardRequest,
} from "../store/index.ts";
import { errorOf, TransactionRunner } from "../store/index.ts";
import { requestBytes } from "./core/request-codec.ts";

/** Sends a request on its way; `done` runs once. */
export type Ask = (request: ShardRequest, done: Decided) => void;

export class MapFront implements MapShard {
  readonly #replica: MapReplica;
  readonly #ask: Ask;
  readonly #transactions: TransactionRunner;

  constructor(replica: MapReplica, ask: Ask) {
    this.#replica = replica;
    this.#ask = ask;
    this.#transactions = new TransactionRunner({
      ...{
        get: (key) => replica.get(key),
        list: (prefix, options) => replica.list(prefix, options),
      },
      readUs: () => replica.appliedUs,
      commit: (commit) => {
        return new Promise((resolve, reject) => {
          this.#write({ kind: "commit", commit }, commit.writes, (error, timeUs) =>
            error === undefined ? resolve(timeUs) : reject(error),
          );
        });
      },
      // What it lost to is applied here when it is told so.
      afterConflict: () => Promise.resolve(),
    });
  }

  get number(): number {
    return this.#replica.number;
  }

  get appliedUs(): number {
    return this.#replica.appliedUs;
  }

  get(key: string): Promise<MapEntry | undefined> {
    return this.#replica.get(key);
  }

  list(prefix: string, options: { afterKey?: string; countMax: number }): Promise<MapEntry[]> {
    return this.#replica.list(prefix, options);
  }

  match(
    prefix: string,
    filter: string,
    options: { afterKey?: string; countMax: number },
  ): ReturnType<MapShard["match"]> {
    return this.#replica.match(prefix, filter, options);
  }

  write(
    writes: readonly MapWrite[],
    guards: readonly MapGuard[],
    done: Parameters<MapShard["write"]>[2],
  ): void {
    this.#write({ kind: "write", writes, guards }, writes, done);
  }

  transact<T>(body: (tx: MapTransaction) => Promise<T>): Promise<{ timeUs: number; value: T }> {
    return this.#transactions.run(body);
  }

  watch(prefix: string, watcher: MapWatcher): Cancel {
    return this.#replica.watch(prefix, watcher);
  }

  barrier(): Promise<void> | undefined {
    return this.#replica.barrier();
  }

  #write(
    request: ShardRequest,
    writes: readonly MapWrite[],
    done: Parameters<MapShard["write"]>[2],
  ): void {
    const { failure } = this.#replica;
    const error =
      failure ??
      this.#replica.writesError(writes) ??
      this.#replica.sizeError(requestBytes(request));
    if (error !== undefined) return done(error, 0);
    this.#ask(request, (lost, timeUs, refusal) => {
      const why = lost ?? errorOf(refusal, request);
      done(why, why === undefined ? timeUs : 0);
    });
  }
}
