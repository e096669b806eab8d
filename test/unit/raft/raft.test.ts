// What conversations cannot say: several readies under way, limits, refusals with their reasons.

import { describe, expect, test } from "vitest";
import { Raft } from "../../../src/raft/core/raft.ts";
import type { Entry, Message, RaftBoot, Ready } from "../../../src/raft/core/types.ts";
import {
  accept,
  append,
  boot,
  command,
  empty,
  finish,
  leaderOf,
  longest,
  settings,
} from "../../support/raft-nodes.ts";

describe("several readies under way", () => {
  test("each entry is handed out once, and persisting may be reported late and together", () => {
    const raft = leaderOf([1]);
    raft.propose([command(1)]);
    const first = raft.ready() as Ready;
    raft.propose([command(1), command(1)]);
    const second = raft.ready() as Ready;
    expect(first.entries.map((entry) => entry.index)).toEqual([2]);
    expect(second.entries.map((entry) => entry.index)).toEqual([3, 4]);
    expect(raft.ready()).toBeUndefined();
    expect(raft.commit).toBe(1);
    raft.advance({ persisted: second.number });
    expect(raft.commit).toBe(4);
  });

  test("an ack for entries that were replaced on their way does not count", () => {
    const raft = new Raft(1, settings, longest, boot([1, 2, 3]));
    raft.step(append(1, 0, 0, [empty(1, 1), empty(2, 1)]));
    const first = raft.ready() as Ready;
    raft.step(append(2, 1, 1, [empty(2, 2)]));
    const second = raft.ready() as Ready;
    expect(second.entries).toEqual([empty(2, 2)]);
    raft.advance({ persisted: first.number });
    expect(raft.persisted).toBe(1);
    raft.advance({ persisted: second.number });
    expect(raft.persisted).toBe(2);
  });

  test("an ack for a log that a snapshot replaced does not count", () => {
    const raft = new Raft(1, settings, longest, boot([1, 2, 3]));
    raft.step(append(1, 0, 0, [empty(1, 1), empty(2, 1), empty(3, 1)]));
    const first = raft.ready() as Ready;
    const snapshot = {
      index: 2,
      term: 2,
      configuration: { voters: [1, 2], learners: [] },
      configurationIndex: 2,
    };
    raft.step({ type: "snapshot", from: 2, to: 1, term: 2, snapshot });
    const second = raft.ready() as Ready;
    expect(second.snapshot).toEqual(snapshot);
    raft.advance({ persisted: first.number });
    expect(raft.persisted).toBe(0);
    raft.advance({ persisted: second.number });
    expect(raft.persisted).toBe(2);
  });

  test("entries above a snapshot are handed out for applying only after its installation", () => {
    const raft = new Raft(1, settings, longest, boot([1, 2, 3]));
    const { snapshot } = boot([1, 2, 3]);
    const received = { ...snapshot, index: 5, term: 1 };
    raft.step({ type: "snapshot", from: 2, to: 1, term: 1, snapshot: received });
    raft.step({ ...append(1, 5, 1, [empty(6, 1)]), commit: 6 } as Message);
    const ready = raft.ready() as Ready;
    expect(ready.committed).toEqual([]);
    raft.advance({ persisted: ready.number, applied: 5 });
    expect(raft.ready()?.committed).toEqual([empty(6, 1)]);
  });

  test("entries above a snapshot reach the disk even if the log was longer before it", () => {
    const raft = new Raft(1, settings, longest, boot([1, 2, 3]));
    raft.step(append(1, 0, 0, [empty(1, 1), empty(2, 1), empty(3, 1), empty(4, 1)]));
    finish(raft);
    const { snapshot } = boot([1, 2, 3]);
    const received = { ...snapshot, index: 2, term: 2 };
    raft.step({ type: "snapshot", from: 2, to: 1, term: 2, snapshot: received });
    raft.step(append(2, 2, 2, [empty(3, 2), empty(4, 2)]));
    expect(raft.ready()?.entries).toEqual([empty(3, 2), empty(4, 2)]);
  });

  test("a candidate counts its own vote only once that is durable", () => {
    const raft = new Raft(1, settings, longest, boot([1]));
    raft.campaign();
    const ready = raft.ready() as Ready;
    expect(raft.role).toBe("candidate");
    raft.advance({ persisted: ready.number });
    expect(raft.role).toBe("leader");
  });

  test("a vote of an earlier candidacy that becomes durable late does not count", () => {
    const raft = new Raft(1, settings, longest, boot([1, 2]));
    raft.campaign();
    const first = raft.ready() as Ready;
    raft.campaign();
    raft.step({ type: "vote-resp", from: 2, to: 1, term: 2, granted: true });
    raft.advance({ persisted: first.number });
    expect(raft.role).toBe("candidate");
    finish(raft);
    expect(raft.role).toBe("leader");
  });

  test("what was never handed out cannot be reported", () => {
    const raft = leaderOf([1]);
    expect(() => raft.advance({ persisted: 99 })).toThrow(/never handed out/);
    expect(() => raft.advance({ applied: 99 })).toThrow(/never handed out/);
  });
});

