// How sessions are made, resumed, taken over and closed.

import { describe, expect, test } from "vitest";
import { storeError } from "../../support/fake-store.ts";
import { World } from "../../support/session-world.ts";

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

  test("a client without a durable session costs no walk over stored keys", async () => {
    const world = await World.start();
    const walks: string[] = [];
    for (const shard of world.store.stateShards) {
      const list = shard.list.bind(shard);
      shard.list = (prefix, options) => {
        walks.push(prefix);
        return list(prefix, options);
      };
    }
    await (await world.client("s").connect({ expiryS: 0 })).drop();
    await world.client("s").connect({ expiryS: 60 });
    expect(walks).toEqual([]);
    await world.client("s").connect({ expiryS: 60 });
    expect(walks).not.toEqual([]);
  });

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

  test("the old connection is ended only once the claim is durable", async () => {
    const world = await World.start();
    const old = await world.client("s").connect();
    const epoch = old.session!.claim!.ownerEpoch;
    const connecting = world.client("s").connectLater();
    await world.clock.runUntil(() => old.peek().includes("end 0x8e"));
    const claim = await world.clock.complete(world.store.state("s").get("session/s/claim"));
    expect(claim!.timeUs).toBeGreaterThan(epoch);
    await world.clock.complete(connecting);
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

describe("damaged records", () => {
  for (const damaged of ["session/s/claim", "session/s/ids", "sub/s/t", "live/s"]) {
    test(`${damaged}: the broker starts, others are served, a clean start discards it`, async () => {
      const world = await World.start();
      const other = await world.client("other").connect();
      await other.subscribe("t");
      const s = await world.client("s").connect();
      await s.subscribe("t");
      const shard = world.store.state("s");
      shard.write([{ key: damaged, value: Buffer.from([1, 255, 255]) }], [], () => undefined);
      await world.advance(100);
      await world.crash();
      await other.connect();
      await world.publish("p", "t", "m");
      expect(other.take().at(-1)).toMatch(/m$/);
      await world.advance(40_000);
      if (damaged !== "live/s") {
        await expect(world.client("s").connect()).rejects.toMatchObject({
          code: "SESSION_RECORD_CORRUPT",
        });
      }
      await s.connect({ clean: true });
      expect(s.sessionPresent).toBe(false);
      await s.subscribe("u");
      await world.publish("p", "u", "fresh");
      expect(s.take().at(-1)).toBe("publish 1 q1 u fresh");
      expect(world.sessions.counts()).toEqual({ durable: 2, connected: 2 });
      expect([...world.store.interest.counts.keys()].sort()).toEqual(["t", "u"]);
    });
  }
});

function allKeys(world: World): string[] {
  return world.store.stateShards.flatMap((shard) => shard.keys());
}

describe("a takeover whose old owner does not answer", () => {
  /** The last write of the old connection fails; claims go through. */
  function refuseLastWrite(world: World): void {
    for (const shard of world.store.stateShards) {
      const write = shard.write.bind(shard);
      shard.write = (writes, guards, done) => {
        const isClaim = writes.some(({ key }) => key.endsWith("/claim"));
        if (isClaim || !writes.some(({ key }) => key.endsWith("/cursor"))) {
          write(writes, guards, done);
          return;
        }
        world.clock.soon(() => done(storeError("STORE_RETRY", "retry"), 0));
      };
    }
  }

  test("goes on after takeoverWait; what the old one had not written comes again with DUP", async () => {
    const world = await World.start({ settings: { checkpointDelayMs: 60_000 } });
    const old = await world.client("s").connect();
    await old.subscribe("t");
    await world.publish("p", "t", "m");
    expect(old.take()).toEqual(["suback 1", "publish 1 q1 t m"]);
    refuseLastWrite(world);
    const next = world.client("s");
    const connecting = next.connectLater();
    await world.advance(1900);
    expect(next.session).toBeUndefined();
    await world.advance(200);
    await world.clock.complete(connecting);
    expect(next.sessionPresent).toBe(true);
    expect(old.take()).toEqual(["end 0x8e"]);
    await world.advance(100);
    expect(next.take().map((line) => line.replace(/publish \d+/, "publish"))).toEqual([
      "publish q1 dup t m",
    ]);
    expect(world.sessions.counters.takeoversUnanswered).toBe(1);
  });

  test("the old one's late write is refused", async () => {
    const world = await World.start();
    const old = await world.client("s").connect();
    await old.subscribe("t");
    await world.publish("p", "t", "m");
    refuseLastWrite(world);
    const next = world.client("s");
    const connecting = next.connectLater();
    await world.advance(2500);
    await world.clock.complete(connecting);
    const ownWrites = world.store.writeCount;
    await world.advance(30_000);
    expect(world.sessions.counters.writesFailed).toBeGreaterThan(0);
    expect(world.store.writeCount).toBe(ownWrites);
  });
});
