// One random history of a whole node and a crowd of clients, decided by one seed: publishers at every
// QoS and level, durable subscribers (online, mostly offline, taking over, changing their minds),
// expiry-0 sessions, wills, retained messages; rotations and checkpoints; kills and power cuts at
// random moments, inside named phases and while starting; full disks, resets, silent links.
//
// In the end everybody is connected, everything is answered, and the books are closed: see
// `subscription-oracle.ts` for what must hold. `result` has a hash of all that clients saw.

import { hash32, SeededRandom } from "../../src/base/index.ts";
import type { LocalStore } from "../../src/store/index.ts";
import { type Aim, aimedPhases, BrokerMachine, brokerHost } from "./broker-machine.ts";
import type { Crowd, CrowdClient } from "./crowd-client.ts";
import { CrowdPublisher } from "./crowd-publisher.ts";
import { CrowdSubscriber } from "./crowd-subscriber.ts";
import { type HistoryCounts, historyCountsZero } from "./history-counts.ts";
import { formatMessage, type Message, SubscriptionOracle } from "./subscription-oracle.ts";

const plainTopics = ["a/1", "a/2", "b", "b/c"];
/**
 * Each has one publisher and one QoS, so that the order of sending is the order of the values: a
 * QoS 1 message that is sent again may overtake a QoS 2 one, whose repeat changes nothing.
 */
const retainedTopics = new Map([
  ["p5", { topic: "r/1", qos: 1 }],
  ["p4", { topic: "r/2", qos: 2 }],
] as const);

/** Events that a failure shows at least. */
const linesKept = Number(process.env.FLAGSTONE_SIM_LINES ?? 40);
/** How long refusals are right after the disk has room again: longer than every wait. */
const shortMs = 20_000;
const restMsMax = 60_000;
/** A write of session state that failed is tried again within 5 s. */
const recordsGoneMs = 7_000;
/** Longer than every wait of a broker for its store. */
const longFullMs = 16_000;

export class BrokerHistory {
  readonly faults: string[] = [];
  readonly counts: HistoryCounts = historyCountsZero();
  readonly machine: BrokerMachine;
  readonly oracle: SubscriptionOracle;
  readonly #random: SeededRandom;
  readonly #publishers: CrowdPublisher[];
  readonly #subscribers: CrowdSubscriber[];
  readonly #lines: string[] = [];
  #faultLines: readonly string[] | undefined;
  #hash = 0;
  #shortUntilMs = -1;
  #isStopping = false;
  #healings: Array<() => void> = [];
  #aim: Aim | undefined;
  #noted = 0;

