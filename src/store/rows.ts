// What all readers of stored rows share: which failures mean damage, and which mean that the row is
// newer than this build. Row names are words of the operator: "topic", "block", "generation".

import { isCodedError } from "../base/index.ts";
import { storeErrors } from "./errors.ts";

export function rowCorrupt(row: string, reason: string): Error {
  return storeErrors.rowCorrupt({ row, reason });
}

/** Runs `read`; a record that ends early becomes STORE_ROW_CORRUPT. */
export function readRow<T>(row: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (isCodedError(error) && error.code.startsWith("BYTES_"))
      throw rowCorrupt(row, error.message);
    throw error;
  }
}

/** Versions count from 1. @throws STORE_ROW_CORRUPT, STORE_VERSION_UNKNOWN. */
export function checkRowVersion(row: string, version: number, versionMax: number): void {
  if (version === 0) throw rowCorrupt(row, "version 0");
  if (version > versionMax) throw storeErrors.versionUnknown({ row, version, versionMax });
}
