// Faults that users of MQTT brokers have met, as conversations with the session room. The same ones
// run against the launched broker elsewhere.

import { describe, expect, test } from "vitest";
import { type TestClient, World } from "../../support/session-world.ts";

const ends = ["restart", "crash"] as const;

for (const end of ends) {
  describe(`after a ${end} of the broker`, () => {
    test("R1: what is published before the durable client is back is delivered", async () => {
      const world = await World.start();
      const s = await world.client("s").connect();
      await s.subscribe("t", { qos: 2 });
      await s.disconnect();
      await world[end]();
      for (let n = 1; n <= 10; n++) await world.publish("p", "t", `m${n}`, { qos: 2 });
      s.take();
      await s.connect();
      await world.advance(20);
      expect(s.sessionPresent).toBe(true);
      expect(s.take()).toEqual(range(1, 10).map((n) => `publish ${n} q2 t m${n}`));
    });

    test("R7: a QoS 2 subscription gets stored and new messages", async () => {
      const world = await World.start();
      const s = await world.client("s").connect();
      await s.subscribe("t", { qos: 2 });
      await s.drop();
      for (let n = 1; n <= 5; n++) await world.publish("p", "t", `m${n}`, { qos: 2 });
      await world[end]();
      s.take();
      await s.connect();
      for (let n = 6; n <= 10; n++) await world.publish("p", "t", `m${n}`, { qos: 2 });
      await world.advance(20);
      expect(s.take()).toEqual(range(1, 10).map((n) => `publish ${n} q2 t m${n}`));
    });

    test("R8: a session made with Clean Start and an expiry is resumed", async () => {
      const world = await World.start();
      const s = await world.client("s").connect({ clean: true, expiryS: 300 });
      await s.subscribe("t");
      await s.disconnect();
      await world.publish("p", "t", "m");
      await world[end]();
      s.take();
      await s.connect({ expiryS: 300 });
      await world.advance(10);
      expect(s.sessionPresent).toBe(true);
      expect(s.take()).toEqual(["publish 1 q1 t m"]);
    });

    test("R9: sent, unacked for a second: the same id again, with DUP", async () => {
      const world = await World.start();
      const s = await world.client("s").connect();
      await s.subscribe("t");
      await world.publish("p", "t", "m");
      await world.advance(1000);
      expect(s.take()).toEqual(["suback 1", "publish 1 q1 t m"]);
      await world[end]();
      await s.connect();
      await world.advance(10);
      expect(s.take()).toEqual(["publish 1 q1 dup t m"]);
    });

    test("R15: a QoS 0 subscription belongs to the session", async () => {
      const world = await World.start();
      const s = await world.client("s").connect();
      await s.subscribe("t", { qos: 0 });
      await s.disconnect();
      await world[end]();
      await s.connect();
      s.take();
      await world.publish("p", "t", "m", { qos: 1 });
      expect(s.take()).toEqual(["publish q0 t m"]);
    });

    test("R20: a QoS 2 publish staged before is a repeat after, and the retained store has it", async () => {
      const world = await World.start();
      const s = await world.client("s").connect();
      await s.subscribe("t", { qos: 2 });
      const p = await world.client("p").connect();
      const first = { ...p.session!.claim!, packetId: 9 };
      await world.publish("p", "t", "m", { qos: 2, retain: true, evidence: first });
      await world[end]();
      await p.connect();
      const claim = p.session!.claim!;
      expect(claim.incarnation).toBe(first.incarnation);
      expect(claim.ownerEpoch).toBeGreaterThan(first.ownerEpoch);
      const again = { ...claim, packetId: 9 };
      const outcome = await world.publish("p", "t", "m", { qos: 2, retain: true, evidence: again });
      expect(outcome).toEqual({ kind: "repeat" });
      s.take();
      await s.connect();
      await world.advance(20);
      expect(payloads(s)).toEqual(["m"]);
      const kept = await world.clock.complete(world.sessions.retained.get("t"));
      expect(kept?.qos).toBe(2);
      expect(kept?.frame.toString()).toBe("m");
    });
  });
}

test("R5: of a long outage the whole gap comes, also after a crash during the drain", async () => {
  const world = await World.start();
  const s = await world.client("s").connect({ receiveMaximum: 5 });
  await s.subscribe("t");
  s.take();
  let n = 0;
  for (; n < 60; n++) {
    await world.publish("p", "t", `${n}`);
    await world.advance(500);
  }
  await s.drop();
  const got = new Set(payloads(s));
  expect(got.size).toBe(5);
  s.autoAck = true;
  const drain = s.connectLater({ receiveMaximum: 5 });
  await world.clock.complete(drain);
  await world.advance(1);
  await world.crash();
  await s.connect({ receiveMaximum: 5 });
  await world.advance(1000);
  const all = payloads(s);
  expect(new Set(all)).toEqual(new Set(range(0, 59).map(String)));
});

test("R9: killed at once: again with DUP, and the old id goes to no other message", async () => {
  const world = await World.start();
  const s = await world.client("s").connect();
  await s.subscribe("t");
  await world.publish("p", "t", "m");
  expect(s.take()).toEqual(["suback 1", "publish 1 q1 t m"]);
  await world.crash();
  await s.connect();
  await world.advance(10);
  const [again] = s.take();
  expect(again).toMatch(/^publish \d+ q1 dup t m$/);
  const id = Number(again!.split(" ")[1]);
  expect(id).toBeGreaterThan(1000);
  s.autoAck = true;
  for (let n = 0; n < 300; n++) await world.publish("p", "t", "x");
  expect(s.take().map((line) => line.split(" ")[1])).not.toContain("1");
});

