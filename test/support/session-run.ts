// One random history of two durable sessions over any store: what is done, and what must hold at its
// end. Client 0 wants everything at QoS 2, client 1 at QoS 1; a second, narrower filter comes and
// goes.

import { isCodedError, type SeededRandom } from "../../src/base/index.ts";
import { storeError } from "./fake-store.ts";
import { ModelClient } from "./session-model.ts";
import type { World } from "./session-world.ts";

export type Operation =
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

export const sessionClients = 2;

/** One operation drawn from a seed, in about the same proportions as the property test. */
export function drawOperation(random: SeededRandom): Operation {
  const client = random.below(sessionClients);
  const dice = random.below(41);
  if (dice < 14) {
    const qos = random.pick([1, 2] as const);
    return { kind: "publish", publisher: random.below(3), topic: random.below(2), qos };
  }
  if (dice < 21) return { kind: "advance", ms: random.pick([0, 0.5, 1, 2, 5, 60, 3000]) };
  if (dice < 24) return { kind: "connect", client, receiveMaximum: random.pick([1, 2, 5, 100]) };
  if (dice < 27) return { kind: random.pick(["drop", "disconnect", "toggle"] as const), client };
  if (dice < 32) return { kind: "answerAll", client };
  if (dice < 38) return { kind: "answer", client, index: random.below(10) };
  if (dice < 39) return { kind: "room", client, packets: random.pick([0, 1, 3, 1000]) };
  if (dice < 40) return { kind: "crash", flushed: random.below(4) };
  return random.chance(0.5) ? { kind: "restart" } : { kind: "advance", ms: 20 };
}

export class SessionRun {
  readonly world: World;
  readonly models: ModelClient[];
  /** Payloads whose publish was acked, with their QoS. */
  readonly acked = new Map<string, 1 | 2>();
  readonly #toggled = new Set<number>();
  #sent = 0;
  #left: string[] = [];

  constructor(world: World) {
    this.world = world;
    this.models = Array.from({ length: sessionClients }, (_, n) => new ModelClient(world, `c${n}`));
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
      .catch((error) => {
        // Told at a stop: it was not acked, and nobody counts on it.
        if (!isCodedError(error, "STORE_CLOSED")) this.models[0]!.faults.push(String(error));
      });
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
    this.#left = await this.#recordsLeft();
    for (const [payload, qos] of this.acked) {
      this.models[0]!.check(payload, qos === 2);
      this.models[1]!.check(payload, false);
    }
  }

  /** In-flight records although everything was answered. */
  async #recordsLeft(): Promise<string[]> {
    const left: string[] = [];
    for (const shard of this.world.anyStore.stateShards) {
      const listing = shard.list("session/", { countMax: 1000 });
      for (const { key } of await this.world.clock.complete(listing)) {
        if (key.includes("/out/")) left.push(key);
      }
    }
    return left;
  }

  faults(): string[] {
    const left = this.#left;
    return [...this.models.flatMap((model) => model.faults), ...left.map((key) => `left: ${key}`)];
  }
}
