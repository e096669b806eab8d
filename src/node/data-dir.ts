// The data directory: made with mode 0700, checked, locked, and stamped with its format and site.
//
// `FLAGSTONE` names the directory's format and the site's identity; `FLAGSTONE.copy` is its twin, so
// that one rotten file keeps nobody from starting. `lock/` is a tiny LevelDB held open for as long
// as the node runs: its kernel lock goes with the process, however that ends. No pid file.
// Nothing is written before the file system is known to be a local one. On a full volume the ballast
// is spent; what a start then still lacks is told as a number.

import {
  CodedError,
  crc32,
  type Disk,
  type DiskSpace,
  describeSize,
  diskErrors,
  isCodedError,
  joinPath,
  type Logger,
  type Random,
  readFile,
  replaceFile,
  toError,
} from "../base/index.ts";
import { type Kv, type KvDriver, kvErrors } from "../kv/index.ts";
import { ballastName, isFullError, spendBallast, startRoomBytes } from "./ballast.ts";
import { nodeErrors } from "./errors.ts";
import { closeAfterFailure } from "./failed-start.ts";

/**
 * Highest format of a data directory that this version reads and the one it writes. 2: generation rows
 * of version 2, slabs of layout `log-v2` (docs/formats/data-dir.md).
 */
export const dataFormat = 2;
/** Of a directory that is a replica: builds that know no clusters refuse it. */
export const replicaFormat = 3;

/** What a directory is to be: of a node by itself, of a member of a cluster, or about to become one. */
export type DataDirUse = "local" | "member" | "init";

export type DataDir = {
  readonly path: string;
  /** Durable identity of this directory, 32 hex digits, whatever its host is called. */
  readonly siteId: string;
  readonly format: number;
  /** Whether this start made it. */
  readonly isNew: boolean;
  readonly space: DiskSpace;
  /** From now on it is a replica's for every build. May be repeated. */
  markReplica(): Promise<void>;
  /** Gives the lock back. */
  close(): Promise<void>;
};

export type DataDirComponents = {
  readonly disk: Disk;
  readonly kv: KvDriver;
  readonly random: Random;
  readonly logger: Logger;
  /** Process id of the one that holds a lock file, where the system tells. */
  readonly lockHolder?: (lockFile: string) => number | undefined;
};

/** @throws NODE_DATA_DIR_* with a sentence for the operator. Gives the lock back when it throws. */
export async function openDataDir(
  path: string,
  components: DataDirComponents,
  use: DataDirUse = "local",
): Promise<DataDir> {
  const { disk, logger } = components;
  try {
    await disk.makeDir(path);
    const space = await disk.space(path);
    checkFileSystem(path, space, logger);
    const names = (await disk.list(path)).map(({ name }) => name);
    if (!names.includes(stampName) && !names.includes(copyName)) refuseForeign(path, names);
    refuseNewer(path, await readStamps(path, disk));
    await refuseOtherUse(path, disk, use, names);
    const lock = await withRoom(path, components, () => takeLock(path, components));
    try {
      if (space.freeBytes < startRoomBytes) await spendBallast(path, components);
      const { stamp, isNew } = await withRoom(path, components, () => stampOf(path, components));
      const markReplica = async (): Promise<void> => {
        await writeStamps(path, disk, { ...stamp, format: replicaFormat }, [stampName, copyName]);
      };
      if (use === "member" && stamp.format < replicaFormat) await markReplica();
      return { path, ...stamp, isNew, space, markReplica, close: () => lock.close() };
    } catch (error) {
      await closeAfterFailure(lock, logger);
      throw error;
    }
  } catch (error) {
    throw await plainError(path, toError(error), components);
  }
}

/** A replica's log is read by members only, and data of a local node are dropped for nobody. */
async function refuseOtherUse(
  path: string,
  disk: Disk,
  use: DataDirUse,
  names: readonly string[],
): Promise<void> {
  const raft = joinPath(path, "raft");
  const isReplica = names.includes("raft") && (await disk.list(raft)).length > 0;
  if (use === "local" && isReplica) throw nodeErrors.dataDirOfCluster({ path });
  const isLocal = !isReplica && (names.includes("db") || names.includes("log"));
  if (use === "member" && isLocal) throw nodeErrors.dataDirLocal({ path });
}

