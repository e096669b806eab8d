// Deadlines and ends without notice, done by whoever leads a state shard (docs/decisions/093).

import { beforeEach, describe, expect, test } from "vitest";
import { SimClock } from "../../../src/base/index.ts";
import { sessionKeys } from "../../../src/session/keys.ts";
import { SessionNodesWorld } from "../../support/session-nodes.ts";
import { will } from "../../support/session-world.ts";

let world: SessionNodesWorld;
let clock: SimClock;
const graceMs = 30_000;
const bye = will("w", "bye");
const keys = sessionKeys("s");

beforeEach(async () => {
  clock = new SimClock();
  world = await SessionNodesWorld.start(clock, 3);
  // The grace of a start is over.
  await clock.advance(graceMs + 1_000);
});

const due = (): string[] => world.keys().filter((key) => key.startsWith("due/"));
const live = (): string[] => world.keys().filter((key) => key.startsWith("live/"));

describe("a node that is gone", () => {
  test("its clients count as lost after the grace: the will goes out, once, and expiry begins", async () => {
    await world.node(2).client("s").connect({ will: bye, expiryS: 60 });
    world.node(2).kill();
    await clock.advance(graceMs - 2_000);
    expect(world.wills).toEqual([]);
    await clock.advance(4_000);
    expect(world.wills).toEqual(["s w bye"]);
    expect([live(), due().length]).toEqual([[], 1]);
    // Counted from when it was gone.
    await clock.advance(60_000 - graceMs);
    expect(world.keys()).toEqual([]);
    await clock.advance(graceMs);
    expect(world.wills).toEqual(["s w bye"]);
  });

  test("a client that comes back to another node in time has lost nothing, not even its will", async () => {
    await world.node(2).client("s").connect({ will: bye });
    world.node(2).kill();
    await clock.advance(graceMs / 2);
    const again = await world.node(3).client("s").connect({ will: bye });
    expect(again.sessionPresent).toBe(true);
    await clock.advance(3 * graceMs);
    expect(world.wills).toEqual([]);
    expect(live()).toEqual([keys.live]);
  });

  test("another start of it is another owner", async () => {
    await world.node(2).client("s").connect({ will: bye });
    world.node(2).kill();
    await clock.advance(1_000);
    await world.node(2).boot();
    const other = await world.node(2).client("t").connect({ will: bye });
    await clock.advance(graceMs + 2_000);
    expect(world.wills).toEqual(["s w bye"]);
    expect(other.take()).toEqual([]);
    expect(live()).toEqual([sessionKeys("t").live]);
  });

  test("the whole cluster starts anew: those of the starts before are lost after the grace", async () => {
    await world.node(2).client("s").connect({ will: bye });
    for (const node of world.nodes) node.kill();
    for (const node of world.nodes) await node.boot();
    await clock.advance(graceMs - 2_000);
    expect(world.wills).toEqual([]);
    await clock.advance(4_000);
    expect(world.wills).toEqual(["s w bye"]);
  });

  test("whoever leads next does what is left to do, and nothing twice", async () => {
    for (const id of ["a", "b", "c"]) await world.node(3).client(id).connect({ will: bye });
    world.node(3).kill();
    await clock.advance(graceMs / 2);
    world.leader = 2;
    await clock.advance(graceMs);
    expect(world.wills.sort()).toEqual(["a w bye", "b w bye", "c w bye"]);
    world.leader = 1;
    await clock.advance(3 * graceMs);
    expect(world.wills).toHaveLength(3);
  });

  test("each node that is gone has a grace of its own", async () => {
    await world.node(2).client("a").connect({ will: bye });
    await world.node(3).client("b").connect({ will: bye });
    world.node(2).kill();
    await clock.advance(graceMs / 2);
    world.node(3).kill();
    await clock.advance(graceMs / 2 + 2_000);
    expect(world.wills).toEqual(["a w bye"]);
    await clock.advance(graceMs / 2);
    expect(world.wills).toEqual(["a w bye", "b w bye"]);
  });

  test("one that was only cut off ends the connections that were taken for lost: one will each", async () => {
    const one = await world.node(2).client("s").connect({ will: bye });
    world.node(2).cut();
    await clock.advance(graceMs + 2_000);
    expect(world.wills).toEqual(["s w bye"]);
    world.node(2).heal();
    const late = one.subscribeLater("late");
    await clock.complete(late);
    await clock.advance(1_000);
    expect(one.take()).toContain("end 0x8e");
    await clock.advance(3 * graceMs);
    expect(world.wills).toEqual(["s w bye"]);
    expect(world.keys().filter((key) => key.startsWith("sub/"))).toEqual([]);
  });
});

