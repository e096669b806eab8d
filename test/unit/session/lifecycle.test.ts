// How sessions are made, resumed, taken over, closed and removed; wills and expiry.

import { describe, expect, test } from "vitest";
import { World, will } from "../../support/session-world.ts";

describe("connecting", () => {
  const table = [
    // before, clean start, expiry -> session present, durable
    { before: "nothing", clean: false, expiryS: 0, present: false, durable: false },
    { before: "nothing", clean: true, expiryS: 0, present: false, durable: false },
    { before: "nothing", clean: false, expiryS: 60, present: false, durable: true },
    { before: "nothing", clean: true, expiryS: 60, present: false, durable: true },
    { before: "durable", clean: false, expiryS: 0, present: true, durable: true },
    { before: "durable", clean: true, expiryS: 0, present: false, durable: false },
    { before: "durable", clean: false, expiryS: 60, present: true, durable: true },
    { before: "durable", clean: true, expiryS: 60, present: false, durable: true },
    { before: "memory", clean: false, expiryS: 60, present: false, durable: true },
    { before: "memory", clean: false, expiryS: 0, present: false, durable: false },
  ] as const;
  for (const how of ["after its connection closed", "taking it over"] as const) {
    for (const row of table) {
      const { before, clean, expiryS, present, durable } = row;
      const what = `${clean ? "clean" : "no clean"} start, expiry ${expiryS}`;
      test(`${before} before, ${how}, ${what}`, async () => {
        const world = await World.start();
        const s = world.client("s");
        if (before !== "nothing") {
          await s.connect({ expiryS: before === "durable" ? 60 : 0 });
          await s.subscribe("old");
          if (how !== "taking it over") await s.drop();
        }
        const again = await world.client("s").connect({ clean, expiryS });
        expect(again.sessionPresent).toBe(present);
        expect(again.session!.durable).toBe(durable);
        expect(world.sessions.counts().connected).toBe(1);
        expect(world.sessions.counts().durable).toBe(durable ? 1 : 0);
        expect(world.store.interest.wants("old")).toBe(present);
        const keys = allKeys(world);
        if (!durable) expect(keys).toEqual([]);
        if (!present) expect(keys.filter((key) => key.startsWith("sub/"))).toEqual([]);
      });
    }
  }

  test("a session resumed with expiry 0 stays durable until that connection ends", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ expiryS: 60 });
    await s.subscribe("t");
    await s.drop();
    await s.connect({ expiryS: 0 });
    expect(s.sessionPresent).toBe(true);
    s.take();
    await world.publish("p", "t", "m");
    expect(s.take()).toEqual(["publish 1 q1 t m"]);
    await s.drop();
    expect(allKeys(world)).toEqual([]);
    expect(world.store.interest.counts.size).toBe(0);
    await s.connect({ expiryS: 60 });
    expect(s.sessionPresent).toBe(false);
  });

  test("... and is gone after a crash, however soon the client is back", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ expiryS: 60 });
    await s.drop();
    await s.connect({ expiryS: 0 });
    await world.crash();
    await s.connect({ expiryS: 60 });
    expect(s.sessionPresent).toBe(false);
  });

  test("DISCONNECT may change the expiry: 0 ends the session", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ expiryS: 60 });
    await s.subscribe("t");
    await s.disconnect(0);
    expect(allKeys(world)).toEqual([]);
    expect(world.sessions.counts()).toEqual({ durable: 0, connected: 0 });
  });

  test("another user with the same client id is refused, and the first one notices nothing", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ user: "ann" });
    await s.subscribe("t");
    s.take();
    for (const user of ["bob", undefined]) {
      const other = world.client("s");
      await expect(other.connect(user === undefined ? {} : { user })).rejects.toMatchObject({
        code: "SESSION_USER_MISMATCH",
      });
    }
    await world.publish("p", "t", "m");
    expect(s.take()).toEqual(["publish 1 q1 t m"]);
    await s.drop();
    await expect(world.client("s").connect({ user: "bob", clean: true })).rejects.toMatchObject({
      code: "SESSION_USER_MISMATCH",
    });
    await s.connect({ user: "ann" });
    expect(s.sessionPresent).toBe(true);
  });

  test("nothing is sent before the CONNACK went out", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t", { qos: 2 });
    await world.publish("p", "t", "m", { qos: 2 });
    await s.drop();
    s.take();
    await s.connect({ hold: true });
    await world.publish("p", "t", "unstored", { qos: 0 });
    await world.advance(100);
    expect(s.take()).toEqual([]);
    s.session!.open();
    await world.advance(100);
    expect(s.take()).toEqual(["publish 1 q2 t m"]);
  });
});