/** What needs room, and once more without the ballast when there was none. */
async function withRoom<T>(
  path: string,
  components: DataDirComponents,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    // Another node's ballast is safe: it has the lock, which is asked for before anything is written.
    if (!isFullError(error) || !(await spendBallast(path, components))) throw error;
    return await work();
  }
}

async function stampOf(
  path: string,
  components: DataDirComponents,
): Promise<{ stamp: Stamp; isNew: boolean }> {
  const { stamp, isNew, written } = await readOrWriteStamp(path, components);
  if (written === 0) await probeWrite(components.disk, path);
  return { stamp, isNew };
}

const stampName = "FLAGSTONE";
const copyName = "FLAGSTONE.copy";
const lockName = "lock";
const probeName = "probe.tmp";

const refusedTypes = new Set(["nfs", "smb", "cifs", "9p", "ceph"]);

function checkFileSystem(path: string, { type }: DiskSpace, logger: Logger): void {
  if (type === undefined) return;
  if (refusedTypes.has(type)) throw nodeErrors.dataDirNetwork({ path, type });
  if (type === "tmpfs" || type === "ramfs") {
    logger.warn("node.data_dir_in_memory", {
      path,
      advice: "nothing here survives a reboot: acked means kept until then; choose a disk",
    });
  }
  if (type === "fuse") {
    logger.warn("node.data_dir_on_fuse", {
      path,
      advice: "locks and syncs are only as good as the program behind this mount",
    });
  }
}

/** What a start that was cut short leaves behind, and what volumes hold from their birth. */
const harmless = new Set([
  lockName,
  probeName,
  `${probeName}.new`,
  `${stampName}.new`,
  `${copyName}.new`,
  ballastName,
  `${ballastName}.new`,
  "lost+found",
]);

function refuseForeign(path: string, names: readonly string[]): void {
  const name = names.find((entry) => !harmless.has(entry) && !entry.startsWith("."));
  if (name !== undefined) throw nodeErrors.dataDirForeign({ path, name });
}

async function takeLock(path: string, components: DataDirComponents): Promise<Kv> {
  const { disk, kv, logger } = components;
  const lock = joinPath(path, lockName);
  const open = (): Promise<Kv> => kv.open(lock, { writeBufferBytes: 64 * 1024 });
  try {
    return await open().catch(async (error: unknown) => {
      if (!isCodedError(error, kvErrors.corrupt.row.code)) throw error;
      // It holds nothing but the lock. One that is held is not removed, and opens for nobody.
      logger.warn("node.lock_rebuilt", { path: lock, reason: error.message });
      await kv.destroy(lock);
      return open();
    });
  } catch (error) {
    // Our own write fails for the same reason, in words an operator can use.
    if (!isCodedError(error, kvErrors.locked.row.code)) await probeWrite(disk, path);
    throw error;
  }
}

/** Rights alone do not tell: read-only mounts and full volumes show only when something is written. */
async function probeWrite(disk: Disk, path: string): Promise<void> {
  const probe = joinPath(path, probeName);
  try {
    await replaceFile(disk, probe, Buffer.from("probe\n"));
    await readFile(disk, probe);
  } finally {
    await removeQuietly(disk, probe);
    await removeQuietly(disk, `${probe}.new`);
  }
}

/** Why the probe failed counts, not that what is left of it stays. */
async function removeQuietly(disk: Disk, path: string): Promise<void> {
  try {
    await disk.remove(path);
  } catch (error) {
    if (!isCodedError(error)) throw error;
  }
}

type Stamp = { readonly format: number; readonly siteId: string };
type StampFile = Stamp | "missing" | "damaged";

type StampFiles = readonly [main: StampFile, copy: StampFile];

async function readStamps(path: string, disk: Disk): Promise<StampFiles> {
  const main = await readStamp(disk, joinPath(path, stampName));
  return [main, await readStamp(disk, joinPath(path, copyName))];
}

