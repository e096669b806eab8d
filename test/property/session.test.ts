// Random conversations with durable sessions, their disconnects, crashes and restarts, watched by
// the model of what a client may rely on.

import fc from "fast-check";
import { expect, test } from "vitest";
import { isCodedError } from "../../src/base/index.ts";
import { storeError } from "../support/fake-store.ts";
import { ModelClient } from "../support/session-model.ts";
import { World } from "../support/session-world.ts";

type Operation =
  | {
      readonly kind: "publish";
      readonly publisher: number;
      readonly topic: number;
      readonly qos: 1 | 2;
    }
  | { readonly kind: "advance"; readonly ms: number }
  | { readonly kind: "connect"; readonly client: number; readonly receiveMaximum: number }
  | { readonly kind: "drop" | "disconnect" | "answerAll" | "toggle"; readonly client: number }
  | { readonly kind: "answer"; readonly client: number; readonly index: number }
  | { readonly kind: "room"; readonly client: number; readonly packets: number }
  | { readonly kind: "crash"; readonly flushed: number }
  | { readonly kind: "failWrites"; readonly ms: number }
  | { readonly kind: "restart" };

const clientCount = 2;
const client = fc.nat(clientCount - 1);

const operation: fc.Arbitrary<Operation> = fc.oneof(
  {
    weight: 10,
    arbitrary: fc.record({
      kind: fc.constant("publish" as const),
      publisher: fc.nat(2),
      topic: fc.nat(1),
      qos: fc.constantFrom(1 as const, 2 as const),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant("advance" as const),
      ms: fc.constantFrom(0, 0.5, 1, 2, 5, 60, 3000),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant("connect" as const),
      client,
      receiveMaximum: fc.constantFrom(1, 2, 5, 100),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constantFrom("drop" as const, "disconnect" as const, "toggle" as const),
      client,
    }),
  },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant("answerAll" as const), client }) },
  {
    weight: 6,
    arbitrary: fc.record({ kind: fc.constant("answer" as const), client, index: fc.nat(10) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("room" as const),
      client,
      packets: fc.constantFrom(0, 1, 3, 1000),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("crash" as const), flushed: fc.nat(3) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("failWrites" as const),
      ms: fc.constantFrom(1, 20, 400),
    }),
  },
  { weight: 1, arbitrary: fc.constant({ kind: "restart" as const }) },
);

class Run {
  readonly world: World;
  readonly models: ModelClient[];
  /** Payloads whose publish was acked, with their QoS. */
  readonly acked = new Map<string, 1 | 2>();
  readonly #toggled = new Set<number>();
  #sent = 0;

  constructor(world: World) {
    this.world = world;
    this.models = Array.from({ length: clientCount }, (_, n) => new ModelClient(world, `c${n}`));
  }

  /** Client 0 wants everything at QoS 2, client 1 at QoS 1. */
  async begin(): Promise<void> {
    for (const [index, model] of this.models.entries()) {
      await model.connect({});
      await model.client.subscribe("#", { qos: index === 0 ? 2 : 1 });
    }
  }

  async apply(operation: Operation): Promise<void> {
    switch (operation.kind) {
      case "publish":
        this.#publish(operation.publisher, operation.topic, operation.qos);
        return;
      case "advance":
        await this.world.advance(operation.ms);
        return;
      case "crash":
        for (const model of this.models) model.crashed = true;
        await this.world.crash(operation.flushed);
        return;
      case "restart":
        await this.world.restart();
        return;
      case "failWrites":
        this.#failWrites(operation.ms);
        return;
      default:
        await this.#applyToClient(operation, this.models[operation.client]!);
    }
  }