  constructor(seed: number | string) {
    this.#random = new SeededRandom(`history ${seed}`);
    this.machine = new BrokerMachine(`machine ${seed}`);
    this.oracle = new SubscriptionOracle((text) => this.#fault(text));
    const crowd = this.#createCrowd();
    this.#publishers = createPublishers(crowd);
    this.#subscribers = createSubscribers(crowd);
    for (const subscriber of this.#subscribers) {
      subscriber.onRetained = (topic, message) => this.#checkRetained(subscriber, topic, message);
    }
  }

  get hash(): number {
    return this.#hash;
  }

  /** The last events, up to the first fault if there was one, for who reads a failure. */
  get lastLines(): readonly string[] {
    return this.#faultLines ?? this.#lines;
  }

  async run(operations: number, lives: number): Promise<void> {
    await this.#start();
    const perLife = Math.ceil(operations / lives);
    for (let life = 1; life <= lives; life++) {
      this.#takeAim();
      for (let n = 0; n < perLife; n++) {
        await this.#operate();
        if (this.machine.isAlive) continue;
        this.#countDeath(this.#aim);
        await this.#restart();
      }
      if (life < lives) await this.#endLife();
    }
    await this.#finish();
  }

  // -------------------------------------------------------------- lives

  /** Until the node is ready; now and then it dies on the way. */
  async #start(): Promise<void> {
    const { machine } = this;
    for (;;) {
      machine.begin();
      if (this.#random.chance(0.25)) {
        await machine.clock.advance(this.#random.between(0, 20));
        if (machine.node === undefined) {
          this.#die(this.#drawDeath());
          this.counts.recoveryDeaths++;
          continue;
        }
      }
      await machine.ready();
      if (machine.node !== undefined) break;
      this.#countDeath(this.#aim);
    }
    this.#note("-- the node is ready");
  }

  #takeAim(): void {
    this.#aim = undefined;
    if (!this.#random.chance(0.7)) return;
    const phase = this.#random.pick(aimedPhases);
    this.#aim = { phase, count: this.#random.between(1, 4), death: this.#drawDeath() };
    this.machine.aim(this.#aim);
  }

  async #endLife(): Promise<void> {
    const { clock } = this.machine;
    this.#sumCounters();
    if (this.#random.chance(0.15)) {
      this.#heal();
      this.#note("-- SIGTERM");
      if (await this.#stop()) this.counts.stops++;
      else this.#countDeath(this.#aim);
    } else {
      await clock.advance(this.#random.below(30) / 10);
      if (this.machine.isAlive) this.#die(this.#drawDeath());
      else this.#countDeath(this.#aim);
    }
    await this.#restart();
  }

  async #stop(): Promise<boolean> {
    this.#isStopping = true;
    const isDone = await this.machine.stop();
    this.#isStopping = false;
    return isDone;
  }

  async #restart(): Promise<void> {
    const { clock } = this.machine;
    this.#heal();
    // A machine without power tells nobody: each client finds out in its own time.
    for (const client of this.#everybody) {
      clock.schedule(this.#random.below(60), () => client.drop());
    }
    await clock.advance(this.#random.below(60));
    await this.#start();
  }

  #drawDeath(): "kill" | "power" {
    return this.#random.chance(0.5) ? "kill" : "power";
  }

  #die(death: "kill" | "power"): void {
    this.#note(`-- ${death}`);
    if (death === "kill") this.counts.kills++;
    else this.counts.powerCuts++;
    this.machine.die(death);
  }

  #countDeath(aim: Aim | undefined): void {
    if (aim === undefined) {
      this.#fault("the node is gone and nobody knows why");
      return;
    }
    this.#note(`-- ${aim.death} in ${aim.phase}`);
    if (aim.death === "kill") this.counts.kills++;
    else this.counts.powerCuts++;
    this.counts.aimed[aim.phase] = (this.counts.aimed[aim.phase] ?? 0) + 1;
    this.#aim = undefined;
  }

  // -------------------------------------------------------------- operations

  get #everybody(): CrowdClient[] {
    return [...this.#publishers, ...this.#subscribers];
  }

