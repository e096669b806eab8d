// Where other nodes take subscriptions too: nobody hears that a message is unwanted, or may overtake it,
// before all subscriptions that were acked before it are known here.

import { describe, expect, test } from "vitest";
import { CodedError } from "../../../src/base/index.ts";
import { encodePacket } from "../../../src/mqtt/index.ts";
import { encodeMessage, encodeSubscription } from "../../../src/session/core/records.ts";
import { sessionKeys } from "../../../src/session/keys.ts";
import { BrokerWorld } from "../../support/broker-world.ts";
import { publishing, type RawMqtt } from "../../support/raw-mqtt.ts";

/** The barrier of all shards, held by the test. */
class Gate {
  asked = 0;
  /** Whose barriers it holds. */
  of: (shard: number) => boolean = () => true;
  #state: "open" | "closed" | "failing" = "open";
  #waiting: Array<() => void> = [];

  readonly barrier = async (shard: number): Promise<void> => {
    this.asked++;
    if (!this.of(shard)) return;
    if (this.#state === "failing") throw new CodedError("RAFT_NOT_LEADER", "retry", "alone", {});
    if (this.#state === "closed") await new Promise<void>((go) => this.#waiting.push(go));
  };

  close(): void {
    this.#state = "closed";
  }

  fail(): void {
    this.#state = "failing";
  }

  open(): void {
    this.#state = "open";
    for (const go of this.#waiting.splice(0)) go();
  }
}

async function start(settings = {}): Promise<{ world: BrokerWorld; gate: Gate; p: RawMqtt }> {
  const gate = new Gate();
  const world = await BrokerWorld.start({ store: { barrier: gate.barrier }, settings });
  const p = await world.connect("p", { properties: { sessionExpiryS: 3600 } });
  return { world, gate, p };
}

/** A subscription that another node took. */
function subscribedElsewhere(world: BrokerWorld, filter: string): void {
  const options = { noLocal: false, retainAsPublished: false, identifier: 0 } as const;
  const subscription = { filter, qos: 1, retainHandling: 0, ...options } as const;
  const value = encodeSubscription({ subscription, start: new Map() });
  const key = sessionKeys("elsewhere").sub(filter);
  world.store.state("elsewhere").write([{ key, value }], [], () => undefined);
}

const appended = (world: BrokerWorld) =>
  world.store.appended.map(({ topic, keep }) => `${topic} ${keep}`);

describe("a message that nobody here wants", () => {
  test.each([1, 2] as const)("at QoS %i is acked behind a barrier, as unwanted", async (qos) => {
    const { world, gate, p } = await start();
    gate.close();
    p.publish("t", "x", { qos, id: 1 });
    await world.advance(2_000);
    expect(p.take()).toEqual([]);
    gate.open();
    await world.advance();
    expect(p.take()).toEqual([qos === 1 ? "puback #1 0x10" : "pubrec #1 0x10"]);
    expect(appended(world)).toEqual(qos === 1 ? [] : ["t false"]);
  });

  test("is stored when a subscription of another node is seen meanwhile", async () => {
    const { world, gate, p } = await start();
    gate.close();
    p.publish("t", "x", { id: 1 }).publish("t", "y", { qos: 2, id: 2 });
    await world.advance();
    subscribedElsewhere(world, "t");
    await world.advance();
    expect(p.take()).toEqual([]);
    gate.open();
    await world.advance();
    expect(p.take()).toEqual(["puback #1", "pubrec #2"]);
    expect(appended(world)).toEqual(["t true", "t true"]);
  });

  test("is not overtaken by later ones of its publisher, wanted or not", async () => {
    const { world, gate, p } = await start();
    subscribedElsewhere(world, "wanted/#");
    await world.advance();
    gate.close();
    p.publish("t", "1", { id: 1 }).publish("wanted/1", "2", { id: 2 });
    p.publish("u", "3", { id: 3 }).publish("wanted/2", "4", { qos: 2, id: 4 });
    await world.advance();
    expect(appended(world)).toEqual([]);
    subscribedElsewhere(world, "t");
    await world.advance();
    gate.open();
    await world.advance();
    expect(appended(world)).toEqual(["t true", "wanted/1 true", "wanted/2 true"]);
    expect(p.take()).toEqual(["puback #1", "puback #2", "puback #3 0x10", "pubrec #4"]);
  });

  test("shares its round with all that came while another was under way", async () => {
    const { world, gate, p } = await start();
    const shards = world.store.stateShards.length;
    gate.asked = 0;
    gate.close();
    p.publish("t", "first", { id: 1 });
    await world.advance();
    expect(gate.asked).toBe(shards);
    for (let id = 2; id <= 50; id++) p.publish("t", "later", { id });
    await world.advance();
    expect(gate.asked).toBe(shards);
    gate.open();
    await world.advance();
    expect(p.take()).toHaveLength(50);
    expect(gate.asked).toBe(2 * shards);
  });

  test("is refused after publishWait where no quorum answers, and counted", async () => {
    const { world, gate, p } = await start({ publishWaitMs: 3_000 });
    gate.fail();
    p.publish("t", "x", { id: 1 }).publish("t", "y", { qos: 2, id: 2 });
    await world.advance(2_900);
    expect(p.take()).toEqual([]);
    await world.advance(200);
    expect(p.take()).toEqual(["puback #1 0x83", "pubrec #2 0x83"]);
    expect(world.broker.counters.publishesRefused).toBe(2);
    expect(appended(world)).toEqual([]);
    gate.open();
    p.publish("t", "y", { qos: 2, id: 2 });
    await world.advance();
    expect(p.take()).toEqual(["pubrec #2 0x10"]);
  });

  test("is acked when a quorum answers within publishWait", async () => {
    const { world, gate, p } = await start({ publishWaitMs: 3_000 });
    gate.fail();
    p.publish("t", "x", { id: 1 });
    await world.advance(2_000);
    gate.open();
    await world.advance(500);
    expect(p.take()).toEqual(["puback #1 0x10"]);
  });

  test("at QoS 0 waits for nobody", async () => {
    const { world, gate, p } = await start();
    const live = await world.connect("live");
    live.subscribe("t", { qos: 0, retainHandling: 2 });
    await world.advance();
    live.take();
    gate.close();
    p.publish("t", "x", { qos: 0 });
    await world.advance();
    expect(live.take()).toEqual(["publish t x q0"]);
  });
});

describe("a retained message", () => {
  test("is durable as such before it is asked whether it is wanted, and before it is stored", async () => {
    const { world, p } = await start();
    subscribedElsewhere(world, "t");
    await world.advance();
    const order: string[] = [];
    world.store.state("t").watch("retained/", {
      applied: (key) => void order.push(`${key} before append ${world.store.appended.length}`),
      replaced: () => undefined,
    });
    p.publish("t", "x", { id: 1, retain: true }).publish("t", "y", { qos: 2, id: 2, retain: true });
    p.publish("t", "z", { id: 3 });
    await world.advance();
    expect(order).toEqual(["retained/t before append 0", "retained/t before append 1"]);
    expect(world.store.appended.map(({ qos }) => qos)).toEqual([1, 2, 1]);
    expect(p.take()).toEqual(["puback #1", "pubrec #2", "puback #3"]);
  });

  test("that nobody here wants is asked for behind its put", async () => {
    const { world, gate, p } = await start();
    gate.close();
    p.publish("u", "x", { id: 1, retain: true });
    await world.advance();
    const entry = await world.clock.complete(world.store.state("u").get("retained/u"));
    expect(entry).toBeDefined();
    expect(p.take()).toEqual([]);
    subscribedElsewhere(world, "u");
    await world.advance();
    gate.open();
    await world.advance();
    expect(p.take()).toEqual(["puback #1"]);
    expect(appended(world)).toEqual(["u true"]);
  });
});

describe("a subscription", () => {
  test("starts behind what was acked at any node before", async () => {
    const { world, gate, p } = await start();
    subscribedElsewhere(world, "t");
    const s = await world.connect("s", { properties: { sessionExpiryS: 3600 } });
    gate.of = (shard) => world.store.logShards.includes(shard);
    gate.close();
    s.subscribe("t", { qos: 1, retainHandling: 2 });
    await world.advance();
    // Acked elsewhere before the SUBSCRIBE, and applied here after it.
    p.publish("t", "before", { id: 1 });
    await world.advance();
    expect([p.take(), s.take()]).toEqual([["puback #1"], []]);
    gate.open();
    await world.advance();
    p.publish("t", "behind", { id: 2 });
    await world.advance();
    expect(s.take()).toEqual(["suback #1 0x01", "publish t behind q1 #1"]);
  });

  test("takes nothing for newer than itself that may have been retained before it", async () => {
    const { world, gate } = await start();
    const s = await world.connect("s", { properties: { sessionExpiryS: 3600 } });
    gate.of = (shard) => !world.store.logShards.includes(shard);
    gate.close();
    s.subscribe("t", { qos: 1 });
    await world.advance();
    // Retained elsewhere before the SUBSCRIBE, as nobody wanted it, and applied here after its row.
    const frame = encodePacket(publishing("t", "kept", { id: 1, retain: true }), 5);
    const plain = { timeUs: 0, publisher: "x", form: "v5", expiryUs: 0, expiryOffset: 0 } as const;
    const value = encodeMessage({ topic: "t", qos: 1, retain: true, frame, ...plain });
    world.store.state("t").write([{ key: "retained/t", value }], [], () => undefined);
    await world.advance();
    expect(s.take()).toEqual([]);
    gate.open();
    await world.advance();
    expect(s.take()).toEqual(["suback #1 0x01", "publish t kept q1 #1 retain"]);
  });

  test("starts, and is answered, behind barriers; later changes of the session wait for it", async () => {
    const { world, gate } = await start();
    const s = await world.connect("s", { properties: { sessionExpiryS: 3600 } });
    gate.close();
    s.subscribe("t", { qos: 1 });
    s.say({ type: "unsubscribe", packetId: 2, filters: ["t"], properties: {} });
    await world.advance();
    expect(s.take()).toEqual([]);
    gate.open();
    await world.advance();
    expect(s.take()).toEqual(["suback #1 0x01", "unsuback #2 0x00"]);
    expect(world.store.interest.wants("t")).toBe(false);
  });

  test("fails by filter where no quorum answers within subscribeWait", async () => {
    const { world, gate } = await start({ subscribeWaitMs: 2_000 });
    const s = await world.connect("s", { properties: { sessionExpiryS: 3600 } });
    gate.fail();
    s.subscribe("t", { qos: 1 });
    await world.advance(2_100);
    expect(s.take()).toEqual(["suback #1 0x83"]);
    gate.open();
    await world.advance(1_000);
    expect(world.store.interest.wants("t")).toBe(false);
  });

  test("in memory shows what was retained before it only behind a barrier", async () => {
    const { world, gate, p } = await start();
    p.publish("t", "kept", { id: 1, retain: true });
    await world.advance();
    const s = await world.connect("s");
    gate.close();
    s.subscribe("t", { qos: 1 });
    await world.advance();
    expect(s.take()).toEqual([]);
    gate.open();
    await world.advance();
    expect(s.take()).toEqual(["suback #1 0x01", "publish t kept q1 #1 retain"]);
  });
});