describe("takeover", () => {
  test("the old connection gets 0x8E after the claim, the new one goes on where it stood", async () => {
    const world = await World.start();
    const old = await world.client("s").connect();
    await old.subscribe("t");
    const epoch = old.session!.claim!.ownerEpoch;
    await world.publish("p", "t", "open");
    await world.publish("p", "t", "acked");
    old.puback(2);
    old.take();
    const young = await world.client("s").connect();
    expect(old.take()).toEqual(["end 0x8e"]);
    await world.publish("p", "t", "new");
    await world.advance(10);
    expect(young.sessionPresent).toBe(true);
    expect(young.session!.claim!.ownerEpoch).toBeGreaterThan(epoch);
    expect(young.take()).toEqual(["publish 1 q1 dup t open", "publish 3 q1 t new"]);
  });

  test("R31: nothing is lost or out of order while a session is taken over again and again", async () => {
    const world = await World.start();
    await (await world.client("s").connect()).subscribe("t");
    const clients = [];
    let sent = 0;
    for (let round = 0; round < 50; round++) {
      const client = world.client("s");
      client.autoAck = true;
      clients.push(client);
      const connecting = client.connectLater();
      for (let n = 0; n < 5; n++) await world.publish("p", "t", `${sent++}`);
      await world.clock.complete(connecting);
    }
    await world.advance(100);
    const lines = clients.flatMap((client) => client.take()).filter((l) => l.startsWith("publish"));
    const fresh = lines.filter((line) => !line.includes(" dup "));
    expect(new Set(lines.map((line) => line.split(" ").at(-1))).size).toBe(sent);
    const numbers = fresh.map((line) => Number(line.split(" ").at(-1)));
    expect(numbers).toEqual([...numbers].sort((a, b) => a - b));
  });

  test("a detach of the connection that was taken over changes nothing", async () => {
    const world = await World.start();
    const old = await world.client("s").connect();
    const session = old.session!;
    const young = await world.client("s").connect();
    await world.clock.complete(session.detach({ kind: "lost", expiryS: undefined }));
    expect(world.sessions.counts()).toEqual({ durable: 1, connected: 1 });
    await young.subscribe("t");
    await world.publish("p", "t", "m");
    expect(young.take()).toEqual(["suback 1", "publish 1 q1 t m"]);
  });

  test("connects of one client id come one after the other: the last one stays", async () => {
    const world = await World.start();
    const clients = Array.from({ length: 5 }, () => world.client("s"));
    await world.clock.complete(Promise.all(clients.map((client) => client.connectLater())));
    expect(clients.map((client) => client.take())).toEqual([
      ["end 0x8e"],
      ["end 0x8e"],
      ["end 0x8e"],
      ["end 0x8e"],
      [],
    ]);
    expect(world.sessions.counts()).toEqual({ durable: 1, connected: 1 });
  });
});

describe("an orderly end leaves exact state", () => {
  for (const end of ["drop", "restart"] as const) {
    test(`${end}: what was not sent carries no DUP, ids go on without a hole`, async () => {
      const world = await World.start();
      const s = await world.client("s").connect({ receiveMaximum: 2 });
      await s.subscribe("t", { qos: 2 });
      await world.publish("p", "t", "m1");
      await world.publish("p", "t", "m2");
      await world.publish("p", "t", "m3");
      s.puback(1);
      expect(s.take().at(-1)).toBe("publish 3 q1 t m3");
      if (end === "drop") await s.drop();
      else await world.restart();
      await world.publish("p", "t", "m4");
      await s.connect();
      await world.advance(10);
      expect(s.take()).toEqual([
        "publish 2 q1 dup t m2",
        "publish 3 q1 dup t m3",
        "publish 4 q1 t m4",
      ]);
    });
  }

  test("a bound QoS 2 message that could not be sent carries no DUP", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t", { qos: 2 });
    s.room = 0;
    await world.publish("p", "t", "m", { qos: 2 });
    await world.advance(10);
    await s.drop();
    s.room = 10;
    s.take();
    await s.connect();
    await world.advance(10);
    expect(s.take()).toEqual(["publish 1 q2 t m"]);
  });
});