  async #operate(): Promise<void> {
    const random = this.#random;
    this.counts.operations++;
    const dice = random.below(1000);
    if (dice < 400) this.#publish();
    else if (dice < 620) for (const each of this.#subscribers) this.#answerSome(each);
    else if (dice < 680) random.pick(this.#everybody).connect();
    else if (dice < 760) this.#connectAll();
    else if (dice < 860) this.#shake(dice);
    else if (dice < 910) this.#toggle();
    else if (dice < 975) this.#triggerAim();
    else if (dice < 980) this.#background("rotations");
    else if (dice < 990) this.#background("checkpoints");
    else if (dice < 994) await this.#fillDisk();
    if (random.chance(0.5)) await this.machine.clock.advance(random.below(8));
    else if (random.chance(0.06)) await this.machine.clock.advance(random.below(200));
  }

  #publish(): void {
    const random = this.#random;
    const publisher = random.pick(this.#publishers);
    const retained = retainedTopics.get(publisher.name as "p4" | "p5");
    for (let n = random.between(1, 4); n > 0; n--) {
      const qos = random.pick([0, 1, 1, 2, 2] as const);
      if (retained !== undefined && random.chance(0.15)) {
        publisher.publish(retained.topic, retained.qos, true);
      } else {
        publisher.publish(random.pick(plainTopics), qos, false);
      }
    }
  }

  #answerSome(subscriber: CrowdSubscriber): void {
    for (let n = this.#random.below(30); n > 0; n--) subscriber.answer(this.#random.below(20));
  }

  #connectAll(): void {
    for (const client of this.#everybody) {
      const isShy = client instanceof CrowdSubscriber && client.isShy && client.lacksNothing;
      if (!isShy || this.#random.chance(0.2)) client.connect();
    }
  }

  /** Links and connections come to harm. */
  #shake(dice: number): void {
    const client = this.#random.pick(this.#everybody);
    const { network, clock } = this.machine;
    if (dice < 785) {
      this.counts.drops++;
      client.drop();
    } else if (dice < 805) client.disconnect();
    else if (dice < 830) this.#takeOver(client);
    else if (dice < 845) {
      this.counts.resets += network.reset((link) => link.from === client.name);
    } else {
      this.counts.blackHoles++;
      this.#note(`-- ${client.name} and the broker hear nothing of each other`);
      const ends = [network.silence(brokerHost, client.name)];
      if (this.#random.chance(0.7)) ends.push(network.silence(client.name, brokerHost));
      const heal = () => {
        for (const end of ends) end();
      };
      this.#healings.push(heal);
      clock.schedule(this.#random.below(300), heal);
      if (this.#random.chance(0.6)) clock.schedule(this.#random.below(200), () => client.drop());
    }
  }

  #takeOver(client: CrowdClient): void {
    if (!client.isConnected) return;
    this.counts.takeovers++;
    client.abandon();
    client.connect();
  }

  #toggle(): void {
    const changeable = this.#subscribers.filter(({ name }) => name === "s-fickle");
    for (const subscriber of changeable) subscriber.toggle(this.#random.below(3));
  }

  /** Makes the phase that is aimed at come soon. */
  #triggerAim(): void {
    const phase = this.#aim?.phase;
    if (phase === undefined) return;
    if (phase.startsWith("takeover.")) this.#takeOver(this.#random.pick(this.#everybody));
    else if (phase.startsWith("generation.")) this.#background("rotations");
    else if (!phase.startsWith("session.")) this.#background("checkpoints");
  }

  #background(what: "rotations" | "checkpoints"): void {
    const { machine, counts } = this;
    const { node } = machine;
    if (node === undefined) return;
    const work = what === "rotations" ? node.store.rotate() : node.store.checkpoint();
    work.then(
      () => {
        counts[what]++;
      },
      (error) => {
        if (machine.node === node && !this.#isShort) this.#fault(`${what} failed: ${error}`);
      },
    );
  }

  /** Sometimes for so long that what waits is refused. */
  async #fillDisk(): Promise<void> {
    const { clock, disk, kv } = this.machine;
    const isLong = this.#random.chance(0.2);
    const windowMs = isLong ? longFullMs : this.#random.between(20, 1500);
    this.counts.fullDisks++;
    this.#note(`-- the disk is full for ${windowMs} ms`);
    const total = 2 ** 40;
    disk.setCapacity(total - disk.freeBytes + this.#random.below(20_000));
    this.#shortUntilMs = Number.POSITIVE_INFINITY;
    // Otherwise checkpoints, whose stores know nothing of this disk, free the log again.
    const noRoom = { fails: "ENOSPC", times: Number.POSITIVE_INFINITY } as const;
    const rules = isLong
      ? [kv.inject({ on: "write", ...noRoom }), kv.inject({ on: "sync", ...noRoom })]
      : [];
    let isDone = false;
    const heal = () => {
      if (isDone) return;
      isDone = true;
      for (const withdraw of rules) withdraw();
      disk.setCapacity(total);
      this.#shortUntilMs = clock.elapsedMs() + shortMs;
      this.#note("-- the disk has room");
    };
    this.#healings.push(heal);
    clock.schedule(windowMs, heal);
    if (isLong) await this.#overfill();
  }

  /** Uses up what the log has laid aside, and waits until it has to refuse. */
  async #overfill(): Promise<void> {
    const { clock } = this.machine;
    for (let round = 0; round < 10; round++) {
      for (const publisher of this.#publishers) publisher.publish("a/1", 1, false, 9000);
      await clock.advance(5);
    }
    await clock.advance(longFullMs);
  }

  #heal(): void {
    for (const heal of this.#healings.splice(0)) heal();
  }

  get #isShort(): boolean {
    return this.machine.clock.elapsedMs() < this.#shortUntilMs;
  }

  // -------------------------------------------------------------- the end

  async #finish(): Promise<void> {
    this.#aim = undefined;
    this.machine.aim(undefined);
    this.#heal();
    this.#note("-- everybody comes back");
    await this.#rest();
    for (const publisher of this.#publishers) {
      for (const qos of [0, 1, 2] as const) publisher.publish("a/1", qos, false);
    }
    const last = this.oracle.messages.slice(-3 * this.#publishers.length);
    await this.#rest();
    await this.#checkLast(last);
    await this.#compareRetained();
    await this.#checkRecords();
    this.#sumCounters();
    this.#sumClients();
    if (!(await this.#stop())) this.#fault("the node died while it stopped");
  }

  async #rest(): Promise<void> {
    const { clock } = this.machine;
    const endMs = clock.elapsedMs() + restMsMax;
    for (let quiet = 0; quiet < 5; ) {
      for (const client of this.#everybody) client.connect();
      for (const subscriber of this.#subscribers) {
        subscriber.wantAll();
        subscriber.answerAll();
      }
      await clock.advance(20);
      quiet = this.#isQuiet() ? quiet + 1 : 0;
      if (clock.elapsedMs() < endMs) continue;
      this.#complainOfUnrest();
      return;
    }
  }

  #isQuiet(): boolean {
    return (
      this.machine.node?.store.refusal === undefined &&
      this.#everybody.every((client) => client.isReady) &&
      this.#subscribers.every((one) => one.owedCount === 0 && one.isSettled) &&
      this.#publishers.every((publisher) => publisher.unfinishedCount === 0) &&
      this.#durable.every((one) => this.oracle.missing(one.book).length === 0)
    );
  }

  get #durable(): CrowdSubscriber[] {
    return this.#subscribers.filter(({ book }) => book.kind === "durable");
  }

