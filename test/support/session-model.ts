// What a client may rely on, as a model that watches one client over all its connections. Every rule
// it finds broken is an entry of `faults`.
//
// - a message of QoS 2 is new once; a repeat has the same id and DUP;
// - a message seen before comes again only on a new connection, with DUP;
// - DUP on something not seen needs a crash before it;
// - an id under way is given to no other message, nor is one that was never answered;
// - first deliveries keep the order of each publisher;
// - no more than Receive Maximum under way.

import type { Delivery } from "../../src/session/index.ts";
import type { Ttv } from "../../src/store/index.ts";
import type { ConnectOptions, TestClient, World } from "./session-world.ts";

type Owed = { readonly kind: "puback" | "pubrec" | "pubcomp"; readonly packetId: number };

export class ModelClient {
  readonly client: TestClient;
  readonly faults: string[] = [];
  /** Payloads received, with how often they were new to the application. */
  readonly received = new Map<string, number>();
  crashed = false;
  /** Told of every message that is new to the application, and of every PUBACK. */
  onReceived: (payload: string) => void = () => undefined;
  onPuback: (payload: string) => void = () => undefined;
  readonly #world: World;
  #owed: Owed[] = [];
  #receiveMaximum = 65_535;
  /** On this connection. */
  #underWay = new Map<number, string>();
  #seenHere = new Set<string>();
  /** QoS 2 ids received and not released: the client's session state. */
  #held = new Map<number, string>();
  /** QoS 1 ids never answered, until their message comes again. */
  #unanswered = new Map<number, string>();
  readonly #lastNew = new Map<string, number>();

  readonly #isMember: boolean;

  /** `isMember`: of a shared group, where another member may have had a message before. */
  constructor(world: World, clientId: string, isMember = false) {
    this.#isMember = isMember;
    this.#world = world;
    this.client = world.client(clientId);
    this.client.onPublish = (message, delivery) => this.#published(message, delivery);
    this.client.onPubrel = (packetId) => this.#owed.push({ kind: "pubcomp", packetId });
  }

  async connect(options: ConnectOptions): Promise<void> {
    this.#receiveMaximum = options.receiveMaximum ?? 65_535;
    this.#owed = [];
    this.#underWay = new Map();
    this.#seenHere = new Set();
    await this.client.connect(options);
  }

  /** The session has ended: ids begin anew. */
  forgetSession(): void {
    this.#held = new Map();
    this.#unanswered = new Map();
  }

  get owedCount(): number {
    return this.#owed.length;
  }

  /** Answers the packet at `index` of those that wait for an answer. */
  answer(index: number): void {
    if (!this.client.connected) return;
    const owed = this.#owed.splice(index % Math.max(1, this.#owed.length), 1)[0];
    if (owed === undefined) return;
    const { kind, packetId } = owed;
    if (kind === "puback") {
      this.onPuback(this.#underWay.get(packetId) ?? "");
      this.#underWay.delete(packetId);
      this.#unanswered.delete(packetId);
      this.#complain(this.client.puback(packetId), "PUBACK", packetId);
    } else if (kind === "pubrec") {
      this.#complain(this.client.pubrec(packetId), "PUBREC", packetId);
    } else {
      this.#held.delete(packetId);
      this.#underWay.delete(packetId);
      this.#complain(this.client.pubcomp(packetId), "PUBCOMP", packetId);
    }
  }

  answerAll(): void {
    while (this.client.connected && this.#owed.length > 0) this.answer(0);
  }

  /** Received, and never more than once at QoS 2. */
  check(payload: string, once: boolean): void {
    const count = this.received.get(payload) ?? 0;
    if (count === 0) this.#fault(`${payload} was lost`);
    if (once && count > 1) this.#fault(`${payload} came ${count} times at QoS 2`);
  }

  #published(message: Ttv, delivery: Delivery): void {
    const { qos, dup, packetId } = delivery;
    const payload = message.frame.toString();
    if (qos === 0) {
      this.#isNew(payload, message.publisher);
      return;
    }
    const seen = this.received.has(payload);
    if (seen && !dup) this.#fault(`${payload} came again without DUP`);
    if (!seen && dup && !this.crashed && !this.#isMember)
      this.#fault(`${payload} has DUP for no reason`);
    if (this.#seenHere.has(payload)) this.#fault(`${payload} came twice on one connection`);
    this.#seenHere.add(payload);
    this.#checkId(packetId, payload);
    this.#underWay.set(packetId, payload);
    if (this.#underWay.size > this.#receiveMaximum) this.#fault(`more than Receive Maximum`);
    for (const [id, other] of this.#unanswered) if (other === payload) this.#unanswered.delete(id);
    if (qos === 1) {
      this.#unanswered.set(packetId, payload);
      this.#owed.push({ kind: "puback", packetId });
      this.#isNew(payload, message.publisher);
      return;
    }
    this.#owed.push({ kind: "pubrec", packetId });
    if (this.#held.get(packetId) === payload) return;
    this.#held.set(packetId, payload);
    this.#isNew(payload, message.publisher);
  }

  #checkId(packetId: number, payload: string): void {
    for (const table of [this.#underWay, this.#held, this.#unanswered]) {
      const other = table.get(packetId);
      if (other !== undefined && other !== payload) {
        this.#fault(`id ${packetId} of ${other} was given to ${payload}`);
      }
    }
  }

  #isNew(payload: string, publisher: string): void {
    const count = this.received.get(payload) ?? 0;
    this.received.set(payload, count + 1);
    this.onReceived(payload);
    if (count > 0 || this.#isMember) return;
    const number = Number(payload.split("-")[1]);
    const last = this.#lastNew.get(publisher) ?? -1;
    if (number < last) this.#fault(`${payload} came first after ${publisher}-${last}`);
    this.#lastNew.set(publisher, Math.max(last, number));
  }

  #complain(reasonCode: number | undefined, packet: string, packetId: number): void {
    if (reasonCode !== undefined) this.#fault(`${packet} ${packetId} was refused: ${reasonCode}`);
  }

  #fault(text: string): void {
    this.faults.push(`${this.client.clientId} at ${this.#world.clock.elapsedMs()} ms: ${text}`);
  }
}
