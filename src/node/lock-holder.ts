// Who holds the lock of a data directory: a number for a message, found as well as the system lets
// us. LevelDB locks a file with fcntl; Linux lists such locks with process and inode.

import { readFileSync, statSync } from "node:fs";

/** Undefined where the system does not say, or says a process of another container. */
export function lockHolder(lockFile: string): number | undefined {
  try {
    const { ino } = statSync(lockFile);
    const table = readFileSync("/proc/locks", "utf8");
    return holderIn(table, ino);
  } catch {
    // No /proc, or the file went away meanwhile: the message does without.
    return undefined;
  }
}

/**
 * `1: POSIX  ADVISORY  WRITE 4711 fe:01:131098 0 EOF`. Devices are left out: behind an overlay their
 * numbers differ. More than one process on that inode number: nobody is named.
 */
export function holderIn(table: string, inode: number): number | undefined {
  const pids = new Set<number>();
  for (const line of table.split("\n")) {
    const match = /^\d+: POSIX +ADVISORY +WRITE +(\d+) +[0-9a-f]+:[0-9a-f]+:(\d+) /.exec(line);
    if (match !== null && Number(match[2]) === inode) pids.add(Number(match[1]));
  }
  const [pid] = pids;
  return pids.size === 1 && pid !== undefined && pid > 0 ? pid : undefined;
}
