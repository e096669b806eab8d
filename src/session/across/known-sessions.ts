// The sessions of a whole cluster in the table of each node: their rows under `live/` and `due/` are
// followed as they are applied here, whichever node wrote them.
//
// Keeps: a session is in the table while it has a row. What this node knows of a session that it serves
// itself is not overruled.

import { type CodedError, isCodedError } from "../../base/index.ts";
import { followRows, type MapShard } from "../../store/index.ts";
import type { SessionContext } from "../context.ts";
import { decodeDue, decodeLive, type LiveRecord, type Owner } from "../core/records.ts";
import { clientOfDue, dueOfKey, duePrefix, livePrefix } from "../keys.ts";

export type KnownSessionsParts = {
  readonly context: Pick<SessionContext, "store" | "table" | "counters" | "logger" | "clock">;
  readonly isOwn: (owner: Owner | undefined) => boolean;
  /** A row says whose connection a client has. Called within the apply. */
  readonly owned: (shard: MapShard, record: LiveRecord) => void;
};

export class KnownSessions {
  readonly #parts: KnownSessionsParts;

  constructor(parts: KnownSessionsParts) {
    this.#parts = parts;
  }

  /** Resolves when all that is there is known. */
  async follow(shard: MapShard): Promise<void> {
    const { table } = this.#parts.context;
    await followRows(shard, livePrefix, {
      put: (key, value) => this.#live(shard, key, value),
      gone: (key) => this.#gone(key.slice(livePrefix.length), { live: true }),
      exchanged: (keys) => {
        for (const level of table.levelsOf(shard.number, "live")) {
          if (!keys.has(livePrefix + level)) this.#gone(level, { live: true });
        }
      },
    });
    await followRows(shard, duePrefix, {
      put: (key, value) => this.#due(shard, key, value),
      gone: (key) => this.#gone(clientOfDue(key), { dueUs: dueOfKey(key) }),
      exchanged: (keys) => {
        const there = new Set([...keys].map(clientOfDue));
        for (const level of table.levelsOf(shard.number, "due")) {
          if (!there.has(level)) this.#gone(level, {});
        }
      },
    });
  }

  #live(shard: MapShard, key: string, value: Buffer): void {
    const record = this.#readable(key, () => decodeLive(value));
    if (record === undefined) return;
    const { clientId, user, owner } = record;
    const elsewhere = this.#parts.isOwn(owner) ? undefined : owner;
    this.#parts.context.table.followed(shard.number, { clientId, user, elsewhere, isLive: true });
    this.#parts.owned(shard, record);
  }

  #due(shard: MapShard, key: string, value: Buffer): void {
    const record = this.#readable(key, () => decodeDue(value));
    if (record === undefined) return;
    const { clientId, user, cursor, inFlight, dropped } = record;
    const closed = { cursor, inFlight, dropped };
    const dueUs = dueOfKey(key);
    this.#parts.context.table.followed(shard.number, { clientId, user, dueUs, closed });
  }

  /** One row goes as the other comes: what is left is looked at when the entry has been applied. */
  #gone(level: string, row: { readonly live?: true; readonly dueUs?: number }): void {
    const { table, clock } = this.#parts.context;
    if (table.lostRow(level, row)) clock.soon(() => table.dropWithoutRows(level));
  }

  /** Damage is told by whoever needs the record. */
  #readable<T>(key: string, read: () => T): T | undefined {
    try {
      return read();
    } catch (error) {
      if (!isCodedError(error) || (error as CodedError).kind !== "corrupt") throw error;
      this.#parts.context.counters.recordsCorrupt++;
      this.#parts.context.logger.error("session.record_corrupt", { key, error });
      return undefined;
    }
  }
}
