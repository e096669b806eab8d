// Ways to an Aedes persistence: over a store that somebody else owns, or with one of its own in a
// folder.

import { openLocalStore, type Store } from "../store/index.ts";
import { type PersistenceOptions, StorePersistence } from "./persistence.ts";

export type OpenOptions = PersistenceOptions & {
  /** Folder of the store; made when it is not there. */
  readonly dir: string;
};

/** Over a store that stays its owner's: that of a node, or one opened by `openLocalStore`. */
export function createPersistence(
  store: Pick<Store, "state">,
  options: PersistenceOptions = {},
): StorePersistence {
  return new StorePersistence({ store }, options);
}

/**
 * With a store of its own, which `destroy` closes:
 * `Aedes.createBroker({ persistence: await openPersistence({ dir: "./data" }) })`.
 *
 * @throws STORE_IN_USE when another process has the folder; what the store refuses to open with.
 */
export async function openPersistence(options: OpenOptions): Promise<StorePersistence> {
  const { dir, logger } = options;
  const opened = await openLocalStore({ dir, ...(logger !== undefined && { logger }) });
  return new StorePersistence({ store: opened.store, close: () => opened.close() }, options);
}
