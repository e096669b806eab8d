import { describe, expect, test } from "vitest";
import { formatMismatch, runConversation } from "../../../src/raft/script/conversation.ts";

/** Runs commands and returns what was printed under each, as the file would hold it. */
function record(...lines: string[]): string[] {
  return runConversation(lines.join("\n")).rewritten.split("\n");
}

describe("the scripted runner", () => {
  test("prints nothing for what is accepted, and compares what is wanted", () => {
    const outcome = runConversation("nodes 1\ncampaign 1\nsettle\nshow 1 role\n  1 leader\n");
    expect(outcome).toMatchObject({ commands: 4, mismatches: [] });
  });

  test("names line, wanted and got of each mismatch", () => {
    const { mismatches } = runConversation(
      "# a\nnodes 1\n\nshow 1 role\n  1 leader\nsettle\n  x\n",
    );
    expect(mismatches).toEqual([
      { line: 4, command: "show 1 role", wanted: ["1 leader"], got: ["1 follower"] },
      { line: 6, command: "settle", wanted: ["x"], got: [] },
    ]);
    const text = formatMismatch("f.txt", mismatches[0] as never);
    expect(text).toBe("f.txt:4: show 1 role\n  wanted\n    1 leader\n  got\n    1 follower");
  });

  test("rewrites only what differs, and keeps comments and empty lines", () => {
    const text = "# c\nnodes 2\n\nshow\n  wrong\n# d\nfoo\n  error: ...\n";
    expect(runConversation(text).rewritten).toBe(
      "# c\nnodes 2\n\nshow\n" +
        "  1 follower term=0 leader=- commit=0 applied=0 last=0 vote=- voters=1,2 learners=-\n" +
        "  2 follower term=0 leader=- commit=0 applied=0 last=0 vote=- voters=1,2 learners=-\n" +
        "# d\nfoo\n  error: ...\n",
    );
  });

  test("unknown commands, nodes that are down and bad arguments print an error", () => {
    const lines = record(
      "show 1",
      "nodes 2 voters=1,2",
      "bogus",
      "crash 2",
      "tick 2",
      "propose 2 x",
      "settle 1,2",
      "crash 2",
      "tick 3",
      "tick 1 x",
      "restart 1",
      "deliver type=letter",
      "deliver 1-2",
      "member 1 invite 2",
      "persist 1 maybe",
      "propose 1",
      "nodes 2 colour=red",
      "inject 1->2 vote term=1",
      "show 1 shoe",
    );
    const errors = lines.filter((line) => line.startsWith("  error: "));
    expect(errors).toHaveLength(17);
    expect(lines.filter((line) => line.startsWith("  "))).toHaveLength(17);
  });

  test("show leaves out nodes that are down unless they are named, and orders its fields", () => {
    expect(record("nodes 3", "crash 2", "show role", "show 1,2 vote term", "show 2 log")).toEqual([
      "nodes 3",
      "crash 2",
      "show role",
      "  1 follower",
      "  3 follower",
      "show 1,2 vote term",
      "  1 term=0 vote=-",
      "  2 down",
      "show 2 log",
      "  error: unknown field log",
    ]);
  });

  test("the text of a proposal is the rest of the line", () => {
    const lines = record(
      "nodes 1",
      "campaign 1",
      "settle",
      "propose 1 a  b # c",
      "settle",
      "log 1",
    );
    expect(lines.slice(-2)).toEqual(["  1/1/-", "  2/1/a  b # c"]);
  });

  test("deliver takes what was in flight when it began, drop and dup the same selection", () => {
    const lines = record(
      "nodes 3",
      "campaign 1",
      "ready 1",
      "dup 1->2 type=vote",
      "drop 1->2 n=1",
      "deliver 1->3",
      "deliver type=vote-resp",
      "show 1,2,3 term",
      "ready 3",
      "deliver",
      "show 1,2 role vote",
    );
    expect(lines.slice(8, 11)).toEqual(["  1 term=1", "  2 term=0", "  3 term=1"]);
    expect(lines.slice(-2)).toEqual(["  1 leader vote=1", "  2 follower vote=1"]);
  });

  test("a cut loses what is on the link and what is sent, until it is healed", () => {
    const lines = record(
      "nodes 3",
      "campaign 1",
      "ready 1",
      "cut 1->2",
      "cut 3-1",
      "settle",
      "show 1,2,3 term",
      "heal 1->2",
      "campaign 1",
      "settle",
      "show role term",
    );
    expect(lines.slice(7, 10)).toEqual(["  1 term=1", "  2 term=0", "  3 term=0"]);
    expect(lines.slice(-3)).toEqual([
      "  1 leader term=2",
      "  2 follower term=2",
      "  3 follower term=0",
    ]);
  });

  test("what was sent to a node that is down waits for it, unless it is delivered", () => {
    const start = ["nodes 2", "campaign 1", "ready 1", "crash 2"];
    expect(record(...start, "restart 2", "settle", "show 1 role").at(-1)).toBe("  1 leader");
    expect(record(...start, "deliver", "restart 2", "settle", "show 1 role").at(-1)).toBe(
      "  1 candidate",
    );
  });

  test("applied texts survive a crash and travel with snapshots", () => {
    const lines = record(
      "nodes 2 voters=1 learners=2",
      "campaign 1",
      "settle 1",
      "drop",
      "propose 1 a",
      "ready 1",
      "drop",
      "compact 1 9",
      "compact 1 2",
      "compact 1 2",
      "crash 1",
      "restart 1",
      "applied 1",
      "log 1",
      "campaign 1",
      "settle 1",
      "tick 1",
      "settle",
      "tick 1",
      "settle",
      "applied 2",
    );
    expect(lines).toEqual([
      ...lines.slice(0, 8),
      "  refused",
      "compact 1 2",
      "compact 1 2",
      "  refused",
      "crash 1",
      "restart 1",
      "applied 1",
      "  a",
      "log 1",
      "campaign 1",
      "settle 1",
      "tick 1",
      "settle",
      "tick 1",
      "settle",
      "applied 2",
      "  a",
    ]);
  });
});
