// Publishers and subscribers as good clients are, on the wire, and what they may rely on. They keep
// their session state over connections, crash never, and write down each rule they see broken.
//
// Payloads are `<publisher>-<number>-<attempt>`: numbers count up per publisher; the attempt tells a
// QoS 1 message that the publisher itself sent again from one that the broker repeats.

import type { Packet, PublishPacket, Qos } from "../../src/mqtt/index.ts";
import type { BrokerWorld } from "./broker-world.ts";
import { connecting, publishing, type RawMqtt, subscribing } from "./raw-mqtt.ts";

export type WireOptions = {
  readonly clientId: string;
  readonly level: 4 | 5;
  readonly durable: boolean;
  readonly receiveMaximum?: number;
};

const shuttingDown = 0x8b;

export type Faults = (text: string) => void;

abstract class WireClient {
  readonly options: WireOptions;
  /** CONNACK has come and the connection lives. */
  isReady = false;
  protected readonly world: BrokerWorld;
  protected readonly fault: Faults;
  protected raw: RawMqtt | undefined;
  #connection = 0;
  #isDialling = false;
  /** A CONNACK told that the session exists. */
  #hasSession = false;

  constructor(world: BrokerWorld, options: WireOptions, faults: Faults) {
    this.world = world;
    this.options = options;
    this.fault = (text) => faults(`${options.clientId}: ${text}`);
  }

  get isConnected(): boolean {
    return this.raw !== undefined || this.#isDialling;
  }

  connect(): void {
    if (this.isConnected) return;
    const connection = ++this.#connection;
    this.#isDialling = true;
    this.world.dialLater().then(
      (raw) => this.#opened(raw, connection),
      () => {
        if (connection === this.#connection) this.#isDialling = false;
      },
    );
  }

  /** The link breaks, or the client just goes away. */
  drop(): void {
    const { raw } = this;
    this.#lost();
    raw?.drop();
  }

  protected abstract ready(sessionPresent: boolean): void;
  protected abstract packet(packet: Packet): void;
  protected abstract lost(): void;

  #opened(raw: RawMqtt, connection: number): void {
    if (connection !== this.#connection) {
      raw.drop();
      return;
    }
    this.#isDialling = false;
    this.raw = raw;
    raw.onPacket = (packet) => {
      if (this.raw === raw) this.#packet(packet);
    };
    raw.onClosed = () => {
      if (this.raw === raw) this.#lost();
    };
    const { clientId, level, durable, receiveMaximum } = this.options;
    const sessionExpiryS = durable ? 3600 : 0;
    const properties = { sessionExpiryS, ...(receiveMaximum && { receiveMaximum }) };
    const fields = level === 5 ? { level, properties } : { level };
    raw.say(connecting(clientId, { ...fields, cleanStart: !durable }));
  }

  #packet(packet: Packet): void {
    if (packet.type !== "connack") {
      const isFault = packet.type === "disconnect" && packet.reasonCode !== shuttingDown;
      if (isFault) this.fault(`DISCONNECT 0x${packet.reasonCode.toString(16)}`);
      this.packet(packet);
      return;
    }
    if (packet.reasonCode !== 0) this.fault(`CONNACK 0x${packet.reasonCode.toString(16)}`);
    const { durable } = this.options;
    if (this.#hasSession && durable && !packet.sessionPresent) this.fault("its session is gone");
    this.#hasSession = true;
    this.isReady = true;
    this.ready(packet.sessionPresent);
  }

  #lost(): void {
    this.#connection++;
    this.#isDialling = false;
    this.isReady = false;
    if (this.raw === undefined) return;
    this.raw = undefined;
    this.lost();
  }
}

// ------------------------------------------------------------------ publishing

export type Sent = {
  readonly publisher: string;
  readonly number: number;
  readonly topic: string;
  readonly qos: Qos;
  readonly retain: boolean;
  /** Order number of the run, to compare with subscriptions. */
  readonly at: number;
  packetId: number;
  attempt: number;
  state: "sent" | "released" | "done";
  /** PUBACK or PUBREC came and did not refuse. */
  acked: boolean;
};

