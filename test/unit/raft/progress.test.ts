import { describe, expect, test } from "vitest";
import {
  becomeProbe,
  becomeReplicate,
  becomeSnapshot,
  createProgress,
  isWindowFull,
  noteAccepted,
  noteRejected,
  noteSent,
  type Progress,
} from "../../../src/raft/core/progress.ts";

const window = { messages: 2, bytes: 100 };

function replicating(match: number): Progress {
  const peer = createProgress(2, match + 1);
  noteAccepted(peer, match, 0);
  becomeReplicate(peer);
  return peer;
}

describe("what a leader knows of a peer", () => {
  test("a probe waits for an answer and does not move on", () => {
    const peer = createProgress(2, 5);
    noteSent(peer, 6, 10);
    expect([peer.probeSent, peer.next]).toEqual([true, 5]);
  });

  test("an accepted probe opens the pipeline, even if it brought nothing new", () => {
    const peer = createProgress(2, 5);
    noteAccepted(peer, 0, 0);
    expect(peer.state).toBe("replicate");
    becomeProbe(peer, 1);
    noteAccepted(peer, 7, 0);
    expect([peer.state, peer.match, peer.next]).toEqual(["replicate", 7, 8]);
  });

  test("the window closes by messages or bytes, and admits one message of any size", () => {
    const peer = replicating(4);
    expect(isWindowFull(peer, window)).toBe(false);
    noteSent(peer, 5, 1);
    expect(isWindowFull(peer, window)).toBe(false);
    noteSent(peer, 6, 1);
    expect(isWindowFull(peer, window)).toBe(true);
    noteAccepted(peer, 5, 0);
    expect(isWindowFull(peer, window)).toBe(false);
    expect(peer.flightBytes).toBe(1);
    const large = replicating(4);
    expect(isWindowFull(large, { messages: 9, bytes: 1 })).toBe(false);
    noteSent(large, 5, 100);
    expect(isWindowFull(large, window)).toBe(true);
    expect(isWindowFull(large, { messages: 9, bytes: 101 })).toBe(false);
    expect(isWindowFull(replicating(4), { messages: 0, bytes: 0 })).toBe(false);
  });

  test("an empty append takes no place in the window", () => {
    const peer = replicating(4);
    peer.nudge = true;
    noteSent(peer, 4, 0);
    expect([peer.flights.length, peer.next, peer.nudge]).toEqual([0, 5, false]);
  });

  test("a change of state begins with an empty flow", () => {
    const changes = [
      (peer: Progress) => becomeProbe(peer, 3),
      becomeReplicate,
      (peer: Progress) => becomeSnapshot(peer, 9),
    ];
    for (const change of changes) {
      const peer = replicating(4);
      noteSent(peer, 7, 30);
      Object.assign(peer, { probeSent: true, nudge: true, snapshotElapsed: 5 });
      change(peer);
      const { probeSent, nudge, snapshotElapsed, flights, flightBytes } = peer;
      expect({ probeSent, nudge, snapshotElapsed, flights, flightBytes }).toEqual({
        probeSent: false,
        nudge: false,
        snapshotElapsed: 0,
        flights: [],
        flightBytes: 0,
      });
      expect(peer.next).toBeGreaterThan(peer.match);
    }
  });

  test("match never falls", () => {
    const peer = replicating(9);
    noteAccepted(peer, 4, 0);
    expect([peer.match, peer.next]).toEqual([9, 10]);
    noteAccepted(peer, 20, 0);
    expect([peer.match, peer.next]).toEqual([20, 21]);
  });

  test("a refusal older than the last acceptance is ignored", () => {
    const peer = replicating(9);
    noteSent(peer, 12, 1);
    expect(noteRejected(peer, 9, 3)).toBe(false);
    expect(noteRejected(peer, 12, 3)).toBe(true);
    expect([peer.state, peer.next]).toEqual(["probe", 10]);
  });

  test("a probe steps back to what the peer named, never below what it acknowledged", () => {
    const peer = createProgress(2, 20);
    expect(noteRejected(peer, 18, 5)).toBe(false);
    expect(noteRejected(peer, 19, 5)).toBe(true);
    expect(peer.next).toBe(6);
    expect(noteRejected(peer, 5, 9)).toBe(true);
    expect(peer.next).toBe(5);
    peer.match = 4;
    expect(noteRejected(peer, 4, 0)).toBe(true);
    expect(peer.next).toBe(5);
  });

  test("a peer that waits for a snapshot leaves that state only when our log reaches it", () => {
    const peer = createProgress(2, 5);
    becomeSnapshot(peer, 30);
    expect([peer.state, peer.next]).toEqual(["snapshot", 31]);
    expect(noteRejected(peer, 30, 2)).toBe(false);
    noteAccepted(peer, 12, 20);
    expect(peer.state).toBe("snapshot");
    noteAccepted(peer, 20, 20);
    expect([peer.state, peer.next]).toEqual(["replicate", 21]);
  });
});