describe("limits", () => {
  test("uncommitted bytes are capped, one proposal is always admitted, commits make room", () => {
    const raft = leaderOf([1, 2], { uncommittedBytesMax: 200 });
    accept(raft, 2, 1);
    expect(raft.propose([command(5000)]).accepted).toBe(true);
    expect(raft.propose([command(1)])).toEqual({ accepted: false, reason: "limit", leader: 1 });
    finish(raft);
    accept(raft, 2, 2);
    expect(raft.status().uncommittedBytes).toBe(0);
    expect(raft.propose([command(1)]).accepted).toBe(true);
    expect(raft.propose([command(100)]).accepted).toBe(true);
    expect(raft.propose([command(100)]).accepted).toBe(false);
  });

  test("a batch is taken whole or not at all, and named by its last position", () => {
    const raft = leaderOf([1, 2], { uncommittedBytesMax: 100 });
    accept(raft, 2, 1);
    expect(raft.propose([command(1), command(2)])).toEqual({ accepted: true, index: 3, term: 1 });
    expect(raft.propose([command(1), command(1)]).accepted).toBe(false);
    expect(raft.lastIndex).toBe(3);
  });

  test("a new leader counts what earlier leaders left uncommitted", () => {
    const left: Entry[] = [
      { ...empty(1, 1), kind: "command", version: 1, data: new Uint8Array(50) },
    ];
    const state = boot([1, 2], { entries: left, hardState: { term: 1, vote: 2, commit: 0 } });
    const raft = new Raft(1, settings, longest, state);
    raft.campaign();
    finish(raft);
    raft.step({ type: "vote-resp", from: 2, to: 1, term: 2, granted: true });
    expect(raft.status().uncommittedBytes).toBe(32 + 50 + 32);
  });

  test("a leader that comes back begins its counts and beats anew", () => {
    const raft = leaderOf([1, 2], { heartbeatTicks: 2 });
    accept(raft, 2, 1);
    raft.propose([command(68)]);
    finish(raft);
    raft.readIndex("a");
    raft.tick();
    raft.stepDown();
    raft.campaign();
    finish(raft);
    raft.step({ type: "vote-resp", from: 2, to: 1, term: 2, granted: true });
    finish(raft);
    expect(raft.status()).toMatchObject({ uncommittedBytes: 100 + 32, readsWaiting: 0 });
    raft.tick();
    expect(finish(raft)).toEqual([]);
    raft.tick();
    expect(finish(raft).flatMap((ready) => ready.messages)).toMatchObject([{ type: "heartbeat" }]);
  });

  test("committed entries are handed out within the cap, one at least", () => {
    const raft = leaderOf([1], { applyBytesMax: 100 });
    raft.propose([command(10), command(40), command(500), command(1)]);
    const sizes = finish(raft).map((ready) => ready.committed.length);
    expect(sizes.filter((size) => size > 0)).toEqual([1, 1, 1, 1]);
  });

  test("a limit is reached, not passed", () => {
    const raft = leaderOf([1, 2], { uncommittedBytesMax: 100, membersMax: 3 });
    accept(raft, 2, 1);
    finish(raft);
    expect(raft.propose([command(68)]).accepted).toBe(true);
    expect(raft.propose([command(0)]).accepted).toBe(false);
    accept(raft, 2, 2);
    finish(raft);
    raft.propose([command(18)]);
    expect(raft.propose([command(18)]).accepted).toBe(true);
    expect(raft.proposeMembership({ op: "add", node: 3 }).accepted).toBe(true);
    expect(raft.status().peers[1]).toMatchObject({ node: 3, match: 0, state: "probe" });
  });

  test("a window of bytes holds back what does not fit until it is acknowledged", () => {
    const raft = leaderOf([1, 2], { inflightBytesMax: 100, appendEntriesMax: 1 });
    accept(raft, 2, 1);
    finish(raft);
    raft.propose([command(30), command(30), command(30)]);
    const sent = (): number => finish(raft).flatMap((ready) => ready.messages).length;
    expect([sent(), raft.status().peers[0]?.inflightBytes]).toEqual([2, 124]);
    accept(raft, 2, 2);
    expect(sent()).toBe(1);
  });

  test("reads and members beyond the limit are refused", () => {
    const raft = leaderOf([1, 2], { readsMax: 1, membersMax: 2 });
    finish(raft);
    accept(raft, 2, 1);
    finish(raft);
    expect(raft.readIndex("a").accepted).toBe(true);
    expect(raft.readIndex("b")).toMatchObject({ reason: "limit" });
    expect(raft.proposeMembership({ op: "add", node: 3 })).toMatchObject({ reason: "limit" });
    expect(raft.status().readsWaiting).toBe(1);
  });

  test("an append keeps within its byte cap", () => {
    const raft = leaderOf([1, 2], { appendBytesMax: 150 });
    accept(raft, 2, 1);
    finish(raft);
    raft.propose([command(40), command(40), command(400), command(1)]);
    const sent = finish(raft).flatMap((ready) => ready.messages);
    const counts = sent.map((message) => (message.type === "append" ? message.entries.length : 0));
    expect(counts).toEqual([2, 1, 1]);
  });
});

