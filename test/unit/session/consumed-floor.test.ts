import { expect, test } from "vitest";
import { consumedFloors } from "../../../src/session/consumed-floor.ts";
import {
  encodeAssigned,
  encodeCursor,
  encodeGroup,
  encodeInFlight,
  encodeSubscription,
} from "../../../src/session/core/records.ts";
import { groupKeys, sessionKeys } from "../../../src/session/keys.ts";
import type { LocalStore, MapWrite } from "../../../src/store/index.ts";
import { append, appendRequest } from "../../support/store-calls.ts";
import { StoreMachine } from "../../support/store-machine.ts";

const subscription = (filter: string, qos: 0 | 1 | 2 = 1) =>
  encodeSubscription({
    subscription: {
      ...{ filter, qos, noLocal: false, retainAsPublished: false },
      ...{ retainHandling: 0, identifier: 0 },
    },
    start: new Map(),
  });

class World {
  readonly machine = new StoreMachine({ seed: 8, store: { shards: 1, stateShards: 2 } });
  store!: LocalStore;
  shard = 0;

  async boot(): Promise<void> {
    ({ store: this.store } = await this.machine.boot());
    this.shard = this.store.logShards[0]!;
  }

  async put(topic: string): Promise<number> {
    const outcome = await this.machine.clock.complete(
      append(this.store, appendRequest(topic, "x")),
    );
    return outcome.kind === "stored" ? outcome.timeUs : 0;
  }

  async write(clientId: string, writes: readonly MapWrite[]): Promise<void> {
    await this.machine.clock.complete(
      new Promise<void>((resolve) => {
        this.store.state(clientId).write(writes, [], () => resolve());
      }),
    );
  }

  async session(clientId: string, filter: string, cursorUs: number): Promise<void> {
    const keys = sessionKeys(clientId);
    const cursor = { positions: new Map([[this.shard, cursorUs]]), dropped: 0 };
    await this.write(clientId, [
      { key: keys.claim, value: Buffer.from([1]) },
      { key: keys.cursor, value: encodeCursor(cursor) },
      { key: keys.sub(filter), value: subscription(filter) },
    ]);
    this.store.interest.add(filter, new Map());
  }

  async floor(): Promise<number | undefined> {
    return (await this.machine.clock.complete(consumedFloors(this.store))).get(this.shard);
  }
}

test("without sessions all is consumed; a session is owed what matched above its cursor", async () => {
  const world = new World();
  await world.boot();
  const firstUs = await world.put("a");
  const lastUs = await world.put("b");
  expect(await world.floor()).toBe(lastUs);
  await world.session("reader", "#", firstUs);
  const matchedUs = await world.put("a");
  expect(await world.floor()).toBe(firstUs);
  await world.session("reader", "#", matchedUs);
  expect(await world.floor()).toBe(matchedUs);
});

test("a sparse session whose filter has not matched since owes nothing, however old its cursor", async () => {
  const world = new World();
  await world.boot();
  const firstUs = await world.put("a");
  await world.session("sparse", "rare/#", firstUs);
  for (let n = 0; n < 5; n++) await world.put("a");
  expect(await world.floor()).toBe(world.store.tail().get(world.shard));
  const rareUs = await world.put("rare/1");
  await world.put("a");
  expect(await world.floor()).toBe(firstUs);
  expect(rareUs).toBeGreaterThan(firstUs);
});

test("an unfinished message is owed below the cursor; one granted QoS 0 owes nothing", async () => {
  const world = new World();
  await world.boot();
  const firstUs = await world.put("a");
  const secondUs = await world.put("a");
  const lastUs = await world.put("a");
  await world.session("c", "a", lastUs);
  const record = {
    ...({ packetId: 1, qos: 1, retain: false, sent: true, released: false } as const),
    ...{ sizeBytes: 1, identifiers: [] },
    source: {
      kind: "log",
      ref: { shard: world.shard, generation: 1, stream: 1, timeUs: secondUs },
    } as const,
  };
  await world.write("c", [{ key: sessionKeys("c").out(1), value: encodeInFlight(record) }]);
  expect(await world.floor()).toBe(secondUs - 1);
  await world.write("c", [{ key: sessionKeys("c").out(1), value: undefined }]);
  const keys = sessionKeys("d");
  await world.write("d", [
    { key: keys.cursor, value: encodeCursor({ positions: new Map(), dropped: 0 }) },
    { key: keys.sub("a"), value: subscription("a", 0) },
  ]);
  expect(await world.floor()).toBe(lastUs);
  expect(firstUs).toBeLessThan(lastUs);
});

test("many sessions over many pages each count, whatever their client ids", async () => {
  const world = new World();
  await world.boot();
  await world.put("a");
  const ids = ["", "a", "a/b", "a+", "A", "\u00e9", "%", "a\u0001b", "z".repeat(2_000)];
  for (let n = 0; n < 1_200; n++) ids.push(`client-${n}`);
  const tailUs = world.store.tail().get(world.shard)!;
  for (const id of ids) await world.session(id, "a", tailUs);
  const matchedUs = await world.put("a");
  expect(await world.floor()).toBe(tailUs);
  for (const id of ids) await world.session(id, "a", matchedUs);
  expect(await world.floor()).toBe(matchedUs);
  for (const id of [ids[2]!, ids[8]!, "client-777"]) {
    await world.session(id, "a", tailUs);
    expect(await world.floor()).toBe(tailUs);
    await world.session(id, "a", matchedUs);
  }
});

test("a durable shared group is owed what matched above its cursor, and what members hold", async () => {
  const world = new World();
  await world.boot();
  const firstUs = await world.put("a");
  const secondUs = await world.put("a");
  const lastUs = await world.put("a");
  const name = "$share/g/a";
  const keys = groupKeys(name);
  // Its members count with it alone.
  await world.write("m", [
    { key: sessionKeys("m").cursor, value: encodeCursor({ positions: new Map(), dropped: 0 }) },
    { key: sessionKeys("m").sub(name), value: subscription(name, 1) },
  ]);
  world.store.interest.add("a", new Map());
  const at = async (timeUs: number) => {
    const positions = new Map([[world.shard, timeUs]]);
    await world.write(name, [
      { key: keys.claim, value: encodeGroup(name) },
      { key: keys.cursor, value: encodeCursor({ positions, dropped: 0 }) },
    ]);
  };
  await at(firstUs);
  expect(await world.floor()).toBe(firstUs);
  await at(lastUs);
  expect(await world.floor()).toBe(lastUs);
  const ref = { shard: world.shard, generation: 1, stream: 1, timeUs: secondUs };
  const value = encodeAssigned({ ref, qos: 1, clientId: "m", sent: true });
  await world.write(name, [{ key: keys.out(1), value }]);
  expect(await world.floor()).toBe(secondUs - 1);
});
