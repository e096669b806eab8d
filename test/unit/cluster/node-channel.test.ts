import { describe, expect, test } from "vitest";
import {
  decodeChannelNote,
  decodeLetter,
  encodeChannelNote,
  encodeLetter,
} from "../../../src/cluster/core/channel-codec.ts";
import type { MemberChannel } from "../../../src/cluster/index.ts";
import { ChannelWorld } from "../../support/channel-world.ts";

/** What a node hears: changes of its peers, and words, in the order in which they come. */
function listen(channel: MemberChannel): string[] {
  const heard: string[] = [];
  channel.onPeersChanged((node, isReached) => {
    heard.push(`${isReached ? "reached" : "lost"} ${node}`);
  });
  channel.handle("word", (from, bytes) => {
    heard.push(`${from}: ${Buffer.from(bytes).toString()}`);
    return undefined;
  });
  return heard;
}

const word = (text: string): Buffer => Buffer.from(text);

test("a word looks like the example in docs/formats/raft.md", () => {
  const bytes = encodeLetter({ what: "told", kind: "t", bytes: word("hi") });
  const note = encodeChannelNote({ kind: "part", link: 2, part: 0, isLast: true, bytes });
  expect(note.toString("hex")).toBe("110200010001746869");
  expect(decodeChannelNote(note)).toEqual({ kind: "part", link: 2, part: 0, isLast: true, bytes });
  expect(decodeLetter(bytes)).toEqual({ what: "told", kind: "t", bytes: word("hi") });
});