describe("resuming", () => {
  test("resends keep their order and the new Receive Maximum; nothing new before the last", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t", { qos: 2 });
    for (const n of [1, 2, 3, 4]) await world.publish("p", "t", `m${n}`, { qos: n % 2 ? 1 : 2 });
    await world.advance(10);
    await s.drop();
    await world.publish("p", "t", "new");
    s.take();
    await s.connect({ receiveMaximum: 2 });
    await world.advance(10);
    expect(s.take()).toEqual(["publish 1 q1 dup t m1", "publish 2 q2 dup t m2"]);
    s.puback(1);
    await world.advance(10);
    expect(s.take()).toEqual(["publish 3 q1 dup t m3"]);
    s.puback(3);
    await world.advance(10);
    expect(s.take()).toEqual(["publish 4 q2 dup t m4"]);
    s.pubrec(2);
    await world.advance(10);
    expect(s.take()).toEqual(["pubrel 2"]);
    s.pubcomp(2);
    await world.advance(10);
    expect(s.take()).toEqual(["publish 5 q1 t new"]);
  });

  test("a body that is gone ends QoS 1; QoS 2 keeps its id and may still be completed", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t", { qos: 2 });
    await world.publish("p", "t", "one", { qos: 1 });
    await world.publish("p", "t", "two", { qos: 2 });
    await world.advance(100);
    await s.drop();
    await world.store.dropUntil(world.clock.wallUs());
    s.take();
    await s.connect();
    await world.publish("p", "t", "new");
    await world.advance(100);
    expect(s.take()).toEqual(["publish 3 q1 t new"]);
    expect(world.sessions.counters.bodyGone).toBe(2);
    expect(s.pubrec(2)).toBeUndefined();
    await world.advance(100);
    expect(s.take()).toEqual(["pubrel 2"]);
    expect(s.pubcomp(2)).toBeUndefined();
    s.puback(3);
    await world.advance(100);
    expect(allKeys(world).filter((key) => key.includes("/out/"))).toEqual([]);
  });

  test("a failing read of bodies is tried again", async () => {
    const world = await World.start();
    const { storeError } = await import("../../support/fake-store.ts");
    const s = await world.client("s").connect();
    await s.subscribe("t");
    await world.publish("p", "t", "m");
    await s.drop();
    s.take();
    world.store.failFetch = storeError("STORE_RETRY", "retry");
    await s.connect();
    await world.advance(500);
    expect(s.take()).toEqual([]);
    world.store.failFetch = undefined;
    await world.advance(500);
    expect(s.take()).toEqual(["publish 1 q1 dup t m"]);
  });

  test("R48: past its expiry a sent QoS 1 message is not resent, QoS 2 is completed", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t", { qos: 2 });
    await world.publish("p", "t", "one", { qos: 1, expiryS: 5 });
    await world.publish("p", "t", "two", { qos: 2, expiryS: 5 });
    await world.publish("p", "t", "rec", { qos: 2, expiryS: 5 });
    await world.advance(100);
    s.pubrec(3);
    await world.advance(100);
    await s.drop();
    await world.advance(10_000);
    s.take();
    await s.connect();
    await world.advance(100);
    expect(s.take()).toEqual(["pubrel 3", "publish 2 q2 dup t two"]);
  });
});

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
    const { storeError } = await import("../../support/fake-store.ts");
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

describe("loading", () => {
  test("every durable filter is counted before the store starts, offline sessions keep no object", async () => {
    const world = await World.start();
    for (let n = 0; n < 50; n++) {
      const s = await world.client(`s${n}`).connect();
      await s.subscribe(`t/${n % 5}`, { qos: 1 });
      await s.subscribe(`zero/${n}`, { qos: 0 });
      await s.drop();
    }
    await world.crash();
    expect([...world.store.interest.counts].sort()).toEqual(
      [0, 1, 2, 3, 4].map((n) => [`t/${n}`, 10]),
    );
    expect(world.sessions.counts()).toEqual({ durable: 50, connected: 0 });
  });

  test("client ids and filters of any kind and length come back", async () => {
    const world = await World.start();
    const ids = ["a/b", "%", "%2F", "+#", "é".repeat(2000), "x".repeat(60_000), " "];
    for (const id of ids) {
      const s = await world.client(id).connect();
      await s.subscribe(`f/${"y".repeat(5000)}/+`);
      await s.subscribe("+/%/#");
      await s.drop();
    }
    await world.crash();
    expect(world.sessions.counts().durable).toBe(ids.length);
    await world.publish("p", "a/%/c", "m");
    for (const id of ids) {
      const s = await world.client(id).connect();
      await world.advance(5);
      expect(s.sessionPresent).toBe(true);
      expect(s.take()).toEqual(["publish 1 q1 a/%/c m"]);
    }
  });
});

function allKeys(world: World): string[] {
  return world.store.stateShards.flatMap((shard) => shard.keys());
}
