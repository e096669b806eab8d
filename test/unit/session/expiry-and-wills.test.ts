// Deadlines of closed sessions: their end, their wills, over restarts and steps of the clock.

import { describe, expect, test } from "vitest";
import { storeError } from "../../support/fake-store.ts";
import { World, will } from "../../support/session-world.ts";

describe("expiry", () => {
  test("R50: a session is gone once its expiry has passed since the close", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ expiryS: 3 });
    await s.subscribe("t");
    await world.advance(60_000);
    await s.drop();
    await world.advance(1000);
    await s.connect({ expiryS: 3 });
    expect(s.sessionPresent).toBe(true);
    await s.drop();
    await world.advance(16_000);
    expect(allKeys(world)).toEqual([]);
    expect(world.store.interest.counts.size).toBe(0);
    expect(world.store.evidenceEnded).toEqual(["s"]);
    expect(world.sessions.counters.sessionsExpired).toBe(1);
    await s.connect({ expiryS: 3 });
    expect(s.sessionPresent).toBe(false);
  });

  test("the expiry runs on over a restart", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ expiryS: 60 });
    await s.drop();
    await world.advance(50_000);
    await world.crash();
    await world.advance(9000);
    expect(world.sessions.counts().durable).toBe(1);
    await world.advance(2000);
    expect(world.sessions.counts().durable).toBe(0);
    expect(allKeys(world)).toEqual([]);
  });

  test("what fell due while the broker was down waits for the grace", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ expiryS: 3 });
    const t = await world.client("t").connect({ expiryS: 3 });
    await s.drop();
    await t.drop();
    world.store.crash();
    world.clock.clear();
    await world.advance(20_000);
    await world.crash();
    await world.advance(20_000);
    await s.connect({ expiryS: 3 });
    expect(s.sessionPresent).toBe(true);
    await world.advance(11_000);
    expect(world.sessions.counts()).toEqual({ durable: 1, connected: 1 });
    await t.connect({ expiryS: 3 });
    expect(t.sessionPresent).toBe(false);
  });

  test("clients cut off by a crash have the grace, then their expiry counts from the start", async () => {
    const world = await World.start();
    await world.client("short").connect({ expiryS: 1 });
    await world.client("long").connect({ expiryS: 100 });
    const back = await world.client("back").connect({ expiryS: 1 });
    await world.crash();
    await world.advance(10_000);
    await back.connect({ expiryS: 1 });
    expect(back.sessionPresent).toBe(true);
    expect(world.sessions.counts().durable).toBe(3);
    await world.advance(21_000);
    expect(world.sessions.counts().durable).toBe(2);
    await world.advance(75_000);
    expect(world.sessions.counts()).toEqual({ durable: 1, connected: 1 });
  });

  test("a session that never expires stays", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ expiryS: 0xffffffff });
    await s.drop();
    await world.advance(400 * 86_400_000);
    await s.connect();
    expect(s.sessionPresent).toBe(true);
  });

  test("R39: a step of the wall clock ends no session", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ expiryS: 60 });
    await s.drop();
    world.clock.stepWall(90 * 86_400_000_000);
    await world.advance(50_000);
    expect(world.sessions.counts().durable).toBe(1);
    world.clock.stepWall(-180 * 86_400_000_000);
    await world.advance(11_000);
    expect(world.sessions.counts().durable).toBe(0);
  });

  test("a session with thousands of records is removed whole, also when a crash cuts it short", async () => {
    const world = await World.start({ settings: { subscriptionsMax: 5000 } });
    const s = await world.client("s").connect({ expiryS: 10 });
    const filters = Array.from({ length: 2500 }, (_, n) => ({
      filter: `f/${n}`,
      qos: 1 as const,
      noLocal: false,
      retainAsPublished: false,
      retainHandling: 2 as const,
      identifier: 0,
    }));
    await world.clock.complete(s.session!.subscribe(filters));
    await s.drop();
    await world.clock.runUntil(() => allKeys(world).length < 1700, 60_000);
    expect(allKeys(world).length).toBeGreaterThan(100);
    await world.crash();
    await world.advance(10);
    await s.connect();
    expect(s.sessionPresent).toBe(false);
    expect(world.store.interest.counts.size).toBe(0);
    expect(allKeys(world).filter((key) => key.startsWith("sub/"))).toEqual([]);
  });
});