  async #applyToClient(
    operation: Exclude<
      Operation,
      { kind: "publish" | "advance" | "crash" | "restart" | "failWrites" }
    >,
    model: ModelClient,
  ): Promise<void> {
    if (operation.kind === "connect") {
      model.client.room = Number.POSITIVE_INFINITY;
      await this.#connect(model, operation.receiveMaximum);
      return;
    }
    if (!model.client.connected) return;
    if (operation.kind === "drop") await model.client.drop();
    else if (operation.kind === "disconnect") await model.client.disconnect();
    else if (operation.kind === "answer") model.answer(operation.index);
    else if (operation.kind === "answerAll") model.answerAll();
    else if (operation.kind === "room") model.client.drain(operation.packets);
    else await this.#toggle(operation.client, model);
  }

  /** A second, narrower filter comes and goes: it must not cost or double a message. */
  async #toggle(index: number, model: ModelClient): Promise<void> {
    if (!this.#toggled.has(index)) {
      const { reasonCode } = await model.client.subscribe("t/0", { qos: 2 });
      if (reasonCode < 0x80) this.#toggled.add(index);
      return;
    }
    const existed = await model.client.unsubscribe("t/0").catch(() => undefined);
    if (existed !== undefined) this.#toggled.delete(index);
  }

  async #connect(model: ModelClient, receiveMaximum: number): Promise<void> {
    try {
      await model.connect({ receiveMaximum });
    } catch (error) {
      if (!isCodedError(error, "STORE_RETRY")) throw error;
      model.client.forget();
    }
  }

  /** An end whose state could not be written is like a crash to the client. */
  #failWrites(ms: number): void {
    const { store } = this.world;
    for (const model of this.models) model.crashed = true;
    store.failWrites = storeError("STORE_RETRY", "retry");
    this.world.clock.schedule(ms, () => {
      store.failWrites = undefined;
    });
  }

  #publish(publisher: number, topic: number, qos: 1 | 2): void {
    const payload = `p${publisher}-${this.#sent++}`;
    this.world
      .publishLater(`p${publisher}`, `t/${topic}`, payload, { qos })
      .then(() => this.acked.set(payload, qos))
      .catch((error) => this.models[0]!.faults.push(String(error)));
  }

  /** Everybody comes back and answers everything. */
  async finish(): Promise<void> {
    this.world.store.failWrites = undefined;
    for (const model of this.models) {
      model.client.room = Number.POSITIVE_INFINITY;
      await model.connect({ receiveMaximum: 3 });
    }
    // The longest wait before a failed write is tried again.
    await this.world.advance(6000);
    for (let quiet = 0; quiet < 3; ) {
      await this.world.advance(100);
      const owed = this.models.reduce((sum, model) => sum + model.owedCount, 0);
      quiet = owed === 0 ? quiet + 1 : 0;
      for (const model of this.models) model.answerAll();
    }
    await this.world.advance(1000);
    for (const [payload, qos] of this.acked) {
      this.models[0]!.check(payload, qos === 2);
      this.models[1]!.check(payload, false);
    }
  }

  faults(): string[] {
    const left = this.world.store.stateShards.flatMap((shard) =>
      shard.keys().filter((key) => key.includes("/out/")),
    );
    return [...this.models.flatMap((model) => model.faults), ...left.map((key) => `left: ${key}`)];
  }
}

test("nothing is lost, QoS 2 comes once, order, DUP and ids keep their rules", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(operation, { minLength: 5, maxLength: 80, size: "max" }),
      fc.record({
        wake: fc.constantFrom("now" as const, "soon" as const),
        commitMs: fc.constantFrom(0.5, 3),
        logShards: fc.constantFrom(1, 2),
        stateShards: fc.constantFrom(1, 2),
      }),
      async (operations, store) => {
        const settings = { inflightMax: 20, checkpointDelayMs: 10 };
        const run = new Run(await World.start({ store, settings }));
        await run.begin();
        for (const operation of operations) await run.apply(operation);
        await run.finish();
        expect(run.faults()).toEqual([]);
      },
    ),
    { numRuns: Number(process.env.SESSION_RUNS ?? 150) },
  );
}, 120_000);
