// What a folder's disk did between two moments, as its block device counts it: bytes written and
// flushes. `write_bytes` of a process is no measure: preallocated files make it count pages.

import { readFileSync, readlinkSync, statSync } from "node:fs";
import { join } from "node:path";

const sectorBytes = 512;
const writtenSectors = 6;
const flushes = 15;

/** Counters of the disk under `path` so far; undefined where the system does not say. */
export function diskCounters(path) {
  const { dev } = statSync(path);
  const number = `${dev >> 8}:${dev & 0xff}`;
  try {
    const device = readlinkSync(join("/sys/dev/block", number));
    const text = readFileSync(join("/sys/dev/block", device, "stat"), "utf8");
    const fields = text.trim().split(/\s+/).map(Number);
    return { writtenBytes: fields[writtenSectors] * sectorBytes, flushes: fields[flushes] };
  } catch {
    return undefined;
  }
}

export function diskWork(before, after) {
  if (before === undefined || after === undefined) return undefined;
  return {
    writtenBytes: after.writtenBytes - before.writtenBytes,
    flushes: after.flushes - before.flushes,
  };
}

/** Calls of fdatasync that Flagstone's log has made; undefined for other brokers. */
export async function logSyncs(broker) {
  if (broker.metricsPort === undefined) return undefined;
  const answer = await fetch(`http://127.0.0.1:${broker.metricsPort}/metrics`);
  const found = /^flagstone_log_syncs_total (\d+)/m.exec(await answer.text());
  return found === null ? undefined : Number(found[1]);
}
