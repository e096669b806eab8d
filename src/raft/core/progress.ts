// What a leader knows of one peer's log, and how much it may send it.
//
// States: `probe` (one append at a time, to find where the logs agree), `replicate` (pipelined up
// to the window), `snapshot` (nothing but a wait, with a time limit, for a snapshot to arrive).
// Keeps: match < next; match never falls; the window counts what was sent and not answered.

import { assert } from "../../base/index.ts";
import type { NodeId } from "./types.ts";

type Flight = { readonly lastIndex: number; readonly bytes: number };

export type Progress = {
  readonly node: NodeId;
  state: "probe" | "replicate" | "snapshot";
  /** Highest index known to be durable there and equal to ours. */
  match: number;
  /** First index of the next append. */
  next: number;
  /** In probe: an append is out and neither answer nor heartbeat answer came back. */
  probeSent: boolean;
  /** In replicate: send an append even if there is nothing new or the window is full. */
  nudge: boolean;
  /** Heard from since the last check of the quorum. */
  active: boolean;
  /** Joined since then: its silence does not count yet. */
  joining: boolean;
  snapshotElapsed: number;
  flights: Flight[];
  flightBytes: number;
  /** Highest commit index sent, and acknowledged. */
  commitSent: number;
  commitAcked: number;
  /** Highest read round answered. */
  readRound: number;
};

export type Window = { readonly messages: number; readonly bytes: number };

export function createProgress(node: NodeId, next: number): Progress {
  return {
    node,
    state: "probe",
    match: 0,
    next,
    probeSent: false,
    nudge: false,
    active: false,
    joining: false,
    snapshotElapsed: 0,
    flights: [],
    flightBytes: 0,
    commitSent: 0,
    commitAcked: 0,
    readRound: 0,
  };
}

/** Every window admits one message whatever its size. */
export function isWindowFull(progress: Progress, window: Window): boolean {
  if (progress.flights.length === 0) return false;
  return progress.flights.length >= window.messages || progress.flightBytes >= window.bytes;
}

export function becomeProbe(progress: Progress, next: number): void {
  resetFlow(progress);
  progress.state = "probe";
  progress.next = Math.max(next, progress.match + 1);
}

export function becomeReplicate(progress: Progress): void {
  resetFlow(progress);
  progress.state = "replicate";
  progress.next = progress.match + 1;
}

export function becomeSnapshot(progress: Progress, snapshotIndex: number): void {
  resetFlow(progress);
  progress.state = "snapshot";
  progress.next = Math.max(snapshotIndex, progress.match) + 1;
}

/** Notes an append that left. Empty ones do not occupy the window. */
export function noteSent(progress: Progress, lastIndex: number, bytes: number): void {
  if (progress.state === "probe") {
    progress.probeSent = true;
    return;
  }
  progress.nudge = false;
  if (lastIndex < progress.next) return;
  progress.next = lastIndex + 1;
  progress.flights.push({ lastIndex, bytes });
  progress.flightBytes += bytes;
}

/** An append up to `index` was accepted; `cutIndex` is where our log begins. */
export function noteAccepted(progress: Progress, index: number, cutIndex: number): void {
  progress.match = Math.max(progress.match, index);
  progress.next = Math.max(progress.next, progress.match + 1);
  if (progress.state === "probe" && progress.match === index) becomeReplicate(progress);
  if (progress.state === "snapshot" && progress.match >= cutIndex) becomeReplicate(progress);
  while (progress.flights.length > 0 && (progress.flights[0] as Flight).lastIndex <= index) {
    progress.flightBytes -= (progress.flights.shift() as Flight).bytes;
  }
  assert(progress.flightBytes >= 0, "window of a peer went below zero");
}

/**
 * An append after `prevIndex` was refused. False if the answer is older than what we know: from
 * before the last acceptance, or not the one a probe is waiting for.
 */
export function noteRejected(progress: Progress, prevIndex: number, tryIndex: number): boolean {
  if (progress.state === "snapshot") return false;
  if (progress.state === "replicate") {
    if (prevIndex <= progress.match) return false;
    becomeProbe(progress, progress.match + 1);
    return true;
  }
  if (prevIndex !== progress.next - 1) return false;
  becomeProbe(progress, Math.min(prevIndex, tryIndex + 1));
  return true;
}

function resetFlow(progress: Progress): void {
  progress.probeSent = false;
  progress.nudge = false;
  progress.snapshotElapsed = 0;
  progress.flights = [];
  progress.flightBytes = 0;
}
