// What an operator sees of the store and does with it (`operator-api.ts`), over the open databases.
//
// Views are made for the call, from memory. Changes go the way of all changes, through the logs of
// the shards concerned; over several shards there is no atomicity, and a call that failed half way
// is repeated.

import { joinPath } from "../base/index.ts";
import type { ShardNumber } from "./api.ts";
import { type Generation, totalOf } from "./core/generations.ts";
import { storeErrors } from "./errors.ts";
import type { LogShard } from "./log-shard.ts";
import type { DropOptions, GenerationInfo, HoldInfo } from "./operator-api.ts";
import { folderName } from "./slab/slab-folders.ts";

/** An open log database. */
export type OpenLogDatabase = { readonly name: string; readonly logs: readonly LogShard[] };

export type OperatorParts = {
  readonly databases: () => readonly OpenLogDatabase[];
};

const messages = "messages";

export class Operator {
  readonly #parts: OperatorParts;

  constructor(parts: OperatorParts) {
    this.#parts = parts;
  }

  generations(shard: ShardNumber): GenerationInfo[] {
    const { database, log } = this.#shard(shard);
    return log.generations.list.map((each) => describe(each, database, log));
  }

  async rotate(database = messages): Promise<void> {
    await Promise.all(this.#database(database).logs.map((log) => log.rotate()));
  }

  async dropUntil(untilUs: number, options: DropOptions = {}): Promise<number> {
    const { logs } = this.#database(options.database ?? messages);
    const dropped = await Promise.all(logs.map((log) => log.dropUntil(untilUs, options)));
    return dropped.reduce((sum, count) => sum + count, 0);
  }

  holds(): HoldInfo[] {
    return this.#parts.databases().flatMap((database) => holdsOf(database));
  }

  async hold(
    name: string,
    options: {
      readonly database?: string;
      readonly afterUs?: ReadonlyMap<ShardNumber, number>;
    } = {},
  ): Promise<HoldInfo> {
    const database = this.#database(options.database ?? messages);
    for (const log of database.logs) log.holds.checkRoom(name);
    await Promise.all(
      database.logs.map((log) => log.hold(name, options.afterUs?.get(log.number) ?? 0)),
    );
    return this.#hold(name, database);
  }

  async releaseHold(name: string, database = messages): Promise<void> {
    const open = this.#database(database);
    this.#hold(name, open);
    await Promise.all(open.logs.map((log) => log.releaseHold(name)));
  }

  #hold(name: string, database: OpenLogDatabase): HoldInfo {
    const found = holdsOf(database).find((hold) => hold.name === name);
    if (found === undefined) throw storeErrors.holdMissing({ hold: name, database: database.name });
    return found;
  }

  #database(name: string): OpenLogDatabase {
    const found = this.#parts.databases().find((database) => database.name === name);
    if (found === undefined) throw storeErrors.databaseMissing({ database: name });
    return found;
  }

  #shard(number: ShardNumber): { database: OpenLogDatabase; log: LogShard } {
    for (const database of this.#parts.databases()) {
      const log = database.logs.find((each) => each.number === number);
      if (log !== undefined) return { database, log };
    }
    throw storeErrors.shardMissing({ shard: number });
  }
}

function describe(
  generation: Generation,
  database: OpenLogDatabase,
  log: LogShard,
): GenerationInfo {
  const { number, layout, state, fromUs, toUs } = generation;
  const { ttvs, sizeBytes } = totalOf(generation);
  return {
    ...{ shard: log.number, number, layout, state, fromUs, toUs, ttvs },
    ...{ logicalBytes: sizeBytes, physicalBytes: 0, streams: generation.streams.size },
    folder: joinPath(database.name, shardFolder(log.number), folderName(number)),
    isOpen: log.generations.isOpen(number),
    heldBy: log.holds.keeping((toUs ?? Number.MAX_SAFE_INTEGER) - 1),
  };
}

function holdsOf({ name: database, logs }: OpenLogDatabase): HoldInfo[] {
  const found = new Map<string, { afterUs: Map<ShardNumber, number>; lostTtvs: number }>();
  for (const log of logs) {
    for (const hold of log.holds.list) {
      const known = found.get(hold.name) ?? { afterUs: new Map(), lostTtvs: 0 };
      known.afterUs.set(log.number, hold.afterUs);
      known.lostTtvs += hold.lostTtvs;
      found.set(hold.name, known);
    }
  }
  return [...found].map(([name, hold]) => ({ name, database, ...hold }));
}

export function shardFolder(number: ShardNumber): string {
  return `s${String(number).padStart(4, "0")}`;
}