  #complainOfUnrest(): void {
    const refusal = this.machine.node?.store.refusal;
    if (refusal !== undefined) this.#fault(`the store takes nothing: ${refusal.message}`);
    for (const client of this.#everybody) {
      if (!client.isReady) this.#fault(`${client.name} cannot connect`);
    }
    for (const publisher of this.#publishers) {
      const count = publisher.unfinishedCount;
      if (count > 0) this.#fault(`${publisher.name} has ${count} messages not acked`);
    }
    for (const subscriber of this.#subscribers) {
      if (!subscriber.isSettled) this.#fault(`${subscriber.name} waits for SUBACK or UNSUBACK`);
      for (const message of this.oracle.missing(subscriber.book).slice(0, 3)) {
        this.#fault(`${subscriber.name} never got ${formatMessage(message)}`);
      }
    }
  }

  /** Sent when all was quiet: everybody who wants it has it, at QoS 0 and in memory too. */
  async #checkLast(last: readonly Message[]): Promise<void> {
    await this.machine.clock.advance(500);
    for (const subscriber of this.#subscribers) {
      subscriber.answerAll();
      for (const message of last) {
        if (!subscriber.book.news.has(message)) {
          this.#fault(`${subscriber.name} lacks ${formatMessage(message)}, sent in peace`);
        }
      }
    }
    await this.machine.clock.advance(100);
  }

  /** Values of this topic by the order in which they were sent. */
  #values(topic: string): readonly Message[] {
    for (const publisher of this.#publishers) {
      const values = publisher.retained.get(topic);
      if (values !== undefined) return values;
    }
    return [];
  }

  /** A retained message that comes is not older than the last one acked before it was asked for. */
  #checkRetained(subscriber: CrowdSubscriber, topic: string, message: Message): void {
    const askedAt = this.oracle.askedSince(subscriber.book, topic);
    const floor = this.#values(topic).findLast(
      ({ ackedAt }) => ackedAt !== undefined && ackedAt < askedAt,
    );
    if (floor !== undefined && message.number < floor.number) {
      this.#fault(`${subscriber.name} got retained ${message.number}, acked was ${floor.number}`);
    }
  }

  async #compareRetained(): Promise<void> {
    const reader = new CrowdSubscriber(
      this.#createCrowd(),
      { clientId: "reader", level: 5, durable: false },
      [{ filter: "r/+", qos: 1 }],
    );
    const found = new Map<string, Message>();
    reader.onRetained = (topic, message) => found.set(topic, message);
    reader.connect();
    await this.machine.clock.advance(200);
    for (const { topic } of retainedTopics.values()) {
      const values = this.#values(topic);
      const at = values.findLastIndex(({ ackedAt }) => ackedAt !== undefined);
      const allowed = values.slice(Math.max(0, at));
      const value = found.get(topic);
      const isRight =
        value === undefined
          ? at < 0 || allowed.some(({ isEmpty }) => isEmpty)
          : allowed.includes(value);
      if (!isRight) {
        const last = values[at];
        const text = last === undefined ? "nothing" : formatMessage(last);
        this.#fault(`retained on ${topic} is number ${value?.number}, last acked was ${text}`);
      }
    }
    reader.drop();
  }

  /** Everything was answered: no in-flight record is left. */
  async #checkRecords(): Promise<void> {
    const { clock, node } = this.machine;
    // A will that had to wait for the disk may still come.
    for (let waitedMs = 0; waitedMs < recordsGoneMs; waitedMs += 100) {
      for (const subscriber of this.#subscribers) subscriber.answerAll();
      await clock.advance(100);
    }
    if (node === undefined) return;
    for (const shard of node.store.stateShards) {
      const entries = await clock.complete(shard.list("session/", { countMax: 1000 }));
      for (const { key } of entries) if (key.includes("/out/")) this.#fault(`left behind: ${key}`);
    }
  }

  // -------------------------------------------------------------- books

  #sumCounters(): void {
    const { node } = this.machine;
    if (node === undefined) return;
    const { counters } = node.store as LocalStore;
    for (const name of ["realtimeTtvs", "catchUpTtvs", "handOvers"] as const) {
      this.counts[name] += counters[name];
    }
  }

  #sumClients(): void {
    const { counts } = this;
    for (const { counts: own } of this.#publishers) {
      counts.published += own.published;
      counts.acked += own.acked;
      counts.resent += own.resent;
      counts.refused += own.refused;
    }
    for (const { counts: own } of this.#subscribers) {
      counts.receivedQos0 += own.received[0];
      counts.receivedQos1 += own.received[1];
      counts.receivedQos2 += own.received[2];
      counts.repeats += own.repeats;
      counts.retained += own.retained;
      counts.wills += own.wills;
      counts.subscribed += own.subscribed;
      counts.unsubscribed += own.unsubscribed;
    }
  }

  #createCrowd(): Crowd {
    const history = this;
    return {
      machine: this.machine,
      oracle: this.oracle,
      random: this.#random,
      note: (text) => this.#note(text),
      fault: (text) => this.#fault(text),
      get mayRefuse() {
        return history.#isStopping || history.#isShort;
      },
    };
  }

  #note(text: string): void {
    const atMs = this.machine.clock.elapsedMs();
    const line = `${atMs.toFixed(3)} ${text}`;
    this.#hash = hash32(line, this.#hash);
    this.#lines.push(line);
    if (this.#lines.length > 2 * linesKept) this.#lines.splice(0, linesKept);
    this.#noteEvents();
  }

  /** What the node logs stands between what the clients see. */
  #noteEvents(): void {
    const { events } = this.machine;
    for (; this.#noted < events.length; this.#noted++) {
      const { atMs, level, event, fields } = events[this.#noted]!;
      const error = fields?.error === undefined ? "" : ` ${String(fields.error)}`;
      this.#lines.push(`${atMs.toFixed(3)} ${level} ${event}${error}`);
    }
  }

  #fault(text: string): void {
    this.#note(`FAULT ${text}`);
    this.#faultLines ??= [...this.#lines];
    this.faults.push(`operation ${this.counts.operations}: ${text}`);
  }
}