describe("reads", () => {
  const ask = (context: string): Message => ({
    type: "read-index",
    from: 2,
    to: 1,
    term: 1,
    context,
  });

  test("of other nodes count against the limit, and only a leader takes them", () => {
    const raft = leaderOf([1, 2], { readsMax: 1 });
    raft.step(ask("a"));
    raft.step(ask("b"));
    expect(raft.status().readsWaiting).toBe(1);
    const follower = new Raft(
      1,
      settings,
      longest,
      boot([1, 2], { hardState: { term: 1, vote: 0, commit: 0 } }),
    );
    follower.step(ask("a"));
    expect(follower.status().readsWaiting).toBe(0);
  });

  test("wait for the index that was committed when they came, not for a later one", () => {
    const raft = leaderOf([1, 2]);
    accept(raft, 2, 1);
    finish(raft);
    raft.propose([command(1)]);
    finish(raft);
    raft.readIndex("a");
    accept(raft, 2, 2);
    finish(raft);
    raft.step({ type: "heartbeat-resp", from: 2, to: 1, term: 1, round: 1 });
    const states = finish(raft).flatMap((ready) => ready.readStates);
    expect([raft.commit, states]).toEqual([2, [{ context: "a", index: 1 }]]);
  });

  test("an answer to a round that has not begun is not believed", () => {
    const raft = leaderOf([1, 2]);
    accept(raft, 2, 1);
    finish(raft);
    raft.step({ type: "heartbeat-resp", from: 2, to: 1, term: 1, round: 9 });
    raft.readIndex("a");
    expect(finish(raft).flatMap((ready) => ready.readStates)).toEqual([]);
  });
});

describe("refusals say why", () => {
  test("by reason, with the leader where one is known", () => {
    const follower = new Raft(1, settings, longest, boot([1, 2, 3]));
    expect(follower.propose([command(1)])).toMatchObject({ reason: "not_leader", leader: 0 });
    follower.step(append(1, 0, 0, []));
    expect(follower.propose([command(1)])).toMatchObject({ reason: "not_leader", leader: 2 });
    const leader = leaderOf([1, 2, 3]);
    expect(leader.proposeMembership({ op: "add", node: 4 })).toMatchObject({
      reason: "no_own_commit",
    });
    accept(leader, 2, 1);
    finish(leader);
    expect(leader.proposeMembership({ op: "add", node: 3 })).toMatchObject({
      reason: "bad_change",
    });
    expect(leader.proposeMembership({ op: "add", node: 4 }).accepted).toBe(true);
    expect(leader.proposeMembership({ op: "add", node: 5 })).toMatchObject({
      reason: "change_pending",
    });
    expect(leader.transfer(9)).toMatchObject({ reason: "bad_target" });
    expect(leader.transfer(2).accepted).toBe(true);
    expect(leader.propose([command(1)])).toMatchObject({ reason: "transferring" });
    expect(leader.takeSnapshot(9)).toMatchObject({ reason: "bad_index" });
    expect(leader.compact(1)).toMatchObject({ reason: "bad_index" });
    const stranger = new Raft(9, settings, longest, boot([1, 2, 3]));
    expect(stranger.campaign()).toMatchObject({ reason: "not_voter" });
  });
});

