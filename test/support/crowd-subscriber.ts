// A subscriber as a good client is: it answers what it gets in an order of its own, keeps the ids of
// QoS 2 messages until they are released, and asks for its filters again until it is answered.
// It watches what the wire must keep: ids under way, Receive Maximum, DUP only with a reason.

import type { Packet, PublishPacket, SubscriptionOptions } from "../../src/mqtt/index.ts";
import { type ClientOptions, type Crowd, CrowdClient } from "./crowd-client.ts";
import type { Message, Qos, SessionBook } from "./subscription-oracle.ts";

export type Wish = {
  readonly filter: string;
  readonly qos: Qos;
  readonly retainHandling?: 0 | 1 | 2;
  readonly identifier?: number;
};

type WishState = Wish & {
  wanted: boolean;
  /** As far as the client knows. */
  isOn: boolean;
  /** Sent and not answered, whatever became of it. */
  pending: "subscribe" | "unsubscribe" | undefined;
};

type Owed = { readonly type: "puback" | "pubrec" | "pubcomp"; readonly packetId: number };

/** Above the ids that the broker gives out in these runs. */
const requestIdMin = 60_000;
const failureMin = 0x80;

export class CrowdSubscriber extends CrowdClient {
  readonly book: SessionBook;
  readonly counts = {
    received: [0, 0, 0] as [number, number, number],
    repeats: 0,
    retained: 0,
    wills: 0,
    subscribed: 0,
    unsubscribed: 0,
  };
  /** Offline by nature: comes rarely. */
  readonly isShy: boolean;
  onRetained: (topic: string, message: Message) => void = () => undefined;
  readonly #wishes: WishState[];
  #request: { readonly packetId: number; readonly wish: WishState } | undefined;
  #nextRequestId = requestIdMin;
  #owed: Owed[] = [];
  #hasLost = false;
  /** On this connection. */
  #underWay = new Map<number, string>();
  /** QoS 2 ids received and not released. */
  readonly #held = new Map<number, string>();
  /** QoS 1 ids of earlier connections that were never answered. */
  readonly #unanswered = new Map<number, string>();

