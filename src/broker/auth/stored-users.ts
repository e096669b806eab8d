// Users in the store: name and hash, one key each in the `meta` database. They are read at the
// start and kept in memory, in bounded number, since every login asks for one.
//
// A change is durable before it counts, and told to whoever has to look again at those who are in. On
// a cluster it counts as soon as it is applied here, whichever node made it; a record of another node
// that cannot be read lets nobody in.

import { isCodedError } from "../../base/index.ts";
import type { MapShard } from "../../store/index.ts";
import { brokerErrors } from "../errors.ts";
import { userNameFault } from "./password-file.ts";
import { parsePasswordHash } from "./password-hash.ts";
import type { Users } from "./password-method.ts";

export type StoredUser = { readonly name: string; readonly form: string; readonly sinceUs: number };

const prefix = "user/";
const formatVersion = 1;
const pageMax = 1000;
export const storedUsersMax = 100_000;

export class StoredUsers implements Users {
  readonly #meta: MapShard;
  readonly #changed: () => void;
  readonly #users = new Map<string, { readonly hash: string; readonly sinceUs: number }>();
  /** Applied since reading began: newer than what is read. */
  #newer: Set<string> | undefined;

  constructor(meta: MapShard, changed: () => void) {
    this.#meta = meta;
    this.#changed = changed;
  }

  /** @throws BROKER_USERS_INVALID when a record cannot be read: a lost denial would let somebody in. */
  async load(): Promise<void> {
    const newer = new Set<string>();
    this.#newer = newer;
    let from: { afterKey?: string } = {};
    for (;;) {
      const page = await this.#meta.list(prefix, { ...from, countMax: pageMax });
      for (const { key, value } of page) if (!newer.has(key)) this.#read(key, value);
      const last = page.at(-1);
      if (last === undefined || page.length < pageMax) return;
      from = { afterKey: last.key };
    }
  }

  /** Before `load`, where other nodes write too. */
  follow(): void {
    this.#meta.watch(prefix, {
      applied: (key, value) => {
        this.#newer?.add(key);
        this.#users.delete(nameOf(key));
        if (value !== undefined) this.#readSafely(key, value);
        this.#changed();
      },
      replaced: async () => {
        this.#users.clear();
        await this.load();
        this.#changed();
      },
    });
  }

  #readSafely(key: string, value: Buffer): void {
    try {
      this.#read(key, value);
    } catch (error) {
      if (!isCodedError(error)) throw error; // whom it names is not let in
    }
  }

  #read(key: string, value: Buffer): void {
    try {
      const { version, name, hash, sinceUs } = JSON.parse(value.toString("utf8"));
      if (version !== formatVersion || typeof name !== "string") throw new Error("unknown form");
      if (typeof hash !== "string" || parsePasswordHash(hash) === undefined) {
        throw new Error("unknown hash");
      }
      this.#users.set(name, { hash, sinceUs: Number(sinceUs) });
    } catch (error) {
      throw brokerErrors.usersInvalid({ line: 0, reason: `stored record ${key}` }, error);
    }
  }

  find(user: string): string | undefined {
    return this.#users.get(user)?.hash;
  }

  /** Without hashes, by name. */
  list(): StoredUser[] {
    return [...this.#users]
      .map(([name, { hash, sinceUs }]) => ({ name, form: hash.split("$")[1] ?? "", sinceUs }))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /**
   * Adds a user or changes its hash. Durable when it resolves.
   * @throws BROKER_USERS_INVALID for a name or hash that cannot be; what the store throws.
   */
  async put(name: string, hash: string, nowUs: number): Promise<void> {
    const fault = userNameFault(name) ?? (parsePasswordHash(hash) ? undefined : "unknown hash");
    if (fault !== undefined) throw brokerErrors.usersInvalid({ line: 0, reason: fault });
    if (!this.#users.has(name) && this.#users.size >= storedUsersMax) {
      throw brokerErrors.usersInvalid({ line: 0, reason: `there are ${storedUsersMax} already` });
    }
    const record = { version: formatVersion, name, hash, sinceUs: nowUs };
    await write(this.#meta, keyOf(name), Buffer.from(JSON.stringify(record)));
    this.#users.set(name, { hash, sinceUs: nowUs });
    this.#changed();
  }

  /** False: there was none. Durable when it resolves. */
  async remove(name: string): Promise<boolean> {
    if (!this.#users.has(name)) return false;
    await write(this.#meta, keyOf(name), undefined);
    this.#users.delete(name);
    this.#changed();
    return true;
  }
}

/** Names may hold what keys may not. */
function keyOf(name: string): string {
  return prefix + Buffer.from(name, "utf8").toString("base64url");
}

function nameOf(key: string): string {
  return Buffer.from(key.slice(prefix.length), "base64url").toString("utf8");
}

/** Resolves when durable. */
export function write(meta: MapShard, key: string, value: Buffer | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    meta.write([{ key, value }], [], (error) => {
      if (error === undefined) resolve();
      else reject(error);
    });
  });
}
