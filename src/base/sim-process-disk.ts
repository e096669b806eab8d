// What one simulated process sees of a machine's disk: the port's calls as pending effects. Nothing
// here knows the clock: `start` (see `sim-disk.ts`) decides when a call completes, if it does.
//
// Invariants: a call's effect happens in one piece when it completes; a call cut off by a kill or a
// crash runs `cut` instead, and its caller never hears of it.

import type { Counters } from "./counters.ts";
import {
  type DirEntry,
  type Disk,
  type DiskFile,
  type DiskSpace,
  type Done,
  diskErrors,
  type OpenMode,
} from "./disk.ts";
import { isCodedError, toError } from "./errors.ts";
import type { SeededRandom } from "./random.ts";
import type { SimCall } from "./sim-calls.ts";
import type { SimFile, SyncTicket } from "./sim-file.ts";
import { type SimNames, type SimNode, simError } from "./sim-names.ts";

export type SimDiskOperation =
  | "open"
  | "read"
  | "write"
  | "fdatasync"
  | "truncate"
  | "names"
  | "syncDir";

export const simDiskCounterHelp = {
  writes: "Writes completed",
  writtenBytes: "Bytes of completed writes",
  syncs: "fdatasync calls completed",
  dirSyncs: "syncDir calls completed",
  reads: "Reads completed",
  readBytes: "Bytes of completed reads",
  shortWrites: "Writes of which a part arrived",
  tornSectors: "Sectors that a power cut left with old and new bytes",
} as const;

type Call<T> = SimCall<SimDiskOperation, T>;

export type SimDiskCounters = Counters<typeof simDiskCounterHelp>;

/** Chance that a write makes the kernel write some sector of the file back early. */
const writeBackChance = 1 / 8;

export type Machine = {
  readonly names: SimNames;
  readonly random: SeededRandom;
  readonly counters: SimDiskCounters;
  readonly isAlive: () => boolean;
  readonly start: <T>(call: Call<T>) => void;
  readonly freeBytes: () => number;
  readonly space: () => DiskSpace;
};

/** What one process sees of the machine's disk. */
export class SimProcessDisk implements Disk {
  readonly #machine: Machine;

  constructor(machine: Machine) {
    this.#machine = machine;
  }

  open(path: string, mode: OpenMode): Promise<DiskFile> {
    const { names } = this.#machine;
    return this.#call("open", path, () => {
      const file = mode === "create" ? names.create(path) : names.file(path, "open");
      return new SimDiskFile(this.#machine, file, path, mode);
    });
  }

  list(path: string): Promise<DirEntry[]> {
    return this.#call("read", path, () => {
      const entries = [...this.#machine.names.dir(path, "list").names];
      const named = entries.map(([name, node]) => ({ name, isDirectory: node.kind === "dir" }));
      return named.sort((one, other) => (one.name < other.name ? -1 : 1));
    });
  }

  exists(path: string): Promise<boolean> {
    return this.#call("read", path, () => this.#machine.names.find(path) !== undefined);
  }

  makeDir(path: string): Promise<void> {
    return this.#call("names", path, () => this.#machine.names.makeDir(path));
  }

  rename(from: string, to: string): Promise<void> {
    return this.#call("names", from, () => this.#machine.names.rename(from, to));
  }

  remove(path: string): Promise<void> {
    return this.#call("names", path, () => this.#machine.names.remove(path));
  }

  removeDir(path: string): Promise<void> {
    return this.#call("names", path, () => this.#machine.names.removeDir(path));
  }

  syncDir(path: string): Promise<void> {
    const { names, counters } = this.#machine;
    let ticket: ReturnType<SimNames["beginSync"]>;
    try {
      ticket = names.beginSync(path);
    } catch (error) {
      return Promise.reject(toError(error));
    }
    return this.#call("syncDir", path, () => {
      names.finishSync(ticket);
      counters.dirSyncs++;
    });
  }

  space(path: string): Promise<DiskSpace> {
    return this.#call("read", path, () => {
      if (this.#machine.names.find(path) === undefined) throw diskErrors.missing({ path });
      return this.#machine.space();
    });
  }

  usedBytes(path: string): Promise<number> {
    return this.#call("read", path, () => {
      const node = this.#machine.names.find(path);
      return node === undefined ? 0 : bytesOf(node);
    });
  }

  #call<T>(operation: SimDiskOperation, path: string, effect: () => T): Promise<T> {
    return callMachine(this.#machine, operation, path, effect);
  }
}

function bytesOf(node: SimNode): number {
  if (node.kind === "file") return node.sizeBytes;
  let sizeBytes = 0;
  for (const each of node.names.values()) sizeBytes += bytesOf(each);
  return sizeBytes;
}