export class WirePublisher extends WireClient {
  readonly sent: Sent[] = [];
  #unfinished: Sent[] = [];
  #nextId = 1;

  get unfinishedCount(): number {
    return this.#unfinished.length;
  }

  publish(topic: string, qos: Qos, retain: boolean, at: number): void {
    if (!this.isReady || this.#unfinished.length >= 50) return;
    const item: Sent = {
      publisher: this.options.clientId,
      number: this.sent.length,
      ...{ topic, qos, retain, at },
      packetId: qos === 0 ? 0 : this.#takeId(),
      attempt: 0,
      state: "sent",
      acked: false,
    };
    this.sent.push(item);
    this.raw?.say(packetOf(item, false));
    if (qos > 0) this.#unfinished.push(item);
  }

  protected ready(sessionPresent: boolean): void {
    if (!sessionPresent) {
      // Nobody knows what became of them.
      this.#unfinished = [];
      return;
    }
    for (const item of this.#unfinished) {
      if (item.state === "released") {
        this.raw?.ack("pubrel", item.packetId);
        continue;
      }
      if (item.qos === 1) item.attempt++;
      this.raw?.say(packetOf(item, true));
    }
  }

  protected packet(packet: Packet): void {
    if (packet.type !== "puback" && packet.type !== "pubrec" && packet.type !== "pubcomp") return;
    const item = this.#unfinished.find((candidate) => candidate.packetId === packet.packetId);
    if (item === undefined) {
      this.fault(`${packet.type} for ${packet.packetId}, which is not under way`);
      return;
    }
    if (packet.type === "pubcomp") {
      if (item.state !== "released") this.fault("PUBCOMP before PUBREL");
      this.#finish(item);
      return;
    }
    if ((packet.type === "puback") !== (item.qos === 1)) this.fault(`${packet.type} at wrong QoS`);
    if (packet.reasonCode >= 0x80) {
      this.fault(`${packet.type} 0x${packet.reasonCode.toString(16)}`);
      this.#finish(item);
      return;
    }
    item.acked = true;
    if (packet.type === "puback") {
      this.#checkOrder(item);
      this.#finish(item);
    } else {
      item.state = "released";
      this.raw?.ack("pubrel", item.packetId);
    }
  }

  protected lost(): void {
    if (!this.options.durable) this.#unfinished = [];
  }

  /** Acks come in the order of the publishes. */
  #checkOrder(item: Sent): void {
    const first = this.#unfinished.find((candidate) => !candidate.acked && candidate.qos === 1);
    if (first !== undefined && first.number < item.number) this.fault("PUBACKs out of order");
  }

