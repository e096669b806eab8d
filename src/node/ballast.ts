// The ballast: a file of the data directory that is there to be removed. On a full volume LevelDB
// cannot be opened and the log has no segment to go on with; the room of the ballast lets a node
// start, serve reads, and write the progress and deletes by which it gets room again.
//
// Invariants: it is made only where it leaves three times its size free, in small synced steps, some
// time after a start, so that it never competes with one; whoever spends it holds the lock of the
// directory. It refuses nobody: who may write on a nearly full volume is the store's matter.

import {
  type Cancel,
  type Clock,
  type Disk,
  type DiskSpace,
  isCodedError,
  joinPath,
  type Logger,
  type Random,
  syncFully,
  toError,
  writeFully,
} from "../base/index.ts";

export const ballastName = "ballast";
const halfName = `${ballastName}.new`;

const mib = 2 ** 20;

/** Less free room than this at a start, and the ballast is spent first. */
export const startRoomBytes = 16 * mib;
/** Less free room than this in a running node, and it is spent as well. */
const runningRoomBytes = 8 * mib;

/** On a small volume it takes no more than this share. */
const volumeShare = 1 / 16;
/** Free room in sizes of the ballast at which it is made. */
const roomToMake = 4;

const checkMs = 10_000;
const stepBytes = mib;

/** Whether the error says that there is no room, whichever room of the house it comes from. */
export function isFullError(error: unknown): boolean {
  return isCodedError(error, "DISK_FULL") || isCodedError(error, "KV_DISK_FULL");
}

/** What the setting comes to on this volume: whole MiB, 0 for none. */
export function ballastBytes(settingBytes: number, { totalBytes }: DiskSpace): number {
  const share = Math.floor((totalBytes * volumeShare) / mib) * mib;
  return Math.min(settingBytes, share);
}

type Place = { readonly disk: Disk; readonly logger: Logger };

/** Removes the ballast. False when there is none. REQUIRES: the lock of the directory. */
export async function spendBallast(dir: string, { disk, logger }: Place): Promise<boolean> {
  const path = joinPath(dir, ballastName);
  await disk.remove(joinPath(dir, halfName));
  if (!(await disk.exists(path))) return false;
  await disk.remove(path);
  await disk.syncDir(dir);
  const { freeBytes } = await disk.space(dir);
  const advice = "the volume is full: free space; the ballast is made again when there is room";
  logger.warn("node.ballast_spent", { path, freeBytes, advice });
  return true;
}

export type BallastComponents = Place & { readonly clock: Clock; readonly random: Random };

export type Ballast = {
  /** Begins to look after it; the first time after a while. */
  start(): void;
  /** The log has no room: spends it at once. */
  spend(): void;
  close(): Promise<void>;
};

export function createBallast(
  dir: string,
  settingBytes: number,
  components: BallastComponents,
): Ballast {
  return new BallastKeeper(dir, settingBytes, components);
}

class BallastKeeper implements Ballast {
  readonly #dir: string;
  readonly #settingBytes: number;
  readonly #components: BallastComponents;
  #cancel: Cancel | undefined;
  #work: Promise<void> = Promise.resolve();
  #stopped = false;
  #isSpending = false;

  constructor(dir: string, settingBytes: number, components: BallastComponents) {
    this.#dir = dir;
    this.#settingBytes = settingBytes;
    this.#components = components;
  }

  start(): void {
    if (this.#stopped) return;
    this.#cancel = this.#components.clock.schedule(checkMs, () => {
      this.#then(() => this.#check());
      this.#work.then(() => this.start()).catch(() => undefined); // #then tells its own failures
    });
  }

  spend(): void {
    if (this.#isSpending || this.#stopped) return;
    this.#isSpending = true;
    this.#then(async () => {
      await spendBallast(this.#dir, this.#components);
      this.#isSpending = false;
    });
  }

  async close(): Promise<void> {
    this.#stopped = true;
    this.#cancel?.();
    await this.#work;
  }

  /** One thing at a time; without a ballast a node runs as well, so failures are only told. */
  #then(work: () => Promise<void>): void {
    this.#work = this.#work.then(work).catch((error: unknown) => {
      this.#isSpending = false;
      this.#components.logger.warn("node.ballast_failed", { error: toError(error) });
    });
  }

  async #check(): Promise<void> {
    if (this.#stopped) return;
    const { disk } = this.#components;
    const space = await disk.space(this.#dir);
    if (space.freeBytes < runningRoomBytes) {
      await spendBallast(this.#dir, this.#components);
      return;
    }
    const sizeBytes = ballastBytes(this.#settingBytes, space);
    if (sizeBytes === 0 || space.freeBytes < roomToMake * sizeBytes) return;
    if (await disk.exists(joinPath(this.#dir, ballastName))) return;
    await this.#make(sizeBytes);
  }

  async #make(sizeBytes: number): Promise<void> {
    const { disk, random } = this.#components;
    const path = joinPath(this.#dir, halfName);
    await disk.remove(path);
    const file = await disk.open(path, "create");
    let isWhole = false;
    try {
      // Drawn bytes: a file system that compresses would keep no room for zeros.
      const step = random.bytes(stepBytes);
      for (let at = 0; at < sizeBytes && !this.#isUnwanted(); at += stepBytes) {
        await writeFully(file, step, at);
        await syncFully(file);
      }
      isWhole = !this.#isUnwanted();
    } finally {
      await file.close();
      if (!isWhole) await disk.remove(path);
    }
    if (!isWhole) return;
    await disk.rename(path, joinPath(this.#dir, ballastName));
    await disk.syncDir(this.#dir);
  }

  #isUnwanted(): boolean {
    return this.#stopped || this.#isSpending;
  }
}
