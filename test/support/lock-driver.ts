// A key-value driver that knows only one holder per folder: what the lock of a data directory needs.

import { type Kv, type KvDriver, kvErrors } from "../../src/kv/index.ts";

export type LockDriver = KvDriver & {
  readonly held: Set<string>;
  /** What the next opens fail with. */
  failure: Error | undefined;
};

export function lockDriver(): LockDriver {
  const held = new Set<string>();
  return {
    held,
    failure: undefined,
    async open(path) {
      if (this.failure !== undefined) throw this.failure;
      if (held.has(path)) throw kvErrors.locked({ path });
      held.add(path);
      const close = async (): Promise<void> => {
        held.delete(path);
      };
      return { path, close } as unknown as Kv;
    },
    destroy: async () => undefined,
    setAside: async () => undefined,
    sizeBytes: async () => 0,
    salvage: async () => ({ faults: [], isWhole: true }),
    condemn: async () => undefined,
  };
}
