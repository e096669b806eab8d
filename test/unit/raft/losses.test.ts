// What conversations cannot say of snapshots, lost logs, the hard state and hosts that cannot serve.

import { describe, expect, test } from "vitest";
import { Raft } from "../../../src/raft/core/raft.ts";
import type { Message, Ready } from "../../../src/raft/core/types.ts";
import {
  accept,
  append,
  boot,
  empty,
  finish,
  leaderOf,
  longest,
  settings,
} from "../../support/raft-nodes.ts";

describe("snapshots", () => {
  const { snapshot } = boot([1, 2]);
  const received = { ...snapshot, index: 5, term: 1 };

  test("one of the own term ends a candidacy", () => {
    const raft = new Raft(1, settings, longest, boot([1, 2]));
    raft.campaign();
    raft.step({ type: "snapshot", from: 2, to: 1, term: 1, snapshot: received });
    expect([raft.role, raft.leader, raft.commit]).toEqual(["follower", 2, 5]);
  });

  test("one that changes neither term nor vote must be synced all the same", () => {
    const raft = new Raft(1, settings, longest, boot([1, 2]));
    raft.step({ type: "heartbeat", from: 2, to: 1, term: 1, commit: 0, round: 0 });
    finish(raft);
    raft.step({ type: "snapshot", from: 2, to: 1, term: 1, snapshot: received });
    const ready = raft.ready() as Ready;
    expect([ready.hardState, ready.mustSync, raft.persisted]).toEqual([undefined, true, 0]);
    raft.advance({ persisted: ready.number });
    expect(raft.persisted).toBe(5);
  });

  test("one that agrees with the log commits up to it and cuts nothing", () => {
    const raft = new Raft(1, settings, longest, boot([1, 2]));
    raft.step(append(1, 0, 0, [empty(1, 1), empty(2, 1), empty(3, 1)]));
    const agreeing = { ...snapshot, index: 2, term: 1 };
    raft.step({ type: "snapshot", from: 2, to: 1, term: 1, snapshot: agreeing });
    expect([raft.commit, raft.lastIndex]).toEqual([2, 3]);
    const [ready] = finish(raft);
    expect(ready?.snapshot).toBeUndefined();
    expect(ready?.messagesAfterSync.at(-1)).toMatchObject({ rejected: false, index: 2 });
  });

  test("a leader passes on the one it received", () => {
    const raft = new Raft(1, settings, longest, boot([1, 2]));
    raft.step({ type: "snapshot", from: 2, to: 1, term: 1, snapshot: received });
    const ready = raft.ready() as Ready;
    raft.advance({ persisted: ready.number, applied: 5 });
    raft.campaign();
    finish(raft);
    raft.step({ type: "vote-resp", from: 2, to: 1, term: 2, granted: true });
    finish(raft);
    raft.step({
      type: "append-resp",
      from: 2,
      to: 1,
      term: 2,
      rejected: true,
      index: 5,
      hintIndex: 0,
      hintTerm: 0,
      commit: 0,
    });
    const sent = finish(raft).flatMap((each) => each.messages);
    expect(sent).toMatchObject([{ type: "snapshot", snapshot: received }]);
    expect(raft.status().peers[0]).toMatchObject({ state: "snapshot", next: 6 });
  });

  test("the wait for one begins anew with each sign of progress", () => {
    const raft = new Raft(1, { ...settings, snapshotTicks: 2 }, longest, {
      ...boot([1, 2]),
      snapshot: received,
      applied: 5,
      hardState: { term: 1, vote: 0, commit: 5 },
    });
    raft.campaign();
    finish(raft);
    raft.step({ type: "vote-resp", from: 2, to: 1, term: 2, granted: true });
    finish(raft);
    raft.step({
      type: "append-resp",
      from: 2,
      to: 1,
      term: 2,
      rejected: true,
      index: 5,
      hintIndex: 0,
      hintTerm: 0,
      commit: 0,
    });
    finish(raft);
    raft.tick();
    raft.noteSnapshotProgress(2);
    raft.tick();
    expect(raft.status().peers[0]?.state).toBe("snapshot");
    raft.tick();
    expect(raft.status().peers[0]?.state).toBe("probe");
  });

  test("none is sent to a peer that was not heard from", () => {
    const raft = leaderOf([1, 2, 3]);
    accept(raft, 2, 1);
    finish(raft);
    expect(raft.takeSnapshot(1)).toMatchObject({ index: 1, term: 1, configurationIndex: 0 });
    expect(raft.takeSnapshot(1)).toMatchObject({ reason: "bad_index" });
    expect(raft.compact(1).accepted).toBe(true);
    raft.noteUnreachable(3);
    const sent = finish(raft).flatMap((each) => each.messages);
    expect(sent.filter((message) => message.to === 3)).toEqual([]);
    raft.step({ type: "heartbeat-resp", from: 3, to: 1, term: 1, round: 0 });
    expect(finish(raft).flatMap((each) => each.messages)).toMatchObject([
      { type: "snapshot", to: 3 },
    ]);
  });
});