describe("waking up", () => {
  test("the commit index is at least what was applied and at most what the log holds", () => {
    const entries = [empty(1, 1), empty(2, 1), empty(3, 1)];
    const hardState = (commit: number) => ({ hardState: { term: 1, vote: 0, commit }, entries });
    const commit = (changes: Partial<RaftBoot>): number =>
      new Raft(1, settings, longest, boot([1], changes)).commit;
    expect(commit(hardState(9))).toBe(3);
    expect(commit({ ...hardState(1), applied: 2 })).toBe(2);
    expect(commit(hardState(2))).toBe(2);
  });

  test("entries of a later term than the hard state raise the term and free the vote", () => {
    const changes = { entries: [empty(1, 4)], hardState: { term: 2, vote: 3, commit: 0 } };
    const { term, vote } = new Raft(1, settings, longest, boot([1, 2], changes)).status();
    expect([term, vote]).toEqual([4, 0]);
  });

  test("the vote of the current term is kept", () => {
    const changes = { entries: [empty(1, 4)], hardState: { term: 4, vote: 3, commit: 0 } };
    const { term, vote } = new Raft(1, settings, longest, boot([1, 2], changes)).status();
    expect([term, vote]).toEqual([4, 3]);
  });

  test("changes in the log are in force at once", () => {
    const change: Entry = {
      ...empty(1, 1),
      kind: "membership",
      change: { op: "add", node: 3 },
      configuration: { voters: [1, 2, 3], learners: [] },
    };
    const state = boot([1, 2], { entries: [change], hardState: { term: 1, vote: 0, commit: 0 } });
    expect(new Raft(1, settings, longest, state).configuration.voters).toEqual([1, 2, 3]);
  });

  test("a state machine ahead of the log is not taken for granted", () => {
    expect(() => new Raft(1, settings, longest, boot([1], { applied: 4 }))).toThrow(/ahead/);
  });
});

