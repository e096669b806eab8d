// One history of clients that wander between the nodes of a simulated cluster while nodes die, lose
// power, and are cut off: durable readers, publishers at QoS 2, and clients with wills.
//
// Checked: a message whose PUBREC came reaches every reader, at QoS 2 once; what a reader may have seen
// carries DUP when it comes again; an id is not given to another message before its exchange is over;
// a session that was acked is there at the next connection; a will goes out once.

import type { SeededRandom } from "../../src/base/index.ts";
import type { ConnectPacket, Packet } from "../../src/mqtt/index.ts";
import { MqttCluster, type MqttMachine } from "./mqtt-cluster.ts";
import { publishPacket, SimClient, subscribePacket } from "./sim-client.ts";

export type TakeoverCoverage = Record<
  | "takeovers"
  | "unanswered"
  | "fenced"
  | "kills"
  | "powerCuts"
  | "partitions"
  | "delivered"
  | "repeated"
  | "refused"
  | "wills",
  number
>;

export function createTakeoverCoverage(): TakeoverCoverage {
  return {
    ...{ takeovers: 0, unanswered: 0, fenced: 0, kills: 0, powerCuts: 0, partitions: 0 },
    ...{ delivered: 0, repeated: 0, refused: 0, wills: 0 },
  };
}

const stepMs = 25;
/** A client that hears nothing tries another node. */
const patienceMs = 4_000;
const settleMs = 240_000;
const takenOver = 0x8e;

/** What a client has of one connection. */
type Line = { readonly client: SimClient; taken: number };

/** A client with a session of its own, at one node at a time. */
abstract class Wanderer {
  readonly clientId: string;
  readonly run: TakeoverRun;
  machine: MqttMachine | undefined;
  isIn = false;
  #line: Line | undefined;
  /** Still open when the next one was begun: the broker is to end it. */
  #former: Line | undefined;
  #sinceMs = 0;
  /** It has been told of its session. */
  #hasSession = false;

  constructor(run: TakeoverRun, clientId: string) {
    this.run = run;
    this.clientId = clientId;
  }

  get isAway(): boolean {
    return this.#line === undefined;
  }

  /** `drops`: it leaves its old connection itself, and does not wait for the broker to do so. */
  async connect(machine: MqttMachine, drops: boolean): Promise<void> {
    this.poll();
    this.#dropFormer();
    this.#former = this.#line;
    if (drops) this.#dropFormer();
    this.#line = undefined;
    this.isIn = false;
    if (machine.node === undefined) return;
    this.#sinceMs = machine.clock.elapsedMs();
    this.machine = machine;
    try {
      const client = await SimClient.begin(machine, this.clientId, this.packet());
      this.#line = { client, taken: 0 };
    } catch {
      // Nobody listens there any more.
    }
  }

