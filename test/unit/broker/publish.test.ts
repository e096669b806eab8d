import { describe, expect, test } from "vitest";
import { CodedError } from "../../../src/base/index.ts";
import { BrokerWorld } from "../../support/broker-world.ts";
import { publishing } from "../../support/raw-mqtt.ts";

const durable = { properties: { sessionExpiryS: 3600 } };

describe("live fan-out", () => {
  test("a message reaches every subscriber once, at the lower QoS", async () => {
    const world = await BrokerWorld.start();
    const a = await world.connect("a");
    const b = await world.connect("b", { level: 4, cleanStart: true });
    a.subscribe("t/#", { qos: 2 });
    b.subscribe("t/+", { qos: 0 });
    const p = await world.connect("p");
    await world.advance();
    p.publish("t/1", "hello", { qos: 1, id: 9 });
    await world.advance();
    expect(a.take()).toEqual(["suback #1 0x02", "publish t/1 hello q1 #1"]);
    expect(b.take()).toEqual(["suback #1 0x00", "publish t/1 hello q0"]);
    expect(p.take()).toEqual(["puback #9"]);
  });

  test("PUBACK says 0x10 when nobody is subscribed", async () => {
    const world = await BrokerWorld.start();
    const p = await world.connect("p");
    p.publish("t", "x", { id: 1 }).publish("t", "y", { qos: 2, id: 2 });
    await world.advance();
    expect(p.take()).toEqual(["puback #1 0x10", "pubrec #2 0x10"]);
  });

  test.each([1, 2] as const)(
    "the ack of a QoS %i publish leaves before its own copy comes back",
    async (qos) => {
      const world = await BrokerWorld.start();
      for (const fields of [{ cleanStart: true }, durable]) {
        const c = await world.connect("c", fields);
        c.subscribe("t", { qos });
        await world.advance();
        c.take();
        c.publish("t", "x", { qos, id: 5 });
        await world.advance(200);
        const ack = qos === 1 ? "puback #5" : "pubrec #5";
        expect(c.take()).toEqual([ack, `publish t x q${qos} #1`]);
        c.disconnect(0, { sessionExpiryS: 0 });
        await world.advance();
      }
    },
  );
});

describe("stored messages", () => {
  test("the ack of a wanted message waits for the commit, that of another does not", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", durable);
    s.subscribe("wanted");
    const p = await world.connect("p");
    await world.advance();
    world.store.keepsAnswers = true;
    p.publish("other", "x", { id: 1 });
    await world.advance();
    expect(p.take()).toEqual(["puback #1 0x10"]);
    p.publish("wanted", "x", { id: 2 });
    await world.advance();
    expect(p.take()).toEqual([]);
    world.store.kept[0]!.commit();
    await world.advance();
    expect(p.take()).toEqual(["puback #2"]);
  });

  test("R55: acks leave in the order of the publishes when commits come out of order", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", durable);
    s.subscribe("t/#");
    const live = await world.connect("live");
    live.subscribe("t/#");
    const p = await world.connect("p");
    await world.advance();
    live.take();
    world.store.keepsAnswers = true;
    const ids = Array.from({ length: 50 }, (_, index) => index + 1);
    p.say(...ids.map((id) => publishing("t/1", `m${id}`, { qos: id % 2 === 0 ? 2 : 1, id })));
    await world.advance();
    expect(world.store.kept.length).toBe(50);
    for (const kept of [...world.store.kept].reverse()) {
      expect(p.lines).toEqual([]);
      kept.commit();
    }
    await world.advance();
    expect(p.take()).toEqual(ids.map((id) => `${id % 2 === 0 ? "pubrec" : "puback"} #${id}`));
    expect(live.take().map((line) => line.split(" ")[2])).toEqual(ids.map((id) => `m${id}`));
  });

  test("what needs no write waits behind what does, and fan-out keeps the order", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", durable);
    s.subscribe("stored");
    const live = await world.connect("live");
    live.subscribe("#", { qos: 1 });
    const p = await world.connect("p");
    await world.advance();
    live.take();
    world.store.keepsAnswers = true;
    p.say(
      publishing("stored", "1", { id: 1 }),
      publishing("loose", "2", { qos: 0 }),
      publishing("loose", "3", { id: 3 }),
    );
    await world.advance();
    expect([live.take(), p.take()]).toEqual([[], []]);
    world.store.kept[0]!.commit();
    await world.advance();
    expect(live.take()).toEqual([
      "publish stored 1 q1 #1",
      "publish loose 2 q0",
      "publish loose 3 q1 #2",
    ]);
    expect(p.take()).toEqual(["puback #1", "puback #3"]);
  });

  test("a stored message reaches a durable session once, though it is live too", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", durable);
    s.subscribe("a/#", { qos: 1 }, 1).subscribe("a/+", { qos: 0 }, 2);
    const zero = await world.connect("zero", durable);
    zero.subscribe("a/+", { qos: 0 });
    const p = await world.connect("p");
    await world.advance(100);
    s.take();
    zero.take();
    p.publish("a/b", "x");
    await world.advance(200);
    expect(s.take()).toEqual(["publish a/b x q1 #1"]);
    expect(zero.take()).toEqual(["publish a/b x q0"]);
  });

  test("a durable session's QoS 0 subscription gets what is not stored directly", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", durable);
    s.subscribe("t", { qos: 0 });
    const p = await world.connect("p");
    await world.advance();
    s.take();
    p.publish("t", "x", { qos: 1 });
    await world.advance();
    expect(world.store.appended).toEqual([]);
    expect(s.take()).toEqual(["publish t x q0"]);
  });

  test("storeQos0 stores QoS 0 for durable sessions", async () => {
    for (const storeQos0 of [false, true]) {
      const world = await BrokerWorld.start({ settings: { storeQos0 } });
      const s = await world.connect("s", durable);
      s.subscribe("t", { qos: 1 });
      await world.advance();
      s.drop();
      await world.advance();
      const p = await world.connect("p");
      p.publish("t", "x", { qos: 0 });
      await world.advance(200);
      const again = await world.connect("s", durable);
      await world.advance(200);
      expect(again.take()).toEqual([
        "connack 0x00 present",
        ...(storeQos0 ? ["publish t x q0"] : []),
      ]);
    }
  });
});