function refuseNewer(path: string, files: StampFiles): void {
  for (const file of files) {
    if (typeof file === "object" && file.format > replicaFormat) {
      throw nodeErrors.dataDirNewer({ path, format: file.format, formatMax: replicaFormat });
    }
  }
}

async function readOrWriteStamp(
  path: string,
  { disk, random, logger }: DataDirComponents,
): Promise<{ stamp: Stamp; isNew: boolean; written: number }> {
  const [main, copy] = await readStamps(path, disk);
  const intact = [main, copy].find((file): file is Stamp => typeof file === "object");
  if (intact === undefined && (main === "damaged" || copy === "damaged")) {
    throw nodeErrors.dataDirDamaged({ path });
  }
  const siteId = intact?.siteId ?? random.bytes(16).toString("hex");
  // Before anything else is written: from now on builds that cannot read it refuse.
  const stamp = { format: Math.max(dataFormat, intact?.format ?? 0), siteId };
  if (intact !== undefined && intact.format < dataFormat) {
    logger.info("node.format_raised", { path, from: intact.format, to: dataFormat });
  }
  const files = [
    [stampName, main],
    [copyName, copy],
  ] as const;
  const wanted = files.filter(([, file]) => typeof file !== "object" || file.format < dataFormat);
  for (const [name, file] of wanted) {
    if (file === "damaged") logger.warn("node.stamp_rebuilt", { path: joinPath(path, name) });
  }
  await writeStamps(
    path,
    disk,
    stamp,
    wanted.map(([name]) => name),
  );
  return { stamp, isNew: intact === undefined, written: wanted.length };
}

async function writeStamps(
  path: string,
  disk: Disk,
  stamp: Stamp,
  names: readonly string[],
): Promise<void> {
  const bytes = Buffer.from(formatStamp(stamp));
  await Promise.all(names.map((name) => replaceFile(disk, joinPath(path, name), bytes)));
}

async function readStamp(disk: Disk, file: string): Promise<StampFile> {
  if (!(await disk.exists(file))) return "missing";
  const text = (await readFile(disk, file)).toString("latin1");
  return parseStamp(text) ?? "damaged";
}

/** Three lines and a checksum over them; see docs/formats/data-dir.md. */
export function formatStamp({ format, siteId }: Stamp): string {
  const body = `flagstone-data\nformat ${format}\nsite ${siteId}\n`;
  return `${body}crc ${checksum(body)}\n`;
}

export function parseStamp(text: string): Stamp | undefined {
  const match =
    /^(flagstone-data\nformat (\d{1,9})\nsite ([0-9a-f]{32})\n)crc ([0-9a-f]{8})\n$/.exec(text);
  if (match === null) return undefined;
  const [, body = "", format, siteId = "", crc] = match;
  return checksum(body) === crc ? { format: Number(format), siteId } : undefined;
}

function checksum(body: string): string {
  return crc32(Buffer.from(body)).toString(16).padStart(8, "0");
}

async function plainError(
  path: string,
  error: Error,
  { disk, lockHolder }: DataDirComponents,
): Promise<CodedError> {
  if (error instanceof CodedError && error.code.startsWith("NODE_")) return error;
  if (isCodedError(error, kvErrors.locked.row.code)) {
    const pid = lockHolder?.(joinPath(path, lockName, "LOCK"));
    const holder = pid === undefined ? "another process" : `process ${pid}`;
    return nodeErrors.dataDirInUse({ path, holder }, error);
  }
  if (isCodedError(error, diskErrors.denied.row.code)) {
    const refusal = error.details.errno === "EROFS" ? "dataDirReadOnly" : "dataDirDenied";
    return nodeErrors[refusal]({ path }, error);
  }
  if (isFullError(error)) return dataDirFull(path, disk, error);
  return nodeErrors.dataDirFailed({ path, reason: error.message }, error);
}

/** What a start that found no room says: how much there is, how much it wants, what to do. */
export async function dataDirFull(path: string, disk: Disk, cause: Error): Promise<CodedError> {
  const { freeBytes } = await disk.space(path);
  const facts = { path, free: describeSize(freeBytes), needed: describeSize(startRoomBytes) };
  return nodeErrors.dataDirFull(facts, cause);
}
