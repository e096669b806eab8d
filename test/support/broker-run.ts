// One random history of a whole broker: durable subscribers and publishers of all kinds on one
// simulated machine whose processes are killed, whose power is cut, and whose links break. In the
// end everybody is connected, everything is answered, and the books are compared:
//
// - what a publisher got an ack for has reached every durable subscriber of it;
// - a message of QoS 2 on both sides was new once, however often links broke and brokers died;
// - repeats carry DUP and come on new connections only; ids under way are not given away;
// - first deliveries of one publisher keep its order; acks keep theirs;
// - the retained message is the last one acked, or a later one.

import { SeededRandom } from "../../src/base/index.ts";
import { BrokerWorld } from "./broker-world.ts";
import { topicMatches } from "./fake-store.ts";
import { type Sent, WirePublisher, WireSubscriber } from "./wire-clients.ts";

const topics = ["a/1", "a/2", "b", "b/c"];
const retainedTopic = "r";

export const runCountsZero = {
  operations: 0,
  published: 0,
  acked: 0,
  delivered: 0,
  kills: 0,
  powerCuts: 0,
  restarts: 0,
  drops: 0,
};
export type RunCounts = typeof runCountsZero;

export class BrokerRun {
  readonly faults: string[] = [];
  readonly counts: RunCounts = { ...runCountsZero };
  readonly #seed: number | string;
  readonly #random: SeededRandom;
  #world: BrokerWorld | undefined;
  #publishers: WirePublisher[] = [];
  #subscribers: WireSubscriber[] = [];

  constructor(seed: number | string) {
    this.#seed = seed;
    this.#random = new SeededRandom(`broker run ${seed}`);
  }

  async run(operations: number, deaths: number): Promise<void> {
    await this.#start();
    const perLife = Math.ceil(operations / (deaths + 1));
    for (let life = 0; life <= deaths; life++) {
      for (let n = 0; n < perLife; n++) await this.#operate();
      if (life < deaths) await this.#die();
    }
    await this.#finish();
    await this.#compare();
  }