describe("retained", () => {
  test("the retained put is asked for before the append, and both before the ack", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", durable);
    s.subscribe("t");
    const p = await world.connect("p");
    await world.advance();
    const order: string[] = [];
    const state = world.store.inner.state("t");
    const { write } = state;
    state.write = (writes, guards, done) => {
      order.push(`put ${writes[0]?.key}`);
      write.call(state, writes, guards, (error, timeUs) => {
        order.push("put done");
        done(error, timeUs);
      });
    };
    const { append } = world.store;
    world.store.append = (request, done) => {
      order.push("append");
      append.call(world.store, request, (error, outcome) => {
        order.push(`append done, ${p.lines.length} acks`);
        done(error, outcome);
      });
    };
    p.publish("t", "x", { retain: true });
    await world.advance();
    expect(order.filter((line) => !line.includes("session"))).toEqual([
      expect.stringMatching(/^put .*t$/),
      "append",
      "put done",
      "append done, 0 acks",
    ]);
    expect(p.take()).toEqual(["puback #1"]);
  });

  test("SUBACK goes out before retained messages, which carry RETAIN and their QoS", async () => {
    const world = await BrokerWorld.start();
    const p = await world.connect("p");
    p.publish("t/1", "one", { retain: true, qos: 1, id: 1 });
    p.publish("t/2", "two", { retain: true, qos: 0 });
    await world.advance();
    expect(p.take()).toEqual(["puback #1 0x10"]);
    const s = await world.connect("s");
    s.subscribe("t/#", { qos: 2 });
    await world.advance();
    const [first, ...rest] = s.take();
    expect(first).toBe("suback #1 0x02");
    expect(rest.sort()).toEqual(["publish t/1 one q1 #1 retain", "publish t/2 two q0 retain"]);
  });

  test("R59: an empty retained message clears and is delivered as a normal one", async () => {
    const world = await BrokerWorld.start();
    const p = await world.connect("p");
    const s = await world.connect("s");
    s.subscribe("t");
    p.publish("t", "x", { retain: true, id: 1 });
    await world.advance();
    p.publish("t", "", { retain: true, id: 2 });
    await world.advance();
    expect(s.take()).toEqual(["suback #1 0x01", "publish t x q1 #1", "publish t  q1 #2"]);
    await world.restart();
    const late = await world.connect("late");
    late.subscribe("t");
    await world.advance();
    expect(late.take()).toEqual(["suback #1 0x01"]);
  });

  test("a retained topic that cannot be kept is refused and not stored", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", durable);
    s.subscribe("#");
    const p = await world.connect("p");
    await world.advance();
    const topic = "x".repeat(65_100);
    p.publish(topic, "x", { retain: true, id: 1 });
    await world.advance(200);
    expect(p.take()).toEqual(["puback #1 0x90"]);
    expect(world.store.appended).toEqual([]);
  });
});