describe("messages that should not be", () => {
  test("those for others, from itself, or of strangers with a later term change nothing", () => {
    const raft = leaderOf([1, 2, 3]);
    const before = raft.status();
    raft.step({ ...append(9, 0, 0, []), to: 3 } as Message);
    raft.step({ type: "append-resp", from: 1, to: 1, term: 9 } as Message);
    raft.step({ type: "heartbeat-resp", from: 8, to: 1, term: 9, round: 0 });
    expect(raft.status()).toEqual(before);
  });

  test("a second leader in the same term does not unseat the first", () => {
    const raft = leaderOf([1, 2, 3]);
    raft.step(append(1, 0, 0, []));
    expect(raft.role).toBe("leader");
  });

  test("a grant of an earlier pre-vote does not count", () => {
    const raft = new Raft(1, { ...settings, preVote: true }, longest, boot([1, 2]));
    raft.step({ type: "heartbeat", from: 2, to: 1, term: 3, commit: 0, round: 0 });
    raft.campaign();
    raft.step({ type: "pre-vote-resp", from: 2, to: 1, term: 3, granted: true });
    expect(raft.role).toBe("precandidate");
    raft.step({ type: "pre-vote-resp", from: 2, to: 1, term: 4, granted: true });
    expect(raft.role).toBe("candidate");
  });

  test("a leader sends heartbeats at its own pace", () => {
    const raft = leaderOf([1, 2], { heartbeatTicks: 2, electionTicks: 9 });
    const beats = (ticks: number): number => {
      for (let tick = 0; tick < ticks; tick++) raft.tick();
      const sent = finish(raft).flatMap((ready) => ready.messages);
      return sent.filter((message) => message.type === "heartbeat").length;
    };
    expect([beats(1), beats(1), beats(1), beats(3)]).toEqual([0, 1, 0, 2]);
  });

  test("a peer that holds and knows everything gets nothing but heartbeats", () => {
    const raft = leaderOf([1, 2]);
    accept(raft, 2, 1, 1);
    finish(raft);
    const answer = (): string[] => {
      raft.step({ type: "heartbeat-resp", from: 2, to: 1, term: 1, round: 0 });
      return finish(raft).flatMap((ready) => ready.messages.map((message) => message.type));
    };
    expect(answer()).toEqual([]);
    raft.propose([command(1)]);
    finish(raft);
    expect(answer()).toEqual(["append"]);
    accept(raft, 2, 2, 1);
    finish(raft);
    expect(answer()).toEqual(["append"]);
    accept(raft, 2, 2, 2);
    expect(answer()).toEqual([]);
  });

  test("only the election that the leader asked for passes sticky voters", () => {
    const raft = new Raft(1, { ...settings, preVote: true }, longest, boot([1, 2]));
    raft.step({ type: "timeout-now", from: 2, to: 1, term: 1 });
    const forced = finish(raft).flatMap((ready) => ready.messagesAfterSync);
    expect(forced).toMatchObject([{ type: "vote", term: 2, transfer: true }]);
    for (let tick = 0; tick < 5; tick++) raft.tick();
    const own = finish(raft).flatMap((ready) => ready.messages);
    expect(own).toMatchObject([{ type: "pre-vote", term: 3, transfer: false }]);
  });

  test("a pre-candidate asks once per time-out", () => {
    const raft = new Raft(1, { ...settings, preVote: true }, longest, boot([1, 2]));
    const asked = (ticks: number): number => {
      for (let tick = 0; tick < ticks; tick++) raft.tick();
      return finish(raft).flatMap((ready) => ready.messages).length;
    };
    expect([asked(4), asked(1), asked(4), asked(1)]).toEqual([0, 1, 0, 1]);
  });

  test("an append from below the cut is answered with what is committed", () => {
    const { snapshot } = boot([1, 2]);
    const raft = new Raft(
      1,
      settings,
      longest,
      boot([1, 2], { snapshot: { ...snapshot, index: 7, term: 1 }, applied: 7 }),
    );
    raft.step(append(1, 3, 1, []));
    const answers = finish(raft).flatMap((ready) => ready.messagesAfterSync);
    expect(answers).toMatchObject([{ type: "append-resp", rejected: false, index: 7 }]);
  });

  test("an acceptance beyond the end of the log is not believed", () => {
    const raft = leaderOf([1, 2]);
    accept(raft, 2, 50);
    expect(raft.commit).toBe(0);
  });

  test("a heartbeat that commits more than the log holds commits nothing", () => {
    const raft = new Raft(1, settings, longest, boot([1, 2]));
    raft.step({ type: "heartbeat", from: 2, to: 1, term: 1, commit: 7, round: 0 });
    expect(raft.commit).toBe(0);
  });
});

describe("a peer whose window was full while the log was cut beyond it", () => {
  // Two entries more are cut away while the first is under way to node 2.
  function cutAhead(): Raft {
    const raft = leaderOf([1, 2, 3], { inflightMessagesMax: 1, appendEntriesMax: 1 });
    for (const from of [2, 3]) accept(raft, from, 1, 1);
    finish(raft);
    raft.propose([command(1), command(1), command(1)]);
    for (let index = 2; index <= 4; index++) {
      finish(raft);
      accept(raft, 3, index, index);
    }
    finish(raft);
    expect(raft.commit).toBe(4);
    raft.takeSnapshot(4);
    raft.compact(4);
    accept(raft, 2, 2, 1);
    return raft;
  }
  const sentTo2 = (raft: Raft): string[] =>
    finish(raft).flatMap(({ messages }) =>
      messages.filter(({ to }) => to === 2).map(({ type }) => type),
    );

  test("is sent the snapshot, and nothing behind it", () => {
    expect(sentTo2(cutAhead())).toEqual(["snapshot"]);
  });

  test("and that fell silent is probed until it gives a sign of life, and sent none", () => {
    const raft = cutAhead();
    for (let ticks = 0; ticks < settings.electionTicks; ticks++) raft.tick();
    expect(sentTo2(raft)).not.toContain("snapshot");
    expect(raft.status().peers[0]).toMatchObject({ node: 2, state: "probe" });
    accept(raft, 2, 2, 1);
    expect(sentTo2(raft)).toContain("snapshot");
  });
});

test("time alone takes no peer from the pipeline: only a snapshot is waited for in ticks", () => {
  const raft = leaderOf([1, 2, 3]);
  for (const from of [2, 3]) accept(raft, from, 1, 1);
  for (let ticks = 0; ticks <= settings.snapshotTicks; ticks++) raft.tick();
  finish(raft);
  expect(raft.status().peers.map(({ state }) => state)).toEqual(["replicate", "replicate"]);
});