  poll(): void {
    if (this.#former !== undefined) this.#takeAll(this.#former);
    if (this.#line !== undefined) this.#takeAll(this.#line);
    const { machine } = this;
    if (this.#line === undefined || machine === undefined) return;
    const isLate = !this.isIn && machine.clock.elapsedMs() - this.#sinceMs > patienceMs;
    if (isLate || machine.node === undefined) this.leave();
  }

  leave(): void {
    this.#dropFormer();
    this.#line?.client.drop();
    this.#line = undefined;
    this.isIn = false;
  }

  say(packet: Packet): void {
    this.#line?.client.say(packet);
  }

  /** It has answered all that it received: that has come. */
  #dropFormer(): void {
    const former = this.#former;
    this.#former = undefined;
    if (former === undefined) return;
    former.client.drop();
    for (; former.taken < former.client.received.length; former.taken++) {
      const packet = former.client.received[former.taken] as Packet;
      if (packet.type === "publish") this.got(packet, former.client);
    }
  }

  #takeAll(line: Line): void {
    for (; line.taken < line.client.received.length; line.taken++) {
      if (line !== this.#line && line !== this.#former) return;
      this.#take(line.client.received[line.taken] as Packet, line);
    }
  }

  #take(packet: Packet, line: Line): void {
    if (packet.type === "connack") {
      if (packet.reasonCode !== 0) {
        this.run.coverage.refused++;
        return this.leave();
      }
      if (this.#hasSession && !packet.sessionPresent) {
        throw new Error(`${this.clientId} at ${this.machine?.name}: no session`);
      }
      this.#hasSession = true;
      this.isIn = true;
      this.#dropFormer();
      this.welcomed();
      return;
    }
    if (packet.type === "disconnect") {
      if (packet.reasonCode === takenOver) this.run.coverage.takeovers++;
      if (line === this.#former) this.#dropFormer();
      else this.leave();
      return;
    }
    this.got(packet, line.client);
  }

  protected packet(): Partial<ConnectPacket> {
    return {};
  }

  protected abstract welcomed(): void;
  /** `client`: on the connection that it came by. */
  protected abstract got(packet: Packet, client: SimClient): void;
}

class Reader extends Wanderer {
  readonly qos: 1 | 2;
  isSubscribed = false;
  readonly seen = new Map<string, number>();
  /** Exchanges at QoS 2 that are not over, by packet id. */
  readonly #open = new Map<number, string>();

  constructor(run: TakeoverRun, clientId: string, qos: 1 | 2) {
    super(run, clientId);
    this.qos = qos;
  }

  protected override welcomed(): void {
    if (!this.isSubscribed) this.say(subscribePacket("t/#", this.qos));
  }

  protected override got(packet: Packet, client: SimClient): void {
    if (packet.type === "suback") this.isSubscribed = true;
    if (packet.type === "pubrel") {
      const { packetId } = packet;
      this.#open.delete(packetId);
      client.say({ type: "pubcomp", packetId, reasonCode: 0, properties: {} });
    }
    if (packet.type !== "publish") return;
    const text = packet.payload.toString();
    const known = this.#open.get(packet.packetId);
    const where = `${this.clientId} at ${this.machine?.name}: ${text} under ${packet.packetId}`;
    if (this.qos === 2 && known !== undefined && known !== text) {
      throw new Error(`${where}, which ${known} still has`);
    }
    const times = this.seen.get(text) ?? 0;
    if (times > 0 && !packet.dup) throw new Error(`${where} comes again without DUP`);
    if (packet.qos === 2) {
      if (times > 0 && known === undefined) throw new Error(`${where} comes twice`);
      this.#open.set(packet.packetId, text);
    }
    if (times > 0) this.run.coverage.repeated++;
    this.run.coverage.delivered++;
    this.seen.set(text, times + 1);
  }
}

class Writer extends Wanderer {
  #sent = 0;
  #phase: "idle" | "publish" | "release" = "idle";
  isDone = false;

  get #text(): string {
    return `${this.clientId} ${this.#sent}`;
  }

  protected override welcomed(): void {
    if (this.#phase === "publish") this.#publish(true);
    else if (this.#phase === "release") this.#release();
  }

  next(): void {
    if (!this.isIn || this.#phase !== "idle" || this.isDone) return;
    this.#sent++;
    this.#phase = "publish";
    this.#publish(false);
  }

  get isIdle(): boolean {
    return this.#phase === "idle";
  }

  protected override got(packet: Packet): void {
    if (packet.type === "pubrec" && packet.packetId === this.#packetId) {
      if (packet.reasonCode >= 0x80)
        throw new Error(`${this.#text} is refused: ${packet.reasonCode}`);
      this.run.acked.add(this.#text);
      this.#phase = "release";
      this.#release();
    }
    if (packet.type === "pubcomp" && packet.packetId === this.#packetId) this.#phase = "idle";
  }

  get #packetId(): number {
    return (this.#sent % 7) + 1;
  }

  #publish(dup: boolean): void {
    const packetId = this.#packetId;
    this.say(publishPacket(`t/${this.clientId}`, this.#text, 2, { packetId, dup }));
  }

  #release(): void {
    const packetId = this.#packetId;
    this.say({ type: "pubrel", packetId, reasonCode: 0, properties: {} });
  }
}

/** Each of its connections has a will of its own. */
class Mortal extends Wanderer {
  connections = 0;
  /** The last one that was accepted. */
  lastIn = 0;

  protected override packet(): Partial<ConnectPacket> {
    const payload = Buffer.from(`${this.clientId} dies ${++this.connections}`);
    const topic = `t/${this.clientId}`;
    return { will: { topic, payload, qos: 2, retain: false, properties: {} } };
  }

  protected override welcomed(): void {
    this.lastIn = this.connections;
  }

  protected override got(): void {
    // It only lives and dies.
  }
}

export class TakeoverRun {
  readonly coverage: TakeoverCoverage;
  readonly acked = new Set<string>();
  readonly #cluster: MqttCluster;
  readonly #random: SeededRandom;
  readonly #readers: Reader[];
  readonly #writers: Writer[];
  readonly #mortals: Mortal[];
  #repairs: Array<{ atMs: number; repair: () => void }> = [];

  constructor(seed: number | string, coverage: TakeoverCoverage) {
    this.coverage = coverage;
    this.#cluster = new MqttCluster(`takeovers ${seed}`, {
      mqtt: { restartGrace: "3s" },
    });
    this.#random = this.#cluster.random.split("history");
    this.#readers = [
      new Reader(this, "one", 1),
      new Reader(this, "two", 2),
      new Reader(this, "too", 2),
    ];
    this.#writers = [new Writer(this, "w1"), new Writer(this, "w2")];
    this.#mortals = [new Mortal(this, "m1"), new Mortal(this, "m2")];
  }

  get #all(): Wanderer[] {
    return [...this.#readers, ...this.#writers, ...this.#mortals];
  }

  /** Returns what tells histories apart. */
  async run(steps: number): Promise<string> {
    const { clock } = this.#cluster;
    try {
      await this.#cluster.start();
      await this.#until(() => this.#readers.every(({ isSubscribed }) => isSubscribed));
      for (let step = 0; step < steps; step++) {
        await this.#act();
        await this.#advance();
      }
      await this.#settle();
      this.#check();
      return `${clock.elapsedMs()} ${this.acked.size} ${JSON.stringify(this.coverage)}`;
    } finally {
      this.#cluster.end();
    }
  }

  async #advance(): Promise<void> {
    await this.#cluster.clock.advance(stepMs);
    for (const one of this.#all) one.poll();
    const nowMs = this.#cluster.clock.elapsedMs();
    const due = this.#repairs.filter(({ atMs }) => atMs <= nowMs);
    this.#repairs = this.#repairs.filter(({ atMs }) => atMs > nowMs);
    for (const { repair } of due) repair();
    for (const { failure, name } of this.#cluster.machines) {
      if (failure !== undefined) throw new Error(`${name} failed: ${failure.message}`);
    }
  }

  async #act(): Promise<void> {
    const random = this.#random;
    for (const one of this.#all) {
      if (one.isAway && random.chance(0.3)) await one.connect(this.#anyMachine(), true);
      else if (random.chance(0.01)) await one.connect(this.#anyMachine(), random.chance(0.7));
    }
    for (const mortal of this.#mortals) if (random.chance(0.01)) mortal.leave();
    for (const writer of this.#writers) if (random.chance(0.5)) writer.next();
    if (random.chance(0.008)) this.#strike();
  }

  #anyMachine(): MqttMachine {
    return this.#random.pick(this.#cluster.machines);
  }

  /** One node at a time: the others are a majority. */
  #strike(): void {
    const random = this.#random;
    if (this.#repairs.length > 0) return;
    const machine = this.#anyMachine();
    if (machine.node === undefined) return;
    const atMs = this.#cluster.clock.elapsedMs() + random.between(500, 8_000);
    const kind = random.pick(["kill", "power", "cut"] as const);
    if (kind === "cut") {
      this.coverage.partitions++;
      const { network, machines } = this.#cluster;
      const silenced = machines.flatMap(({ name }) =>
        name === machine.name
          ? []
          : [network.silence(name, machine.name), network.silence(machine.name, name)],
      );
      this.#repairs.push({ atMs, repair: () => silenced.forEach((cancel) => void cancel()) });
      return;
    }
    if (kind === "kill") this.coverage.kills++;
    else this.coverage.powerCuts++;
    this.#count(machine);
    machine.die(kind);
    this.#repairs.push({ atMs, repair: () => machine.begin() });
  }

  #count(machine: MqttMachine): void {
    for (const { event } of machine.events.splice(0)) {
      if (event === "session.takeover_unanswered") this.coverage.unanswered++;
      if (event === "session.fenced") this.coverage.fenced++;
    }
  }

  async #until(done: () => boolean): Promise<void> {
    const endMs = this.#cluster.clock.elapsedMs() + settleMs;
    while (!done()) {
      if (this.#cluster.clock.elapsedMs() > endMs) throw new Error(this.#state());
      for (const one of this.#all) {
        if (one.isAway) await one.connect(this.#anyMachine(), true);
      }
      await this.#advance();
    }
  }

  /** All nodes run and reach each other, everybody is in, and what was acked has come. */
  async #settle(): Promise<void> {
    for (const { repair } of this.#repairs.splice(0)) repair();
    for (const writer of this.#writers) writer.isDone = true;
    await this.#cluster.settled();
    await this.#until(
      () => this.#all.every(({ isIn }) => isIn) && this.#writers.every(({ isIdle }) => isIdle),
    );
    const missing = () =>
      this.#readers.some(({ seen }) => [...this.acked].some((text) => !seen.has(text)));
    await this.#until(() => !missing());
    for (const mortal of this.#mortals) mortal.leave();
    const isDead = (mortal: Mortal): boolean =>
      this.#readers.every(({ seen }) => seen.has(`${mortal.clientId} dies ${mortal.lastIn}`));
    const endMs = this.#cluster.clock.elapsedMs() + settleMs;
    while (!this.#mortals.every(isDead)) {
      if (this.#cluster.clock.elapsedMs() > endMs) throw new Error(this.#state());
      await this.#advance();
      for (const reader of this.#readers) {
        if (reader.isAway) await reader.connect(this.#anyMachine(), true);
      }
    }
    // Nothing more comes.
    for (let step = 0; step < 200; step++) await this.#advance();
    for (const machine of this.#cluster.machines) this.#count(machine);
  }

  #check(): void {
    for (const { seen, clientId, qos } of this.#readers) {
      for (const [text, times] of seen) {
        if (!text.includes("dies")) continue;
        this.coverage.wills++;
        if (qos === 2 && times > 1) this.coverage.repeated++;
        const connection = Number(text.split(" ")[2]);
        if (connection < 1) throw new Error(`${clientId}: a will of nobody: ${text}`);
      }
    }
  }

  #state(): string {
    const readers = this.#readers.map(({ clientId, seen, isIn, machine }) => {
      const missing = [...this.acked].filter((text) => !seen.has(text)).slice(0, 5);
      return `${clientId} in ${isIn} at ${machine?.name} lacks ${missing.join(", ")}`;
    });
    const others = [...this.#writers, ...this.#mortals].map(
      ({ clientId, isIn, machine }) => `${clientId} in ${isIn} at ${machine?.name}`,
    );
    const wills = this.#mortals.map((mortal) =>
      this.#readers.map(({ seen }) => {
        const last = `${mortal.clientId} dies ${mortal.lastIn}`;
        return `${last} ${seen.has(last) ? "came" : "is missing"}`;
      }),
    );
    others.push(wills.flat().join(", "));
    return `it does not settle: ${[...readers, ...others].join("; ")}`;
  }
}
