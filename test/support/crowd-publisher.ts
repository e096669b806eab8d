// A publisher as a good client is: keeps its unfinished messages over connections, sends them again
// in their order, and watches the order of the acks.

import type { Packet } from "../../src/mqtt/index.ts";
import { type ClientOptions, type Crowd, CrowdClient } from "./crowd-client.ts";
import { type Message, payloadOf, type Qos } from "./subscription-oracle.ts";

type Unfinished = {
  readonly message: Message;
  readonly packetId: number;
  readonly sizeBytes: number;
  stage: "sent" | "released";
};

const failureMin = 0x80;
/** Fewer than the broker's Receive Maximum. */
const unfinishedMax = 40;
/** Small, so that ids come round often. */
const packetIdMax = 120;

export class CrowdPublisher extends CrowdClient {
  readonly counts = { published: 0, acked: 0, resent: 0, refused: 0 };
  /** By topic: the retained messages in the order of sending. */
  readonly retained = new Map<string, Message[]>();
  #unfinished: Unfinished[] = [];
  #nextId = 1;

  constructor(crowd: Crowd, options: ClientOptions) {
    super(crowd, options);
  }

  get unfinishedCount(): number {
    return this.#unfinished.length;
  }

  publish(topic: string, qos: Qos, retain: boolean, sizeBytes = this.#drawSize()): void {
    if (!this.isReady || this.#unfinished.length >= unfinishedMax) return;
    const isEmpty = retain && this.random.chance(0.2);
    const { connection } = this;
    const message = this.crowd.oracle.send(this.name, { topic, qos, retain, isEmpty, connection });
    if (retain) {
      const before = this.retained.get(topic) ?? [];
      this.retained.set(topic, [...before, message]);
    }
    this.counts.published++;
    const packetId = qos === 0 ? 0 : this.#takeId();
    const item: Unfinished = { message, packetId, sizeBytes, stage: "sent" };
    this.note(`publishes ${message.number} on ${topic} q${qos} #${packetId}`);
    if (qos > 0) this.#unfinished.push(item);
    this.#send(item, false);
  }

  protected ready(sessionPresent: boolean): void {
    // Without its session nobody knows what became of them.
    if (!sessionPresent) this.#unfinished = [];
    for (const item of this.#unfinished) {
      if (item.stage === "released") {
        this.ack("pubrel", item.packetId);
        continue;
      }
      this.counts.resent++;
      if (item.message.qos === 1) item.message.attempt++;
      this.#send(item, true);
    }
  }

  protected packet(packet: Packet): void {
    if (packet.type !== "puback" && packet.type !== "pubrec" && packet.type !== "pubcomp") return;
    const { packetId, reasonCode, type } = packet;
    this.note(`gets ${type} #${packetId}`);
    const item = this.#unfinished.find((candidate) => candidate.packetId === packetId);
    if (item === undefined) {
      this.fault(`${type} for ${packetId}, which is not under way`);
      return;
    }
    if (type === "pubcomp") {
      if (item.stage !== "released") this.fault(`PUBCOMP ${packetId} before its PUBREC`);
      this.#finish(item);
      return;
    }
    if ((type === "puback") !== (item.message.qos === 1)) this.fault(`${type} at the wrong QoS`);
    if (type === "puback") this.#checkOrder(item);
    if (reasonCode >= failureMin) {
      this.counts.refused++;
      this.refused("PUBLISH", reasonCode);
      this.#finish(item);
      return;
    }
    if (item.stage === "sent") {
      this.counts.acked++;
      this.crowd.oracle.acked(item.message, this.crowd.machine.clock.elapsedMs());
    }
    if (type === "puback") this.#finish(item);
    else {
      item.stage = "released";
      this.ack("pubrel", packetId);
    }
  }

  protected lost(): void {
    if (!this.options.durable) this.#unfinished = [];
  }

  #send({ message, packetId, sizeBytes }: Unfinished, dup: boolean): void {
    const { topic, qos, retain } = message;
    const payload = Buffer.from(payloadOf(message, sizeBytes));
    this.say({ type: "publish", topic, payload, qos, dup, retain, packetId, properties: {} });
  }

  /** PUBACKs come in the order of the publishes. */
  #checkOrder(item: Unfinished): void {
    const first = this.#unfinished.find(
      ({ message, stage }) => message.qos === 1 && stage === "sent",
    );
    if (first !== undefined && first !== item) {
      this.fault(`PUBACK of ${item.message.number} before that of ${first.message.number}`);
    }
  }

  #finish(item: Unfinished): void {
    this.#unfinished = this.#unfinished.filter((candidate) => candidate !== item);
  }

  #drawSize(): number {
    if (this.random.chance(0.9)) return 0;
    return this.random.chance(0.95) ? this.random.below(2000) : this.random.below(70_000);
  }

  #takeId(): number {
    const inUse = new Set(this.#unfinished.map((item) => item.packetId));
    let packetId = this.#nextId;
    while (inUse.has(packetId)) packetId = (packetId % packetIdMax) + 1;
    this.#nextId = (packetId % packetIdMax) + 1;
    return packetId;
  }
}