class SimDiskFile implements DiskFile {
  readonly path: string;
  readonly #machine: Machine;
  readonly #file: SimFile;
  readonly #mode: OpenMode;
  #underWay = 0;
  #isClosed = false;
  readonly #idle: Array<() => void> = [];

  constructor(machine: Machine, file: SimFile, path: string, mode: OpenMode) {
    this.#machine = machine;
    this.#file = file;
    this.path = path;
    this.#mode = mode;
  }

  write(bytes: Uint8Array, position: number, done: Done): void {
    const { random, counters } = this.#machine;
    this.#start<void>({
      operation: "write",
      path: this.path,
      effect: () => {
        this.#refuseReadOnly("write");
        this.#writeFitting(bytes, position);
        counters.writes++;
        counters.writtenBytes += bytes.length;
        if (random.chance(writeBackChance)) this.#file.writeBack(random);
      },
      cut: () => this.#writePart(bytes, position),
      damage: () => this.#writePart(bytes, position),
      done,
    });
  }

  fdatasync(done: Done): void {
    const { random, counters } = this.#machine;
    const ticket: SyncTicket = this.#file.beginSync();
    this.#start<void>({
      operation: "fdatasync",
      path: this.path,
      effect: () => {
        this.#file.finishSync(ticket);
        counters.syncs++;
      },
      damage: () => this.#file.failSync(ticket, random),
      done,
    });
  }

  read(into: Uint8Array, position: number): Promise<number> {
    return this.#call("read", () => {
      const count = this.#file.read(into, position);
      this.#machine.counters.reads++;
      this.#machine.counters.readBytes += count;
      return count;
    });
  }

  sizeBytes(): Promise<number> {
    return this.#call("read", () => this.#file.sizeBytes);
  }

  truncate(sizeBytes: number): Promise<void> {
    const effect = (): void => {
      this.#refuseReadOnly("ftruncate");
      this.#file.truncate(sizeBytes);
    };
    const isReal = !this.#isClosed && this.#mode !== "read";
    return this.#call("truncate", effect, () => {
      if (isReal && this.#machine.random.chance(0.5)) effect();
    });
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (!this.#machine.isAlive()) await new Promise(() => undefined);
    if (this.#underWay > 0) await new Promise<void>((resolve) => this.#idle.push(resolve));
  }

  #call<T>(operation: SimDiskOperation, effect: () => T, cut?: () => void): Promise<T> {
    return new Promise((resolve, reject) => {
      const done = settler(resolve, reject);
      this.#start({ operation, path: this.path, effect, cut, done });
    });
  }

  #start<T>(call: Call<T>): void {
    const isClosed = this.#isClosed;
    this.#underWay++;
    const done: Call<T>["done"] = (error, value) => {
      this.#underWay--;
      call.done(error, value);
      if (this.#underWay === 0) for (const resolve of this.#idle.splice(0)) resolve();
    };
    if (!isClosed) {
      this.#machine.start({ ...call, done });
      return;
    }
    const effect = (): T => {
      throw simError(call.operation, this.path, "EBADF");
    };
    this.#machine.start({ operation: call.operation, path: this.path, effect, done });
  }

  #writeFitting(bytes: Uint8Array, position: number): void {
    const fits = this.#file.fitting(position, bytes.length, this.#machine.freeBytes());
    this.#file.write(bytes.subarray(0, fits), position);
    if (fits > 0 && fits < bytes.length) this.#machine.counters.shortWrites++;
    if (fits < bytes.length) throw diskErrors.full({ path: this.path, errno: "ENOSPC" });
  }

  #writePart(bytes: Uint8Array, position: number): void {
    if (this.#mode === "read") return;
    const { random, freeBytes } = this.#machine;
    const part = random.pick([0, bytes.length, random.below(bytes.length)]);
    const fits = this.#file.fitting(position, part, freeBytes());
    this.#file.write(bytes.subarray(0, fits), position);
    if (fits > 0 && fits < bytes.length) this.#machine.counters.shortWrites++;
  }

  #refuseReadOnly(operation: string): void {
    if (this.#mode === "read") throw simError(operation, this.path, "EBADF");
  }
}

function callMachine<T>(
  machine: Machine,
  operation: SimDiskOperation,
  path: string,
  effect: () => T,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const cut = (): void => {
      if (machine.random.chance(0.5)) return;
      try {
        effect();
      } catch (error) {
        // Nobody is left to hear that the call failed; anything else is a fault of the simulation.
        if (!isCodedError(error)) throw error;
      }
    };
    const done = settler(resolve, reject);
    machine.start(
      operation === "names" || operation === "open"
        ? { operation, path, effect, cut, done }
        : { operation, path, effect, done },
    );
  });
}

function settler<T>(
  resolve: (value: T) => void,
  reject: (error: Error) => void,
): (error: Error | undefined, value?: T) => void {
  return (error, value) => (error === undefined ? resolve(value as T) : reject(error));
}