describe("a log that lost what it had acknowledged", () => {
  const lost = boot([1, 2, 3], {
    hardState: { term: 3, vote: 0, commit: 1 },
    entries: [empty(1, 1)],
    repairing: true,
  });

  test("gives no vote and no pre-vote, and does not campaign", () => {
    const raft = new Raft(1, settings, longest, lost);
    for (const type of ["vote", "pre-vote"] as const) {
      const request = { type, from: 2, to: 1, term: 4, lastIndex: 9, lastTerm: 3, transfer: true };
      raft.step(request);
      const sent = finish(raft).flatMap((each) => [...each.messages, ...each.messagesAfterSync]);
      expect(sent).toMatchObject([{ type: `${type}-resp`, granted: false, term: 4 }]);
    }
    expect(raft.campaign()).toMatchObject({ reason: "repairing" });
    raft.step({ type: "timeout-now", from: 2, to: 1, term: 4 });
    for (let ticks = 0; ticks < 20; ticks++) raft.tick();
    expect([raft.role, raft.term]).toEqual(["follower", 4]);
  });

  test("takes and acknowledges entries, and votes again once the host says so", () => {
    const raft = new Raft(1, settings, longest, lost);
    raft.step(append(3, 1, 1, [empty(2, 3)]));
    const answers = finish(raft).flatMap((each) => each.messagesAfterSync);
    expect(answers).toMatchObject([{ type: "append-resp", rejected: false, index: 2 }]);
    raft.setRepairing(false);
    expect(raft.status().repairing).toBe(false);
    expect(raft.campaign().accepted).toBe(true);
  });

  test("costs a leader its office", () => {
    const raft = leaderOf([1]);
    raft.setRepairing(true);
    expect(raft.role).toBe("follower");
  });

  test("is fed from the beginning by a leader that resets it", () => {
    const raft = leaderOf([1, 2]);
    accept(raft, 2, 1);
    finish(raft);
    raft.resetPeer(2);
    expect(raft.status().peers[0]).toMatchObject({ state: "probe", match: 0, active: true });
    raft.resetPeer(99);
    expect(raft.status().peers).toHaveLength(1);
  });
});

describe("the hard state", () => {
  test("names a commit index only for entries that are durable here already", () => {
    const raft = new Raft(1, settings, longest, boot([1, 2, 3]));
    raft.step({ ...append(1, 0, 0, [empty(1, 1)]), commit: 1 } as Message);
    const first = raft.ready() as Ready;
    expect([raft.commit, first.hardState?.commit, first.mustSync]).toEqual([1, 0, true]);
    raft.advance({ persisted: first.number });
    expect(raft.ready()).toMatchObject({ hardState: { commit: 1 }, mustSync: false });
  });
});

describe("a host that cannot serve", () => {
  test("steps down without a new term, and its readers are told", () => {
    const raft = leaderOf([1, 2]);
    raft.readIndex("a");
    raft.stepDown();
    expect([raft.role, raft.term]).toEqual(["follower", 1]);
    expect(finish(raft).flatMap((ready) => ready.readsLost)).toEqual(["a"]);
  });

  test("a peer that is unreachable is probed anew, a snapshot that moves is waited for", () => {
    const raft = leaderOf([1, 2]);
    accept(raft, 2, 1);
    finish(raft);
    expect(raft.status().peers[0]?.state).toBe("replicate");
    raft.noteUnreachable(2);
    expect(raft.status().peers[0]).toMatchObject({ state: "probe", next: 2 });
    raft.noteSnapshotProgress(2);
    raft.noteUnreachable(99);
  });
});
