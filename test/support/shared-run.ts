// One random history of a shared group: four members that come and go, publishers, kills and stops.
//
// c0 and c1 are durable at QoS 2, c2 is durable at QoS 1 and gives up its session now and then, c3
// keeps nothing; neither does c4, at QoS 2, which every other history has. What must hold:
// - every acked message reaches somebody, but for what c4 may have had at QoS 2 when it went or the
//   node died: that reaches nobody else;
// - at QoS 2 one client has it, once;
// - what a client has acked at QoS 1 comes to nobody again, but for a crash behind the ack;
// - each client's own rules (session-model.ts).

import { isCodedError, type SeededRandom } from "../../src/base/index.ts";
import { ModelClient } from "./session-model.ts";
import type { World } from "./session-world.ts";

const filter = "$share/g/t/#";

type Member = { readonly qos: 1 | 2; readonly durable: boolean; readonly model: ModelClient };

export class SharedRun {
  readonly world: World;
  readonly faults: string[] = [];
  readonly counts = { published: 0, received: 0, crashes: 0, restarts: 0, takeovers: 0, ended: 0 };
  readonly #members: readonly Member[];
  readonly #acked = new Set<string>();
  /** Payload at QoS 2 -> who has it. */
  readonly #holders = new Map<string, string>();
  /** Payload -> crashes before its PUBACK. */
  readonly #pubacked = new Map<string, number>();
  readonly #published: string[] = [];
  readonly #received = new Set<string>();
  readonly #log: string[] = [];
  #sent = 0;

  /** At QoS 2 and published before c4 went or the node died while c4 was there. */
  readonly #mayEnd = new Set<string>();