  #finish(item: Sent): void {
    item.state = "done";
    this.#unfinished = this.#unfinished.filter((candidate) => candidate !== item);
  }

  #takeId(): number {
    const inUse = new Set(this.#unfinished.map((item) => item.packetId));
    while (inUse.has(this.#nextId)) this.#nextId = (this.#nextId % 200) + 1;
    const packetId = this.#nextId;
    this.#nextId = (this.#nextId % 200) + 1;
    return packetId;
  }
}

function packetOf(item: Sent, dup: boolean): Packet {
  const { publisher, number, attempt, topic, qos, retain, packetId } = item;
  const payload = `${publisher}-${number}-${attempt}`;
  return publishing(topic, payload, { qos, retain, id: packetId, dup });
}

// ------------------------------------------------------------------ subscribing

export type WireFilter = {
  readonly filter: string;
  readonly qos: 1 | 2;
  /** Order number of the run when SUBACK came; undefined before. */
  since: number | undefined;
};

type Owed = { readonly type: "puback" | "pubrec" | "pubcomp"; readonly packetId: number };

export class WireSubscriber extends WireClient {
  readonly filters: readonly WireFilter[];
  /** By `publisher-number`: how often it was new to the application. */
  readonly news = new Map<string, number>();
  /** A connection has ended: DUP may stand on what was sent and never arrived. */
  #hasLost = false;
  now: () => number = () => 0;
  #owed: Owed[] = [];
  readonly #seen = new Set<string>();
  #seenHere = new Set<string>();
  /** QoS 2 ids received and not released. */
  readonly #held = new Map<number, string>();
  #underWay = new Map<number, string>();
  readonly #lastNew = new Map<string, number>();

  constructor(
    world: BrokerWorld,
    options: WireOptions,
    filters: ReadonlyArray<{ readonly filter: string; readonly qos: 1 | 2 }>,
    faults: Faults,
  ) {
    super(world, options, faults);
    this.filters = filters.map((item) => ({ ...item, since: undefined }));
  }

  get owedCount(): number {
    return this.#owed.length;
  }

  /** Answers one of the packets that wait for it; any order is a client's right. */
  answer(index: number): void {
    if (!this.isReady) return;
    const owed = this.#owed.splice(index % Math.max(1, this.#owed.length), 1)[0];
    if (owed === undefined) return;
    if (owed.type !== "pubrec") this.#underWay.delete(owed.packetId);
    if (owed.type === "pubcomp") this.#held.delete(owed.packetId);
    this.raw?.ack(owed.type, owed.packetId);
  }

  protected ready(): void {
    this.#owed = [];
    this.#seenHere = new Set();
    this.#underWay = new Map();
    for (const [index, filter] of this.filters.entries()) {
      if (filter.since === undefined) {
        this.raw?.say(subscribing([filter.filter], { qos: filter.qos }, index + 1));
      }
    }
  }

  protected packet(packet: Packet): void {
    if (packet.type === "publish") this.#published(packet);
    else if (packet.type === "pubrel")
      this.#owed.push({ type: "pubcomp", packetId: packet.packetId });
    else if (packet.type === "suback") {
      const filter = this.filters[packet.packetId - 1];
      if (packet.reasonCodes[0] !== filter?.qos) this.fault(`SUBACK ${packet.reasonCodes[0]}`);
      if (filter !== undefined) filter.since ??= this.now();
    }
  }

  protected lost(): void {
    this.#owed = [];
    this.#hasLost = true;
  }

  #published(packet: PublishPacket): void {
    const { qos, dup, packetId, retain } = packet;
    const payload = packet.payload.toString();
    if (retain || qos === 0) return;
    const wasSeen = this.#seen.has(payload);
    if (wasSeen && !dup) this.fault(`${payload} came again without DUP`);
    if (!wasSeen && dup && !this.#hasLost) this.fault(`${payload} has DUP for no reason`);
    if (this.#seenHere.has(payload)) this.fault(`${payload} came twice on one connection`);
    this.#seen.add(payload);
    this.#seenHere.add(payload);
    const other = this.#underWay.get(packetId) ?? this.#held.get(packetId);
    if (other !== undefined && other !== payload) {
      this.fault(`id ${packetId} of ${other} was given to ${payload}`);
    }
    this.#underWay.set(packetId, payload);
    const { receiveMaximum = 65_535 } = this.options;
    if (this.#underWay.size > receiveMaximum) this.fault("more than Receive Maximum");
    if (qos === 1) {
      this.#owed.push({ type: "puback", packetId });
      this.#isNew(payload);
      return;
    }
    this.#owed.push({ type: "pubrec", packetId });
    if (this.#held.get(packetId) === payload) return;
    this.#held.set(packetId, payload);
    this.#isNew(payload);
  }

  #isNew(payload: string): void {
    const [publisher = "", number = "0"] = payload.split("-");
    const name = `${publisher}-${number}`;
    const count = this.news.get(name) ?? 0;
    this.news.set(name, count + 1);
    if (count > 0) return;
    const last = this.#lastNew.get(publisher) ?? -1;
    if (Number(number) < last) this.fault(`${name} came first after ${publisher}-${last}`);
    this.#lastNew.set(publisher, Math.max(last, Number(number)));
  }
}