describe("a channel between nodes", () => {
  test("reaches the active members that run, and says which start each of them is", async () => {
    const world = new ChannelWorld();
    const [one, two] = [world.add(1), world.add(2)];
    const heard = listen(one);
    await world.clock.advance(1_000);
    expect(one.peers()).toEqual([2]);
    expect(one.startOf(2)).toBe(two.start);
    world.add(3);
    world.members = [1, 2];
    await world.clock.advance(1_000);
    expect(one.peers()).toEqual([2]);
    world.members = [1, 2, 3];
    await world.clock.advance(1_000);
    expect(one.peers()).toEqual([2, 3]);
    expect(heard).toEqual(["reached 2", "reached 3"]);
  });

  test("words come in order, long ones whole, behind the news that their sender is reached", async () => {
    const world = new ChannelWorld();
    const [one, two] = [world.add(1), world.add(2, { partBytesMax: 10 })];
    const heard = listen(one);
    two.onPeersChanged((node) => {
      for (const text of ["a", "b".repeat(95), "c"]) two.tell(node, "word", word(text));
    });
    await world.clock.advance(1_000);
    expect(heard).toEqual(["reached 2", "2: a", `2: ${"b".repeat(95)}`, "2: c"]);
  });

  test("a word that is lost ends the link, and nothing behind it arrives on it", async () => {
    const world = new ChannelWorld();
    const [one, two] = [world.add(1), world.add(2)];
    await world.clock.advance(1_000);
    const [heardByOne, heardByTwo] = [listen(one), listen(two)];
    two.tell(1, "word", word("first"));
    world.way(2, 1).lost = true;
    two.tell(1, "word", word("lost"));
    world.way(2, 1).lost = false;
    two.tell(1, "word", word("behind it"));
    await world.clock.advance(1_000);
    two.tell(1, "word", word("on the next link"));
    await world.clock.advance(10);
    expect(heardByOne).toEqual(["2: first", "lost 2", "reached 2", "2: on the next link"]);
    expect(heardByTwo).toEqual(["lost 1", "reached 1"]);
  });

  test("also the last word is missed, without another behind it", async () => {
    const world = new ChannelWorld();
    const [one, two] = [world.add(1), world.add(2)];
    await world.clock.advance(1_000);
    const [heardByOne, heardByTwo] = [listen(one), listen(two)];
    world.way(2, 1).lost = true;
    two.tell(1, "word", word("lost"));
    world.way(2, 1).lost = false;
    await world.clock.advance(1_000);
    expect(heardByOne).toEqual(["lost 2", "reached 2"]);
    expect(heardByTwo).toEqual(["lost 1", "reached 1"]);
  });

  test("a peer that starts anew is lost and reached, however fast it was", async () => {
    const world = new ChannelWorld();
    const one = world.add(1);
    world.add(2);
    await world.clock.advance(1_000);
    const heard = listen(one);
    const before = one.startOf(2);
    world.end(2);
    world.add(2);
    await world.clock.advance(1_000);
    expect(heard).toEqual(["lost 2", "reached 2"]);
    expect(one.startOf(2)).not.toBe(before);
  });

  test("a peer is reached no more when one of both ways falls silent, and again when it speaks", async () => {
    for (const [from, to] of [
      [1, 2],
      [2, 1],
    ] as const) {
      const world = new ChannelWorld();
      const [one, two] = [world.add(1), world.add(2)];
      await world.clock.advance(1_000);
      world.way(from, to).lost = true;
      await world.clock.advance(3_000);
      expect([one.peers(), two.peers()]).toEqual([[], []]);
      expect(one.tell(2, "word", word("nobody hears"))).toBe(false);
      world.way(from, to).lost = false;
      await world.clock.advance(1_000);
      expect([one.peers(), two.peers()]).toEqual([[2], [1]]);
    }
  });

  test("a word that the network does not take ends the link at once", async () => {
    const world = new ChannelWorld();
    const [one] = [world.add(1), world.add(2)];
    await world.clock.advance(1_000);
    const heard = listen(one);
    world.way(1, 2).refused = true;
    expect(one.tell(2, "word", word("refused"))).toBe(false);
    expect(one.peers()).toEqual([]);
    expect(heard).toEqual([]); // not inside of the call
    await world.clock.advance(1);
    expect(heard).toEqual(["lost 2"]);
  });

  test("what is on the way is bounded, but one word is always taken", async () => {
    const world = new ChannelWorld();
    const [one, two] = [world.add(1, { windowBytesMax: 100 }), world.add(2)];
    await world.clock.advance(1_000);
    const heard = listen(two);
    const taken = [90, 90, 9].map((size) => one.tell(2, "word", Buffer.alloc(size)));
    expect(taken).toEqual([true, false, false]);
    await expect(one.ask(2, "word", Buffer.alloc(90), 100)).rejects.toMatchObject({
      code: "CLUSTER_PEER_BUSY",
    });
    expect(world.counters.wordsRefused).toBe(3);
    await world.clock.advance(1_000);
    expect(one.tell(2, "word", Buffer.alloc(1_000))).toBe(true);
    await world.clock.advance(1_000);
    expect(heard.length).toBe(2);
  });

  test("the window opens while beats are far between", async () => {
    const world = new ChannelWorld();
    const settings = { windowBytesMax: 1_000, beatMs: 1_900 };
    const [one] = [world.add(1, settings), world.add(2, settings)];
    await world.clock.advance(4_000);
    let sent = 0;
    for (let round = 0; round < 100; round++) {
      if (one.tell(2, "word", Buffer.alloc(300))) sent++;
      await world.clock.advance(3);
    }
    expect(sent).toBeGreaterThan(90);
  });

  test("a question is answered, late too, and each failure has its code", async () => {
    const world = new ChannelWorld();
    const [one, two] = [world.add(1), world.add(2)];
    await world.clock.advance(1_000);
    two.handle("double", (from, bytes) => Buffer.from(`${from} ${bytes} ${bytes}`));
    two.handle("later", async (_from, bytes) => {
      await new Promise<void>((resolve) => world.clock.schedule(50, resolve));
      return bytes;
    });
    two.handle("never", () => new Promise(() => undefined));
    two.handle("wrong", () => Promise.reject(new Error("no such thing")));
    const asked = (kind: string, node = 2): Promise<string> =>
      one.ask(node, kind, word("x"), 100).then(
        (bytes) => bytes.toString(),
        (error) => error.code,
      );
    const answers = ["double", "later", "never", "wrong", "unknown"].map((kind) => asked(kind));
    const [unreached] = [asked("double", 3)];
    await world.clock.advance(200);
    expect(await Promise.all([...answers, unreached])).toEqual([
      "1 x x",
      "x",
      "CLUSTER_PEER_SILENT",
      "CLUSTER_PEER_FAILED",
      "CLUSTER_PEER_FAILED",
      "CLUSTER_PEER_UNREACHED",
    ]);
  });

  test("who asked a peer that is lost hears so at once", async () => {
    const world = new ChannelWorld();
    const [one, two] = [world.add(1), world.add(2)];
    await world.clock.advance(1_000);
    two.handle("never", () => new Promise(() => undefined));
    const asked = one.ask(2, "never", word("x"), 60_000).catch((error) => error.code);
    await world.clock.advance(10);
    world.end(2);
    await world.clock.advance(3_000);
    expect(await asked).toBe("CLUSTER_PEER_UNREACHED");
  });

  test("what makes no sense is counted and harms nothing", async () => {
    const world = new ChannelWorld();
    const [one, two] = [world.add(1), world.add(2)];
    await world.clock.advance(1_000);
    for (const bytes of [[], [16], [17], [16, 255, 255], [17, 1]]) {
      one.receive(2, Buffer.from(bytes));
    }
    expect(world.counters.wordsBroken).toBe(5);
    const heard = listen(one);
    two.tell(1, "word", word("still here"));
    await world.clock.advance(10);
    expect(heard).toEqual(["2: still here"]);
  });
});