  constructor(world: World, hasForgetful = false) {
    this.world = world;
    const kinds: Array<{ readonly qos: 1 | 2; readonly durable: boolean }> = [
      { qos: 2, durable: true },
      { qos: 2, durable: true },
      { qos: 1, durable: true },
      { qos: 1, durable: false },
      ...(hasForgetful ? [{ qos: 2, durable: false } as const] : []),
    ];
    this.#members = kinds.map((kind, n) => {
      const model = new ModelClient(world, `c${n}`, true);
      model.onReceived = (payload) => this.#got(model.client.clientId, payload);
      model.onPuback = (payload) => {
        this.#note(`${model.client.clientId} acks ${payload}`);
        this.#pubacked.set(payload, this.counts.crashes);
      };
      return { ...kind, model };
    });
  }

  get lastEvents(): string {
    return this.#log.slice(-60).join("\n");
  }

  async begin(): Promise<void> {
    for (const member of this.#members) await this.#join(member, 100);
  }

  async step(random: SeededRandom): Promise<void> {
    const member = random.pick(this.#members);
    const { model } = member;
    const dice = random.below(42);
    if (dice < 14) this.#publish(random.below(3), random.pick([1, 2] as const));
    else if (dice < 21) await this.world.advance(random.pick([0, 0.5, 1, 2, 5, 60, 3000]));
    else if (dice < 25) await this.#join(member, random.pick([1, 2, 5, 100]));
    else if (dice < 28) await this.#leave(member, random.pick(["drop", "disconnect"] as const));
    else if (dice < 33) model.answerAll();
    else if (dice < 38) model.answer(random.below(10));
    else if (dice < 39 && model.client.connected) model.client.drain(random.pick([0, 1, 3, 1000]));
    else if (dice < 40) await this.#crash(random.below(4));
    else if (dice < 41) await this.#endSession();
    else await this.#restart();
  }

  /** Everybody comes back and answers everything. */
  async finish(): Promise<void> {
    for (const member of this.#members) await this.#join(member, 3);
    await this.world.advance(6000);
    for (let quiet = 0; quiet < 3; ) {
      await this.world.advance(100);
      const owed = this.#members.reduce((sum, { model }) => sum + model.owedCount, 0);
      quiet = owed === 0 ? quiet + 1 : 0;
      for (const { model } of this.#members) model.answerAll();
    }
    await this.world.advance(1000);
    for (const payload of this.#acked) {
      if (this.#received.has(payload) || this.#mayEnd.has(payload)) continue;
      this.#fault(`${payload} was lost`);
    }
    for (const key of await this.#recordsLeft()) this.#fault(`left: ${key}`);
    for (const { model } of this.#members) this.faults.push(...model.faults);
  }

  #got(clientId: string, payload: string): void {
    this.counts.received++;
    this.#note(`${clientId} gets ${payload}`);
    this.#received.add(payload);
    const pubacked = this.#pubacked.get(payload);
    if (pubacked === this.counts.crashes) this.#fault(`${payload} came again after its PUBACK`);
    if (!payload.endsWith("q2")) return;
    const holder = this.#holders.get(payload);
    const isQos2 = ["c0", "c1", "c4"].includes(clientId);
    if (!isQos2) return;
    if (holder !== undefined) this.#fault(`${payload} of ${holder} came to ${clientId} at QoS 2`);
    this.#holders.set(payload, clientId);
  }

  #publish(publisher: number, qos: 1 | 2): void {
    const payload = `p${publisher}-${this.#sent++}q${qos}`;
    this.counts.published++;
    this.#published.push(payload);
    this.world
      .publishLater(`p${publisher}`, `t/${publisher}`, payload, { qos })
      .then(() => this.#acked.add(payload))
      .catch((error) => {
        if (!isCodedError(error, "STORE_CLOSED")) this.#fault(String(error));
      });
  }

  async #join({ model, qos, durable }: Member, receiveMaximum: number): Promise<void> {
    const { client } = model;
    this.#note(`${client.clientId} connects`);
    if (client.connected) this.counts.takeovers++;
    this.#forgetfulGoes(client.clientId);
    client.room = Number.POSITIVE_INFINITY;
    if (!durable) model.forgetSession();
    await model.connect({ receiveMaximum, expiryS: durable ? 3600 : 0 });
    if (!client.sessionPresent) await client.subscribe(filter, { qos });
  }

  async #leave({ model }: Member, how: "drop" | "disconnect"): Promise<void> {
    if (!model.client.connected) return;
    this.#note(`${model.client.clientId} ${how}s`);
    this.#forgetfulGoes(model.client.clientId);
    await model.client[how]();
  }

  /** At QoS 1 a session takes nothing with it. */
  async #endSession(): Promise<void> {
    const { model } = this.#members[2]!;
    if (!model.client.connected) return;
    this.#note("c2 gives up its session");
    this.counts.ended++;
    await model.client.drop(0);
    model.forgetSession();
  }

  async #crash(flushed: number): Promise<void> {
    this.#note("crash");
    this.counts.crashes++;
    for (const { model } of this.#members) model.crashed = true;
    this.#forgetfulGoes("c4");
    await this.world.crash(flushed);
  }

  async #restart(): Promise<void> {
    this.#note("restart");
    this.counts.restarts++;
    this.#forgetfulGoes("c4");
    await this.world.restart();
  }

  #forgetfulGoes(clientId: string): void {
    if (clientId !== "c4" || !this.#members[4]?.model.client.connected) return;
    for (const payload of this.#published) if (payload.endsWith("q2")) this.#mayEnd.add(payload);
  }

  async #recordsLeft(): Promise<string[]> {
    const left: string[] = [];
    for (const shard of this.world.anyStore.stateShards) {
      for (const prefix of ["session/", "group/"]) {
        const listing = shard.list(prefix, { countMax: 1000 });
        for (const { key } of await this.world.clock.complete(listing)) {
          if (key.includes("/out/")) left.push(key);
        }
      }
    }
    return left;
  }

  #note(text: string): void {
    this.#log.push(`${this.world.clock.elapsedMs().toFixed(2)} ${text}`);
  }

  #fault(text: string): void {
    this.#note(`FAULT ${text}`);
    this.faults.push(text);
  }
}