function createPublishers(crowd: Crowd): CrowdPublisher[] {
  return [
    new CrowdPublisher(crowd, { clientId: "p5", level: 5, durable: true }),
    new CrowdPublisher(crowd, { clientId: "p4", level: 4, durable: true }),
    new CrowdPublisher(crowd, { clientId: "e5", level: 5, durable: false, hasWills: true }),
    new CrowdPublisher(crowd, { clientId: "e4", level: 4, durable: false }),
  ];
}

function createSubscribers(crowd: Crowd): CrowdSubscriber[] {
  const five = { level: 5, durable: true } as const;
  const four = { level: 4, durable: true } as const;
  return [
    new CrowdSubscriber(crowd, { ...five, clientId: "s-all", receiveMaximum: 5 }, [
      { filter: "#", qos: 2 },
    ]),
    new CrowdSubscriber(crowd, { ...four, clientId: "s-shy", isShy: true }, [
      { filter: "a/+", qos: 1 },
    ]),
    new CrowdSubscriber(crowd, { ...five, clientId: "s-wide", hasWills: true }, [
      { filter: "a/#", qos: 1, identifier: 1 },
      { filter: "a/1", qos: 2, identifier: 2 },
      { filter: "b/#", qos: 2, identifier: 3 },
    ]),
    new CrowdSubscriber(crowd, { ...five, clientId: "s-fickle", receiveMaximum: 50 }, [
      { filter: "b/#", qos: 1 },
      { filter: "r/+", qos: 2, retainHandling: 1 },
      { filter: "a/2", qos: 2 },
      { filter: "a/1", qos: 1 },
    ]),
    new CrowdSubscriber(crowd, { ...four, clientId: "s-zero" }, [{ filter: "a/+", qos: 0 }]),
    new CrowdSubscriber(crowd, { level: 5, durable: false, clientId: "m5" }, [
      { filter: "#", qos: 1 },
    ]),
    new CrowdSubscriber(crowd, { level: 4, durable: false, clientId: "m4" }, [
      { filter: "a/#", qos: 2 },
      { filter: "r/#", qos: 1 },
    ]),
  ];
}
