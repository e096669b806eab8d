// One process at a time on the directory of a node: a second one that opened its log would mend, and
// so cut, what the first is writing.
//
// The lock is a tiny LevelDB held open: a lock of the kernel, which goes with the process, however
// that ends. It holds nothing, so a damaged one is made anew.

import { type Disk, isCodedError, joinPath } from "../../base/index.ts";
import { createClassicDriver, type Kv } from "../../kv/index.ts";
import { raftErrors } from "../errors.ts";

const lockBytes = 64 * 1024;

/** Held until it is closed. @throws RAFT_DIR_LOCKED, and what the disk says. */
export async function lockRaftDir(disk: Disk, dir: string): Promise<Kv> {
  await disk.makeDir(dir);
  const driver = createClassicDriver({ disk });
  const path = joinPath(dir, "lock");
  const open = (): Promise<Kv> => driver.open(path, { writeBufferBytes: lockBytes });
  try {
    return await open();
  } catch (error) {
    if (isCodedError(error, "KV_LOCKED")) throw raftErrors.dirLocked({ dir }, error);
    if (!isCodedError(error, "KV_CORRUPT")) throw error;
    await driver.destroy(path);
    return open();
  }
}
