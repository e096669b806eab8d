// Keys: the write-ahead log. See `../keys.ts` for the rules.

import { choice, count, duration, group, size } from "../schema.ts";
import { gib, kib, mib, second } from "./units.ts";

export const log = group("The write-ahead log that makes acked messages durable.", {
  segmentBytes: size({
    doc: "Size of a segment file, filled ahead and recycled. A larger record gets its own.",
    reload: "restart",
    fallback: "64MiB",
    min: 64 * kib,
    max: gib,
  }),
  flushBytesMax: size({
    doc: "Bytes of one flush. A larger record makes a flush of its own.",
    reload: "restart",
    fallback: "1MiB",
    min: 4096,
    max: 64 * mib,
  }),
  maxItems: count({
    doc: "Records of one flush.",
    reload: "restart",
    fallback: "4096",
    min: 1,
    max: 65_536,
  }),
  flushIntervalMs: duration({
    doc: "Delay before a flush while the log is busy. The sync under way is the natural timer.",
    reload: "restart",
    fallback: "0",
    min: 0,
    max: second,
    zero: "as_is",
    zeroDoc: "no delay",
  }),
  idleFlushIntervalMs: duration({
    doc: "Delay before the first flush after the log was idle.",
    reload: "restart",
    fallback: "0",
    min: 0,
    max: second,
    zero: "as_is",
    zeroDoc: "no delay",
  }),
  pendingBytesMax: size({
    doc: "Bytes queued and not yet synced at which publishes wait; progress of sessions goes on.",
    reload: "restart",
    fallback: "32MiB",
    min: mib,
    max: gib,
  }),
  onDamage: choice(["quarantine", "refuse"], {
    doc: "Damaged synced bytes at start: set them aside, record the gap and go on, or end with 4.",
    reload: "restart",
    fallback: "quarantine",
  }),
  spareSegmentsMax: count({
    doc: "Used segments kept for reuse.",
    reload: "restart",
    fallback: "4",
    min: 0,
    max: 1024,
    zero: "as_is",
    zeroDoc: "segments are removed",
  }),
});