test("R9: a broken link without a broker restart repeats with the same id", async () => {
  const world = await World.start();
  const s = await world.client("s").connect();
  await s.subscribe("t");
  await world.publish("p", "t", "m");
  await s.drop();
  await s.connect();
  await world.advance(10);
  expect(s.take()).toEqual(["suback 1", "publish 1 q1 t m", "publish 1 q1 dup t m"]);
});

test("R19, R21: a QoS 2 repeat after a reconnect or crash routes nothing again", async () => {
  const world = await World.start();
  const s = await world.client("s").connect();
  await s.subscribe("t", { qos: 2 });
  const p = await world.client("p").connect();
  const evidence = { ...p.session!.claim!, packetId: 7 };
  await world.publish("p", "t", "m", { qos: 2, evidence });
  await p.drop();
  await p.connect();
  const second = { ...p.session!.claim!, packetId: 7 };
  expect(await world.publish("p", "t", "m", { qos: 2, evidence: second })).toEqual({
    kind: "repeat",
  });
  await world.crash();
  await p.connect();
  await s.connect();
  const third = { ...p.session!.claim!, packetId: 7 };
  expect(await world.publish("p", "t", "m", { qos: 2, evidence: third })).toEqual({
    kind: "repeat",
  });
  await world.advance(50);
  expect(new Set(payloads(s)).size).toBe(1);
});

test("R17, R21: discarding the session ends its evidence, so the id is new again", async () => {
  const world = await World.start();
  const p = await world.client("p").connect();
  const evidence = { ...p.session!.claim!, packetId: 7 };
  await world.publish("p", "t", "m", { qos: 2, evidence });
  await p.connect({ clean: true });
  expect(world.store.evidenceEnded).toEqual(["p"]);
  const fresh = { ...p.session!.claim!, packetId: 7 };
  expect(fresh.incarnation).toBeGreaterThan(evidence.incarnation);
  const outcome = await world.publish("p", "t", "m", { qos: 2, evidence: fresh });
  expect(outcome?.kind).toBe("stored");
});

test("R26: after a resume QoS 1 and QoS 2 carry DUP and their ids", async () => {
  const world = await World.start();
  const s = await world.client("s").connect();
  await s.subscribe("t", { qos: 2 });
  await world.publish("p", "t", "one", { qos: 1 });
  await world.publish("p", "t", "two", { qos: 2 });
  await world.advance(10);
  s.take();
  await s.drop();
  await s.connect();
  await world.advance(10);
  expect(s.take()).toEqual(["publish 1 q1 dup t one", "publish 2 q2 dup t two"]);
});

test("R27: an owed PUBREL is the first packet after the CONNACK, the PUBLISH does not come", async () => {
  const world = await World.start();
  const s = await world.client("s").connect();
  await s.subscribe("t", { qos: 2 });
  await world.publish("p", "t", "one", { qos: 1 });
  await world.publish("p", "t", "two", { qos: 2 });
  await world.advance(10);
  s.take();
  s.pubrec(2);
  await s.drop();
  await s.connect();
  await world.advance(10);
  expect(s.take()).toEqual(["pubrel 2", "publish 1 q1 dup t one"]);
  expect(s.pubcomp(2)).toBeUndefined();
  await s.drop();
  await s.connect();
  await world.advance(10);
  expect(s.take()).toEqual(["publish 1 q1 dup t one"]);
});

test("R28: nothing is sent again within a connection", async () => {
  const world = await World.start();
  for (const version of [4, 5] as const) {
    const s = await world.client(`s${version}`).connect({ version });
    await s.subscribe("t", { qos: 2 });
    await world.publish("p", "t", "m", { qos: 2 });
    await world.advance(10);
    expect(s.take()).toHaveLength(2);
    await world.advance(120_000);
    expect(s.take()).toEqual([]);
  }
});

test("R52: the backlog and live messages come in publish order", async () => {
  const world = await World.start({ store: { wake: "soon" } });
  const s = await world.client("s").connect({ receiveMaximum: 7 });
  await s.subscribe("t");
  await s.drop();
  s.take();
  for (let n = 0; n < 50; n++) await world.publish("p", "t", `${n}`);
  s.autoAck = true;
  const back = s.connectLater({ receiveMaximum: 7 });
  for (let n = 50; n < 120; n++) await world.publish("p", "t", `${n}`);
  await world.clock.complete(back);
  for (let n = 120; n < 150; n++) await world.publish("p", "t", `${n}`);
  await world.advance(1000);
  expect(payloads(s)).toEqual(range(0, 149).map(String));
});

test("R53: QoS 0 between QoS 2 costs no QoS 2 message", async () => {
  const world = await World.start({ store: { commitMs: 0.1 } });
  const s = await world.client("s").connect();
  await s.subscribe("two", { qos: 2 });
  await s.subscribe("zero", { qos: 0 });
  s.autoAck = true;
  s.take();
  for (let n = 0; n < 2000; n++) {
    await world.publish("p", "two", `${n}`, { qos: 2 });
    await world.publish("p", "zero", `${n}`, { qos: 0 });
  }
  await world.advance(1000);
  const two = s.take().filter((line) => / q2 /.test(line));
  expect(two.map((line) => Number(line.split(" ").at(-1)))).toEqual(range(0, 1999));
});

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, index) => from + index);
}

function payloads(client: TestClient): string[] {
  return client
    .take()
    .filter((line) => line.startsWith("publish"))
    .map((line) => line.split(" ").at(-1)!);
}
