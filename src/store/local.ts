// A store by itself, without a broker: log, databases and their lock in one folder, or in memory.
//
// The folder is held by a kernel lock as long as the store is open; another process is told
// STORE_IN_USE. Subscribers whose messages must be kept while they are away count their filters in
// `prepare`, before the log is replayed.

import {
  type Clock,
  Closer,
  type CodedError,
  type Disk,
  isCodedError,
  joinPath,
  type Logger,
  nodeDisk,
  type Random,
  silentLogger,
  systemClock,
  systemRandom,
  toError,
} from "../base/index.ts";
import { createClassicDriver, type KvDriver, kvErrors } from "../kv/index.ts";
import { defaultLogSettings, type LogSettings, openLog } from "../log/index.ts";
import { storeErrors } from "./errors.ts";
import { type MemoryMachine, memorySegmentBytes } from "./memory-machine.ts";
import { type StoreSettings, storeSettingsDefault } from "./settings.ts";
import { type LocalStore, openStore } from "./store.ts";

export type LocalStoreOptions = {
  /** Folder, made when it is not there. */
  readonly dir?: string;
  /** Instead of a folder: a machine in memory, which outlives the store. */
  readonly memory?: MemoryMachine;
  readonly settings?: Partial<Omit<StoreSettings, "dir" | "quarantineDir">>;
  readonly log?: Partial<LogSettings>;
  readonly clock?: Clock;
  readonly logger?: Logger;
  /** Counts durable filters with `store.interest`. */
  readonly prepare?: (store: LocalStore) => Promise<void> | void;
};

export type OpenedStore = {
  readonly store: LocalStore;
  /**
   * Rejects with the first error after which nothing more is written; never resolves. A program that
   * does not look at it is not ended by it.
   */
  readonly failed: Promise<never>;
  /** Takes a last checkpoint and closes. Once. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

type Components = {
  readonly disk: Disk;
  readonly kv: KvDriver;
  readonly random: Random;
  readonly clock: Clock;
  readonly logger: Logger;
};

/**
 * Opens a store and starts it. `await using opened = await openLocalStore({ dir: "./data" })`.
 *
 * @throws STORE_IN_USE, STORE_REPLICATED; what log and store refuse to open with.
 */
export async function openLocalStore(options: LocalStoreOptions): Promise<OpenedStore> {
  const { dir = "store" } = options;
  const components = componentsOf(options);
  const closer = new Closer();
  let fail: (error: CodedError) => void = () => undefined;
  const failed = new Promise<never>((_resolve, reject) => {
    fail = reject;
  });
  failed.catch(() => undefined); // it is for those who look
  try {
    const store = await openInto(closer, dir, options, components, (error) => fail(asCoded(error)));
    return {
      store,
      failed,
      close: () => closer.close(),
      [Symbol.asyncDispose]: () => closer.close(),
    };
  } catch (error) {
    await closer.close().catch((closing: unknown) => {
      components.logger.warn("store.close_failed", { error: toError(closing) });
    });
    throw error;
  }
}

async function openInto(
  closer: Closer,
  dir: string,
  options: LocalStoreOptions,
  components: Components,
  onFailure: (error: Error) => void,
): Promise<LocalStore> {
  const { disk, kv, logger } = components;
  await disk.makeDir(dir);
  closer.own(await takeLock(kv, dir));
  const raft = joinPath(dir, "raft");
  const isReplica = (await disk.exists(raft)) && (await disk.list(raft)).length > 0;
  if (isReplica) throw storeErrors.replicated({ dir });
  const segments = options.memory === undefined ? {} : memoryLog;
  const logSettings = { ...defaultLogSettings, ...segments, ...options.log };
  const parts = { ...components, onFailure };
  const log = closer.own(await openLog(logSettings, parts, joinPath(dir, "log")));
  const store = closer.own(
    await openStore(
      {
        ...storeSettingsDefault,
        ...options.settings,
        dir: joinPath(dir, "db"),
        quarantineDir: joinPath(dir, "quarantine"),
      },
      { ...parts, log },
    ),
  );
  await options.prepare?.(store);
  await store.start();
  // A checkpoint that fails costs nothing but replay at the next start.
  closer.defer(() =>
    store.checkpoint().catch((error: unknown) => {
      logger.warn("store.last_checkpoint_failed", { error: toError(error) });
    }),
  );
  return store;
}

const memoryLog = { segmentBytes: memorySegmentBytes, zeroFillBytes: 64 * 1024 };

function componentsOf({ memory, clock = systemClock, logger }: LocalStoreOptions): Components {
  const base = { clock, logger: logger ?? silentLogger };
  if (memory === undefined) {
    const kv = createClassicDriver({ disk: nodeDisk });
    return { ...base, disk: nodeDisk, kv, random: systemRandom };
  }
  const { disk, kv } = memory;
  return { ...base, disk: disk.attach(), kv: kv.attach(), random: memory.nextRandom() };
}

async function takeLock(kv: KvDriver, dir: string) {
  try {
    return await kv.open(joinPath(dir, "lock"), { writeBufferBytes: 64 * 1024 });
  } catch (error) {
    if (!isCodedError(error, kvErrors.locked.row.code)) throw error;
    throw storeErrors.inUse({ dir }, error);
  }
}

function asCoded(error: Error): CodedError {
  return isCodedError(error) ? error : storeErrors.failed({ reason: error.message }, error);
}
