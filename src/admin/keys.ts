// API keys: `fs_ID_SECRET`, 256 random bits each, of which only a SHA-256 is kept. A slow hash is for
// secrets that people choose; nobody guesses these.
//
// Kept in one small file of the data directory, replaced as a whole. Whoever may read the directory
// is its operator: without a file a new first key is made and told once. A damaged file is set aside
// and does not keep the node from starting.

import { createHash, timingSafeEqual } from "node:crypto";
import { type Disk, joinPath, type Logger, type Random } from "../base/index.ts";
import type { ApiKey } from "./contract.ts";
import { adminErrors } from "./errors.ts";
import { type ListKind, parseList, readList, writeList } from "./list-file.ts";
import { type Role, roles } from "./operations.ts";

const keysMax = 1000;
const fileName = "keys.json";

type StoredKey = ApiKey & { readonly hash: string };
const kind: ListKind<StoredKey> = { name: "keys", isItem: isStoredKey };

export type KeyComponents = {
  readonly disk: Disk;
  readonly random: Random;
  readonly logger: Logger;
  readonly nowMs: () => number;
};

export type NewKey = ApiKey & { readonly secret: string };

export class ApiKeys {
  readonly #path: string;
  readonly #components: KeyComponents;
  #keys: readonly StoredKey[];
  #saving: Promise<void> = Promise.resolve();
  #revoked: () => void = () => undefined;

  private constructor(path: string, components: KeyComponents, keys: readonly StoredKey[]) {
    this.#path = path;
    this.#components = components;
    this.#keys = keys;
  }

  /** With the secret of the first key when this call made it. */
  static async open(
    dir: string,
    components: KeyComponents,
  ): Promise<{ keys: ApiKeys; firstSecret: string | undefined }> {
    const path = joinPath(dir, fileName);
    const keys = new ApiKeys(path, components, await readKeys(path, components));
    if (keys.#keys.some(({ role }) => role === "admin")) return { keys, firstSecret: undefined };
    const { secret } = await keys.create("first", "admin");
    return { keys, firstSecret: secret };
  }

  list(): ApiKey[] {
    return this.#keys.map(({ id, name, role, createdMs }) => ({ id, name, role, createdMs }));
  }

  /** The key of a text as it came with a request. */
  find(text: string): ApiKey | undefined {
    const id = /^fs_([a-z0-9]{8})_[A-Za-z0-9_-]{43}$/.exec(text)?.[1];
    const key = this.#keys.find((each) => each.id === id);
    if (key === undefined) return undefined;
    const isRight = timingSafeEqual(Buffer.from(hashOf(text), "hex"), Buffer.from(key.hash, "hex"));
    return isRight ? key : undefined;
  }

  /** Whether a key still holds. */
  has(id: string): boolean {
    return this.#keys.some((each) => each.id === id);
  }

  /** Called when keys may have been revoked: what they opened has to end. */
  onRevoked(revoked: () => void): void {
    this.#revoked = revoked;
  }

  /** Durable when it resolves. @throws ADMIN_KEY_EXISTS, ADMIN_BUSY. */
  async create(name: string, role: Role): Promise<NewKey> {
    if (this.#keys.some((key) => key.name === name)) throw adminErrors.keyExists({ name });
    if (this.#keys.length >= keysMax) throw adminErrors.busy({ what: "API keys", max: keysMax });
    const { random, nowMs } = this.#components;
    const id = random.bytes(4).toString("hex");
    const secret = `fs_${id}_${random.bytes(32).toString("base64url")}`;
    const key: ApiKey = { id, name, role, createdMs: nowMs() };
    await this.#save([...this.#keys, { ...key, hash: hashOf(secret) }]);
    return { ...key, secret };
  }

  /** @throws ADMIN_THING_NOT_FOUND, ADMIN_LAST_ADMIN_KEY. */
  async delete(id: string): Promise<void> {
    const key = this.#keys.find((each) => each.id === id);
    if (key === undefined) throw adminErrors.thingMissing({ thing: "key", name: id });
    const rest = this.#keys.filter((each) => each !== key);
    if (!rest.some(({ role }) => role === "admin")) throw adminErrors.lastAdmin({ id });
    const saved = this.#save(rest);
    this.#revoked();
    await saved;
  }

  /** In force at once, so that a revoked key ends now; one write after the other. */
  #save(keys: readonly StoredKey[]): Promise<void> {
    const before = this.#keys;
    this.#keys = keys;
    const { disk } = this.#components;
    const saved = this.#saving.then(() => writeList(disk, this.#path, kind, keys));
    this.#saving = saved.catch(() => undefined); // told to the caller below
    return saved.catch((error: unknown) => {
      if (this.#keys === keys) this.#keys = before;
      throw error;
    });
  }
}

/** A text that somebody else wrote, in which there may be a secret where a name belongs. */
export function withoutKeys(text: string): string {
  return text.replaceAll(/(fs_[a-z0-9]{8}_)[A-Za-z0-9_-]{20,}/g, "$1...");
}

function hashOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

async function readKeys(path: string, { disk, logger }: KeyComponents): Promise<StoredKey[]> {
  const keys = await readList(disk, path, kind);
  if (keys !== undefined) return keys;
  await disk.rename(path, `${path}.damaged`);
  logger.warn("admin.keys_damaged", { path, advice: "all keys are void; a new first one is told" });
  return [];
}

export function parseKeys(text: string): StoredKey[] | undefined {
  return parseList(text, kind);
}

function isStoredKey(value: unknown): value is StoredKey {
  const key = (value ?? {}) as Record<string, unknown>;
  return (
    typeof key.id === "string" &&
    typeof key.name === "string" &&
    typeof key.createdMs === "number" &&
    roles.some((role) => role === key.role) &&
    typeof key.hash === "string" &&
    /^[0-9a-f]{64}$/.test(key.hash)
  );
}
