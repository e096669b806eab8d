// Stored messages as a file of one JSON object a line, in the order of (time, shard). Written in pages;
// what is noted as reached is synced before, so that a restart goes on there and repeats nothing.
//
// Bounded: a page in memory; the file, by the room on its volume, of which a share is left to the node.

import { type Clock, type Disk, type DiskFile, syncFully, writeFully } from "../base/index.ts";
import { framePayload, frameProperties } from "../mqtt/index.ts";
import type { Ttv } from "../store/index.ts";
import { adminErrors } from "./errors.ts";
import { type HistoryPosition, type HistoryStore, readHistory } from "./history.ts";

export type ExportStore = HistoryStore;

/** Everything up to `after` is in the first `bytes` of the file. */
export type ExportPosition = {
  readonly after: HistoryPosition | undefined;
  readonly bytes: number;
  readonly messages: number;
  readonly isDone: boolean;
};

export type ExportQuery = {
  readonly path: string;
  readonly filter: string;
  readonly fromUs: number;
  /** Inclusive. */
  readonly toUs: number;
  /** Where a former process had come to. */
  readonly position: ExportPosition | undefined;
};

export type ExportRun = {
  readonly isStopped: () => boolean;
  readonly reached: (messages: number) => void;
  readonly save: (position: ExportPosition) => Promise<void>;
};

type Components = { readonly store: ExportStore; readonly clock: Clock; readonly disk: Disk };

const pageMax = 1000;
const pageBytesMax = 32 * 1024 * 1024;
/** Unsynced bytes that a restart may have to write again. */
const syncBytes = 4 * 1024 * 1024;
/** Left free for the node itself. */
const freeBytesMin = 1024 * 1024 * 1024;
const freeShareMin = 0.05;

/** Returns where it has come to: the end, unless it was stopped. @throws ADMIN_EXPORT_NO_ROOM. */
export async function exportMessages(
  components: Components,
  query: ExportQuery,
  run: ExportRun,
): Promise<ExportPosition> {
  const known = await openKnown(components.disk, query);
  const { file, start } = known ?? (await openNew(components.disk, query, run));
  try {
    return await writePages(components, query, run, { file, start });
  } finally {
    await file.close();
  }
}

type Opened = { readonly file: DiskFile; readonly start: ExportPosition };

const nothing: ExportPosition = { after: undefined, bytes: 0, messages: 0, isDone: false };

/** Undefined where what was noted is not on the disk. */
async function openKnown(disk: Disk, { path, position }: ExportQuery): Promise<Opened | undefined> {
  if (position === undefined || !(await disk.exists(path))) return undefined;
  const file = await disk.open(path, "write");
  if ((await file.sizeBytes()) >= position.bytes) return { file, start: position };
  await file.close();
  return undefined;
}

/** The note first: it must never speak of more than the file that is there. */
async function openNew(disk: Disk, { path }: ExportQuery, run: ExportRun): Promise<Opened> {
  await run.save(nothing);
  await disk.remove(path);
  const file = await disk.open(path, "create");
  await disk.syncDir(folderOf(path));
  return { file, start: nothing };
}

function folderOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/"));
}

async function writePages(
  { store, clock, disk }: Components,
  { filter, fromUs, toUs, path }: ExportQuery,
  run: ExportRun,
  { file, start }: Opened,
): Promise<ExportPosition> {
  let { after, bytes, messages } = start;
  let synced = start;
  const settle = async (isDone: boolean): Promise<void> => {
    await syncFully(file);
    synced = { after, bytes, messages, isDone };
    await run.save(synced);
  };
  run.reached(messages);
  while (!run.isStopped() && !start.isDone) {
    const page = await readHistory(store, clock, {
      ...{ filter, fromUs, toUs, after, countMax: pageMax, bytesMax: pageBytesMax },
      show: (ttv) => `${JSON.stringify(lineOf(ttv))}\n`,
    });
    const text = Buffer.from(page.messages.join(""));
    if (text.length > 0) {
      await checkRoom(disk, path, text.length);
      await writeFully(file, text, bytes);
    }
    bytes += text.length;
    messages += page.messages.length;
    after = page.next;
    run.reached(messages);
    if (after === undefined) {
      // What a former process wrote behind its last note is no part of it.
      await file.truncate(bytes);
      await settle(true);
      return synced;
    }
    if (bytes - synced.bytes >= syncBytes) await settle(false);
  }
  await settle(start.isDone);
  return synced;
}

async function checkRoom(disk: Disk, path: string, sizeBytes: number): Promise<void> {
  const { freeBytes, totalBytes } = await disk.space(folderOf(path));
  const keptBytes = Math.min(freeBytesMin, totalBytes * freeShareMin);
  if (freeBytes - sizeBytes < keptBytes) throw adminErrors.exportNoRoom({ freeBytes });
}

/** All that a publisher said; a payload that is no UTF-8, or a property of bytes, as base64. */
function lineOf(ttv: Ttv): Readonly<Record<string, unknown>> {
  const { topic, timeUs, publisher, qos, retain, expiryUs, form, frame, expiryOffset } = ttv;
  const head = { topic, timeUs, publisher, qos, retain, ...(expiryUs === 0 ? {} : { expiryUs }) };
  if (form === "raw") return { ...head, ...payloadOf(frame) };
  const stored = {
    bytes: frame,
    version: form === "v5" ? (5 as const) : (4 as const),
    expiryOffset,
  };
  const properties = form === "v5" ? frameProperties(stored) : {};
  const said = Object.entries(properties)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => [
      name,
      ArrayBuffer.isView(value) ? Buffer.from(value as Uint8Array).toString("base64") : value,
    ]);
  return {
    ...head,
    ...payloadOf(framePayload(stored)),
    ...(said.length === 0 ? {} : { properties: Object.fromEntries(said) }),
  };
}

function payloadOf(payload: Uint8Array): { payload: string } | { payloadBase64: string } {
  const bytes = Buffer.from(payload);
  const text = bytes.toString("utf8");
  return Buffer.from(text).equals(bytes)
    ? { payload: text }
    : { payloadBase64: bytes.toString("base64") };
}
