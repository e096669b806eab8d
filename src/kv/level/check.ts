// Whether a LevelDB's folder holds what it must, looked at before LevelDB opens it: LevelDB drops the
// rotten end of a write log without a word, makes a new store where CURRENT is gone, and removes the
// tables that a torn manifest does not name.
//
// A *proof* is taken after a sync and says what every later state of the folder has to show:
// the manifest is that one or a newer one; a write log that existed then is whole up to the size it
// had, or the manifest says that it has become a table. What was written after the proof may be torn:
// a power cut does that, and the owner's own log brings it back.

import {
  ByteReader,
  ByteWriter,
  type Disk,
  isCodedError,
  joinPath,
  readFile,
} from "../../base/index.ts";
import {
  type LevelFiles,
  listLevel,
  logName,
  manifestName,
  readLevelFile,
  withLevelFile,
} from "./folder.ts";
import { readLevelLog } from "./log-file.ts";
import { type LevelState, readManifest } from "./manifest.ts";
import { tableFault, tableIndexFault } from "./table.ts";

export type LevelProof = {
  readonly manifest: number;
  readonly logs: ReadonlyArray<readonly [number: number, sizeBytes: number]>;
};

export type CheckOptions = {
  readonly proof: LevelProof | undefined;
  /** Bytes of tables whose checksums are all looked at, the newest first; of others the index is. */
  readonly verifyBytesMax: number;
};

/** What is wrong; undefined when LevelDB may open the folder and will give all that was proved. */
export async function levelFault(
  disk: Disk,
  path: string,
  options: CheckOptions,
): Promise<string | undefined> {
  const files = await listLevel(disk, path);
  const { proof } = options;
  if (!files.hasCurrent) {
    if (proof !== undefined) return "it is gone, or CURRENT is";
    const isEmpty = files.tables.size === 0 && files.logs.length === 0;
    return isEmpty ? undefined : "CURRENT is missing";
  }
  const state = await readState(disk, path, files);
  if (typeof state === "string") return state;
  return (
    missingTable(files, state) ??
    (proof === undefined ? undefined : await proofFault(disk, path, { files, state, proof })) ??
    (await tablesFault(disk, path, { files, state, budgetBytes: options.verifyBytesMax }))
  );
}

export type KnownState = LevelState & { readonly manifest: number };

/** What CURRENT and its manifest say, or why they cannot be used. */
export async function readState(
  disk: Disk,
  path: string,
  files: LevelFiles,
): Promise<KnownState | string> {
  const current = (await readLevelFile(disk, path, "CURRENT")).toString("latin1");
  const number = /^MANIFEST-(\d+)\n$/.exec(current)?.[1];
  if (number === undefined) return "CURRENT does not name a manifest";
  const manifest = Number(number);
  if (!files.manifests.includes(manifest)) return `${manifestName(manifest)} is missing`;
  const log = readLevelLog(await readLevelFile(disk, path, manifestName(manifest)));
  if (log.badOffset !== undefined) {
    return `${manifestName(manifest)} is damaged at offset ${log.badOffset}`;
  }
  const state = readManifest(log);
  return state === undefined
    ? `${manifestName(manifest)} does not read as one`
    : { ...state, manifest };
}

function missingTable(files: LevelFiles, state: LevelState): string | undefined {
  for (const number of state.tables.keys()) {
    if (!files.tables.has(number)) return `table ${number} is missing`;
  }
  return undefined;
}

type Proved = {
  readonly files: LevelFiles;
  readonly state: KnownState;
  readonly proof: LevelProof;
};

async function proofFault(
  disk: Disk,
  path: string,
  { files, state, proof }: Proved,
): Promise<string | undefined> {
  if (state.manifest < proof.manifest) return `${manifestName(state.manifest)} is an older one`;
  const oldest = proof.logs[0]?.[0] ?? 0;
  if (state.logNumber < oldest) return `${manifestName(state.manifest)} has lost its end`;
  for (const [number, sizeBytes] of proof.logs) {
    if (number < state.logNumber) continue;
    const name = logName(number);
    if (!files.logs.includes(number)) return `${name} is missing`;
    const log = readLevelLog(await readLevelFile(disk, path, name));
    if (log.goodBytes < sizeBytes) return `${name} is damaged at offset ${log.goodBytes}`;
  }
  return undefined;
}

type Tables = {
  readonly files: LevelFiles;
  readonly state: LevelState;
  readonly budgetBytes: number;
};

async function tablesFault(
  disk: Disk,
  path: string,
  { files, state, budgetBytes }: Tables,
): Promise<string | undefined> {
  let leftBytes = budgetBytes;
  for (const [number, sizeBytes] of [...state.tables].sort(([a], [b]) => b - a)) {
    const name = files.tables.get(number) as string;
    const isVerified = leftBytes > 0;
    leftBytes -= sizeBytes;
    const fault = isVerified
      ? tableFault(await readLevelFile(disk, path, name))
      : await withLevelFile(disk, path, name, tableIndexFault);
    if (fault !== undefined) return `${name}: ${fault}`;
  }
  return undefined;
}

// -------------------------------------------------------------- proofs

const proofVersion = 1;
const currentName = /^MANIFEST-(\d+)\n$/;

/** REQUIRES: every byte of the logs up to these sizes is synced. */
export async function takeProof(
  disk: Disk,
  path: string,
  logs: LevelProof["logs"],
): Promise<Buffer> {
  const current = await readFile(disk, joinPath(path, "CURRENT"));
  const manifest = Number(currentName.exec(current.toString("latin1"))?.[1] ?? 0);
  const writer = new ByteWriter(64).u8(proofVersion).varint(manifest).varint(logs.length);
  for (const [number, sizeBytes] of logs) writer.varint(number).varint(sizeBytes);
  return Buffer.from(writer.finish());
}

/** Undefined for bytes that are no proof of this version: nothing is held against the store. */
export function decodeProof(bytes: Uint8Array): LevelProof | undefined {
  try {
    const reader = new ByteReader(bytes);
    if (reader.u8() !== proofVersion) return undefined;
    const manifest = reader.varint();
    const logs = Array.from(
      { length: reader.varint() },
      () => [reader.varint(), reader.varint()] as const,
    );
    return { manifest, logs };
  } catch (error) {
    if (isCodedError(error) && error.code.startsWith("BYTES_")) return undefined;
    throw error;
  }
}