describe("message expiry", () => {
  test("the seconds left are sent on", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", durable);
    s.subscribe("t");
    await world.advance();
    s.drop();
    const p = await world.connect("p");
    p.publish("t", "x", { properties: { messageExpiryS: 100, contentType: "text" } });
    await world.advance(30_000);
    const again = await world.connect("s", durable);
    await world.advance();
    const packet = again.packets.find((item) => item.type === "publish");
    expect(packet?.properties).toEqual({ messageExpiryS: 70, contentType: "text" });
  });
});

const full = new CodedError("STORE_DISK_FULL", "limit", "no space", {});
const noQuorum = new CodedError("STORE_NO_QUORUM", "retry", "no leader", {});

describe("what cannot be stored", () => {
  async function start(refusal: CodedError) {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", durable);
    s.subscribe("t");
    await world.advance();
    world.store.refusal = refusal;
    return world;
  }

  test("is held back and goes on in order when the store takes writes again", async () => {
    const world = await start(full);
    const p = await world.connect("p", { cleanStart: true });
    p.say(...[1, 2, 3].map((id) => publishing("t", `m${id}`, { id })));
    await world.advance(14_000);
    expect(p.take()).toEqual([]);
    world.store.recover();
    await world.advance(200);
    expect(p.take()).toEqual(["puback #1", "puback #2", "puback #3"]);
    expect(world.store.appended.map((item) => item.frame.at(-1))).toEqual(
      ["1", "2", "3"].map((text) => text.charCodeAt(0)),
    );
  });

  test("clients that go away while the store refuses leave nothing behind", async () => {
    const world = await start(full);
    for (let round = 0; round < 3; round++) {
      const p = await world.connect("p", { cleanStart: true });
      p.publish("t", "m", { id: 1 });
      await world.advance();
      expect(world.store.listeners.size).toBe(1);
      p.drop();
      await world.advance();
    }
    expect(world.store.listeners.size).toBe(0);
  });

  test("a held repeat that is answered at once does not make the next message be skipped", async () => {
    let allHeldAtOnce = 0;
    // A client with something held is not read: only a chunk with all three shows it.
    for (let seed = 1; seed <= 20; seed++) {
      const world = await BrokerWorld.start({ seed });
      const s = await world.connect("s", durable);
      s.subscribe("t");
      const p = await world.connect("p", durable);
      p.publish("t", "m1", { qos: 2, id: 1 });
      await world.advance();
      p.drop();
      await world.advance();
      world.store.refusal = full;
      const again = await world.connect("p", durable);
      again.take();
      again.say(...[1, 2, 3].map((id) => publishing("t", `m${id}`, { qos: 2, id, dup: true })));
      await world.advance();
      if (world.broker.counters.publishesHeld === 3) allHeldAtOnce++;
      world.store.recover();
      await world.advance(200);
      expect(again.take(), `seed ${seed}`).toEqual(["pubrec #1", "pubrec #2", "pubrec #3"]);
    }
    expect(allHeldAtOnce).toBeGreaterThan(0);
  });

  test.each([
    [full, "0x97"],
    [noQuorum, "0x83"],
  ])("is refused after publishWait: %s", async (refusal, code) => {
    const world = await start(refusal);
    const p = await world.connect("p");
    p.say(publishing("t", "a", { id: 1 }), publishing("t", "b", { qos: 2, id: 2 }));
    await world.advance(14_900);
    expect(p.take()).toEqual([]);
    await world.advance(200);
    expect(p.take()).toEqual([`puback #1 ${code}`, `pubrec #2 ${code}`]);
    expect(p.isClosed).toBe(false);
    expect(world.events("broker.publish_refused")[0]).toMatchObject({ clientId: "p", topic: "t" });
    // The id of the refused QoS 2 message is free: the next one under it is a new message.
    world.store.recover();
    p.publish("t", "c", { qos: 2, id: 2 });
    await world.advance();
    expect(p.take()).toEqual(["pubrec #2"]);
    expect(world.broker.counters.publishesRepeated).toBe(0);
  });

  test("closes a 3.1.1 client, with a log line", async () => {
    const world = await start(full);
    const p = await world.connect("p", { level: 4 });
    p.publish("t", "a", { id: 1 });
    await world.advance(15_100);
    expect(p.isClosed).toBe(true);
    expect(p.take()).toEqual([]);
    expect(world.events("broker.publish_refused")).toMatchObject([
      { clientId: "p", reason: "quota_exceeded" },
    ]);
  });

  test("QoS 0 goes on unstored, is counted, and never closes a client", async () => {
    const world = await start(full);
    const live = await world.connect("live");
    live.subscribe("#");
    const p = await world.connect("p", { level: 4, cleanStart: true });
    p.publish("t", "a", { qos: 0, retain: true });
    await world.advance(20_000);
    expect(live.take()).toEqual(["suback #1 0x01", "publish t a q0"]);
    expect(p.isClosed).toBe(false);
    expect(world.broker.counters.qos0Unstored).toBe(1);
  });

  test("keep alive stands still while a client is not read", async () => {
    const world = await start(full);
    const p = await world.connect("p", { keepAliveS: 2 });
    p.publish("t", "a", { id: 1 });
    await world.advance(10_000);
    expect(p.isClosed).toBe(false);
    world.store.recover();
    await world.advance(1000);
    expect([p.isClosed, p.take()]).toEqual([false, ["puback #1"]]);
    await world.advance(4000);
    expect([p.isClosed, p.take()]).toEqual([true, ["disconnect 0x8d"]]);
  });

  test("the connection is not read while something is held", async () => {
    const world = await start(full);
    const live = await world.connect("live");
    live.subscribe("other", { qos: 0 });
    const p = await world.connect("p");
    await world.advance();
    live.take();
    p.publish("t", "a", { id: 1 });
    await world.advance();
    p.publish("other", "b", { qos: 0 });
    await world.advance(1000);
    expect(live.take()).toEqual([]);
    world.store.recover();
    await world.advance();
    expect(live.take()).toEqual(["publish other b q0"]);
  });

  test("what was held when the connection ended is dropped, not acked, not stored", async () => {
    const world = await start(full);
    const p = await world.connect("p");
    p.publish("t", "a", { id: 1 });
    await world.advance();
    p.drop();
    await world.advance(20_000);
    world.store.recover();
    await world.advance();
    expect(world.store.appended).toEqual([]);
    expect(world.broker.counters.publishesAbandoned).toBe(1);
  });

  test("an append that fails for the moment is tried again in order", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", durable);
    s.subscribe("t");
    const p = await world.connect("p");
    await world.advance();
    world.store.keepsAnswers = true;
    p.say(publishing("t", "1", { id: 1 }), publishing("t", "2", { id: 2 }));
    await world.advance();
    const [first, second] = world.store.kept;
    first!.fail(noQuorum);
    second!.fail(noQuorum);
    world.store.keepsAnswers = false;
    await world.advance(300);
    expect(p.take()).toEqual(["puback #1", "puback #2"]);
  });

  test("a failed append is refused when a later one was stored: order is never turned", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", durable);
    s.subscribe("t");
    const p = await world.connect("p");
    await world.advance();
    world.store.keepsAnswers = true;
    p.say(publishing("t", "1", { id: 1 }), publishing("t", "2", { id: 2 }));
    await world.advance();
    const [first, second] = world.store.kept;
    first!.fail(noQuorum);
    await world.advance(300);
    expect(p.take()).toEqual([]);
    second!.commit();
    await world.advance();
    expect(p.take()).toEqual(["puback #1 0x83", "puback #2"]);
  });

  test("one that was refused for its order is not held with another: the client is read on", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", durable);
    s.subscribe("t");
    const p = await world.connect("p");
    await world.advance();
    world.store.keepsAnswers = true;
    const [one, two, three, four] = [1, 2, 3, 4].map((id) => publishing("t", `${id}`, { id }));
    p.say(one!, two!, three!, four!);
    await world.advance();
    const [first, second, third, fourth] = world.store.kept;
    fourth!.fail(noQuorum);
    third!.commit();
    second!.fail(noQuorum);
    world.store.keepsAnswers = false;
    // All that is behind it has its answer: one drain goes through all four.
    first!.commit();
    await world.advance(300);
    expect(p.take()).toEqual(["puback #1", "puback #2 0x83", "puback #3", "puback #4"]);
    p.publish("t", "5", { id: 5 });
    await world.advance();
    expect(p.take()).toEqual(["puback #5"]);
  });
});
