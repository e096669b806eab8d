// What the log counts.

import { createCounters } from "../base/index.ts";

const help = {
  records: "Records made durable",
  flushes: "Flushes made durable, empty ones included",
  bytes: "Bytes of flushes made durable",
  syncs: "fdatasync calls of flushes",
  syncMsSum: "Milliseconds spent in those fdatasync calls",
  syncMsMax: "The longest of them, in milliseconds",
  segmentsCreated: "Segment files created and filled with zeros",
  segmentsRecycled: "Segment files used again",
  segmentsRemoved: "Segment files removed",
  segmentWaits: "Flushes that waited for the next segment to be ready",
  refused: "Appends refused because a record was too large or too much was pending",
  callbackErrors: "Errors thrown by the callbacks of appends",
  spaceWaits: "Attempts to write that found no space",
  rot: "Damaged places found in synced parts at open",
  cutTails: "Incomplete last flushes cut at open",
  rewrittenFlushes: "Whole but unproved last flushes rewritten at open",
  unreadablePages: "Pages that the disk could not read",
} as const;

export type LogCounterHelp = typeof help;

export function createLogCounters() {
  return createCounters(help);
}
