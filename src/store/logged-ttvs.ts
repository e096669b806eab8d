// The TTVs of a shard that the log still has, checkpointed ones included: for slabs that have lost
// some of theirs.

import { ByteReader, isCodedError, type Logger } from "../base/index.ts";
import type { WriteAheadLog } from "../log/index.ts";
import { logItemKind, readAppend, skipItem } from "./log-items.ts";
import { entryKind, entryVersion } from "./machine.ts";
import type { Ttv } from "./types.ts";

/** What cannot be read is passed: the caller tells its readers what it misses. */
export async function visitLogged(
  log: WriteAheadLog,
  shard: number,
  logger: Logger,
  visit: (stream: number, ttv: Ttv) => void,
): Promise<void> {
  try {
    await log.read(shard, 0, ({ kind, version, payload }) => {
      if (kind === entryKind.items && version <= entryVersion) visitEntry(payload, visit);
    });
  } catch (error) {
    if (!isCodedError(error, "LOG_RECORD_UNREADABLE")) throw error;
    logger.error("store.log_unreadable", { shard, reason: error.message });
  }
}

function visitEntry(payload: Uint8Array, visit: (stream: number, ttv: Ttv) => void): void {
  const reader = new ByteReader(payload);
  let timeUs = reader.u64();
  while (reader.remaining > 0) {
    const kind = reader.u8();
    timeUs += reader.varint();
    if (kind !== logItemKind.append) {
      // An item of a later kind: where it ends is not known.
      if (!skipItem(kind, reader)) return;
      continue;
    }
    const { stream, ttv } = readAppend(reader, timeUs);
    if (ttv !== undefined) visit(stream, ttv);
  }
}