  get #w(): BrokerWorld {
    return this.#world as BrokerWorld;
  }

  async #start(): Promise<void> {
    const world = await BrokerWorld.start({ seed: this.#seed, sessions: { inflightMax: 20 } });
    this.#world = world;
    const fault = (text: string) => {
      this.faults.push(`${text} (operation ${this.counts.operations})`);
    };
    this.#publishers = [
      new WirePublisher(world, { clientId: "p0", level: 5, durable: true }, fault),
      new WirePublisher(world, { clientId: "p1", level: 4, durable: true }, fault),
      new WirePublisher(world, { clientId: "p2", level: 5, durable: false }, fault),
    ];
    const five = { level: 5, durable: true } as const;
    this.#subscribers = [
      new WireSubscriber(
        world,
        { ...five, clientId: "s0", receiveMaximum: 5 },
        [{ filter: "#", qos: 2 }],
        fault,
      ),
      new WireSubscriber(
        world,
        { clientId: "s1", level: 4, durable: true },
        [{ filter: "a/+", qos: 1 }],
        fault,
      ),
      new WireSubscriber(
        world,
        { ...five, clientId: "s2" },
        [
          { filter: "a/#", qos: 1 },
          { filter: "a/1", qos: 2 },
          { filter: "b/#", qos: 2 },
        ],
        fault,
      ),
    ];
    for (const subscriber of this.#subscribers) subscriber.now = () => this.counts.operations;
  }

  get #everybody() {
    return [...this.#publishers, ...this.#subscribers];
  }

  async #operate(): Promise<void> {
    const random = this.#random;
    this.counts.operations++;
    const dice = random.below(100);
    if (dice < 45) this.#publish();
    else if (dice < 70) for (const each of this.#subscribers) this.#answerSome(each);
    else if (dice < 78) random.pick(this.#everybody).connect();
    else if (dice < 84) for (const client of this.#everybody) client.connect();
    else if (dice < 87) this.#dropOne();
    if (random.chance(0.5)) await this.#w.advance(random.below(8));
    else if (random.chance(0.1)) await this.#w.advance(random.below(200));
  }

  #publish(): void {
    const random = this.#random;
    const publisher = random.pick(this.#publishers);
    const [first] = this.#publishers;
    for (let n = random.between(1, 5); n > 0; n--) {
      const at = this.counts.operations;
      const qos = random.pick([0, 1, 1, 2, 2] as const);
      if (publisher === first && random.chance(0.1)) {
        publisher.publish(retainedTopic, qos === 0 ? 1 : qos, true, at);
      } else {
        publisher.publish(random.pick(topics), qos, false, at);
      }
    }
  }

  #answerSome(subscriber: WireSubscriber): void {
    for (let n = this.#random.below(8); n > 0; n--) subscriber.answer(this.#random.below(20));
  }

  #dropOne(): void {
    this.counts.drops++;
    const client = this.#random.pick(this.#everybody);
    client.drop();
    // Often it is back before the broker has noticed: a takeover.
    if (this.#random.chance(0.5)) client.connect();
  }

  async #die(): Promise<void> {
    const random = this.#random;
    await this.#w.advance(random.below(30) / 10);
    if (random.chance(0.15)) {
      this.counts.restarts++;
      await this.#w.restart();
      return;
    }
    const isPower = random.chance(0.5);
    if (isPower) this.counts.powerCuts++;
    else this.counts.kills++;
    this.#w.die(isPower ? "power" : "kill");
    // Nobody tells the clients of a machine without power: they find out.
    for (const client of this.#everybody) client.drop();
    await this.#w.advance(random.below(50));
    await this.#w.open();
  }

  async #finish(): Promise<void> {
    for (let round = 0; round < 400; round++) {
      for (const client of this.#everybody) client.connect();
      for (const subscriber of this.#subscribers) {
        while (subscriber.isReady && subscriber.owedCount > 0) subscriber.answer(0);
      }
      await this.#w.advance(20);
      if (round > 60 && this.#isQuiet()) return;
    }
    this.faults.push("clients do not come to rest");
  }

  #isQuiet(): boolean {
    return (
      this.#everybody.every((client) => client.isReady) &&
      this.#subscribers.every((subscriber) => subscriber.owedCount === 0) &&
      this.#publishers.every((publisher) => publisher.unfinishedCount === 0)
    );
  }

  async #compare(): Promise<void> {
    for (const publisher of this.#publishers) {
      for (const sent of publisher.sent) {
        this.counts.published++;
        if (sent.acked) this.counts.acked++;
        for (const subscriber of this.#subscribers) this.#compareOne(sent, subscriber);
      }
    }
    await this.#compareRetained();
    await this.#w.clock.complete(this.#w.broker.close());
  }

  #compareOne(sent: Sent, subscriber: WireSubscriber): void {
    if (sent.retain) return;
    const name = `${sent.publisher}-${sent.number}`;
    const count = subscriber.news.get(name) ?? 0;
    this.counts.delivered += count;
    const matching = subscriber.filters.filter((item) => topicMatches(item.filter, sent.topic));
    const isOwed = matching.some((item) => item.since !== undefined && item.since < sent.at);
    const { clientId } = subscriber.options;
    if (count === 0 && sent.acked && isOwed) this.faults.push(`${clientId}: ${name} was lost`);
    const isExact = sent.qos === 2 && matching.every((item) => item.qos === 2);
    if (count > 1 && isExact) this.faults.push(`${clientId}: ${name} came ${count} times`);
  }

  async #compareRetained(): Promise<void> {
    const all = this.#publishers.flatMap((publisher) => publisher.sent);
    const sent = all.filter((item) => item.retain);
    const last = sent.findLast((item) => item.acked);
    const reader = await this.#w.connect("reader", { cleanStart: true });
    reader.subscribe(retainedTopic);
    await this.#w.advance(300);
    const publish = reader.packets.find((packet) => packet.type === "publish");
    const number = Number(publish?.payload.toString().split("-")[1] ?? -1);
    if (last !== undefined && number < last.number) {
      this.faults.push(`retained is ${number}, acked was ${last.number}`);
    }
  }
}