describe("timers", () => {
  /** Sessions named `stuck-*` cannot be removed. */
  function refuseStuck(world: World): void {
    const { evidence } = world.store;
    const end = evidence.end.bind(evidence);
    evidence.end = (publisher, incarnation) =>
      publisher.startsWith("stuck")
        ? Promise.reject(storeError("STORE_RETRY", "retry"))
        : end(publisher, incarnation);
  }

  test("sessions that cannot be ended keep no other from its end", async () => {
    const world = await World.start({ settings: { timerJobsMax: 2 } });
    refuseStuck(world);
    for (let n = 0; n < 10; n++) {
      const stuck = await world.client(`stuck-${n}`).connect({ expiryS: 3 });
      await stuck.drop();
    }
    const s = await world.client("s").connect({ expiryS: 5 });
    await s.drop();
    await world.advance(6000);
    expect(world.store.evidenceEnded).toEqual(["s"]);
    expect(world.sessions.counts().durable).toBe(10);
  });

  test("a grace that ends badly is tried again, by one timer", async () => {
    const world = await World.start();
    await world.client("s").connect({ expiryS: 1000 });
    await world.crash();
    let listings = 0;
    for (const shard of world.store.stateShards) {
      const list = shard.list.bind(shard);
      shard.list = (prefix, options) => {
        if (prefix !== "live/") return list(prefix, options);
        listings++;
        return Promise.reject(storeError("STORE_RETRY", "retry"));
      };
    }
    await world.advance(31_000);
    expect(listings).toBe(1);
    await world.advance(5000);
    expect(listings).toBe(2);
    await world.advance(5000);
    expect(listings).toBe(3);
  });
});