describe("deadlines", () => {
  test("a will that waits and a session's end come from the leader, wherever it was closed", async () => {
    const one = await world
      .node(2)
      .client("s")
      .connect({
        will: will("w", "late", { delayS: 10 }),
        expiryS: 20,
      });
    await one.drop();
    await clock.advance(9_000);
    expect(world.wills).toEqual([]);
    await clock.advance(2_500);
    expect(world.wills).toEqual(["s w late"]);
    await clock.advance(10_000);
    expect(world.keys()).toEqual([]);
  });

  test("two that believe they lead do no harm", async () => {
    for (const node of [1, 2]) world.node(node).leads = () => true;
    for (const id of ["a", "b", "c", "d"]) {
      const one = await world
        .node(3)
        .client(id)
        .connect({
          will: will("w", "late", { delayS: 10 }),
          expiryS: 20,
        });
      await one.drop();
    }
    await clock.advance(13_000);
    expect(world.wills.sort()).toEqual(["a w late", "b w late", "c w late", "d w late"]);
    await clock.advance(20_000);
    expect([world.wills.length, world.keys()]).toEqual([4, []]);
  });

  test("a leader that is late to remove a session ends nothing of whoever has resumed it", async () => {
    const one = await world.node(2).client("s").connect({ expiryS: 20 });
    await one.drop();
    world.node(3).delayMsOf = () => 1_500;
    world.node(1).delayMsOf = () => 1_600;
    await clock.advance(19_990);
    const again = await world.node(3).client("s").connect();
    expect(again.sessionPresent).toBe(true);
    await clock.advance(5_000);
    expect(world.store.evidenceEnded).toEqual([]);
    expect(live()).toEqual([keys.live]);
    expect(again.take()).toEqual([]);
  });

  test("a client that comes back at the last moment keeps its session or gets a new one, never half", async () => {
    const one = await world.node(2).client("s").connect({ expiryS: 20 });
    await one.subscribe("a");
    await one.drop();
    await clock.advance(19_950);
    for (let attempt = 0; attempt < 40; attempt++) {
      const again = await world.node(3).client("s").connect({ expiryS: 20 });
      const subs = world.keys().filter((key) => key.startsWith("sub/")).length;
      if (!again.sessionPresent) {
        expect(subs).toBe(0);
        return;
      }
      expect(subs).toBe(1);
      await again.drop();
      await clock.advance(19_970 + attempt);
    }
  });
});

test("a deadline that is done while its client connects anew is done once", async () => {
  for (let slowMs = 0; slowMs < 10; slowMs++) {
    world.wills.length = 0;
    const one = await world
      .node(2)
      .client("s")
      .connect({
        will: will("w", "late", { delayS: 10 }),
        expiryS: 20,
      });
    await one.drop();
    let comes: Promise<unknown> | undefined;
    world.node(1).delayMsOf = (written) => {
      if (comes !== undefined || !written.some((key) => key.startsWith("fire/"))) return 0;
      comes = world.node(3).client("s").connectLater({ clean: true });
      return slowMs;
    };
    await clock.runUntil(() => comes !== undefined);
    await clock.complete(comes as Promise<unknown>);
    await clock.advance(5_000);
    expect(world.wills, `${slowMs} ms slower`).toEqual(["s w late"]);
    const again = await world.node(3).client("s").connect({ clean: true, expiryS: 0 });
    await again.disconnect();
    expect(world.keys(), `${slowMs} ms slower`).toEqual([]);
  }
});

describe("wills half published", () => {
  test("one that a node marked and did not live to publish goes out once", async () => {
    const one = await world.node(2).client("s").connect({ will: bye });
    const closing = one.session?.detach({ kind: "lost", expiryS: undefined });
    closing?.catch(() => undefined);
    await clock.runUntil(() => world.keys().some((key) => key.startsWith("fire/")));
    world.node(2).kill();
    await clock.advance(graceMs + 3_000);
    expect(world.wills).toEqual(["s w bye"]);
    expect(world.keys().filter((key) => key.startsWith("fire/"))).toEqual([]);
  });

  test("its client's next connection finds it, and no leader repeats it", async () => {
    const one = await world.node(2).client("s").connect({ will: bye });
    const closing = one.session?.detach({ kind: "lost", expiryS: undefined });
    closing?.catch(() => undefined);
    await clock.runUntil(() => world.keys().some((key) => key.startsWith("fire/")));
    world.node(2).kill();
    await world.node(3).client("s").connect();
    expect(world.wills).toEqual(["s w bye"]);
    await clock.advance(2 * graceMs);
    expect(world.wills).toEqual(["s w bye"]);
  });

  test("two nodes that have the same mark at hand publish it once", async () => {
    const cases = [0, 3].flatMap((slowMs) => [0, 1, 2, 3, 4, 6, 8, 10].map((ms) => [slowMs, ms]));
    for (const [slowMs, extraMs] of cases as Array<[number, number]>) {
      world.node(2).delayMsOf = ([key = ""]) => (key.startsWith("fire/") ? slowMs : 0);
      world.wills.length = 0;
      const one = await world.node(2).client("s").connect({ will: bye });
      const closing = one.session?.detach({ kind: "lost", expiryS: undefined });
      await clock.runUntil(() => world.keys().some((key) => key.startsWith("fire/")));
      await clock.advance(extraMs);
      const again = await world.node(3).client("s").connect();
      await clock.complete(closing as Promise<void>);
      await clock.advance(10_000);
      expect(world.wills, `${extraMs} ms later, ${slowMs} ms slower`).toEqual(["s w bye"]);
      await again.disconnect(0);
    }
  });

  test("a node that does not answer while it publishes one is not repeated", async () => {
    // Marked, taken, the writer's epoch, removed: each is on its way when the other node looks.
    for (const slowMs of [700, 1_000, 1_050, 1_100, 2_010, 2_050, 2_100]) {
      world.wills.length = 0;
      const one = await world.node(2).client("s").connect({ will: bye });
      world.node(2).delayMsOf = ([key = ""]) => (key.startsWith("fire/") ? slowMs : 0);
      world.node(2).isMute = true;
      const closing = one.session?.detach({ kind: "lost", expiryS: undefined });
      await clock.runUntil(() => world.keys().some((key) => key.startsWith("fire/")));
      const again = await world.node(3).client("s").connect();
      await clock.complete(closing as Promise<void>);
      await clock.advance(40_000);
      expect(world.wills, `${slowMs} ms slower`).toEqual(["s w bye"]);
      world.node(2).isMute = false;
      world.node(2).delayMsOf = () => 0;
      await again.disconnect(0);
    }
  });
});