  constructor(
    crowd: Crowd,
    options: ClientOptions & { readonly isShy?: boolean },
    wishes: readonly Wish[],
  ) {
    super(crowd, options);
    this.isShy = options.isShy ?? false;
    this.book = crowd.oracle.open(this.name, options.durable ? "durable" : "memory");
    this.#wishes = wishes.map((wish) => ({
      ...wish,
      wanted: true,
      isOn: false,
      pending: undefined,
    }));
  }

  get owedCount(): number {
    return this.#owed.length;
  }

  /** Everything asked for is answered. */
  get isSettled(): boolean {
    return this.#wishes.every(({ wanted, isOn, pending }) => wanted === isOn && !pending);
  }

  get lacksNothing(): boolean {
    return this.#wishes.every(({ isOn }) => isOn);
  }

  /** Changes its mind about the filter at this place. */
  toggle(index: number): void {
    const wish = this.#wishes[index]!;
    wish.wanted = !wish.wanted;
    this.#ask();
  }

  /** Wants all of its filters. */
  wantAll(): void {
    for (const wish of this.#wishes) wish.wanted = true;
    this.#ask();
  }

  /** Answers one of the packets that wait for it; any order is a client's right. */
  answer(index: number): void {
    if (!this.isReady) return;
    const owed = this.#owed.splice(index % Math.max(1, this.#owed.length), 1)[0];
    if (owed === undefined) return;
    const { type, packetId } = owed;
    if (type !== "pubrec") this.#underWay.delete(packetId);
    if (type === "puback") this.#unanswered.delete(packetId);
    if (type === "pubcomp") this.#held.delete(packetId);
    this.note(`says ${type} #${packetId}`);
    this.ack(type, packetId);
  }

  answerAll(): void {
    while (this.isReady && this.#owed.length > 0) this.answer(0);
  }

  protected ready(sessionPresent: boolean): void {
    this.#owed = [];
    this.#underWay = new Map();
    if (!sessionPresent) {
      this.#held.clear();
      this.#unanswered.clear();
      for (const wish of this.#wishes) {
        if (wish.isOn) wish.isOn = false;
        if (!this.options.durable) wish.pending = undefined;
      }
    }
    this.#request = undefined;
    this.#ask();
  }

  protected packet(packet: Packet): void {
    switch (packet.type) {
      case "publish":
        this.#published(packet);
        return;
      case "pubrel":
        this.note(`gets pubrel #${packet.packetId}`);
        this.#owed.push({ type: "pubcomp", packetId: packet.packetId });
        return;
      case "suback":
        this.#answered("subscribe", packet.packetId, packet.reasonCodes[0] ?? failureMin);
        return;
      case "unsuback":
        this.#answered("unsubscribe", packet.packetId, packet.reasonCodes[0] ?? 0);
        return;
      default:
        this.fault(`gets ${packet.type}`);
    }
  }

  protected lost(): void {
    this.#owed = [];
    this.#request = undefined;
    this.#hasLost = true;
    if (!this.options.durable) this.crowd.oracle.ended(this.book);
  }

  // -------------------------------------------------------------- filters

  /** One request at a time; what was sent and not answered is sent again before anything else. */
  #ask(): void {
    if (!this.isReady || this.#request !== undefined) return;
    const wish =
      this.#wishes.find(({ pending }) => pending !== undefined) ??
      this.#wishes.find(({ wanted, isOn }) => wanted !== isOn);
    if (wish === undefined) return;
    wish.pending ??= wish.wanted ? "subscribe" : "unsubscribe";
    const packetId = this.#nextRequestId;
    this.#nextRequestId = packetId === 0xffff ? requestIdMin : packetId + 1;
    this.#request = { packetId, wish };
    const { filter } = wish;
    this.note(`${wish.pending}s ${filter}`);
    if (wish.pending === "unsubscribe") {
      this.crowd.oracle.leaving(this.book, filter);
      this.say({ type: "unsubscribe", packetId, filters: [filter], properties: {} });
      return;
    }
    const { qos, retainHandling = 0, identifier } = wish;
    this.crowd.oracle.requested(this.book, filter, qos);
    const isFive = this.options.level === 5;
    const options: SubscriptionOptions = {
      qos,
      noLocal: false,
      retainAsPublished: false,
      retainHandling: isFive ? retainHandling : 0,
    };
    const properties =
      isFive && identifier !== undefined ? { subscriptionIdentifiers: [identifier] } : {};
    this.say({ type: "subscribe", packetId, filters: [{ filter, options }], properties });
  }

  #answered(kind: "subscribe" | "unsubscribe", packetId: number, reasonCode: number): void {
    const request = this.#request;
    if (request?.packetId !== packetId || request.wish.pending !== kind) {
      this.fault(`answer ${packetId} to ${kind}, which nobody asked for`);
      return;
    }
    const { wish } = request;
    this.#request = undefined;
    if (reasonCode >= failureMin) {
      this.refused(kind, reasonCode);
      this.crowd.machine.clock.schedule(50, () => this.#ask());
      return;
    }
    this.note(`has ${kind}d ${wish.filter}`);
    wish.pending = undefined;
    wish.isOn = kind === "subscribe";
    if (kind === "subscribe") {
      this.counts.subscribed++;
      if (reasonCode !== wish.qos) this.fault(`SUBACK ${reasonCode} for QoS ${wish.qos}`);
      this.crowd.oracle.granted(this.book, wish.filter);
    } else {
      this.counts.unsubscribed++;
      this.crowd.oracle.left(this.book, wish.filter);
    }
    this.#ask();
  }

  // -------------------------------------------------------------- messages

  #published(packet: PublishPacket): void {
    const { topic, qos, dup, packetId, retain } = packet;
    const text = packet.payload.toString("latin1");
    const end = text.lastIndexOf(" ");
    const payload = end < 0 ? text : text.slice(0, end);
    const marks = `${dup ? " dup" : ""}${retain ? " retain" : ""}`;
    this.note(`gets ${payload} on ${topic} q${qos} #${packetId}${marks}`);
    const isNew = qos < 2 || this.#held.get(packetId) !== payload;
    if (qos > 0) this.#takeIn(packet, payload);
    this.counts.received[qos]++;
    if (dup) {
      this.counts.repeats++;
      if (!this.#hasLost) this.fault(`${payload} has DUP for no reason`);
    }
    const { connection } = this;
    const receipt = { topic, payload, qos, dup, retain, connection, isNew };
    const message = this.crowd.oracle.received(this.book, receipt);
    if (retain) {
      this.counts.retained++;
      // One that is sent again may have been asked for long ago.
      if (message !== undefined && !dup) this.onRetained(topic, message);
    }
    if (isNew && topic.startsWith("w/")) this.counts.wills++;
  }

  #takeIn({ packetId, qos }: PublishPacket, payload: string): void {
    for (const table of [this.#underWay, this.#held, this.#unanswered]) {
      const other = table.get(packetId);
      if (other !== undefined && other !== payload) {
        this.fault(`id ${packetId} of ${other || "an empty message"} was given to ${payload}`);
      }
    }
    for (const [id, other] of this.#unanswered) {
      if (other === payload) this.#unanswered.delete(id);
    }
    this.#underWay.set(packetId, payload);
    if (this.#underWay.size > (this.options.receiveMaximum ?? 0xffff)) {
      this.fault("more than Receive Maximum");
    }
    if (qos === 1) {
      if (this.options.durable) this.#unanswered.set(packetId, payload);
      this.#owed.push({ type: "puback", packetId });
    } else {
      this.#held.set(packetId, payload);
      this.#owed.push({ type: "pubrec", packetId });
    }
  }
}