describe("wills", () => {
  const bye = will("w", "bye");

  for (const expiryS of [0, 60]) {
    test(`expiry ${expiryS}: published after a loss, not after DISCONNECT`, async () => {
      const world = await World.start();
      const s = await world.client("s").connect({ expiryS, will: bye, user: "ann" });
      await s.disconnect();
      expect(world.wills).toEqual([]);
      await s.connect({ expiryS, will: bye, user: "ann" });
      await s.drop();
      expect(world.wills).toEqual(["s w bye ann"]);
      await world.advance(120_000);
      expect(world.wills).toHaveLength(1);
      expect(allKeys(world)).toEqual([]);
    });
  }

  test("R35: a reconnect inside the delay cancels it, also after a restart of the broker", async () => {
    const world = await World.start();
    const s = world.client("s");
    const delayed = will("w", "bye", { delayS: 5 });
    await s.connect({ expiryS: 60, will: delayed });
    await s.drop();
    await world.advance(2000);
    await s.connect({ expiryS: 60, will: delayed });
    await world.advance(10_000);
    expect(world.wills).toEqual([]);
    await s.drop();
    await world.advance(1000);
    await world.crash();
    await world.advance(1000);
    await s.connect({ expiryS: 60 });
    await world.advance(60_000);
    expect(world.wills).toEqual([]);
  });

  test("a delayed will survives a restart and comes at its time", async () => {
    const world = await World.start();
    const s = await world
      .client("s")
      .connect({ expiryS: 60, will: will("w", "bye", { delayS: 5 }) });
    await s.drop();
    await world.advance(1000);
    await world.crash();
    await world.advance(3900);
    expect(world.wills).toEqual([]);
    await world.advance(200);
    expect(world.wills).toEqual(["s w bye"]);
    await s.connect();
    expect(s.sessionPresent).toBe(true);
  });

  test("R36: a session that ends before the delay takes its will along", async () => {
    const world = await World.start();
    const delayed = will("w", "bye", { delayS: 10 });
    const a = await world.client("a").connect({ expiryS: 0, will: delayed });
    await a.drop();
    expect(world.wills).toEqual(["a w bye"]);
    const b = await world.client("b").connect({ expiryS: 2, will: delayed });
    await b.drop();
    await world.advance(1900);
    expect(world.wills).toHaveLength(1);
    await world.advance(200);
    expect(world.wills).toEqual(["a w bye", "b w bye"]);
    expect(allKeys(world)).toEqual([]);
  });

  test("R32, R33: a takeover publishes the will of the old connection", async () => {
    const world = await World.start();
    for (const expiryS of [0, 60]) {
      await world.client("s").connect({ expiryS, will: bye });
      await world.client("s").connect({ expiryS });
      expect(world.wills.splice(0)).toEqual(["s w bye"]);
    }
    const delayed = will("w", "late", { delayS: 5 });
    await world.client("m").connect({ expiryS: 0, will: delayed });
    await world.client("m").connect({ expiryS: 0 });
    expect(world.wills.splice(0)).toEqual(["m w late"]);
    await world.client("d").connect({ expiryS: 60, will: delayed });
    await world.client("d").connect({ expiryS: 60 });
    await world.advance(10_000);
    expect(world.wills).toEqual([]);
    await world.client("d").connect({ expiryS: 60, will: delayed });
    await world.client("d").connect({ expiryS: 60, clean: true });
    expect(world.wills).toEqual(["d w late"]);
  });

  test("a clean start ends the old session, so its delayed will goes out", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ will: will("w", "bye", { delayS: 50 }) });
    await s.drop();
    await s.connect({ clean: true });
    expect(world.wills).toEqual(["s w bye"]);
  });

  for (const end of ["restart", "crash"] as const) {
    test(`after a ${end}: no will of a client that is back within the grace, else one`, async () => {
      const world = await World.start();
      const back = await world.client("back").connect({ will: bye });
      await world.client("gone").connect({ will: bye });
      await world[end]();
      await world.advance(20_000);
      await back.connect({ will: bye });
      await world.advance(20_000);
      expect(world.wills).toEqual(["gone w bye"]);
      await world.advance(60_000);
      expect(world.wills).toHaveLength(1);
    });
  }

  test("a CONNECT waits for a will that is being published", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ will: bye });
    let letGo = (): void => undefined;
    world.holdWills = new Promise((resolve) => {
      letGo = resolve;
    });
    const session = s.session!;
    const closing = session.detach({ kind: "lost", expiryS: undefined });
    await world.advance(100);
    let connected = false;
    const connecting = world
      .client("s")
      .connectLater()
      .then(() => {
        connected = true;
      });
    await world.advance(1000);
    expect(connected).toBe(false);
    letGo();
    await world.clock.complete(Promise.all([closing, connecting]));
    expect(world.wills).toEqual(["s w bye"]);
  });

  test("marked but not published at a crash: published at the next start after the grace", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ will: bye });
    world.holdWills = new Promise(() => undefined);
    s.session!.detach({ kind: "lost", expiryS: undefined }).catch(() => undefined);
    await world.advance(100);
    expect(allKeys(world).filter((key) => key.startsWith("fire/"))).toHaveLength(1);
    world.holdWills = undefined;
    await world.crash();
    await world.advance(29_000);
    expect(world.wills).toEqual([]);
    await world.advance(2000);
    expect(world.wills).toEqual(["s w bye"]);
    expect(allKeys(world).filter((key) => key.startsWith("fire/"))).toEqual([]);
  });

  test("marked but not published at a crash: a CONNECT before the grace publishes it first", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ will: bye });
    world.holdWills = new Promise(() => undefined);
    s.session!.detach({ kind: "lost", expiryS: undefined }).catch(() => undefined);
    await world.advance(100);
    world.holdWills = undefined;
    await world.crash();
    await s.connect();
    expect(world.wills).toEqual(["s w bye"]);
    await world.advance(60_000);
    expect(world.wills).toHaveLength(1);
  });

  test("a will that cannot be published now is tried again; one refused for good is dropped", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ will: bye });
    world.failWills = storeError("STORE_QUOTA_EXCEEDED", "limit");
    await s.drop();
    await world.advance(5000);
    expect(world.wills).toEqual([]);
    world.failWills = undefined;
    await world.advance(6000);
    expect(world.wills).toEqual(["s w bye"]);
    await s.connect({ will: bye });
    world.failWills = storeError("BROKER_NOT_AUTHORIZED", "invalid");
    await s.drop();
    world.failWills = undefined;
    await world.advance(60_000);
    expect(world.wills).toHaveLength(1);
    expect(world.sessions.counters.willsDropped).toBe(1);
    expect(allKeys(world).filter((key) => key.startsWith("fire/"))).toEqual([]);
  });
});

function allKeys(world: World): string[] {
  return world.store.stateShards.flatMap((shard) => shard.keys());
}
